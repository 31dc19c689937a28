"""The second pass over the catalog: the part of a block of positions in dZ."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numba import types
from numba.extending import register_jitable

from hcarec.ops.compiled import array, compiled
from hcarec.ops.loss.softmax import LEAST
from hcarec.ops.loss.tile import dZ_narrow, dZ_tile
from hcarec.ops.loss.vectors import ITEMS, LANES, ROWS, VECTOR
from hcarec.ops.simd import pointer

_DEPTH = 128  # positions that are summed in registers: a panel of them stays in the L1 cache

_jit: Any = register_jitable(error_model="numpy")


@_jit
def _weigh(H, shifts, chunk, all_rows, maxima, totals, block, weighted):
    """Write H_p exp(shift - m_p) / (S_p n_positions) as panels (n_columns, positions, LANES).

    Without `all_rows`, only the rows whose shift is not that of the chunk before: once m has been
    found, hardly any.
    """
    (n_positions, d), n = H.shape, weighted.shape[1]
    h, out = pointer(H), pointer(weighted)
    for p in range(n):
        shift = shifts[chunk, p]
        if not all_rows and shift == shifts[chunk - 1, p]:
            continue
        gap = np.float64(shift) - maxima[p]
        # Written so that a NaN stays a NaN.
        scale = 0.0 if gap < LEAST else np.exp(gap) / (totals[p] * n_positions)
        factor, row = np.float32(scale), (block + p) * d
        for column in range(0, d, LANES):
            place = column * n + p * LANES  # column // LANES panels of n rows of LANES come before
            for l in range(min(LANES, d - column)):
                out[place + l] = h[row + column + l] * factor


@_jit
def _add_positions(e, chunk, weighted, dZ):
    """Add the product of a chunk's exponentials and the weighted positions to dZ."""
    n_columns, n, _ = weighted.shape
    D, exponentials, out, h = dZ.shape[1], pointer(e), pointer(dZ), pointer(weighted)
    for begin in range(0, n, _DEPTH):
        depth = min(_DEPTH, n - begin)
        at = (chunk * e.shape[1] + begin) * ITEMS
        for column in range(n_columns):
            panel = (column * n + begin) * LANES
            for item in range(0, ITEMS, ROWS):
                place = (chunk * ITEMS + item) * D + column * LANES
                if D - column * LANES > VECTOR:
                    dZ_tile(out, place, D, exponentials, at + item, h, panel, depth)
                else:
                    dZ_narrow(out, place, D, exponentials, at + item, h, panel, depth)


def _make_items(sources: int) -> Any:
    def items(H, targets, e, shifts, maxima, totals, block, n, start, end, dZ):
        """Add the part of the n positions from `block` on to the chunks start..end of dZ.

        dZ (n_chunks * ITEMS, D), D being d rounded up to whole vectors.
        """
        _ = sources
        n_positions, d = H.shape
        weighted = np.zeros(((d + LANES - 1) // LANES, n, LANES), np.float32)
        part = np.float32(1.0) / np.float32(n_positions)
        for chunk in range(start, end):
            _weigh(H, shifts, chunk, chunk == start, maxima, totals, block, weighted)
            _add_positions(e, chunk, weighted, dZ)
            for position in range(block, block + n):
                target = targets[position]
                if chunk * ITEMS <= target < (chunk + 1) * ITEMS:
                    for l in range(d):
                        dZ[target, l] -= H[position, l] * part

    return items


@cache
def items() -> Any:
    """Return the kernel of the second pass."""
    given = array("float32", 2, given=True), array("int64", given=True)
    block = array("float32", 3), array("float32", 2), array("float32"), array("float64")
    sizes = (types.int64,) * 4
    return compiled(_make_items, types.void(*given, *block, *sizes, array("float32", 2)))
