"""The kernel that adds a user's events to its state.

States are given twice, as float32 and as int32 views of the same memory, `words` numbers each, in
the order of `state_dtype`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from numba import types
from numba.extending import register_jitable

from hcarec.ops.compiled import array, compiled
from hcarec.ops.cpu_forward import copy_row
from hcarec.ops.hca.engine_layer import H, O, X, block, inputs, overall, record, recur
from hcarec.ops.hca.layout import PER_LAYER, Sizes
from hcarec.ops.network.engine_kernels import whole_numbers
from hcarec.ops.network.vectors import normalize, padded, push_items, take_row
from hcarec.ops.simd import pointer


@register_jitable(error_model="numpy")
def restore(S, field, state, at, w, first, origin, s):
    """Copy w rows of a state to before row `first`, those of them that are real, and the last."""
    D, LD = padded(s.d), record(s)
    for i in range(w):
        t = first - w + i
        if t >= origin or i == w - 1:
            take_row(S, t * LD + field * D, state, at + i * s.d, s.d, D)


@register_jitable(error_model="numpy")
def keep(S, field, state, at, w, T, origin, s):
    """Copy the last w rows up to T to a state; rows before the start stay zero."""
    D, LD = padded(s.d), record(s)
    for i in range(w):
        t = T - w + 1 + i
        if t >= origin:
            copy_row(state, at + i * s.d, S, t * LD + field * D, s.d)


@register_jitable(error_model="numpy")
def restore_items(S, table, last, at, first, origin, s):
    """Copy the vectors of the last w_x - 1 items to before row `first`."""
    D, LD = padded(s.d), record(s)
    for t in range(max(origin, first - s.w_x + 1), first):
        item = last[at + s.kept + t - first]
        take_row(S, t * LD + X * D, table, item * s.d, s.d, D)


@cache
def advance_kernel() -> Any:
    """Return the kernel that adds events to states."""
    number, whole = array("float32"), array("int32")
    given = (
        array("float32", 2, given=True),
        array("float32", given=True),
        array("int64", given=True),
    )
    events = array("int32", given=True), array("int64", given=True)
    own = number, number, number, *events, number, whole, types.int64, types.int64
    return compiled(_advance, types.void(*given, *own, whole_numbers(Sizes)))


def _advance(sources: int) -> Any:
    def advance(
        table, dense, where, space, weights, scores, items, offsets,
        numbers, integers, words, most, s,
    ):  # fmt: skip
        """Add each user's events to its state, at most `most` of them at a time."""
        _ = sources
        d, D, LD = s.d, padded(s.d), record(s)
        rows, P, S, chosen = pointer(table), pointer(dense), pointer(space), pointer(items)
        a, e, state, last = pointer(weights), pointer(scores), pointer(numbers), pointer(integers)
        first, w = max(s.w_x, s.w_h), max(1, s.w_h - 1)
        for user in range(len(offsets) - 1):
            begin, end = offsets[user], offsets[user + 1]
            home = user * words
            while begin < end:
                count = min(most, end - begin)
                T, origin = first + count - 1, first - last[home]
                hidden = home + 1 + s.kept + d
                for layer in range(s.layers):
                    at = pointer(where[layer * PER_LAYER :])
                    above = hidden + w * d  # the inputs of this layer, if it keeps them
                    if layer == 0:
                        restore_items(S, rows, last, home + 1, first, origin, s)
                        for t in range(count):
                            to = (first + t) * LD + X * D
                            take_row(S, to, rows, chosen[begin + t] * d, d, D)
                    elif s.w_x > 1:
                        restore(S, X, state, above, s.w_x - 1, first, origin, s)
                    restore(S, H, state, hidden, w, first, origin, s)
                    inputs(S, P, at, a, e, first, T, origin, s)
                    recur(S, P, at, first, T, s)
                    keep(S, H, state, hidden, w, T, origin, s)
                    hidden = above
                    if layer > 0:
                        keep(S, X, state, above, s.w_x - 1, T, origin, s)
                        hidden += (s.w_x - 1) * d
                    lowest = first if layer + 1 < s.layers else T  # rows that are asked for
                    if layer + 1 < s.layers or begin + count == end:
                        overall(S, P, at, a, e, lowest, T, origin, s)
                        if s.f > 0:
                            block(S, P, at, lowest, T, s)
                push_items(last, home + 1, chosen, begin, count, s.kept)
                last[home] = min(last[home] + count, s.widest)
                begin += count
                if begin == end:
                    y = T * LD + (X if s.f > 0 else O) * D
                    if s.norm_out >= 0:
                        normalize(S, y, y, P, s.norm_out, s.mask, d, D)
                    copy_row(state, home + 1 + s.kept, S, y, d)

    return advance
