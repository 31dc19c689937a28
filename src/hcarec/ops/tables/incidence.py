"""Who has which item: the distinct items of each user, and the users of each item."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numba import types

from hcarec.ops.compiled import array, compiled
from hcarec.ops.tables.chunks import starts


def distinct_items(
    items: np.ndarray, offsets: np.ndarray, n_items: int, longest: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return each user's distinct items, newest first and at most `longest`, and their offsets."""
    kept, sizes = np.empty(len(items), np.int32), np.empty(len(offsets) - 1, np.int64)
    n = _distinct_kernel()(items, offsets, longest, np.full(n_items, -1, np.int64), kept, sizes)
    return kept[:n].copy(), starts(sizes)


def users_of_items(
    items: np.ndarray, offsets: np.ndarray, n_items: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the users of each item, ascending, (n,) int32, and their offsets (n_items + 1,)."""
    assert len(offsets) - 1 <= np.iinfo(np.int32).max
    begin = starts(np.bincount(items, minlength=n_items))
    users = np.empty(len(items), np.int32)
    _users_kernel()(items, offsets, begin[:-1].copy(), users)
    return users, begin


def _make_distinct(sources: int) -> Any:
    def keep_distinct(items, offsets, longest, last_user, kept, sizes):
        """Fill `kept` and `sizes`; return how many are kept. `last_user` (n_items,) must be -1."""
        _ = sources
        n = 0
        for user in range(len(sizes)):
            first = n
            event = offsets[user + 1] - 1
            while event >= offsets[user] and n - first < longest:
                item = items[event]
                if last_user[item] != user:
                    last_user[item] = user
                    kept[n] = item
                    n += 1
                event -= 1
            sizes[user] = n - first
        return n

    return keep_distinct


def _make_users(sources: int) -> Any:
    def list_users(items, offsets, place, users):
        """Write each user to the next free place of its items; `place` (n_items,) moves along."""
        _ = sources
        for user in range(len(offsets) - 1):
            for event in range(offsets[user], offsets[user + 1]):
                item = items[event]
                users[place[item]] = user
                place[item] += 1

    return list_users


@cache
def _distinct_kernel() -> Any:
    given = array("int32", given=True), array("int64", given=True), types.int64
    signature = types.int64(*given, array("int64"), array("int32"), array("int64"))
    return compiled(_make_distinct, signature)


@cache
def _users_kernel() -> Any:
    given = array("int32", given=True), array("int64", given=True)
    return compiled(_make_users, types.void(*given, array("int64"), array("int32")))
