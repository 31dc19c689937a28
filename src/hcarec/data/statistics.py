"""What a log holds in figures: the paper's data set table, and the distributions that decide success."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hcarec.sequences import Sequences

QUANTILES = (0, 1, 10, 25, 50, 75, 90, 99, 100)
"""Percentiles that are reported."""


@dataclass(frozen=True)
class Distribution:
    """How often each whole number occurs: `values` ascending and their `counts`, both (n,) int64."""

    values: np.ndarray
    counts: np.ndarray

    @classmethod
    def of(cls, numbers: np.ndarray) -> Distribution:
        """Count whole numbers."""
        values, counts = np.unique(numbers, return_counts=True)
        return cls(values.astype(np.int64), counts.astype(np.int64))

    @property
    def n(self) -> int:
        return int(self.counts.sum())

    @property
    def total(self) -> int:
        return int((self.values * self.counts).sum())

    @property
    def mean(self) -> float:
        return self.total / self.n if self.n else 0.0

    def quantile(self, percent: float) -> int:
        """Return the least value that at least this percentage of the numbers do not exceed."""
        if not self.n:
            return 0
        upto = np.cumsum(self.counts)
        return int(self.values[min(int(np.searchsorted(upto, percent / 100 * self.n)), len(upto) - 1)])

    def below(self, value: int) -> tuple[int, int]:
        """Return how many numbers are below a value, and their sum."""
        small = self.values < value
        return int(self.counts[small].sum()), int((self.values * self.counts)[small].sum())

    def top(self, share: float) -> float:
        """Return what share of the total the largest numbers hold, a `share` of them (rounded up)."""
        if not self.total:
            return 0.0
        left = int(np.ceil(share * self.n))
        upto = np.minimum(np.cumsum(self.counts[::-1]), left)
        taken = np.diff(upto, prepend=0)
        return float((taken * self.values[::-1]).sum() / self.total)

    def gini(self) -> float:
        """Return the Gini coefficient: 0 where all numbers are equal, near 1 where one of them is all."""
        if not self.total:
            return 0.0
        upto = np.cumsum(self.counts)
        middle_rank = upto - (self.counts - 1) / 2  # of equal numbers, all get the mean of their ranks
        n = float(self.n)
        return float(2 * (middle_rank * self.values * self.counts).sum() / (n * self.total) - (n + 1) / n)

    def bins(self) -> list[tuple[int, int, int]]:
        """Count in bins that widen as 1, 2, 5, 10, 20, 50, ..: (from, to inclusive, how many), without gaps."""
        if not self.n:
            return []
        edges = [0, 1, *(step * 10**power for power in range(18) for step in (2, 5, 10))]
        first = max(place for place, edge in enumerate(edges) if edge <= self.values[0])
        last = max(place for place, edge in enumerate(edges) if edge <= self.values[-1])
        upto = np.concatenate([[0], np.cumsum(self.counts)])
        found = np.diff(upto[np.searchsorted(self.values, edges[first : last + 2])])
        return [(edges[first + nth], edges[first + nth + 1] - 1, int(count)) for nth, count in enumerate(found)]

    def as_dict(self) -> dict[str, Any]:
        """Return mean, quantiles and bins, fit for JSON."""
        quantiles = {str(percent): self.quantile(percent) for percent in QUANTILES}
        return {
            "mean": self.mean,
            "quantiles": quantiles,
            "bins": [{"from": a, "to": b, "count": n} for a, b, n in self.bins()],
        }


@dataclass(frozen=True)
class Statistics:
    """A log in figures; shares and `sparsity` are fractions; None where times are missing."""

    users: int
    items: int
    events: int
    mean_length: float
    sparsity: float
    lengths: Distribution
    popularity: Distribution
    repeats: float
    consecutive_repeats: float
    ties: float | None
    first_time: int | float | None
    last_time: int | float | None
    time_unit: str | None

    def as_dict(self) -> dict[str, Any]:
        """Return all figures, fit for JSON."""
        plain = {name: value for name, value in vars(self).items() if not isinstance(value, Distribution)}
        lengths = self.lengths.as_dict()
        popularity = self.popularity.as_dict() | {
            "top_1_percent": self.popularity.top(0.01),
            "top_10_percent": self.popularity.top(0.10),
            "gini": self.popularity.gini(),
        }
        return plain | {"lengths": lengths, "popularity": popularity}


def statistics(sequences: Sequences) -> Statistics:
    """Count everything once; linear but for one sort of the events."""
    items, offsets = np.asarray(sequences.items), np.asarray(sequences.offsets)
    users, n_items, events = sequences.n_users, sequences.n_items, sequences.n_events
    times = None if sequences.times is None else np.asarray(sequences.times)
    cells = users * n_items
    return Statistics(
        users=users,
        items=n_items,
        events=events,
        mean_length=events / users if users else 0.0,
        sparsity=max(0.0, 1 - events / cells) if cells else 0.0,  # the paper counts repeats too, so few cells can overflow
        lengths=Distribution.of(sequences.lengths),
        popularity=Distribution.of(np.bincount(items, minlength=n_items)),
        repeats=_repeats(items, sequences.lengths, n_items),
        consecutive_repeats=same_as_before(items, offsets),
        ties=None if times is None else same_as_before(times, offsets),
        first_time=times.min().item() if times is not None and events else None,
        last_time=times.max().item() if times is not None and events else None,
        time_unit=sequences.time_unit,
    )


def same_as_before(values: np.ndarray, offsets: np.ndarray) -> float:
    """Return the share of events whose value equals that of the same user's event before."""
    if len(values) < 2:
        return 0.0
    same = np.zeros(len(values) + 1, bool)
    same[1:-1] = values[1:] == values[:-1]
    same[offsets] = False  # a user's first event has none before
    return float(same.sum() / len(values))


def _repeats(items: np.ndarray, lengths: np.ndarray, n_items: int) -> float:
    """Return the share of events whose item the user had before."""
    if not len(items):
        return 0.0
    key = np.repeat(np.arange(len(lengths), dtype=np.int64) * n_items, lengths) + items
    key.sort()
    return float((key[1:] == key[:-1]).sum() / len(items))
