"""The kernel of the engine: it pushes items onto a state, and reads all that it keeps.

`S` points to the work space, one record per event of one user, `P` to the dense parameters. A
vector of d numbers is padded to D, one of all heads has HEADS * H numbers.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

from numba import types
from numba.extending import register_jitable

from hcarec.ops.compiled import array, compiled
from hcarec.ops.cpu_forward import copy_row
from hcarec.ops.network.engine_kernels import whole_numbers
from hcarec.ops.network.vectors import (
    add,
    dot,
    even,
    feed_forward,
    normalize,
    padded,
    push_items,
    softmax,
    stride,
    take_row,
)
from hcarec.ops.sas.layout import (
    A_1,
    A_2,
    BIAS_1,
    BIAS_2,
    NORM_1,
    NORM_2,
    PER_LAYER,
    K,
    O,
    Q,
    Sizes,
    V,
)
from hcarec.ops.simd import pointer, scalar
from hcarec.ops.tile import matmul, row

# A record: x and LN(x), D numbers each, then query, key, value and what was attended to, then the
# FFN's inner vector.
X, U, OWN = range(3)
QUERY, KEY, VALUE, SEEN, FIELDS = range(5)


@register_jitable(error_model="numpy")
def all_heads(s):
    """Return the length of a vector of all heads."""
    return s.heads * padded(s.d // s.heads)


@register_jitable(error_model="numpy")
def record(s):
    """Return the length of the record of one event."""
    return stride(OWN * padded(s.d) + FIELDS * all_heads(s) + padded(s.f))


@register_jitable(error_model="numpy")
def attend(S, a, first, n, s):
    """Fill SEEN of rows first..n - 1: each head's values of all rows up to it, by their weights."""
    H, HEADS, LD, begin = padded(s.d // s.heads), all_heads(s), record(s), OWN * padded(s.d)
    scale = scalar(S, 1) / math.sqrt(scalar(S, s.d // s.heads))
    for t in range(first, n):
        for head in range(s.heads):
            query = t * LD + begin + QUERY * HEADS + head * H
            key, value = begin + KEY * HEADS + head * H, begin + VALUE * HEADS + head * H
            for j in range(t + 1):
                a[j] = dot(S, query, S, j * LD + key, H) * scale
            softmax(a, t + 1, t + 1, True)
            to = t * LD + begin + SEEN * HEADS + head * H
            row(S, to, a, 0, 1, S, value, LD, H, t + 1, False)


@register_jitable(error_model="numpy")
def block(S, P, at, a, first, n, s):
    """Turn X of rows first..n - 1 into the output of a block; it attends to all rows before."""
    D, LD, HEADS, count = padded(s.d), record(s), all_heads(s), n - first
    begin, L, d = OWN * D, stride(HEADS), even(s.d)
    for t in range(n):
        normalize(S, t * LD + U * D, t * LD + X * D, P, at[NORM_1], s.mask, s.d, D)
    now, own, x = first * LD, begin, first * LD + X * D
    matmul(S, own + KEY * HEADS, LD, S, U * D, LD, 1, P, at[K], L, n, HEADS, d, False)
    matmul(S, own + VALUE * HEADS, LD, S, U * D, LD, 1, P, at[V], L, n, HEADS, d, False)
    own += now
    matmul(S, own + QUERY * HEADS, LD, S, now + U * D, LD, 1, P, at[Q], L, count, HEADS, d, False)
    attend(S, a, first, n, s)
    matmul(S, x, LD, S, own + SEEN * HEADS, LD, 1, P, at[O], stride(D), count, D, HEADS, True)
    for t in range(first, n):
        normalize(S, t * LD + U * D, t * LD + X * D, P, at[NORM_2], s.mask, s.d, D)
        add(S, t * LD + X * D, P, at[BIAS_2], D)
    inner = own + FIELDS * HEADS
    feed_forward(S, x, now + U * D, inner, LD, count, P, at[A_1], at[BIAS_1], at[A_2], s.d, s.f)


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
    own = number, number, *events, number, whole, types.int64
    return compiled(_advance, types.void(*given, *own, whole_numbers(Sizes)))


def _advance(sources: int) -> Any:
    def advance(
        table, dense, where, space, weights, items, offsets, numbers, integers, words, s
    ):  # fmt: skip
        """Push each user's events, and read the last ones again where there are any."""
        _ = sources
        d, D, LD = s.d, padded(s.d), record(s)
        rows, P, S, chosen = pointer(table), pointer(dense), pointer(space), pointer(items)
        a, state, last = pointer(weights), pointer(numbers), pointer(integers)
        for user in range(len(offsets) - 1):
            begin, count = offsets[user], offsets[user + 1] - offsets[user]
            if count > 0:
                home = user * words
                push_items(last, home + 1, chosen, begin, count, s.length)
                n = min(last[home] + count, s.length)
                last[home] = n
                for t in range(n):
                    item = last[home + 1 + s.length - n + t]
                    take_row(S, t * LD + X * D, rows, item * d, d, D)
                    add(S, t * LD + X * D, P, s.positions + t * D, D)
                for layer in range(s.layers):
                    first = 0 if layer + 1 < s.layers else n - 1  # the rows that are asked for
                    block(S, P, pointer(where[layer * PER_LAYER :]), a, first, n, s)
                y = (n - 1) * LD + X * D
                if s.norm_out >= 0:
                    normalize(S, y, y, P, s.norm_out, s.mask, d, D)
                copy_row(state, home + 1 + s.length, S, y, d)

    return advance
