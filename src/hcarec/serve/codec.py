"""The state of a user as bytes: a row of constant size, whatever the history.

A row is the network's `State`, the overall interest after the last event (it needs one hidden state more than the state
keeps, so it cannot be made from it), and the number of events that went in. Rows of many users become arrays and back at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from hcarec.ops import cpu
from hcarec.ops.parameters import State


class Rows(NamedTuple):
    """States of n users, their overall interests (n, d) and how many events each has taken in (n,)."""

    state: State
    interest: np.ndarray
    counts: np.ndarray


class Codec:
    """Rows of a network over `n_items` with vectors of d numbers of a type, and windows w_x and w_h."""

    def __init__(self, n_items: int, d: int, w_x: int, w_h: int, dtype: Any, stored_as: Any = None) -> None:
        self._n_items, self._sizes, self._dtype = n_items, (d, w_x, w_h), np.dtype(dtype)
        number = np.dtype(stored_as or dtype).newbyteorder("<")
        fields = [("count", "<i8"), ("items", "<i4", (w_x - 1,)), ("h", number, (d,)), ("hidden", number, (w_h - 1, d)), ("interest", number, (d,))]
        self._row = np.dtype(fields)

    @property
    def size(self) -> int:
        """The length of a row in bytes."""
        return self._row.itemsize

    def encode(self, rows: Rows) -> list[bytes]:
        """Return the rows of all users."""
        table = np.empty(len(rows.counts), self._row)
        table["count"], table["interest"] = rows.counts, rows.interest
        table["h"], table["items"], table["hidden"] = rows.state
        blob, size = table.tobytes(), self.size
        return [blob[at : at + size] for at in range(0, len(blob), size)]

    def decode(self, rows: Sequence[bytes | None]) -> Rows:
        """Return what rows of the right kind hold; None stands for a user before the first event."""
        n = len(rows)
        there = [place for place, row in enumerate(rows) if row is not None]
        table = np.frombuffer(b"".join(row for row in rows if row is not None), self._row)
        state = cpu.start(n, *self._sizes, self._dtype)
        interest, counts = np.zeros((n, self._sizes[0]), self._dtype), np.zeros(n, np.int64)
        for array, name in ((state.h, "h"), (state.items, "items"), (state.hidden, "hidden"), (interest, "interest"), (counts, "count")):
            array[there] = table[name]
        return Rows(state, interest, counts)

    def checked(self, row: bytes | None) -> bytes | None:
        """Return a row that was read from a store if this model can go on from it: the kernels do not check what they are given."""
        if row is None or len(row) != self.size:
            return None
        found = np.frombuffer(row, self._row)
        numbers = (found["h"], found["hidden"], found["interest"])
        fine = found["count"][0] >= 0 and all(np.isfinite(part).all() for part in numbers)
        return row if fine and ((found["items"] >= -1) & (found["items"] < self._n_items)).all() else None
