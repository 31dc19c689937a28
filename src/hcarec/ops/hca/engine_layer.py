"""One layer of the engine over a stretch of one user's events, compiled into the kernels.

`S` points to the work space, one record per event, and `P` to the dense parameters (see `layout`),
`at` to the places of this layer's own. Rows first..T are the events of the stretch; the rows before
them hold what the state keeps, as far back as row `origin`, the user's first event. A vector of d
numbers is padded to D. A number depends on its own row and window alone, so that a stretch may be
cut anywhere.
"""

from __future__ import annotations

import math

from numba.extending import register_jitable

from hcarec.ops.activations import sigmoid, tanh
from hcarec.ops.hca.layout import (
    A_1,
    A_2,
    BIAS_1,
    BIAS_2,
    K_H,
    K_X,
    NORM_1,
    NORM_2,
    Q_H,
    Q_X,
    R_H,
    R_X,
    B,
    E,
    F,
    U,
    V,
    W,
)
from hcarec.ops.network.vectors import (
    dot,
    even,
    feed_forward,
    fill,
    normalize,
    padded,
    softmax,
    stride,
)
from hcarec.ops.simd import constant, load, scalar, store, total
from hcarec.ops.tile import even_row, matmul, row

# Fields of a record, D numbers each; Z, R and C hold first the gates' inputs, then the gates.
# The FFN's inner vector follows them.
X, Z, R, C, H, RH, CONTEXT, KEY, QUERY, O, FIELDS = range(11)


@register_jitable(error_model="numpy")
def record(s):
    """Return the length of the record of one event."""
    return stride(FIELDS * padded(s.d) + padded(s.f))


@register_jitable(error_model="numpy")
def attend(S, rows, P, Q, K, r, a, e, first, T, origin, w, by_dot, s):
    """Fill CONTEXT of rows first..T with the attention-weighted sum of the last w vectors.

    Scores are r . tanh(Q row), or by_dot (Q newest) . (K row) / sqrt(d).
    """
    D, LD, n = padded(s.d), record(s), even(s.d)
    L = stride(D)
    begin = max(origin, first - w + 1)
    key, query, count = begin * LD + KEY * D, first * LD + QUERY * D, T - begin + 1
    scale = scalar(S, 1) / math.sqrt(scalar(S, s.d))
    if by_dot:
        matmul(S, key, LD, S, begin * LD + rows * D, LD, 1, P, K, L, count, D, n, False)
        now = first * LD + rows * D
        matmul(S, query, LD, S, now, LD, 1, P, Q, L, T - first + 1, D, n, False)
    else:
        matmul(S, key, LD, S, begin * LD + rows * D, LD, 1, P, Q, L, count, D, n, False)
        for t in range(begin, T + 1):
            score = constant(S, 0)
            for k in range(0, D, 8):
                score = score + tanh(load(S, t * LD + KEY * D + k)) * load(P, r + k)
            e[t] = total(score)
    for t in range(first, T + 1):
        known = min(w, t - origin + 1)
        oldest = t - known + 1
        for j in range(known):
            if by_dot:
                product = dot(S, t * LD + QUERY * D, S, (oldest + j) * LD + KEY * D, D)
                a[w - known + j] = product * scale
            else:
                a[w - known + j] = e[oldest + j]
        softmax(a, w, known, s.masked)
        to, of = t * LD + CONTEXT * D, oldest * LD + rows * D
        row(S, to, a, w - known, 1, S, of, LD, D, known, False)


@register_jitable(error_model="numpy")
def inputs(S, P, at, a, e, first, T, origin, s):
    """Fill the inputs of all gates: U x + V x_c + b."""
    D, LD, n = padded(s.d), record(s), even(s.d)
    L, to, count = stride(3 * D), first * LD + Z * D, T - first + 1
    for t in range(first, T + 1):
        fill(S, t * LD + Z * D, P, at[B], 3 * D)
    matmul(S, to, LD, S, first * LD + X * D, LD, 1, P, at[U], L, count, 3 * D, n, True)
    if s.w_x > 1:
        attend(S, X, P, at[Q_X], at[K_X], at[R_X], a, e, first, T, origin, s.w_x, s.dot_x, s)
        matmul(S, to, LD, S, first * LD + CONTEXT * D, LD, 1, P, at[V], L, count, 3 * D, n, True)


@register_jitable(error_model="numpy")
def recur(S, P, at, first, T, s):
    """Run the recurrence: the only part that is sequential."""
    D, LD, n = padded(s.d), record(s), even(s.d)
    L, half, gates = stride(3 * D), constant(S, 0.5), at[W]
    for t in range(first, T + 1):
        o, before = t * LD, (t - 1) * LD + H * D
        even_row(S, o + Z * D, S, before, P, gates, L, 2 * D, n, True)
        for k in range(0, D, 8):
            r = sigmoid(load(S, o + R * D + k), half)
            store(S, o + RH * D + k, r * load(S, before + k))
            store(S, o + Z * D + k, sigmoid(load(S, o + Z * D + k), half))
        even_row(S, o + C * D, S, o + RH * D, P, gates + 2 * D, L, D, n, True)
        for k in range(0, D, 8):
            c, h = tanh(load(S, o + C * D + k)), load(S, before + k)
            store(S, o + H * D + k, h + load(S, o + Z * D + k) * (c - h))


@register_jitable(error_model="numpy")
def overall(S, P, at, a, e, first, T, origin, s):
    """Fill O of rows first..T: h_o = tanh(E h + F h_c), h + F h_c, or h where the level is off."""
    D, LD, n = padded(s.d), record(s), even(s.d)
    L, to, count = stride(D), first * LD + O * D, T - first + 1
    if s.w_h == 1 or s.residual:
        for t in range(first, T + 1):
            fill(S, t * LD + O * D, S, t * LD + H * D, D)
    else:
        matmul(S, to, LD, S, first * LD + H * D, LD, 1, P, at[E], L, count, D, n, False)
    if s.w_h > 1:
        attend(S, H, P, at[Q_H], at[K_H], at[R_H], a, e, first, T, origin, s.w_h, s.dot_h, s)
        matmul(S, to, LD, S, first * LD + CONTEXT * D, LD, 1, P, at[F], L, count, D, n, True)
        if not s.residual:
            for t in range(first, T + 1):
                for k in range(t * LD + O * D, t * LD + O * D + D, 8):
                    store(S, k, tanh(load(S, k)))


@register_jitable(error_model="numpy")
def block(S, P, at, first, T, s):
    """Turn O of rows first..T into y, and write it to X: the next layer's input.

    y = LN(x + h_o; norm_1); y = LN(y + A_2 gelu(A_1 y + a_1) + a_2; norm_2).
    """
    D, LD, count = padded(s.d), record(s), T - first + 1
    for t in range(first, T + 1):
        x, o = t * LD + X * D, t * LD + O * D
        for k in range(0, D, 8):
            store(S, o + k, load(S, x + k) + load(S, o + k))
        normalize(S, o, o, P, at[NORM_1], s.mask, s.d, D)
        fill(S, x, P, at[BIAS_2], D)
    y, of, inner = first * LD + X * D, first * LD + O * D, first * LD + FIELDS * D
    feed_forward(S, y, of, inner, LD, count, P, at[A_1], at[BIAS_1], at[A_2], s.d, s.f)
    for t in range(first, T + 1):
        x, o = t * LD + X * D, t * LD + O * D
        for k in range(0, D, 8):
            store(S, x + k, load(S, o + k) + load(S, x + k))
        normalize(S, x, x, P, at[NORM_2], s.mask, s.d, D)
