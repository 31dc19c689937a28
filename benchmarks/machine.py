"""Describe the machine and the versions that a benchmark ran on."""

from __future__ import annotations

import subprocess
from importlib import metadata
from typing import Any

from hcarec.experiments import machine


def describe() -> dict[str, Any]:
    """Return processor, cores, memory, versions and commit, for the JSON of a benchmark."""
    found = machine.describe()
    return found | {"versions": found["versions"] | {name: _version(name) for name in ("polars", "pandas")}}


def describe_gpu() -> dict[str, Any] | None:
    """Return card, memory, driver and versions of what a GPU computes with; None where torch finds no GPU."""
    try:
        import torch
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    card = torch.cuda.get_device_properties("cuda")
    asked = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    driver = subprocess.run(asked, capture_output=True, text=True).stdout.split()
    return {
        "card": card.name,
        "memory_gib": round(card.total_memory / (1 << 30), 1),
        "driver": driver[0] if driver else None,
        "cuda": torch.version.cuda,
        "torch": torch.__version__,
        "triton": _version("triton"),
    }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
