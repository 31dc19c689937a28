"""Loss, backward pass and SGD step of the CPU engine over one sequence, compiled into the kernels of `cpu`.

`G` takes the gradients of the dense parameters in the layout of `P`; `B` holds `P` untransposed (see `layout`).
"""

from __future__ import annotations

import math

from numba.extending import register_jitable

from hcarec.ops.cpu_forward import even, record, stride
from hcarec.ops.layout import DA, DH, DHC, DX, DXC, HC, RH, SH, SX, TMP, XC, XQ, C, H, O, R, X, Z
from hcarec.ops.simd import constant, load, scalar, spread, store, total
from hcarec.ops.tile import even_row, matmul, row


@register_jitable(error_model="numpy")
def preferences(S, slope, losses, T, D, out):
    """Compute the loss of every step (Eqs. 7 and 8) and its slope; return the squares of the item rows used."""
    LD = record(D)
    squares = constant(S, 0)
    for t in range(1, T + 1):
        o = t * LD
        preference = constant(S, 0)
        for k in range(0, D, 8):
            p, q = load(S, o + LD + X * D + k), load(S, o + XQ * D + k)
            preference = preference + load(S, o + out * D + k) * (p - q)
            squares = squares + p * p + q * q
        slope[t] = total(preference)
    zero, one = scalar(S, 0), scalar(S, 1)
    for t in range(1, T + 1):
        s = slope[t]
        small = math.exp(-abs(s))
        losses[t] = math.log1p(small) - min(s, zero)
        slope[t] = -(small if s > zero else one) / (one + small)
    return total(squares)


@register_jitable(error_model="numpy")
def from_loss(S, slope, T, D, out, to):
    """Start the backward pass: gradients of the interests into field `to`, of the positives into DX."""
    LD = record(D)
    for k in range(0, D, 8):
        store(S, LD + DX * D + k, constant(S, 0))
    for t in range(1, T + 1):
        o, g = t * LD, spread(slope[t])
        for k in range(0, D, 8):
            store(S, o + to * D + k, g * (load(S, o + LD + X * D + k) - load(S, o + XQ * D + k)))
            store(S, o + LD + DX * D + k, g * load(S, o + out * D + k))


@register_jitable(error_model="numpy")
def unattend(S, rows, scored, d_context, d_rows, P, r, G, Q, B, back, a, de, T, w, d, D):
    """Take gradients of the contextual rows back to the rows (added to `d_rows`), to Q and to r."""
    LD, L, K = record(D), stride(D), even(d)
    one = constant(S, 1)
    for t in range(1, T + 1):
        de[t] = 0
    for t in range(1, T + 1):
        known = min(w, t)
        at, oldest = t * w - known, t - known + 1
        mean = scalar(a, 0)  # a zero vector's weight has gradient 0 and so adds nothing here
        for i in range(known):
            da = constant(S, 0)
            for k in range(0, D, 8):
                da = da + load(S, t * LD + d_context * D + k) * load(S, (oldest + i) * LD + rows * D + k)
            share = a[at + i] * total(da)
            mean += share
            de[oldest + i] += share
        for i in range(known):
            de[oldest + i] -= a[at + i] * mean
    for s in range(1, T + 1):
        # steps s, s + 1, .. hold row s at places w - 1, w - 2, ..: a stride of w - 1 in `a`
        row(S, s * LD + d_rows * D, a, s * w - 1, w - 1, S, s * LD + d_context * D, LD, D, min(w, T - s + 1), True)
    for k in range(0, D, 8):
        weights, gradient = load(P, r + k), constant(S, 0)
        for t in range(1, T + 1):
            o, slope = t * LD + scored * D + k, spread(de[t])
            s = load(S, o)
            gradient = gradient + slope * s
            store(S, o, slope * weights * (one - s * s))
        store(G, r + k, gradient)
    matmul(G, Q, L, S, LD + rows * D, 1, LD, S, LD + scored * D, LD, K, D, T, False)
    matmul(S, LD + d_rows * D, LD, S, LD + scored * D, LD, 1, B, back, L, T, D, K, True)


@register_jitable(error_model="numpy")
def unoverall(S, P, Q, G, B, back, a, de, T, w, d, D):
    """Take gradients of the overall interests (in DA) back to the hidden states (into DH), E, F, Q_h and r_h."""
    LD, L, K = record(D), stride(D), even(d)
    one = constant(S, 1)
    for t in range(1, T + 1):
        for k in range(0, D, 8):
            h_o = load(S, t * LD + O * D + k)
            store(S, t * LD + DA * D + k, load(S, t * LD + DA * D + k) * (one - h_o * h_o))
    matmul(G, Q + K * L, L, S, LD + H * D, 1, LD, S, LD + DA * D, LD, K, D, T, False)
    matmul(G, Q + 2 * K * L, L, S, LD + HC * D, 1, LD, S, LD + DA * D, LD, K, D, T, False)
    matmul(S, LD + DH * D, LD, S, LD + DA * D, LD, 1, B, back + K * L, L, T, D, K, False)
    matmul(S, LD + DHC * D, LD, S, LD + DA * D, LD, 1, B, back + 2 * K * L, L, T, D, K, False)
    unattend(S, H, SH, DHC, DH, P, Q + 3 * K * L, G, Q, B, back, a, de, T, w, d, D)


