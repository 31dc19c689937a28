"""Start Python processes that import nothing from the current folder: a file there may be named like one of our imports."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

_VARIABLE = "PYTHONSAFEPATH"


def python_module(name: str, *arguments: str) -> list[str]:
    """Return the command that runs a module in a new process."""
    return [sys.executable, "-P", "-m", name, *arguments]


@contextlib.contextmanager
def safe_import_path() -> Iterator[None]:
    """Let the processes that `multiprocessing` starts inside the block leave the current folder out of their import path."""
    before = os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_VARIABLE]
        else:
            os.environ[_VARIABLE] = before
