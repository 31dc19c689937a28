"""Write files and folders so that a reader sees the old or the new one, never a half."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import shutil
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
SETTLED_S = 60.0
"""A half-written file that nobody has written to for so long has no writer."""


@contextlib.contextmanager
def folder(target: Path) -> Iterator[Path]:
    """Yield an empty folder beside `target` that takes its place when the block ends well, and vanishes when it does not.

    The caller has made sure that an existing `target` may be replaced.
    """
    target = Path(os.path.realpath(target))  # what a link points at is replaced, the link stays
    target.parent.mkdir(parents=True, exist_ok=True)
    _sweep(target)
    work = target.with_name(f".{target.name}.partial-{os.getpid()}")
    work.mkdir()
    try:
        yield work
        _sync_tree(work)
        _put_in_place(work, target)
    finally:
        shutil.rmtree(work, ignore_errors=True)


@contextlib.contextmanager
def file(target: Path) -> Iterator[Path]:
    """Yield a path beside `target` that takes its place when the block ends well, and vanishes when it does not."""
    target = Path(os.path.abspath(target))
    target.parent.mkdir(parents=True, exist_ok=True)
    work = target.with_name(f".{target.name}.partial-{os.getpid()}")
    try:
        yield work
        with open(work, "rb") as written:
            os.fsync(written.fileno())
        os.replace(work, target)
        _sync_folder(target.parent)
    finally:
        with contextlib.suppress(OSError):  # it is in place, or its folder cannot be entered
            work.unlink(missing_ok=True)


def write_bytes(target: Path, content: bytes) -> None:
    """Write a file that appears whole or not at all, even if the machine stops in between."""
    with file(target) as work:
        work.write_bytes(content)


def read_bytes(path: Path) -> bytes:
    """Read a plain file; a pipe or a device, which might never end, is refused by OSError."""
    # To open a pipe waits for its writer otherwise; not every system has both.
    flags = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    handle = os.open(path, os.O_RDONLY | flags)
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "it is not a plain file", str(path))
        return file.read()


def _put_in_place(work: Path, target: Path) -> None:
    if not os.path.lexists(target):
        os.rename(work, target)
    elif _exchange(work, target):
        pass  # `work` is now the old content; the caller's `finally` removes it
    else:
        aside = work.with_name(work.name + "-old")
        os.rename(target, aside)
        os.rename(work, target)
        shutil.rmtree(aside, ignore_errors=True)
    _sync_folder(target.parent)


def _exchange(a: Path, b: Path) -> bool:
    """Swap two paths in one system call, where the system has it (Linux); say whether it was done."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        return False
    if renameat2(_AT_FDCWD, os.fsencode(a), _AT_FDCWD, os.fsencode(b), _RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
        return False
    raise OSError(code, os.strerror(code), str(b))


def _sync_tree(root: Path) -> None:
    for path in root.rglob("*"):
        if path.is_file():
            with open(path, "rb") as file:
                os.fsync(file.fileno())
        elif path.is_dir():
            _sync_folder(path)
    _sync_folder(root)


def _sync_folder(path: Path) -> None:
    with contextlib.suppress(OSError):  # some file systems cannot sync a folder
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _sweep(target: Path) -> None:
    """Remove what earlier, killed writers of `target` left behind."""
    for path in target.parent.glob(f".{target.name}.partial-*"):
        owner = path.name.removesuffix("-old").rpartition("-")[2]
        if owner.isdigit() and not _alive(int(owner)):
            shutil.rmtree(path, ignore_errors=True)


def sweep(folder: Path) -> None:
    """Remove what killed writers of any file have left half-written in a folder; what was touched just now may be another machine's."""
    for path in folder.glob(".*.partial-*"):
        owner = path.name.rpartition(".partial-")[2].partition("-")[0]  # SQLite keeps a journal beside its file
        with contextlib.suppress(OSError):
            if owner.isdigit() and not _alive(int(owner)) and time.time() - path.stat().st_mtime > SETTLED_S:
                path.unlink()


def _alive(pid: int) -> bool:
    if pid == os.getpid():
        return False  # no two writers of one target in one process: what is there is from a previous process
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
