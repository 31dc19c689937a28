"""Compile kernels once and keep them: one place for how."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import njit, types

_FILES = sorted(Path(__file__).parent.rglob("*.py"))
SOURCES = int.from_bytes(hashlib.sha256(b"".join(path.read_bytes() for path in _FILES)).digest()[:7], "little")
"""A fingerprint of this package's sources, sub-packages included. Numba's cache looks only at the file that holds a kernel, not at those that it
calls; a kernel made by a function that takes this number is compiled anew whenever any of them changes."""


def compiled(make: Callable[[int], Any], signature: Any) -> Any:
    """Compile the kernel that `make(SOURCES)` returns for one signature, or load it compiled."""
    return njit(signature, cache=True, nogil=True, error_model="numpy")(make(SOURCES))


def array(dtype: str, dimensions: int = 1, given: bool = False) -> Any:
    """Return Numba's type of a contiguous array; one that is only given may be read-only, a file mapped to memory."""
    return types.Array(getattr(types, dtype), dimensions, "C", readonly=given)
