"""Lay out item and position vectors as the tiles read them."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numba import types
from numba.extending import register_jitable

from hcarec.ops.compiled import array, compiled
from hcarec.ops.loss.vectors import ITEMS, LANES, ROWS


def _make_pack(sources: int) -> Any:
    def pack(Z, start, end, panels, columns):
        """Write the chunks start..end of Z (n_items, d) in both layouts, which hold zeros.

        panels (n_chunks, ITEMS / LANES, d, LANES) hold LANES items each, columns
        (n_chunks, ceil(d / LANES), ITEMS, LANES) hold LANES numbers of each item.
        """
        _ = sources
        n_items, d = Z.shape
        for item in range(start * ITEMS, min(end * ITEMS, n_items)):
            chunk, place = divmod(item, ITEMS)
            panel, lane = divmod(place, LANES)
            for l in range(d):
                value = Z[item, l]
                panels[chunk, panel, l, lane] = value
                columns[chunk, l // LANES, place, l % LANES] = value

    return pack


@register_jitable(error_model="numpy")
def group_positions(H, start, end):
    """Return the rows start..end of H as groups (n_groups, d, ROWS), filled up with zeros."""
    groups = np.zeros(((end - start + ROWS - 1) // ROWS, H.shape[1], ROWS), np.float32)
    for position in range(start, end):
        group, row = divmod(position - start, ROWS)
        for l in range(H.shape[1]):
            groups[group, l, row] = H[position, l]
    return groups


@cache
def pack() -> Any:
    """Return the kernel that lays out items."""
    size, packed = types.int64, array("float32", 4)
    return compiled(
        _make_pack, types.void(array("float32", 2, given=True), size, size, packed, packed)
    )
