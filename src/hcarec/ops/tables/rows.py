"""Sum the table's rows of each user's last events: the scores of all models that count."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numba import types
from numba.extending import register_jitable

from hcarec.ops.compiled import array, compiled
from hcarec.ops.tables.chunks import Rows, checked, join, run, starts
from hcarec.tables import Table, row_ranges

_ENTRIES = 1 << 19  # entries that a chunk reads at most, unless one user alone has more


def sum_rows(
    table: Table,
    items: np.ndarray,
    offsets: np.ndarray,
    weights: Sequence[float] | np.ndarray,
    threads: int | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Add the table's rows of each user's last events by weight, weights[0] for the newest event.

    `items` (n_events,) and `offsets` (users + 1,) are the events by user, oldest first. Return
    sparse rows: items (n,) int32, ascending and distinct within a user, offsets (users + 1,) int64
    and values (n,) float32. A value is added up in float32, newest event first, so that it depends
    on the user's own events alone. The table must have passed `hcarec.tables.check`.
    """
    n_items = len(table.indptr) - 1
    items, offsets = checked(items, offsets, n_items)
    weights = np.ascontiguousarray(weights, np.float32)
    assert weights.ndim == 1 and np.isfinite(weights).all(), weights
    indptr = np.ascontiguousarray(table.indptr, np.int64)
    columns = np.ascontiguousarray(table.indices, np.int32)
    values = np.ascontiguousarray(table.values, np.float32)
    most = _entries_read(indptr, items, offsets, len(weights))

    def work(start: int, end: int) -> Rows:
        n = int(most[start:end].sum())
        sums = Rows(np.empty(end - start, np.int64), np.empty(n, np.int32), np.empty(n, np.float32))
        widest = int(most[start:end].max())
        n = _kernel()(indptr, columns, values, items, offsets, weights, start, end, widest, *sums)
        return Rows(sums.sizes, sums.items[:n].copy(), sums.values[:n].copy())

    parts = run(work, row_ranges(most + 1, _ENTRIES), threads)
    sums = join(parts, len(offsets) - 1)
    return sums.items, starts(sums.sizes), sums.values


def _entries_read(
    indptr: np.ndarray, items: np.ndarray, offsets: np.ndarray, n_events: int
) -> np.ndarray:
    """Return how many entries of the table each user's last events have, (users,) int64."""
    entries = np.zeros(len(offsets) - 1, np.int64)
    longest = int(np.diff(offsets).max(initial=0))
    for back in range(1, min(n_events, longest) + 1):
        event = offsets[1:] - back
        users = np.flatnonzero(event >= offsets[:-1])
        row = items[event[users]]
        entries[users] += indptr[row + 1] - indptr[row]
    return entries


@register_jitable(error_model="numpy")
def _merge(indices, values, begin, end, weight, from_items, from_sums, n, to_items, to_sums):
    """Write the sum of a row of the table and of n entries, both ascending; return its length."""
    at = size = 0
    while at < n and begin < end:
        mine, other = from_items[at], indices[begin]
        total = np.float32(0.0)
        if mine <= other:
            total = from_sums[at]
            at += 1
        if other <= mine:
            total += weight * values[begin]
            begin += 1
        to_items[size], to_sums[size] = min(mine, other), total
        size += 1
    while at < n:
        to_items[size], to_sums[size] = from_items[at], from_sums[at]
        at, size = at + 1, size + 1
    while begin < end:
        to_items[size], to_sums[size] = indices[begin], weight * values[begin]
        begin, size = begin + 1, size + 1
    return size


def _make_kernel(sources: int) -> Any:
    def sum_users(
        indptr, indices, values, items, offsets, weights, start, end, widest,
        out_sizes, out_items, out_sums,
    ):  # fmt: skip
        """Write the sums of the users start..end one after another; return how many entries."""
        _ = sources
        a_items, a_sums = np.empty(widest, np.int32), np.empty(widest, np.float32)
        b_items, b_sums = np.empty(widest, np.int32), np.empty(widest, np.float32)
        place = 0
        for user in range(start, end):
            n = 0
            for back in range(min(len(weights), offsets[user + 1] - offsets[user])):
                row = items[offsets[user + 1] - 1 - back]
                n = _merge(
                    indices, values, indptr[row], indptr[row + 1], weights[back],
                    a_items, a_sums, n, b_items, b_sums,
                )  # fmt: skip
                a_items, a_sums, b_items, b_sums = b_items, b_sums, a_items, a_sums
            out_sizes[user - start] = n
            for at in range(n):
                out_items[place + at] = a_items[at]
                out_sums[place + at] = a_sums[at]
            place += n
        return place

    return sum_users


@cache
def _kernel() -> Any:
    given = [array(dtype, given=True) for dtype in ("int64", "int32", "float32")]
    events = [array("int32", given=True), array("int64", given=True), array("float32", given=True)]
    numbers = [types.int64] * 3
    out = [array("int64"), array("int32"), array("float32")]
    return compiled(_make_kernel, types.int64(*given, *events, *numbers, *out))
