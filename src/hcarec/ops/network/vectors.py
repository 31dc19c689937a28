"""Vectors in the work space of an engine, compiled into its kernels.

`S` points to the work space and `P` to the dense parameters (see `layout`). A vector of d numbers
is padded with zeros to D.
"""

from __future__ import annotations

import math

from numba.extending import register_jitable

from hcarec.ops import layout as shared
from hcarec.ops.cpu_forward import copy_row
from hcarec.ops.hca.gelu import gelu
from hcarec.ops.simd import constant, load, scalar, spread, store, total
from hcarec.ops.tile import matmul

even, padded, stride = map(register_jitable, (shared.even, shared.padded, shared.stride))


@register_jitable(error_model="numpy")
def take_row(S, to, table, at, d, D):
    """Copy a row of d numbers into the work space, padded with zeros."""
    store(S, to + D - 8, constant(S, 0))
    copy_row(S, to, table, at, d)


@register_jitable(error_model="numpy")
def fill(S, to, P, at, D):
    """Copy a padded vector."""
    for k in range(0, D, 8):
        store(S, to + k, load(P, at + k))


@register_jitable(error_model="numpy")
def add(S, to, P, at, D):
    """Add a padded vector to another."""
    for k in range(0, D, 8):
        store(S, to + k, load(S, to + k) + load(P, at + k))


@register_jitable(error_model="numpy")
def dot(A, a, B, b, D):
    """Return the product of two padded vectors."""
    sums = constant(A, 0)
    for k in range(0, D, 8):
        sums = sums + load(A, a + k) * load(B, b + k)
    return total(sums)


@register_jitable(error_model="numpy")
def normalize(S, to, at, P, norm, mask, d, D):
    """Write LN of the vector S[at:], scale and shift at P[norm:]; both places may be the same."""
    sums, squares, size = constant(S, 0), constant(S, 0), scalar(S, d)
    for k in range(0, D, 8):
        sums = sums + load(S, at + k)
    mean = spread(total(sums) / size)
    for k in range(0, D, 8):
        v = (load(S, at + k) - mean) * load(P, mask + k)
        store(S, to + k, v)
        squares = squares + v * v
    factor = spread(scalar(S, 1) / math.sqrt(total(squares) / size + scalar(S, 1e-5)))
    for k in range(0, D, 8):
        v = load(S, to + k) * factor
        store(S, to + k, v * load(P, norm + k) + load(P, norm + D + k))


@register_jitable(error_model="numpy")
def softmax(a, w, known, masked):
    """Turn the scores a[w - known : w] into weights; the rows before them score 0 or are masked."""
    zero = scalar(a, 0)
    top = a[w - 1] if masked or known == w else max(a[w - 1], zero)
    for j in range(w - known, w - 1):
        top = max(top, a[j])
    whole = zero if masked else scalar(a, w - known) * math.exp(zero - top)
    for j in range(w - known, w):
        a[j] = math.exp(a[j] - top)
        whole += a[j]
    for j in range(w - known, w):
        a[j] /= whole


@register_jitable(error_model="numpy")
def feed_forward(S, to, of, inner, LD, count, P, A_1, a_1, A_2, d, f):
    """Add A_2 gelu(A_1 v + a_1) to some vectors: v at `of`, f numbers of work space at `inner`.

    Each of the `count` vectors is LD numbers after the one before it.
    """
    D, F_D = padded(d), padded(f)
    for t in range(count):
        fill(S, inner + t * LD, P, a_1, F_D)
    matmul(S, inner, LD, S, of, LD, 1, P, A_1, stride(F_D), count, F_D, even(d), True)
    for t in range(count):
        for k in range(inner + t * LD, inner + t * LD + F_D, 8):
            store(S, k, gelu(load(S, k)))
    matmul(S, to, LD, S, inner, LD, 1, P, A_2, stride(D), count, D, even(f), True)


@register_jitable(error_model="numpy")
def push_items(last, at, items, begin, T, kept):
    """Put T items behind those that are there, and keep the last ones."""
    for i in range(kept):
        event = T - kept + i
        last[at + i] = items[begin + event] if event >= 0 else last[at + i + T]
