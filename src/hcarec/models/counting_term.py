"""The counting term of networks: what followed the last events in the log, counted, joins the scores after training.

score_i += scale * log(1 + m_i / floor), m_i the sum of Markov's table at the last events, by Markov's default weights. Those
are no settings: a state keeps as many items as there are weights, and two numbers are enough to choose on validation data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from hcarec.errors import ModelError
from hcarec.models.markov import HISTORY_WEIGHTS, count_followers
from hcarec.ops.parameters import Theta
from hcarec.ops.rank.corrections import Corrections
from hcarec.settings import LARGEST
from hcarec.tables import Table, check, keep_greatest
from hcarec.topk import Queries, Ragged

LAST = len(HISTORY_WEIGHTS)
"""Last events whose rows are read."""
MOST_ENTRIES = 200
"""Entries that a row keeps: bounds the scores of a user that are corrected, and the size of the folder."""
SCALE, FLOOR = 1.0, 0.1
"""What a model has that no validation data has chosen for."""
LEAST = 0.0, 1e-6
"""The least scale and floor that a folder may hold; LARGEST is the most."""
NAMES = ("count_indptr", "count_indices", "count_values", "count_scale", "count_floor")
"""The tensors in a model folder."""


def count_table(items: np.ndarray, offsets: np.ndarray, n_items: int) -> Table:
    """Count Markov's table of a log by user, and keep the greatest entries of each row."""
    return keep_greatest(count_followers(items, offsets, n_items), MOST_ENTRIES)


def sum_counts(table: Table, items: np.ndarray, offsets: np.ndarray, threads: int | None = None) -> Corrections:
    """Return m_i of each history, given as packed items, for the items of the rows that are read."""
    from hcarec.ops.tables import sum_rows

    return Corrections(*sum_rows(table, np.asarray(items, np.int32), np.asarray(offsets, np.int64), HISTORY_WEIGHTS, threads))


@dataclass(frozen=True)
class CountingTerm:
    """A table, and how its sums become part of a score; a scale of 0 adds nothing."""

    table: Table
    scale: float
    floor: float

    @property
    def tensors(self) -> Theta:
        """Return what a model folder holds."""
        numbers = (np.array([number], np.float32) for number in (self.scale, self.floor))
        return dict(zip(NAMES, (*self.table, *numbers), strict=True))

    @classmethod
    def of(cls, tensors: Theta, n_items: int) -> Self:
        """Make a term of what a model folder holds; refuse what no training gives."""
        if missing := [name for name in NAMES if name not in tensors]:
            raise ModelError(f"{missing[0]} is missing")
        indptr, indices, values, *numbers = (tensors[name] for name in NAMES)
        table = Table(indptr, indices, values)
        if (wrong := check(table, n_items)) is not None:
            raise ModelError(f"the counting term's {wrong}")
        if (values < 0).any():
            raise ModelError("the counting term's values are not all 0 or more")
        for name, value, least in zip(NAMES[3:], numbers, LEAST, strict=True):
            if value.dtype != np.float32 or value.shape != (1,) or not least <= value[0] <= LARGEST:
                raise ModelError(f"{name} is {value!r}, expected one float32 number from {least:g} to {LARGEST:g}")
        return cls(table, *(float(value[0]) for value in numbers))

    def add(self, queries: Queries, history: Ragged, threads: int | None = None) -> Queries:
        """Return the queries of histories, given as packed items, with the term among their corrections."""
        from hcarec.ops.tables import add_counts

        if self.scale == 0:
            return queries
        sums = sum_counts(self.table, *history, threads=threads)
        return Queries(queries.vectors, add_counts(queries.corrections, sums, self.scale, self.floor))
