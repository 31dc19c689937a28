"""The kernels that all engines share: item vectors, and queries.

States are given twice, as float32 and as int32 views of the same memory, `words` numbers each: the
number of events, the last items, the output, then what a network adds.
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
from hcarec.ops.network.layout import Scoring
from hcarec.ops.network.vectors import even, normalize, padded, stride, take_row
from hcarec.ops.simd import constant, load, pointer, total
from hcarec.ops.tables.sort import sort_by_item
from hcarec.ops.tile import even_row

TINY = 1e-12
"""The least length that a vector is divided by."""


def whole_numbers(kind: type) -> Any:
    """Return Numba's type of a named tuple of whole numbers."""
    return types.NamedUniTuple(types.int64, len(kind._fields), kind)  # type: ignore[attr-defined]


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
    return compiled(_item_vectors, types.void(*given, *out, whole_numbers(Scoring)))


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
    state = number, number, whole, types.int64
    return compiled(_query, types.int64(*given, *copy, *state, *out, whole_numbers(Scoring)))


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
