"""Find a place for compiled code: without a writable one Numba refuses to load the kernels at all."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from hcarec.errors import ConfigError


def ensure_cache() -> str | None:
    """Give Numba a folder of its own where it would find none that it can write to; say so, or return None. Call it before Numba is imported."""
    if os.environ.get("NUMBA_CACHE_DIR") or any(map(writable, usual())):
        return None
    try:
        folder = tempfile.mkdtemp(prefix="hcarec-compiled-")  # for this user alone: what lies there is run
    except OSError:
        raise ConfigError("there is no folder that compiled code can be written to: set NUMBA_CACHE_DIR to one") from None
    os.environ["NUMBA_CACHE_DIR"] = folder
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return "no folder for compiled code can be written to, so it is compiled anew at each start: set NUMBA_CACHE_DIR to a folder of your own to keep it"


def usual() -> Sequence[Path]:
    """Return where Numba would put compiled code: beside the sources, or in the user's cache."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(__file__).parent / "ops" / "__pycache__", Path(home) / "numba"


def writable(folder: Path) -> bool:
    """Say whether a file can be made in a folder, which is made if it is not there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False
