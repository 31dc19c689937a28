"""The kernels of the engine: item vectors, a user's events, and queries.

States are given twice, as float32 and as int32 views of the same memory, `words` numbers each, in
the order of `state_dtype`.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
from numba import types
from numba.extending import register_jitable

from hcarec.ops.compiled import array, compiled
from hcarec.ops.cpu_forward import copy_row
from hcarec.ops.hca.engine_layer import (
    H,
    O,
    X,
    block,
    even,
    inputs,
    normalize,
    overall,
    padded,
    record,
    recur,
    stride,
)
from hcarec.ops.hca.layout import PER_LAYER, Sizes
from hcarec.ops.simd import constant, load, pointer, store, total
from hcarec.ops.tables.sort import sort_by_item
from hcarec.ops.tile import even_row

TINY = 1e-12
"""The least length that a vector is divided by."""


def _sizes() -> Any:
    return types.NamedUniTuple(types.int64, len(Sizes._fields), Sizes)


@register_jitable(error_model="numpy")
def take_row(S, to, table, at, d, D):
    """Copy a row of d numbers into the work space, padded with zeros."""
    store(S, to + D - 8, constant(S, 0))
    copy_row(S, to, table, at, d)


@register_jitable(error_model="numpy")
def length(vector, at, d):
    """Return the length of a vector of d numbers."""
    squares = 0.0
    for k in range(d):
        squares += float(vector[at + k]) * float(vector[at + k])
    return max(math.sqrt(squares), TINY)


# -- item vectors ----------------------------------------------------------------------------------


@cache
def item_kernel() -> Any:
    """Return the kernel that normalizes item vectors."""
    given = array("float32", 2, given=True), array("float32", given=True)
    out = array("float32"), array("float32", 2), array("float32", 2)
    return compiled(_item_vectors, types.void(*given, *out, _sizes()))


def _item_vectors(sources: int) -> Any:
    def write(X, dense, space, Z, ranked, s):
        """Write LN of all rows to Z where the network has it, and rows of unit length to ranked.

        Either may be without rows: it is not wanted.
        """
        _ = sources
        d, D = s.d, padded(s.d)
        S, P, to = pointer(space), pointer(dense), pointer(Z)
        for item in range(len(Z)):
            take_row(S, 0, pointer(X), item * d, d, D)
            normalize(S, 0, 0, P, s.norm_item, s.mask, d, D)
            copy_row(to, item * d, S, 0, d)
        rows = pointer(Z) if len(Z) else pointer(X)
        for item in range(len(ranked)):
            size = length(rows, item * d, d)
            for k in range(d):
                ranked[item, k] = rows[item * d + k] / size

    return write


# -- events ----------------------------------------------------------------------------------------


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


@register_jitable(error_model="numpy")
def push_items(last, at, items, begin, T, kept):
    """Put T items behind those that are there, and keep the last ones."""
    for i in range(kept):
        event = T - kept + i
        last[at + i] = items[begin + event] if event >= 0 else last[at + i + T]


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
    size = types.int64
    return compiled(
        _advance,
        types.void(*given, number, number, number, *events, number, whole, size, size, _sizes()),
    )


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


# -- queries ---------------------------------------------------------------------------------------


@register_jitable(error_model="numpy")
def product(S, at, table, to, d):
    """Return the product of a vector in the work space and a row of d numbers."""
    sums, whole = constant(S, 0), d - d % 8
    for k in range(0, whole, 8):
        sums = sums + load(S, at + k) * load(table, to + k)
    result = total(sums)
    for k in range(whole, d):
        result += S[at + k] * table[to + k]
    return result


@register_jitable(error_model="numpy")
def softplus(x):
    """Return log(1 + exp(x))."""
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


@cache
def query_kernel() -> Any:
    """Return the kernel that makes queries of states."""
    number, whole = array("float32"), array("int32")
    given = array("float32", 2, given=True), array("float32", given=True)
    copy = array("float32", given=True), array("float64", given=True)
    out = array("float32", 2), array("int64"), whole, number
    signature = types.int64(*given, *copy, number, number, whole, types.int64, *out, _sizes())
    return compiled(_query, signature)


def _query(sources: int) -> Any:
    def query(
        table, dense, bias, factors, space, numbers, integers, words,
        vectors, offsets, out_items, out_values, s,
    ):  # fmt: skip
        """Write the query of each state and its corrections one after another; return how many."""
        _ = sources
        d, D = s.d, padded(s.d)
        temperature, scale, rate = factors[0], factors[1], factors[2]
        rows, P, S, state = pointer(table), pointer(dense), pointer(space), pointer(numbers)
        keys, amounts = np.empty(s.w_c, np.int64), np.empty(s.w_c, np.float64)
        place = 0
        for user in range(len(vectors)):
            home = user * words
            o = home + 1 + s.kept
            if s.cosine:
                factor = temperature / length(state, o, d)
                for k in range(d):
                    vectors[user, k] = factor * state[o + k]
            else:
                copy_row(pointer(vectors), user * d, state, o, d)
            if s.w_c > 0:
                take_row(S, 0, state, o, d, D)
                even_row(S, D, S, 0, P, s.copy_Q, stride(D), D, even(d), False)
                n = min(s.w_c, integers[home])
                for back in range(n):
                    item = integers[home + s.kept - back]
                    keys[back] = item * s.w_c + back  # sorted by item, then newest first
                    amounts[back] = softplus(float(product(S, D, rows, item * d, d)) + bias[back])
                sort_by_item(amounts, keys, n)
                at = 0
                while at < n:
                    item, weight = keys[at] // s.w_c, 0.0
                    while at < n and keys[at] // s.w_c == item:
                        weight += amounts[at]
                        at += 1
                    out_items[place] = item
                    out_values[place] = scale * math.log1p(rate * weight)
                    place += 1
            offsets[user + 1] = place
        return place

    return query
