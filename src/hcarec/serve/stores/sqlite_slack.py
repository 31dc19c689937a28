"""Overwrite the unused bytes of an SQLite file, some pages at a time, so that no copy of a deleted row stays in them.

`secure_delete` overwrites a row where it is deleted. But when SQLite moves rows to another page, copies of them stay in the gap between the
cell pointers and the cells of the page that they leave. VACUUM removes those by writing the whole file anew, and everything waits for it.
Here the gaps alone are overwritten, in the file, below SQLite. That is safe because

- a gap belongs to no row: zeros may be written there in part, or twice, and a crash leaves nothing to repair;
- the WAL is brought into the file first, so that no newer image of a page with its old gap is left in it;
- the page cache is dropped afterwards, since a page that is written from it would bring its old gap back;
- the file has one connection (`locking_mode = EXCLUSIVE`), which does nothing else meanwhile.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

STEP_PAGES = 512
"""Pages of one step: 2 MB, some milliseconds."""
INTERIOR, LEAF = (2, 5), (10, 13)
"""The first byte of a B-tree page. A page of any other kind begins with the number of a page, or is empty."""
MOST_PAGES = 1 << 25
"""In a larger file the number of a page could begin with one of those bytes."""
_HEADER = struct.Struct(">BHHH")
FILE_HEADER = 100
"""Bytes of the first page before its B-tree header."""


class Gap(NamedTuple):
    """Where the unused bytes of a page begin and end."""

    begin: int
    end: int


def gap(page: bytes, first: bool) -> Gap | None:
    """Return the gap of a page, None for one that is no part of a B-tree; fail with `ValueError` where the page contradicts itself."""
    at = FILE_HEADER if first else 0
    kind, _, n_cells, begin_of_cells = _HEADER.unpack_from(page, at)
    if kind not in INTERIOR + LEAF:
        return None
    begin = at + (12 if kind in INTERIOR else 8)
    cells = struct.unpack_from(f">{n_cells}H", page, begin)
    end = begin_of_cells or 1 << 16
    begin += 2 * n_cells
    if not begin <= end <= len(page) or min(cells, default=end) < end:
        raise ValueError(f"cells from {end} on, pointers up to {begin}")
    return Gap(begin, end)


class Slack:
    """Goes through the pages of a file, round and round; `restart` asks for one more round from where it stands."""

    def __init__(self, path: Path, checkpoint: Callable[[], None], drop_cache: Callable[[], None]) -> None:
        self._path, self._checkpoint, self._drop_cache = path, checkpoint, drop_cache
        self._handle = -1
        self._page = 0
        self._left: int | None = None

    def restart(self) -> None:
        """Ask for a whole round: something was deleted."""
        self._left = None

    def step(self, n_pages: int, page_size: int) -> bool:
        """Overwrite the gaps of the next pages of a file of so many; say whether there are more to come.

        Raises `ValueError` for a page that contradicts itself, and `OSError`.
        """
        if self._left is None:
            self._left = n_pages
        self._page = self._page if self._page < n_pages else 0
        n = min(STEP_PAGES, self._left, n_pages - self._page)
        self._checkpoint()
        if n and self._overwrite(n, page_size):
            self._drop_cache()
        self._page += n
        self._left -= n
        return self._left > 0

    def _overwrite(self, n: int, page_size: int) -> bool:
        """Overwrite the gaps of some pages and wait for the disk; say whether anything was written."""
        if self._handle < 0:  # open until the store is closed: closing any handle of a file drops all locks of the process on it
            self._handle = os.open(self._path, os.O_RDWR)
        content = os.pread(self._handle, n * page_size, self._page * page_size)
        written = False
        for offset in range(0, len(content), page_size):
            page = content[offset : offset + page_size]
            unused = gap(page, self._page + offset == 0)
            if unused is None or page.count(0, *unused) == unused.end - unused.begin:
                continue
            os.pwrite(self._handle, bytes(unused.end - unused.begin), self._page * page_size + offset + unused.begin)
            written = True
        if written:
            os.fsync(self._handle)
        return written

    def close(self) -> None:
        """Close the file; to be called once SQLite has closed it."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
