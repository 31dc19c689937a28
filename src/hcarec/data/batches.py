"""`Batch`: a run of raw rows, whatever format they came from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from hcarec.data.scan import OK


@dataclass
class Texts:
    """A column of texts as places in a buffer: `text` uint8, `starts` and `ends` (n,) int32.

    `integer` says whether the source's column is one of integers; None where the source has no types.
    """

    text: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    integer: bool | None = None

    @classmethod
    def of(cls, values: Sequence[str | None], integer: bool | None = None) -> Texts:
        """Join values into a buffer; None becomes an empty text."""
        encoded = [b"" if value is None else value.encode("utf-8", errors="surrogatepass") for value in values]
        ends = np.cumsum([len(value) for value in encoded], dtype=np.int64).astype(np.int32)
        starts = np.concatenate([np.zeros(1, np.int32), ends[:-1]]) if len(ends) else ends
        return cls(np.frombuffer(b"".join(encoded), np.uint8), starts, ends, integer)


@dataclass
class Batch:
    """A run of rows of one file.

    `first_row` is the number of its first row (from 1, the header not counted); `status` (n,) uint8 tells what is
    wrong with a row; `time` is a column of texts, or ready times in microseconds or plain numbers, or None;
    `content(n)` gives the raw text of a row for the quarantine.
    """

    user: Texts
    item: Texts
    time: Texts | np.ndarray | None
    event: Texts | None
    status: np.ndarray
    first_row: int
    content: Callable[[int], str]
    time_unit: str | None = None
    blank_lines: int = 0

    def __len__(self) -> int:
        return len(self.status)


def fresh_status(n: int) -> np.ndarray:
    """Return a status column that finds nothing wrong yet."""
    return np.full(n, OK, np.uint8)
