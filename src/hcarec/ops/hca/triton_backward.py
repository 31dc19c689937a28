"""One attention level on a GPU, backward.

With u = d_context and c = u . context of a row p, and a = exp(s_i - lse_p) the weight of row i in
the window of row p: the score of row i has the gradient sum over p of a (u_p . row_i - c_p), and
row i itself gets the sum over p of a u_p. So each row looks at the windows that it stands in.
"""

from __future__ import annotations

import triton
import triton.language as tl

from hcarec.ops.hca.triton_forward import unscaled
from hcarec.ops.hca.triton_rows import (
    add_product,
    later,
    load_matrix,
    load_rows,
    load_scaled,
    scale_of,
    split,
    store_rows,
)


@triton.jit(do_not_specialize=["P"])
def context_backward(
    d_out,
    out,
    context,
    W_0,
    W_1,
    top,
    inverses,
    d_sum,
    d_context,
    d_rows,
    c,
    P,
    d: tl.constexpr,
    N: tl.constexpr,
    FORM: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Write the gradients of contextual rows (P, d), and c (P,), their products with these.

    Also, but not in the residual form, what W_0 makes of the gradients, to d_rows (P, d), and in
    the paper's form d_sum (P, N), the gradient of what tanh is applied to.
    """
    p = tl.program_id(0) * BM + tl.arange(0, BM)
    live = p < P
    scale, inverse = scale_of(tl.load(top))
    slopes = d_out
    if FORM == "paper":
        for k_0 in range(0, N, BK):
            k = k_0 + tl.arange(0, BK)
            value = load_rows(out, p, live, k, N).to(tl.float32)
            slope = load_rows(d_out, p, live, k, N) * (1 - value * value)
            store_rows(d_sum, p, live, k, slope, N)
        tl.debug_barrier()  # other threads of the program read what these have written
        slopes = d_sum
    total = tl.zeros((BM,), tl.float32)
    for n_0 in range(0, d, BN):
        n = n_0 + tl.arange(0, BN)
        u = tl.zeros((BM, BN), tl.float32)
        v = tl.zeros((BM, BN), tl.float32)
        for k_0 in range(0, N, BK):
            k = k_0 + tl.arange(0, BK)
            a = load_scaled(slopes, p, live, k, N, N, scale, PRECISION)
            u = add_product(u, a, W_1, k, n, N, d, N * d, False, PRECISION)
            if FORM != "residual":
                v = add_product(v, a, W_0, k, n, N, d, N * d, False, PRECISION)
        u = unscaled(u, inverse, inverses, n, d, PRECISION).to(d_context.dtype.element_ty)
        store_rows(d_context, p, live, n, u, d)
        total += tl.sum(u.to(tl.float32) * load_rows(context, p, live, n, d), 1)
        if FORM != "residual":
            store_rows(d_rows, p, live, n, unscaled(v, inverse, inverses, n, d, PRECISION), d)
    tl.store(c + p, total, mask=live)


@triton.jit(do_not_specialize=["P", "n_steps"])
def rows_backward(
    others,
    d_context,
    c,
    lse,
    rows,
    y,
    s,
    step,
    starts,
    Q,
    r,
    d_s,
    d_rows,
    P,
    n_steps,
    d: tl.constexpr,
    W: tl.constexpr,
    UNROLL: tl.constexpr,
    BM: tl.constexpr,
    BK: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Write the gradients of scores (P,) and of rows (P, d).

    others (P, d) are gradients of rows that do not come from the window; they may be d_rows.
    """
    p = tl.program_id(0) * BM + tl.arange(0, BM)
    live = p < P
    t = tl.load(step + p, mask=live, other=0)
    rank = p - tl.load(starts + t)
    score = tl.load(s + p, mask=live, other=0)
    slope = tl.zeros((BM,), tl.float32)
    value = tl.zeros((BM, BK), tl.float32)
    for k_0 in range(0, d, BK):
        k = k_0 + tl.arange(0, BK)
        own = load_rows(rows, p, live, k, d).to(tl.float32)
        value = load_rows(others, p, live, k, d).to(tl.float32)
        for j_0 in range(0, W, UNROLL):
            for i in tl.static_range(UNROLL):
                row, there = later(t, rank, starts, n_steps, j_0 + i)
                there = live & there & (j_0 + i < W)
                a = tl.exp(score - tl.load(lse + row, mask=there, other=float("inf")))
                if k_0 == 0:
                    slope -= a * tl.load(c + row, mask=there, other=0)
                u = a[:, None] * load_rows(d_context, row, there, k, d)
                slope += tl.sum(own * u, 1)
                value += u
        if d > BK:
            store_rows(d_rows, p, live, k, value, d)
    tl.store(d_s + p, slope, mask=live)
    if d > BK:
        tl.debug_barrier()  # from here on other threads of the program read what these have written
    for n_0 in range(0, d, BK):
        n = n_0 + tl.arange(0, BK)
        if d > BK:
            value = load_rows(d_rows, p, live, n, d).to(tl.float32)
        for k_0 in range(0, d, 32):
            k = k_0 + tl.arange(0, 32)
            d_y = score_slopes(y, r, slope, p, live, k, d).to(Q.dtype.element_ty)
            value = tl.dot(d_y, load_matrix(Q, k, n, d, d, False), value, input_precision=PRECISION)
        store_rows(d_rows, p, live, n, value, d)


@triton.jit
def score_slopes(y, r, slope, row, there, k, d: tl.constexpr):
    """Return the gradients of Q row, columns k, for gradients of scores."""
    own = load_rows(y, row, there, k, d).to(tl.float32)
    weights = tl.load(r + k, mask=k < d, other=0).to(tl.float32)
    return slope[:, None] * weights[None, :] * (1 - own * own)


@triton.jit(do_not_specialize=["P", "share"])
def weights_backward(
    slopes,
    rows,
    context,
    y,
    d_s,
    r,
    top,
    top_slope,
    sums,
    P,
    share,
    d: tl.constexpr,
    N: tl.constexpr,
    FORM: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Write the gradients of all parameters, summed over `share` rows: a row of sums for each.

    A row of sums holds W_0 (N, d), W_1 (N, d), Q (d, d), b (N,) and r (d,), one after another. A
    program owns the block (m, n) of each matrix, of all three gates, so that rows are read once.
    """
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    begin = tl.program_id(2) * share
    end = tl.minimum(begin + share, P)
    scale, inverse = scale_of(tl.load(top))
    slope_scale, slope_inverse = scale_of(tl.load(top_slope))
    weights = tl.load(r + m, mask=m < d, other=0).to(tl.float32)
    top_weight = tl.max(tl.abs(weights), 0)
    z_0 = tl.zeros((BM, BN), tl.float32)
    z_1 = tl.zeros((BM, BN), tl.float32)
    r_0 = tl.zeros((BM, BN), tl.float32)
    r_1 = tl.zeros((BM, BN), tl.float32)
    c_0 = tl.zeros((BM, BN), tl.float32)
    c_1 = tl.zeros((BM, BN), tl.float32)
    of_Q = tl.zeros((BM, BN), tl.float32)
    of_z = tl.zeros((BM,), tl.float32)
    of_r = tl.zeros((BM,), tl.float32)
    of_c = tl.zeros((BM,), tl.float32)
    of_weights = tl.zeros((BM,), tl.float32)
    for p_0 in range(begin, end, BK):
        p = p_0 + tl.arange(0, BK)
        live = p < end
        x = load_scaled(rows, p, live, n, d, d, scale, PRECISION)
        x_c = load_scaled(context, p, live, n, d, d, scale, PRECISION)
        a = load_scaled(slopes, p, live, m, d, N, slope_scale, PRECISION)
        if FORM != "residual":
            z_0 = add_turned(z_0, a, x, PRECISION)
        z_1 = add_turned(z_1, a, x_c, PRECISION)
        if FORM == "gates":
            of_z += tl.sum(a.to(tl.float32), 0)
            a = load_scaled(slopes + d, p, live, m, d, N, slope_scale, PRECISION)
            of_r += tl.sum(a.to(tl.float32), 0)
            r_0 = add_turned(r_0, a, x, PRECISION)
            r_1 = add_turned(r_1, a, x_c, PRECISION)
            a = load_scaled(slopes + 2 * d, p, live, m, d, N, slope_scale, PRECISION)
            of_c += tl.sum(a.to(tl.float32), 0)
            c_0 = add_turned(c_0, a, x, PRECISION)
            c_1 = add_turned(c_1, a, x_c, PRECISION)
        slope = tl.load(d_s + p, mask=live, other=0)
        own = load_rows(y, p, live, m, d).to(tl.float32)
        of_weights += tl.sum(slope[:, None] * own, 0)
        d_y = slope[:, None] * weights[None, :] * (1 - own * own)
        if PRECISION == "fp16x3":  # the slopes of scores are scaled anew for every BK rows
            own_scale, own_inverse = scale_of(tl.max(tl.abs(slope), 0) * top_weight)
            own = tl.zeros((BM, BN), tl.float32)
            of_Q += add_turned(own, d_y * own_scale, x, PRECISION) * own_inverse
        else:
            of_Q = add_turned(of_Q, d_y.to(x.dtype), x, PRECISION)
    both = 1.0
    if PRECISION == "fp16x3":
        both = slope_inverse * inverse
        of_Q *= inverse
        of_z *= slope_inverse
        of_r *= slope_inverse
        of_c *= slope_inverse
    sums += tl.program_id(2).to(tl.int64) * (2 * N * d + d * d + N + d)
    store_block(sums, m, n, z_0 * both, d)
    store_block(sums + N * d, m, n, z_1 * both, d)
    store_block(sums + 2 * N * d, m, n, of_Q, d)
    if FORM == "gates":
        store_block(sums + d * d, m, n, r_0 * both, d)
        store_block(sums + N * d + d * d, m, n, r_1 * both, d)
        store_block(sums + 2 * d * d, m, n, c_0 * both, d)
        store_block(sums + N * d + 2 * d * d, m, n, c_1 * both, d)
    alone = m < tl.where(tl.program_id(1) == 0, d, 0)  # one program of each m writes the vectors
    sums += 2 * N * d + d * d
    tl.store(sums + m, of_z, mask=alone)
    if FORM == "gates":
        tl.store(sums + d + m, of_r, mask=alone)
        tl.store(sums + 2 * d + m, of_c, mask=alone)
    tl.store(sums + N + m, of_weights, mask=alone)


@triton.jit
def add_turned(total, a, x, PRECISION: tl.constexpr):
    """Add the product of a, transposed, and x to total: (p, m), (p, n), (m, n)."""
    if PRECISION == "fp16x3":
        high, low = split(a)
        x_high, x_low = split(x)
        total = tl.dot(tl.trans(low), x_high, total)
        total = tl.dot(tl.trans(high), x_low, total)
        total = tl.dot(tl.trans(high), x_high, total)
    else:
        total = tl.dot(tl.trans(a), x, total, input_precision=PRECISION)
    return total


@triton.jit
def store_block(out, m, n, value, d: tl.constexpr):
    """Write the block (m, n) of a matrix (d, d)."""
    at = m[:, None] * d + n[None, :]
    tl.store(out + at, value, mask=(m < d)[:, None] & (n < d)[None, :])
