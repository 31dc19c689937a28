"""One run at a time in a folder."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from hcarec.artefact import CHECKPOINT
from hcarec.errors import ConfigError, ModelError


@contextlib.contextmanager
def one_run(out: Path) -> Iterator[None]:
    """Hold the folder of a model while a run trains into it; refuse a second run.

    The system lets go of the lock when the process ends, however it ends. Where there are no such
    locks (Windows) nothing is held.
    """
    try:
        import fcntl
    except ImportError:
        yield
        return
    folder = out / CHECKPOINT
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise ModelError(f"cannot write '{out}': {error.strerror}; choose another -o") from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"another run is training into '{out}': wait for it to end, or choose another -o"
            ) from None
        yield
    finally:
        os.close(handle)
        with contextlib.suppress(OSError):  # nothing was written: leave no empty folders behind
            folder.rmdir()
            out.rmdir()