@register_jitable(error_model="numpy")
def unrecur(S, B, T, d, D):
    """Take gradients of the hidden states (in DH) back through time to the inputs of the gates (into Z, R, C)."""
    LD, L, K = record(D), stride(D), even(d)
    W = 3 * D * L
    one = constant(S, 1)
    for k in range(0, D, 8):  # nothing before the start wants a gradient, but the sums below need a number there
        store(S, DH * D + k, constant(S, 0))
    for t in range(T, 0, -1):
        o, before = t * LD, (t - 1) * LD
        for k in range(0, D, 8):
            dh, h = load(S, o + DH * D + k), load(S, before + H * D + k)
            z, c = load(S, o + Z * D + k), load(S, o + C * D + k)
            store(S, o + C * D + k, dh * z * (one - c * c))
            store(S, o + Z * D + k, dh * (c - h) * z * (one - z))
            store(S, before + DH * D + k, load(S, before + DH * D + k) + dh * (one - z))
        even_row(S, o + TMP * D, S, o + C * D, B, W + 2 * D * L, L, D, K, False)
        for k in range(0, D, 8):
            r, drh = load(S, o + R * D + k), load(S, o + TMP * D + k)
            store(S, o + R * D + k, drh * load(S, before + H * D + k) * r * (one - r))
            store(S, before + DH * D + k, load(S, before + DH * D + k) + drh * r)
        even_row(S, before + DH * D, S, o + Z * D, B, W, L, D, 2 * D, True)


@register_jitable(error_model="numpy")
def uninputs(S, P, G, B, a, de, T, w, d, D):
    """Take gradients of the gates' inputs back to U, W, b, V and the item rows (added to DX)."""
    LD, L, L3, K = record(D), stride(D), stride(3 * D), even(d)
    W, b = K * L3, 2 * K * L3
    V = b + L3
    Q = V + K * L3
    matmul(G, 0, L3, S, LD + X * D, 1, LD, S, LD + Z * D, LD, K, 3 * D, T, False)
    matmul(G, W, L3, S, H * D, 1, LD, S, LD + Z * D, LD, K, 2 * D, T, False)
    matmul(G, W + 2 * D, L3, S, LD + RH * D, 1, LD, S, LD + C * D, LD, K, D, T, False)
    for k in range(0, 3 * D, 8):
        gradient = constant(S, 0)
        for t in range(1, T + 1):
            gradient = gradient + load(S, t * LD + Z * D + k)
        store(G, b + k, gradient)
    matmul(S, LD + DX * D, LD, S, LD + Z * D, LD, 1, B, 0, L, T, D, 3 * D, True)
    if w > 1:
        matmul(G, V, L3, S, LD + XC * D, 1, LD, S, LD + Z * D, LD, K, 3 * D, T, False)
        matmul(S, LD + DXC * D, LD, S, LD + Z * D, LD, 1, B, 6 * D * L, L, T, D, 3 * D, False)
        unattend(S, X, SX, DXC, DX, P, Q + K * L, G, Q, B, 9 * D * L, a, de, T, w, d, D)


@register_jitable(error_model="numpy")
def descend(S, P, G, size, table, items, begin, negatives, slope, T, d, D, out, rate, lam):
    """Apply the SGD step: dense parameters, then item rows, repeated ones summing up."""
    LD = record(D)
    rates, lams = spread(rate), spread(lam)
    for i in range(0, size, 8):
        p = load(P, i)
        store(P, i, p - rates * (load(G, i) + lams * p))
    for t in range(1, T + 2):
        decay = lam if t > 1 else scalar(S, 0)  # the first item is nobody's positive
        correct(table, items[begin + t - 1] * d, S, t * LD + DX * D, rate, t * LD + X * D, rate * decay, d)
    for t in range(1, T + 1):
        correct(table, negatives[t - 1] * d, S, t * LD + out * D, -rate * slope[t], t * LD + XQ * D, rate * lam, d)


@register_jitable(error_model="numpy")
def correct(table, to, S, gradient, rate, old, decay, d):
    """Take rate * S[gradient:] + decay * S[old:] from one item row."""
    whole = d - d % 8
    rates, decays = spread(rate), spread(decay)
    for k in range(0, whole, 8):
        store(table, to + k, load(table, to + k) - rates * load(S, gradient + k) - decays * load(S, old + k))
    for k in range(whole, d):
        table[to + k] -= rate * S[gradient + k] + decay * S[old + k]


@register_jitable(error_model="numpy")
def squared(P, size):
    """Return the sum of squares of the dense parameters."""
    squares = constant(P, 0)
    for i in range(0, size, 8):
        p = load(P, i)
        squares = squares + p * p
    return total(squares)


@register_jitable(error_model="numpy")
def transpose(P, p, ldp, B, b, ldb, blocks, d, D):
    """Copy matrices (inputs, blocks * D) of P to (blocks * D, inputs) in B, which the backward pass multiplies by."""
    for j in range(d):
        for g in range(blocks):
            for k in range(d):
                B[b + (g * D + k) * ldb + j] = P[p + j * ldp + g * D + k]


@register_jitable(error_model="numpy")
def untranspose(P, B, Q, back, w_x, w_h, d, D):
    """Refill B from P after a change."""
    L, L3, K = stride(D), stride(3 * D), even(d)
    transpose(P, 0, L3, B, 0, L, 3, d, D)
    transpose(P, K * L3, L3, B, 3 * D * L, L, 3, d, D)
    if w_x > 1:
        transpose(P, (2 * K + 1) * L3, L3, B, 6 * D * L, L, 3, d, D)
        transpose(P, (3 * K + 1) * L3, L, B, 9 * D * L, L, 1, d, D)
    if w_h > 1:
        for m in range(3):
            transpose(P, Q + m * K * L, L, B, back + m * K * L, L, 1, d, D)
