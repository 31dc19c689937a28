"""One run at a time in a folder."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from hcarec.artefact import CHECKPOINT
from hcarec.errors import ConfigError, ModelError


@contextlib.contextmanager
def one_run(out: Path) -> Iterator[None]:
    """Hold the folder of a model while a run trains into it; refuse a second run.

    The system lets go of the lock when the process ends, however it ends. Where there are no such
    locks (Windows) nothing is held.
    """
    if find_spec("fcntl") is None:
        yield
        return
    folder = out / CHECKPOINT
    handle = _locked(out, folder)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # nothing was written: leave no empty folders behind
            folder.rmdir()
            out.rmdir()
        os.close(handle)


def _locked(out: Path, folder: Path) -> int:
    """Return the open folder, locked; one that another run has just removed is made anew."""
    import fcntl

    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            handle = os.open(folder, os.O_RDONLY)
        except OSError as error:
            raise ModelError(f"cannot write '{out}': {error.strerror}; choose another -o") from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_there(folder, handle):
                return handle
        except BlockingIOError:
            os.close(handle)
            raise ConfigError(
                f"another run is training into '{out}': wait for it to end, or choose another -o"
            ) from None
        except OSError as error:
            os.close(handle)
            raise ModelError(f"cannot lock '{out}': {error.strerror}; choose another -o") from None
        os.close(handle)


def _is_there(folder: Path, handle: int) -> bool:
    """Say whether a path still leads to an open folder."""
    try:
        return os.path.samestat(os.stat(folder), os.fstat(handle))
    except FileNotFoundError:
        return False
