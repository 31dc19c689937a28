"""Count which items follow which: what Markov models stand on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hcarec.tables import Table, row_ranges

AT_ONCE = 1 << 23
"""Events whose steps are counted together: bounds the memory where a log is larger than that."""


def count_transitions(items: np.ndarray, offsets: np.ndarray, n_items: int, weights: Sequence[float], *, at_once: int = AT_ONCE) -> Table:
    """Count how often each item comes 1, 2, .. events after each item within one user, and add the counts by weight.

    `items` (n_events,) and `offsets` (n_users + 1,) are a log by user and in order; weights[0] belongs to distance 1.
    A value is the sum over distances of weight x count, in float64 and in order of distance, rounded once.
    """
    assert len(weights) and all(np.isfinite(weight) and weight >= 0 for weight in weights), weights
    items, offsets = np.asarray(items), np.asarray(offsets)
    assert not len(items) or (items.min() >= 0 and items.max() < n_items)
    indptr = np.zeros(n_items + 1, np.int64)
    indices, values = [np.zeros(0, np.int32)], [np.zeros(0, np.float32)]
    for first, last in row_ranges(np.bincount(items, minlength=n_items), at_once):
        keys, sums = _weigh_steps(items, offsets, n_items, weights, (first, last))
        rows, columns = np.divmod(keys, n_items)
        indptr[first + 1 : last + 1] = np.bincount(rows - first, minlength=last - first)
        indices.append(columns.astype(np.int32))
        values.append(sums.astype(np.float32))
    return Table(np.cumsum(indptr), np.concatenate(indices), np.concatenate(values))


def count_steps(items: np.ndarray, offsets: np.ndarray, n_items: int, distance: int, rows: tuple[int, int] | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Count how often each item comes `distance` events after each item within one user.

    Return the keys item * n_items + follower, (n,) int64 ascending, and their counts (n,) int64; of the items
    rows[0] <= item < rows[1] alone where `rows` is given.
    """
    assert distance >= 1 and offsets[0] == 0 and offsets[-1] == len(items)
    before, after = items[:-distance], items[distance:]
    steps = _stays(offsets, distance)[:-distance]
    if rows is not None:
        steps &= (before >= rows[0]) & (before < rows[1])
    keys = before[steps].astype(np.int64, copy=False)
    keys *= n_items
    keys += after[steps]
    keys.sort()
    first = np.flatnonzero(_differs(keys))
    return keys[first], np.diff(first, append=len(keys))


def normalize_rows(table: Table) -> Table:
    """Divide each row by the square root of its sum, so that an item with many followers does not outweigh all others."""
    rows = np.repeat(np.arange(len(table.indptr) - 1), np.diff(table.indptr))
    sums = np.bincount(rows, weights=table.values, minlength=len(table.indptr) - 1)
    return table._replace(values=(table.values / np.sqrt(sums)[rows]).astype(np.float32))


def _weigh_steps(items: np.ndarray, offsets: np.ndarray, n_items: int, weights: Sequence[float], rows: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Return the keys of `count_steps` over all distances, ascending, and the weighted sum of their counts, float64."""
    counted = [(weight, *count_steps(items, offsets, n_items, distance, rows)) for distance, weight in enumerate(weights, 1) if weight > 0]
    keys = np.concatenate([np.zeros(0, np.int64), *(keys for _, keys, _ in counted)])
    keys.sort(kind="stable")  # ascending runs, which this one merges
    keys = keys[_differs(keys)]
    sums = np.zeros(len(keys))
    for weight, own, counts in counted:
        sums[np.searchsorted(keys, own)] += weight * counts
    return keys, sums


def _stays(offsets: np.ndarray, distance: int) -> np.ndarray:
    """Say of each event whether its user has another `distance` events later, (n_events,) bool."""
    stays = np.ones(offsets[-1], np.bool_)
    for back in range(1, distance + 1):
        event = offsets[1:] - back
        stays[event[event >= offsets[:-1]]] = False
    return stays


def _differs(ordered: np.ndarray) -> np.ndarray:
    """Say of each entry of an ordered array whether it differs from the one before it."""
    differs = np.ones(len(ordered), np.bool_)
    differs[1:] = ordered[1:] != ordered[:-1]
    return differs
