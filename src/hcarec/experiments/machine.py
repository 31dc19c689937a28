"""Describe the machine and the versions that a result was made with."""

from __future__ import annotations

import contextlib
import platform
import subprocess
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from hcarec import hardware


@cache
def describe() -> dict[str, Any]:
    """Return processor, cores, memory, versions and, inside a checkout, the commit."""
    from hcarec import __version__

    return {
        "processor": hardware.processor(),
        "cores": hardware.cores(),
        "memory_gib": None if (total := hardware.memory().total) is None else round(total / hardware.GIB, 1),
        "system": platform.system(),
        "python": platform.python_version(),
        "hcarec": __version__,
        "versions": _versions("numpy", "numba", "torch"),
        "commit": _commit(),
    }


def _versions(*names: str) -> dict[str, str]:
    """Return the versions of those packages that are installed."""
    found = {}
    for name in names:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def _commit() -> str | None:
    """Return the commit of the checkout that this file lies in, None where it is installed."""
    here = Path(__file__).resolve().parent
    if not (here.parents[2] / ".git").exists():
        return None
    try:
        done = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=here, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
