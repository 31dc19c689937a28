"""The first pass over the catalog: exponentials and sums of each position, its loss and dH."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numba import types
from numba.extending import register_jitable

from hcarec.ops.compiled import array, compiled
from hcarec.ops.loss.layout import group_positions
from hcarec.ops.loss.softmax import exp_row, row_max
from hcarec.ops.loss.tile import dH_narrow, dH_tile, logits_tile
from hcarec.ops.loss.vectors import ITEMS, LANES, ROWS, VECTOR
from hcarec.ops.simd import pointer

_PANELS = ITEMS // LANES

_jit: Any = register_jitable(error_model="numpy")


@_jit
def _multiply(e, at, groups, panels, chunk):
    """Write the logits of grouped positions and a chunk, a row of ITEMS per position."""
    n_groups, d, _ = groups.shape
    h, z = pointer(groups), pointer(panels)
    for panel in range(_PANELS):
        item = (chunk * _PANELS + panel) * d * LANES
        for group in range(n_groups):
            place = at + group * ROWS * ITEMS + panel * LANES
            logits_tile(e, place, ITEMS, h, group * d * ROWS, z, item, d)


@_jit
def _correct(e, row, first, items, values, begin, end):
    """Add to a row of logits the corrections of its items; return the first one beyond the row."""
    at = begin
    while at < end and items[at] < first + ITEMS:
        e[row + items[at] - first] += values[at]
        at += 1
    return at


@_jit
def _exponentiate(e, row, place, maxima, totals, p, sums):
    """Turn a row of logits into exponentials and add them to the total; return their shift.

    A new maximum scales down the total and sums[p] so far.
    """
    shift, greatest = maxima[place], row_max(e, row)
    if greatest > shift:
        scale = np.exp(np.float64(shift) - np.float64(greatest))
        totals[place] *= scale
        for l in range(sums.shape[1]):
            sums[p, l] *= np.float32(scale)
        maxima[place] = shift = greatest
    totals[place] += exp_row(e, row, shift)
    return shift


@_jit
def _add_items(e, at, columns, chunk, sums):
    """Add the product of a chunk's exponentials and its items to sums (positions, D)."""
    n_columns, D = columns.shape[1], sums.shape[1]
    out, z = pointer(sums), pointer(columns)
    for column in range(n_columns):
        panel = (chunk * n_columns + column) * ITEMS * LANES
        for first in range(0, len(sums), ROWS):
            place, row = first * D + column * LANES, at + first * ITEMS
            if D - column * LANES > VECTOR:
                dH_tile(out, place, D, e, row, z, panel, ITEMS)
            else:
                dH_narrow(out, place, D, e, row, z, panel, ITEMS)


def _make_positions(sources: int) -> Any:
    def positions(
        H, Z, targets, items, offsets, values, panels, columns, block, start, end,
        e, shifts, maxima, totals, losses, dH, dvalues,
    ):  # fmt: skip
        """Fill all that belongs to the positions start..end of the block that begins at `block`.

        That is their part of e and `shifts`, m in `maxima` and S in `totals` (positions of the
        block,), `losses` (P,), dH and dvalues. start - block is a multiple of ROWS.
        """
        _ = sources
        (n_positions, d), n_items, exponentials = H.shape, len(Z), pointer(e)
        groups = group_positions(H, start, end)
        sums = np.zeros((len(groups) * ROWS, (d + VECTOR - 1) // VECTOR * VECTOR), np.float32)
        following = offsets[start:end].copy()  # the next correction of each position
        target_logits = np.zeros(end - start, np.float32)
        maxima[start - block : end - block] = -np.inf
        totals[start - block : end - block] = 0.0
        for chunk in range(len(e)):
            at, first = (chunk * e.shape[1] + start - block) * ITEMS, chunk * ITEMS
            _multiply(exponentials, at, groups, panels, chunk)
            for p in range(end - start):
                row, position = at + p * ITEMS, start + p
                begin, last, target = following[p], offsets[position + 1], targets[position]
                stop = _correct(exponentials, row, first, items, values, begin, last)
                following[p] = stop
                if first <= target < first + ITEMS:
                    target_logits[p] = exponentials[row + target - first]
                for j in range(n_items - first, ITEMS):  # what fills up the last chunk
                    exponentials[row + j] = -np.inf
                place = position - block
                shift = _exponentiate(exponentials, row, place, maxima, totals, p, sums)
                shifts[chunk, place] = shift
                for c in range(begin, stop):
                    dvalues[c] = exponentials[row + items[c] - first]
            _add_items(exponentials, at, columns, chunk, sums)
        for p in range(end - start):
            position, place = start + p, start + p - block
            target, total, top = targets[position], totals[place], np.float64(maxima[place])
            losses[position] = np.log(total) + top - target_logits[p]
            for l in range(d):
                dH[position, l] = (sums[p, l] / total - Z[target, l]) / n_positions
            for c in range(offsets[position], offsets[position + 1]):
                share = dvalues[c] * np.exp(shifts[items[c] // ITEMS, place] - top) / total
                dvalues[c] = (share - (items[c] == target)) / n_positions

    return positions


@cache
def positions() -> Any:
    """Return the kernel of the first pass."""
    table, indices = array("float32", 2, given=True), array("int64", given=True)
    corrections = array("int32", given=True), indices, array("float32", given=True)
    packed, size = array("float32", 4), types.int64
    block = array("float32", 3), array("float32", 2), array("float32"), array("float64")
    out = array("float64"), array("float32", 2), array("float32")
    given = table, table, indices, *corrections, packed, packed, size, size, size
    return compiled(_make_positions, types.void(*given, *block, *out))
