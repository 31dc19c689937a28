"""Exact uniform negatives, as pure functions of seed and epoch.

Nothing here has a state: a draw depends on (seed, epoch, user, step) alone, so that a run can go on from any user.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numba import types, uint64
from numba.extending import register_jitable

from hcarec.ops import streams
from hcarec.ops.compiled import array, compiled
from hcarec.ops.streams import stream

u0, u1, u6, u32, u63 = (np.uint64(n) for n in (0, 1, 6, 32, 63))
_LOW = np.uint64(2**32 - 1)
_G = np.uint64(streams.STRIDE)

mix = register_jitable(streams.mix)


def bitmap(n_items: int) -> np.ndarray:
    """Return the empty set of items that `draw` needs as work space."""
    return np.zeros((n_items + 63) // 64, np.uint64)


@register_jitable(error_model="numpy")
def known_items(items, begin, end, n_items):
    """Return whether all of items[begin:end] are in the catalogue: kernels read memory unchecked."""
    unknown = False
    for e in range(begin, end):
        unknown |= (items[e] < 0) | (items[e] >= n_items)
    return not unknown


@register_jitable(error_model="numpy")
def _below(n, key, step):
    """Draw uniformly from 0..n-1 without bias (multiply and reject); n < 2^32."""
    counter = uint64(step)
    threshold = (_LOW + u1 - n) % n
    while True:
        product = (mix(key + _G * counter) >> u32) * n
        if (product & _LOW) >= threshold:
            return product >> u32
        counter += u1 << u32


@register_jitable(error_model="numpy")
def draw(items, begin, end, user, n_items, key, seen, out, count):
    """Draw out[:count] uniformly from the items outside items[begin:end]; return whether there are any.

    `key` is the epoch's `stream`, `seen` an empty `bitmap`, left empty.
    """
    own = mix(key + _G * (uint64(user) + u1))
    for e in range(begin, end):
        item = uint64(items[e])  # an unsigned index needs no look for a negative one
        seen[item >> u6] |= u1 << (item & u63)
    distinct = end - begin
    if n_items - distinct < distinct:  # so many events that most of the catalogue could be among them: count exactly
        distinct = _count(items, begin, end, seen)
    free = n_items - distinct
    if free >= distinct:
        _draw_rejecting(n_items, own, seen, out, count)
    elif free > 0:
        _draw_listed(free, n_items, own, seen, out, count)
    for e in range(begin, end):
        seen[uint64(items[e]) >> u6] = u0
    return free > 0


@register_jitable(error_model="numpy")
def _count(items, begin, end, seen):
    """Return how many different items are marked; an item's bit is taken away when counted, and all are put back."""
    distinct = 0
    for e in range(begin, end):
        item = uint64(items[e])
        bit = u1 << (item & u63)
        distinct += (seen[item >> u6] & bit) != u0
        seen[item >> u6] &= ~bit
    for e in range(begin, end):
        item = uint64(items[e])
        seen[item >> u6] |= u1 << (item & u63)
    return distinct


@register_jitable(error_model="numpy")
def _draw_rejecting(n_items, own, seen, out, count):
    """Draw from the whole catalogue, and again where that gave a marked item: all first draws at once, without a branch."""
    n = uint64(n_items)
    threshold = (_LOW + u1 - n) % n
    biased = False
    for step in range(count):
        product = (mix(own + _G * uint64(step)) >> u32) * n
        biased |= (product & _LOW) < threshold
        out[step] = product >> u32
    for step in range(count):
        q = uint64(out[step])
        if biased or (seen[q >> u6] >> (q & u63)) & u1 != u0:
            out[step] = _draw_one(n, threshold, own, seen, step)


@register_jitable(error_model="numpy")
def _draw_one(n, threshold, own, seen, step):
    """Draw one item from the beginning, rejecting what would bias the draw and what is marked."""
    counter = uint64(step)
    while True:
        product = (mix(own + _G * counter) >> u32) * n
        q = product >> u32
        if (product & _LOW) >= threshold and (seen[q >> u6] >> (q & u63)) & u1 == u0:
            return q
        counter += u1 << u32


@register_jitable(error_model="numpy")
def _draw_listed(free, n_items, own, seen, out, count):
    """Draw from a list of the free items: cheaper than rejection where the user has most of the catalogue."""
    listed = np.empty(free, np.int64)
    found = 0
    for item in range(n_items):
        if (seen[item >> 6] >> uint64(item & 63)) & u1 == u0:
            listed[found] = item
            found += 1
    for step in range(count):
        out[step] = listed[_below(uint64(free), own, step)]


@cache
def _drawer() -> Any:
    numbers = (types.int64, types.int64, types.int64, types.int64, types.uint64)
    arrays = (array("uint64"), array("int32"), types.int64)
    return compiled(_make_drawer, types.boolean(array("int32", given=True), *numbers, *arrays))


def _make_drawer(sources: int) -> Any:
    def drawer(items, begin, end, user, n_items, key, seen, out, count):
        _ = sources
        return draw(items, begin, end, user, n_items, key, seen, out, count)

    return drawer


def draw_user(items: np.ndarray, user: int, n_items: int, seed: int, epoch: int, count: int | None = None) -> np.ndarray | None:
    """Return the negatives of one user, (count,) int32 (by default one per step), or None where no item is free."""
    count = max(len(items) - 1, 0) if count is None else count
    out = np.empty(count, np.int32)
    items = np.ascontiguousarray(items, np.int32)
    found = _drawer()(items, 0, len(items), user, n_items, stream(seed, epoch), bitmap(n_items), out, count)
    return out if found else None
