"""A small file beside an SQLite store that says how much has been acknowledged."""

from __future__ import annotations

import contextlib
import os
import struct
from pathlib import Path
from zlib import crc32

from hcarec.serve.stores.errors import StoreDamaged

_FIELDS = struct.Struct("<16sq")
_CHECKSUM = struct.Struct("<I")


class Mark:
    """The store's name and its last acknowledged arrival number, written after each commit without waiting for the disk.

    It may lag behind the disk but never runs ahead of it. So a store that ends before its mark has lost its WAL (SQLite
    takes a damaged WAL for one that ends early, and a missing one for none), or is an older copy.
    """

    def __init__(self, store: Path) -> None:
        self._store = store
        self._path = store.with_name(store.name + "-mark")
        self._handle = -1

    def compare(self, name: bytes | None, clock: int) -> None:
        """Fail if more was acknowledged by this store (None: by the one that should be here) than there is."""
        marked = self._read()
        if marked is None or marked[1] <= clock or (name is not None and marked[0] != name):
            return
        raise StoreDamaged(
            f"the store {self._store} has lost acknowledged events (it ends at number {clock}, acknowledged were {marked[1]}): "
            f"put its -wal file or the newer copy back, or remove {self._path} to accept the loss"
        )

    def open(self) -> None:
        """Open the file for writing; where that fails, only the warning about a lost WAL is missing."""
        with contextlib.suppress(OSError):
            self._handle = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o600)

    def write(self, name: bytes, clock: int) -> None:
        """Note what has been acknowledged."""
        if self._handle >= 0:
            fields = _FIELDS.pack(name, clock)
            with contextlib.suppress(OSError):
                os.pwrite(self._handle, fields + _CHECKSUM.pack(crc32(fields)), 0)

    def close(self) -> None:
        """Close the file."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def _read(self) -> tuple[bytes, int] | None:
        try:
            content = self._path.read_bytes()
        except OSError:
            return None
        fields, check = content[: _FIELDS.size], content[_FIELDS.size :]
        if len(content) != _FIELDS.size + _CHECKSUM.size or crc32(fields) != _CHECKSUM.unpack(check)[0]:
            return None  # half written or damaged: it says nothing
        name, clock = _FIELDS.unpack(fields)
        return name, clock
