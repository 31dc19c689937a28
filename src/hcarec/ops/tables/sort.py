"""Sort a short sparse row in place; np.argsort would take seconds to compile."""

from __future__ import annotations

from typing import Any

from hcarec.ops.score import inlined


@inlined
def sort_by_item(values: Any, items: Any, n: int) -> None:
    """Sort the first n entries of a row by item, ascending, their values with them: a heap sort."""
    for at in range(n // 2 - 1, -1, -1):
        _sift(values, items, at, n, values[at], items[at])
    for last in range(n - 1, 0, -1):
        value, item = values[last], items[last]
        values[last], items[last] = values[0], items[0]
        _sift(values, items, 0, last, value, item)


@inlined
def _sift(values: Any, items: Any, at: int, n: int, value: float, item: int) -> None:
    """Put an entry at the free place `at` of a heap of n, root the greatest item, or below it."""
    while True:
        child = 2 * at + 1
        if child >= n:
            break
        if child + 1 < n and items[child + 1] > items[child]:
            child += 1
        if items[child] <= item:
            break
        values[at], items[at] = values[child], items[child]
        at = child
    values[at], items[at] = value, item
