"""Find the nearest neighbors of each item: the cosine over the users whom two items share."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numba import types
from numba.extending import register_jitable

from hcarec.ops.compiled import array, compiled
from hcarec.ops.score import replace_worst, worse
from hcarec.ops.tables.chunks import Rows, checked, join, run, starts
from hcarec.ops.tables.incidence import distinct_items, users_of_items
from hcarec.ops.tables.sort import sort_by_item
from hcarec.tables import Table, row_ranges

_WORK = 1 << 21  # pairs of items that a chunk counts at most, unless one item alone has more
_NONE = np.iinfo(np.int32).max  # no item; it sorts behind all


def nearest_items(
    items: np.ndarray,
    offsets: np.ndarray,
    n_items: int,
    neighbors: int,
    shrinkage: float,
    longest: int,
    threads: int | None = None,
) -> Table:
    """Return the `neighbors` items most similar to each item, ties by the lower index.

    The similarity of i and j is |U_i & U_j| / (sqrt(|U_i| |U_j|) + shrinkage), U_i being the users
    who have i. `items` (n_events,) and `offsets` (users + 1,) are the events by user, oldest first.
    Of a user with more than `longest` distinct items only the latest count, because a user costs
    the square of their number. Computed in float64, stored in float32; items without a shared user
    are no neighbors.
    """
    assert neighbors >= 1 and longest >= 1 and 0 <= shrinkage < np.inf
    items, offsets = checked(items, offsets, n_items)
    items, offsets = distinct_items(items, offsets, n_items, longest)
    users, users_of = users_of_items(items, offsets, n_items)
    sizes = np.diff(users_of).astype(np.int32)
    lengths = np.diff(offsets)
    # How many neighbors an item may have at most, and about what it costs to find them.
    pairs = np.bincount(items, np.repeat(lengths - 1, lengths), n_items).astype(np.int64)
    neighbors = max(1, min(neighbors, n_items - 1))
    counters: list[tuple[np.ndarray, np.ndarray]] = []  # those that no thread uses right now

    def work(start: int, end: int) -> Rows:
        try:
            mine = counters.pop()
        except IndexError:
            mine = np.zeros(n_items, np.int32), np.empty(n_items, np.int32)
        best = np.empty(neighbors), np.empty(neighbors, np.int32)
        n = int(np.minimum(pairs[start:end], neighbors).sum())
        rows = Rows(np.empty(end - start, np.int64), np.empty(n, np.int32), np.empty(n, np.float32))
        log = items, offsets, users, users_of, sizes
        n = _kernel()(*log, float(shrinkage), start, end, *mine, *best, *rows)
        counters.append(mine)
        return Rows(rows.sizes, rows.items[:n].copy(), rows.values[:n].copy())

    rows = join(run(work, row_ranges(pairs + 1, _WORK), threads), n_items)
    return Table(starts(rows.sizes), rows.items, rows.values)


@register_jitable(error_model="numpy")
def _count_shared(items, offsets, users, users_of, item, counts, touched):
    """Count the users whom each other item shares with one, list these items, return how many."""
    n = 0
    counts[item] = 1  # so that it is never listed
    for at in range(users_of[item], users_of[item + 1]):
        user = users[at]
        for event in range(offsets[user], offsets[user + 1]):
            other = np.uint32(items[event])  # unsigned, or Numba looks for a negative index
            if counts[other] == 0:
                touched[n] = other
                n += 1
            counts[other] += 1
    counts[item] = 0
    return n


def _make_kernel(sources: int) -> Any:
    def nearest_rows(
        items, offsets, users, users_of, sizes, shrinkage, start, end,
        counts, touched, best_scores, best_items, out_sizes, out_items, out_values,
    ):  # fmt: skip
        """Write the neighbors of the items start..end one after another; return how many.

        `counts` (n_items,) must be zero and is left so; `touched` (n_items,) and the best
        (neighbors,) are work space.
        """
        _ = sources
        place = 0
        for item in range(start, end):
            n = _count_shared(items, offsets, users, users_of, item, counts, touched)
            kept = min(n, len(best_items))
            best_scores[:kept] = -np.inf
            best_items[:kept] = _NONE
            for at in range(n):
                other = np.uint32(touched[at])
                both = np.int64(sizes[item]) * sizes[other]
                score = counts[other] / (np.sqrt(np.float64(both)) + shrinkage)
                counts[other] = 0
                if n == kept:  # all of them: no need of a heap
                    best_scores[at], best_items[at] = score, touched[at]
                elif worse(best_scores[0], best_items[0], score, touched[at]):
                    replace_worst(best_scores, best_items, kept, score, touched[at])
            sort_by_item(best_scores, best_items, kept)
            out_sizes[item - start] = kept
            for at in range(kept):
                out_items[place + at] = best_items[at]
                out_values[place + at] = best_scores[at]
            place += kept
        return place

    return nearest_rows


@cache
def _kernel() -> Any:
    log = [array(dtype, given=True) for dtype in ("int32", "int64", "int32", "int64", "int32")]
    numbers = [types.float64, types.int64, types.int64]
    space = [array(dtype) for dtype in ("int32", "int32", "float64", "int32")]
    out = [array("int64"), array("int32"), array("float32")]
    return compiled(_make_kernel, types.int64(*log, *numbers, *space, *out))
