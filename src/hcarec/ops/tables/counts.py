"""Turn sums of counts into the counting term, and add that to the corrections there are."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
from numba import types

from hcarec.ops.compiled import array, compiled
from hcarec.ops.rank.corrections import Corrections


def add_counts(
    corrections: Corrections | None, sums: Corrections, scale: float, floor: float
) -> Corrections:
    """Return the corrections with scale * log(1 + m / floor) added for every sum m.

    `sums` is what `sum_rows` returns. An item that has both gets the float32 sum of the two; the
    items of each user are those of `corrections` and of `sums`, whatever the scale.
    """
    scale, floor = (float(np.float32(number)) for number in (scale, floor))  # as a folder has them
    assert floor > 0, floor
    users = len(sums.offsets) - 1
    if corrections is None:
        nothing = np.empty(0, np.int32), np.zeros(users + 1, np.int64), np.empty(0, np.float32)
        corrections = Corrections(*nothing)
    assert len(corrections.offsets) == users + 1, (corrections.offsets.shape, users)
    most = len(corrections.items) + len(sums.items)
    items, values = np.empty(most, np.int32), np.empty(most, np.float32)
    offsets = np.zeros(users + 1, np.int64)
    n = _kernel()(*corrections, *sums, scale, floor, items, offsets, values)
    return Corrections(items[:n], offsets, values[:n])


def _make_kernel(sources: int) -> Any:
    def add(
        items, offsets, values, counted, counted_offsets, sums, scale, floor,
        out_items, out_offsets, out_values,
    ):  # fmt: skip
        """Write the merged corrections of all users one after another; return how many."""
        _ = sources
        place = 0
        for user in range(len(offsets) - 1):
            at, end = offsets[user], offsets[user + 1]
            other, other_end = counted_offsets[user], counted_offsets[user + 1]
            while at < end or other < other_end:
                mine = at < end and (other == other_end or items[at] <= counted[other])
                theirs = other < other_end and (at == end or counted[other] <= items[at])
                value = np.float32(0.0)
                if mine:
                    out_items[place], value = items[at], values[at]
                    at += 1
                if theirs:
                    out_items[place] = counted[other]
                    value += np.float32(scale * math.log1p(sums[other] / floor))
                    other += 1
                out_values[place] = value
                place += 1
            out_offsets[user + 1] = place
        return place

    return add


@cache
def _kernel() -> Any:
    corrections = [array(dtype, given=True) for dtype in ("int32", "int64", "float32")]
    numbers = [types.float64, types.float64]
    out = [array("int32"), array("int64"), array("float32")]
    return compiled(_make_kernel, types.int64(*corrections, *corrections, *numbers, *out))
