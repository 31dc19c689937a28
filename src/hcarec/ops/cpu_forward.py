"""The forward pass of the CPU engine over one sequence, compiled into the kernels of `cpu`.

`S` points to the work space and `P` to the dense parameters (see `layout`). Steps count from 1; row 0 stands before the
start. Vectors of d numbers are padded to D, a multiple of 8.
"""

from __future__ import annotations

import math

from numba.extending import register_jitable

from hcarec.ops import layout
from hcarec.ops.activations import sigmoid, tanh
from hcarec.ops.layout import HC, RH, SH, SX, XC, C, H, O, R, X, Z
from hcarec.ops.simd import constant, load, scalar, store, total
from hcarec.ops.tile import even_row, matmul, row

even, padded, record, stride, level_h = map(register_jitable, (layout.even, layout.padded, layout.record, layout.stride, layout.level_h))


@register_jitable(error_model="numpy")
def copy_row(S, to, table, at, d):
    """Copy one row of d numbers; the padding after it stays as it is."""
    whole = d - d % 8
    for k in range(0, whole, 8):
        store(S, to + k, load(table, at + k))
    for k in range(whole, d):
        S[to + k] = table[at + k]


@register_jitable(error_model="numpy")
def gather(S, field, first, table, items, begin, count, d, D):
    """Copy the item rows items[begin:begin + count] into a field, from row `first` on, padded with zeros."""
    LD = record(D)
    for t in range(count):
        to = (first + t) * LD + field * D
        store(S, to + D - 8, constant(S, 0))
        copy_row(S, to, table, items[begin + t] * d, d)


@register_jitable(error_model="numpy")
def attend(S, rows, scored, context, P, Q, r, a, e, first, T, w, d, D):
    """Fill `context` of steps first..T with the attention-weighted sum of the last w rows (Eqs. 2 and 4).

    `a` (T * w) takes the weights, `e` (T + 1) each row's score, computed once per row; `scored` keeps tanh(Q row).
    """
    LD, L, K = record(D), stride(D), even(d)
    begin = max(1, first - w + 1)
    matmul(S, begin * LD + scored * D, LD, S, begin * LD + rows * D, LD, 1, P, Q, L, T - begin + 1, D, K, False)
    for t in range(begin, T + 1):
        score = constant(S, 0)
        for k in range(0, D, 8):
            s = tanh(load(S, t * LD + scored * D + k))
            store(S, t * LD + scored * D + k, s)
            score = score + s * load(P, r + k)
        e[t] = total(score)
    for t in range(first, T + 1):
        known = min(w, t)
        weigh(a, (t - 1) * w, e, t, w, known)
        row(S, t * LD + context * D, a, t * w - known, 1, S, (t - known + 1) * LD + rows * D, LD, D, known, False)


@register_jitable(error_model="numpy")
def weigh(a, at, e, t, w, known):
    """Fill a[at:at + w] with the softmax of the scores of the w rows up to t, of which the last `known` exist.

    The others are zero vectors: they score 0 and keep their share.
    """
    zero = scalar(e, 0)
    top = e[t] if known == w else max(e[t], zero)
    for s in range(t - known + 1, t):
        if e[s] > top:
            top = e[s]
    whole = zero
    for i in range(w):
        share = math.exp((e[t - w + 1 + i] if i >= w - known else zero) - top)
        a[at + i] = share
        whole += share
    for i in range(w):
        a[at + i] /= whole


@register_jitable(error_model="numpy")
def inputs(S, P, a, e, first, T, w, d, D):
    """Fill the inputs of all gates of steps first..T: U x + V x_c + b."""
    LD, L, L3, K = record(D), stride(D), stride(3 * D), even(d)
    b = 2 * K * L3
    V = b + L3
    Q = V + K * L3
    for t in range(first, T + 1):
        for k in range(0, 3 * D, 8):
            store(S, t * LD + Z * D + k, load(P, b + k))
    matmul(S, first * LD + Z * D, LD, S, first * LD + X * D, LD, 1, P, 0, L3, T - first + 1, 3 * D, K, True)
    if w > 1:
        attend(S, X, SX, XC, P, Q, Q + K * L, a, e, first, T, w, d, D)
        matmul(S, first * LD + Z * D, LD, S, first * LD + XC * D, LD, 1, P, V, L3, T - first + 1, 3 * D, K, True)


@register_jitable(error_model="numpy")
def recur(S, P, first, T, d, D):
    """Run steps first..T of the recurrence (Eqs. 1 and 3): the only part that is sequential."""
    LD, L3, K = record(D), stride(3 * D), even(d)
    W = K * L3
    half = constant(S, 0.5)
    for t in range(first, T + 1):
        o, before = t * LD, (t - 1) * LD + H * D
        even_row(S, o + Z * D, S, before, P, W, L3, 2 * D, K, True)
        for k in range(0, D, 8):
            r = sigmoid(load(S, o + R * D + k), half)
            store(S, o + R * D + k, r)
            store(S, o + RH * D + k, r * load(S, before + k))
            store(S, o + Z * D + k, sigmoid(load(S, o + Z * D + k), half))
        even_row(S, o + C * D, S, o + RH * D, P, W + 2 * D, L3, D, K, True)
        for k in range(0, D, 8):
            c, h = tanh(load(S, o + C * D + k)), load(S, before + k)
            store(S, o + C * D + k, c)
            store(S, o + H * D + k, h + load(S, o + Z * D + k) * (c - h))


@register_jitable(error_model="numpy")
def overall(S, P, Q, a, e, first, T, w, d, D):
    """Fill the overall interests of steps first..T: tanh(E h + F h_c) (Eq. 5); Q is where this level's parameters lie."""
    LD, L, K, count = record(D), stride(D), even(d), T - first + 1
    attend(S, H, SH, HC, P, Q, Q + 3 * K * L, a, e, first, T, w, d, D)
    matmul(S, first * LD + O * D, LD, S, first * LD + H * D, LD, 1, P, Q + K * L, L, count, D, K, False)
    matmul(S, first * LD + O * D, LD, S, first * LD + HC * D, LD, 1, P, Q + 2 * K * L, L, count, D, K, True)
    for t in range(first, T + 1):
        for k in range(0, D, 8):
            store(S, t * LD + O * D + k, tanh(load(S, t * LD + O * D + k)))
