"""The state of a user as bytes: a row of constant size, whatever the history.

A row is the number of events that went in and the model's own state. Rows of many users become arrays and back at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from hcarec.models import Model


class Rows(NamedTuple):
    """States of n users, (n,) of the model's `state_dtype`, and how many events each has taken in, (n,)."""

    states: np.ndarray
    counts: np.ndarray


class Codec:
    """Rows of a model with states; `half` stores numbers in 16 bits, which loses digits."""

    def __init__(self, model: Model, half: bool = False) -> None:
        assert model.state_dtype is not None, "the model keeps no state per user"
        self._model = model
        self._row = np.dtype([("count", "<i8"), ("state", _halved(model.state_dtype) if half else model.state_dtype)])

    @property
    def size(self) -> int:
        """The length of a row in bytes."""
        return self._row.itemsize

    def encode(self, rows: Rows) -> list[bytes]:
        """Return the rows of all users."""
        table = np.empty(len(rows.counts), self._row)
        table["count"] = rows.counts
        for name in rows.states.dtype.names or ():
            table["state"][name] = rows.states[name]
        blob, size = table.tobytes(), self.size
        return [blob[at : at + size] for at in range(0, len(blob), size)]

    def decode(self, rows: Sequence[bytes | None]) -> Rows:
        """Return what rows of the right kind hold; None stands for a user before the first event."""
        there = [place for place, row in enumerate(rows) if row is not None]
        table = np.frombuffer(b"".join(row for row in rows if row is not None), self._row)
        states, counts = self._model.start(len(rows)), np.zeros(len(rows), np.int64)
        counts[there] = table["count"]
        for name in states.dtype.names or ():
            states[name][there] = table["state"][name]
        return Rows(states, counts)

    def checked(self, row: bytes | None) -> bytes | None:
        """Return a row that was read from a store if the model can go on from it: the kernels do not check what they are given."""
        if row is None or len(row) != self.size:
            return None
        found = self.decode([row])
        return row if found.counts[0] >= 0 and self._model.usable(found.states)[0] else None


def _halved(state: np.dtype[Any]) -> np.dtype[Any]:
    """Return the same fields, numbers in 16 bits."""
    fields = [(name, state[name].base, state[name].shape) for name in state.names or ()]
    return np.dtype([(name, "<f2" if kind.kind == "f" else kind, shape) for name, kind, shape in fields])
