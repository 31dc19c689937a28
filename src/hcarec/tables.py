"""`Table`: a sparse items x items matrix, what may be wrong with one from a file, and ranges of its rows."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np


class Table(NamedTuple):
    """A sparse items x items matrix in compressed rows.

    Row i is `indices[indptr[i] : indptr[i + 1]]`, ascending and distinct, with `values` beside it. `indptr`
    (n_items + 1,) int64, `indices` (nnz,) int32, `values` (nnz,) float32.
    """

    indptr: np.ndarray
    indices: np.ndarray
    values: np.ndarray


_DTYPES = (np.int64, np.int32, np.float32)


def check(table: Table, n_items: int) -> str | None:
    """Say in one sentence what is wrong with a table read from a file, or return None.

    Kernels trust a table and read memory unchecked, so one from outside must pass here first.
    """
    for name, array, dtype in zip(Table._fields, table, map(np.dtype, _DTYPES), strict=True):
        if array.dtype != dtype or array.ndim != 1:
            return f"{name} is {array.dtype} with shape {array.shape}, expected {dtype} with one dimension"
    indptr, indices, values = table
    if len(indptr) != n_items + 1:
        return f"indptr has {len(indptr)} entries, expected {n_items + 1} for {n_items} items"
    if len(indices) != len(values):
        return f"there are {len(indices)} indices and {len(values)} values, expected as many"
    if indptr[0] != 0 or indptr[-1] != len(indices):
        return f"indptr runs from {indptr[0]} to {indptr[-1]}, expected 0 to {len(indices)}"
    if (indptr[1:] < indptr[:-1]).any():
        return f"indptr descends after row {_first(indptr[1:] < indptr[:-1])}, expected it to ascend"
    return _check_entries(table, n_items)


def _check_entries(table: Table, n_items: int) -> str | None:
    indptr, indices, values = table
    outside = (indices < 0) | (indices >= n_items)
    if outside.any():
        return f"index {indices[_first(outside)]} is outside the {n_items} items"
    ascends = np.ones(len(indices), np.bool_)
    ascends[1:] = indices[1:] > indices[:-1]
    ascends[indptr[:-1][indptr[:-1] < len(indices)]] = True  # where a row begins
    if not ascends.all():
        row = int(np.searchsorted(indptr, _first(~ascends), side="right")) - 1
        return f"the indices of row {row} do not ascend, expected each item once and in order"
    finite = np.isfinite(values)
    if not finite.all():
        return f"value {_first(~finite)} is {values[_first(~finite)]}, expected a finite number"
    return None


def keep_greatest(table: Table, most: int) -> Table:
    """Return a table whose rows keep their `most` greatest values, the lower item first where values are equal."""
    sizes = np.diff(table.indptr)
    rows = np.repeat(np.arange(len(sizes)), sizes)
    kept = np.ones(len(rows), np.bool_)
    entries = np.flatnonzero(sizes[rows] > most)  # of rows that are too long
    entries = entries[np.lexsort((-table.values[entries], rows[entries]))]  # stable: by item where values are equal
    place = np.arange(len(entries)) - np.searchsorted(rows[entries], rows[entries])
    kept[entries[place >= most]] = False
    indptr = np.zeros_like(table.indptr)
    np.cumsum(np.minimum(sizes, most), out=indptr[1:])
    return Table(indptr, table.indices[kept], table.values[kept])


def row_ranges(work: np.ndarray, most: int) -> list[tuple[int, int]]:
    """Cut rows into ranges (first, last) whose work is at most `most`, or of one row; `work` (rows,) int64."""
    total = np.cumsum(work)
    cuts = [0]
    while cuts[-1] < len(work):
        done = total[cuts[-1] - 1] if cuts[-1] else 0
        cuts.append(max(cuts[-1] + 1, int(np.searchsorted(total, done + most, side="right"))))
    return list(pairwise(cuts))


def _first(mask: np.ndarray) -> int:
    return int(np.argmax(mask))
