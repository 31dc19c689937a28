"""What models that count have in common: a sparse table of items, read at the last items of a history."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from hcarec.data.split import Part
from hcarec.errors import ModelError
from hcarec.models.base import Model
from hcarec.ops.rank.corrections import Corrections
from hcarec.tables import Table, check
from hcarec.topk import Queries, Ragged

TIE_BREAKER = 1e-6
"""What the most popular item gains: popularity decides between items of which the table says the same."""


def pack_items(last: np.ndarray) -> Ragged:
    """Return the items of states (n, kept), -1 before the first one, as packed items."""
    there = last >= 0
    return last[there], np.concatenate([np.zeros(1, np.int64), np.cumsum(there.sum(axis=1))])


class CountingModel(Model):
    """Score items by the weighted sum of the table's rows of the last events, and by popularity where that is equal.

    The table is the parameters `indptr`, `indices` and `values`; `X` (n_items, 1) is the popularity, scaled to stay below
    what the table says. A user's state is its last events, oldest first, -1 before the first one.
    """

    integers = ("indptr", "indices")
    seeded = False
    compares_items = False

    @property
    @abstractmethod
    def weights(self) -> Sequence[float]:
        """Return the weight of the last event, of the one before it, and so on; older ones have none."""

    @abstractmethod
    def count(self, items: np.ndarray, offsets: np.ndarray, threads: int | None) -> Table:
        """Count the table of a training part."""

    def shapes(self, n_items: int, n_users: int) -> dict[str, tuple[int, ...]]:
        """Return the shapes of popularity and table, whose number of entries the data decides."""
        return {"X": (n_items, 1), "indptr": (n_items + 1,), "indices": (-1,), "values": (-1,)}

    def initialize(self, items: np.ndarray, offsets: np.ndarray, seed: int, threads: int | None = None) -> None:
        """Count; nothing is drawn."""
        table = self.count(np.ascontiguousarray(items, np.int32), np.ascontiguousarray(offsets, np.int64), threads)
        share = self.item_events / max(1, int(self.item_events.max(initial=0)))
        self.theta = {"X": (TIE_BREAKER * share).astype(np.float32)[:, None], **table._asdict()}

    @property
    def table(self) -> Table:
        """The table, as the kernels take it."""
        return Table(self.theta["indptr"], self.theta["indices"], self.theta["values"])

    @property
    def smaller(self) -> str:
        return ""

    def corrected_items(self, part: Part, n_items: int) -> float:
        """Take every event as an item that is read: the more often it occurs, the longer its row."""
        rows = self.row_sizes(part, n_items)
        return len(self.weights) * float(rows[part.items].mean()) if len(part.items) else 0.0

    @abstractmethod
    def row_sizes(self, part: Part, n_items: int) -> np.ndarray:
        """Estimate how many entries each row of the table has at most, (n_items,)."""

    def check_parameters(self) -> None:
        """Refuse a table that points outside the catalogue."""
        super().check_parameters()
        if (wrong := check(self.table, len(self.item_ids))) is not None:
            raise ModelError(wrong)

    def encode(self, items: np.ndarray, offsets: np.ndarray, users: np.ndarray | None = None, threads: int | None = None) -> Queries:
        """Read the table at the last events of each history."""
        from hcarec.ops.tables import sum_rows

        summed = sum_rows(self.table, np.asarray(items, np.int32), np.asarray(offsets, np.int64), self.weights, threads)
        return Queries(np.ones((len(offsets) - 1, 1), np.float32), Corrections(*summed))

    def similar(self, item: int, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the items of the table's row, the greatest values first."""
        row = slice(self.theta["indptr"][item], self.theta["indptr"][item + 1])
        items, values = self.theta["indices"][row], self.theta["values"][row]
        items, values = items[items != item], values[items != item]
        best = np.lexsort((self.tie_rank[items], -values))[:k]
        return items[best], values[best]

    @property
    def explained_events(self) -> int:
        """Return the events that the table is read at."""
        return len(self.weights)

    # -- one event at a time -------------------------------------------------------------------------------------

    @property
    def state_dtype(self) -> np.dtype[Any]:
        """Return the last items."""
        return np.dtype([("items", "<i4", (len(self.weights),))])

    def start(self, n: int = 1) -> np.ndarray:
        """Return states without an item."""
        states = np.empty(n, self.state_dtype)
        states["items"] = -1
        return states

    def advance(self, states: np.ndarray, items: np.ndarray, offsets: np.ndarray) -> None:
        """Put the events behind those that are there, and keep the last ones."""
        width = len(self.weights)
        lengths, kept = np.diff(offsets), states["items"]
        place = np.arange(width) + lengths[:, None]  # in what was kept, followed by the user's new events
        new = np.asarray(items)[np.clip(offsets[:-1, None] + place - width, 0, len(items) - 1)] if len(items) else kept
        old = np.take_along_axis(kept, np.minimum(place, width - 1), axis=1)
        states["items"] = np.where(place < width, old, new)

    def queries(self, states: np.ndarray) -> Queries:
        """Read the table at the items of the states."""
        return self.encode(*pack_items(states["items"]))

    def usable(self, states: np.ndarray) -> np.ndarray:
        """Say which states hold known items, none before the first."""
        items = states["items"]
        known = (items >= -1) & (items < len(self.item_ids))
        in_order = (items[:, 1:] >= 0) | (items[:, :-1] < 0)  # no gap behind an item
        return np.asarray(known.all(axis=1) & in_order.all(axis=1))
