"""Work on ranges of rows, several threads at a time, and join the results."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np


class Rows(NamedTuple):
    """Sparse rows one after another: `sizes` (rows,) int64, `items` int32 and `values` float32."""

    sizes: np.ndarray
    items: np.ndarray
    values: np.ndarray


def checked(items: np.ndarray, offsets: np.ndarray, n_items: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the events of all users as kernels want them, int32 and int64.

    Kernels read memory unchecked: an item outside the table is an AssertionError here.
    """
    items, offsets = np.asarray(items), np.ascontiguousarray(offsets, np.int64)
    assert items.ndim == offsets.ndim == 1 and len(offsets) >= 1, (items.shape, offsets.shape)
    assert offsets[0] == 0 and offsets[-1] == len(items), "offsets do not span the items"
    assert (offsets[1:] >= offsets[:-1]).all(), "offsets descend"
    assert not len(items) or (items.min() >= 0 and items.max() < n_items), (
        "an item outside the table"
    )
    return np.ascontiguousarray(items, np.int32), offsets


def run(
    work: Callable[[int, int], Rows], ranges: list[tuple[int, int]], threads: int | None
) -> list[Rows]:
    """Return `work(start, end)` of every range, in order; the kernels let go of the GIL."""
    threads = min(threads or os.cpu_count() or 1, len(ranges))
    if threads <= 1:
        return [work(*rows) for rows in ranges]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(lambda rows: work(*rows), ranges))


def join(parts: list[Rows], n_rows: int) -> Rows:
    """Join the results in order, and empty the list on the way: no entry is held twice."""
    sizes = np.empty(n_rows, np.int64)
    n = sum(len(part.items) for part in parts)
    items, values = np.empty(n, np.int32), np.empty(n, np.float32)
    row = entry = 0
    parts.reverse()
    while parts:
        part = parts.pop()
        sizes[row : row + len(part.sizes)] = part.sizes
        items[entry : entry + len(part.items)] = part.items
        values[entry : entry + len(part.items)] = part.values
        row, entry = row + len(part.sizes), entry + len(part.items)
    return Rows(sizes, items, values)


def starts(sizes: np.ndarray) -> np.ndarray:
    """Return where each row begins, and the end of the last one, (rows + 1,) int64."""
    starts = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=starts[1:])
    return starts
