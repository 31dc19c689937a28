"""Describe the machine and the versions that a benchmark ran on."""

from __future__ import annotations

from importlib import metadata
from typing import Any

from hcarec.experiments import machine


def describe() -> dict[str, Any]:
    """Return processor, cores, memory, versions and commit, for the JSON of a benchmark."""
    found = machine.describe()
    return found | {"versions": found["versions"] | {name: _version(name) for name in ("polars", "pandas")}}


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
