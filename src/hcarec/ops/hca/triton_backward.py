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
    t = tl.load(step + p, mask=live, other=0).to(tl.int32)
    rank = p - tl.load(starts + t).to(tl.int32)
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

    A row of sums holds W_0 (N, d), W_1 (N, d), Q (d, d), b (N,) and r (d,), one after another. The
    first programs of a share own blocks (BM, BN) of W_0 and W_1, the others blocks of Q.
    """
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    begin = tl.program_id(2) * share
    end = tl.minimum(begin + share, P)
    sums += tl.program_id(2).to(tl.int64) * (2 * N * d + d * d + N + d)
    scale, inverse = scale_of(tl.load(top))
    first = tl.where(tl.program_id(1) == 0, 1, 0)  # of the programs of m: it writes vectors
    lines = tl.zeros((BM,), tl.float32)
    of_rows = tl.zeros((BM, BN), tl.float32)
    if tl.program_id(0) * BM < N:
        slope_scale, slope_inverse = scale_of(tl.load(top_slope))
        of_context = tl.zeros((BM, BN), tl.float32)
        for p_0 in range(begin, end, BK):
            p = p_0 + tl.arange(0, BK)
            a = load_scaled(slopes, p, p < end, m, N, N, slope_scale, PRECISION)
            lines += tl.sum(a.to(tl.float32), 0)
            if FORM != "residual":
                x = load_scaled(rows, p, p < end, n, d, d, scale, PRECISION)
                of_rows = add_turned(of_rows, a, x, PRECISION)
            x = load_scaled(context, p, p < end, n, d, d, scale, PRECISION)
            of_context = add_turned(of_context, a, x, PRECISION)
        if PRECISION == "fp16x3":
            of_rows *= slope_inverse * inverse
            of_context *= slope_inverse * inverse
            lines *= slope_inverse
        store_block(sums, m, n, of_rows, N, d)
        store_block(sums + N * d, m, n, of_context, N, d)
        tl.store(sums + 2 * N * d + d * d + m, lines, mask=m < N * first)
    else:
        m -= tl.cdiv(N, BM) * BM
        weights = tl.load(r + m, mask=m < d, other=0).to(tl.float32)
        top_weight = tl.max(tl.abs(weights), 0)
        for p_0 in range(begin, end, BK):
            p = p_0 + tl.arange(0, BK)
            slope = tl.load(d_s + p, mask=p < end, other=0)
            own = load_rows(y, p, p < end, m, d).to(tl.float32)
            lines += tl.sum(slope[:, None] * own, 0)
            d_y = slope[:, None] * weights[None, :] * (1 - own * own)
            x = load_scaled(rows, p, p < end, n, d, d, scale, PRECISION)
            if PRECISION == "fp16x3":  # the slopes of scores are scaled anew for every BK rows
                own_scale, own_inverse = scale_of(tl.max(tl.abs(slope), 0) * top_weight)
                some = tl.zeros((BM, BN), tl.float32)
                of_rows += add_turned(some, d_y * own_scale, x, PRECISION) * (own_inverse * inverse)
            else:
                of_rows = add_turned(of_rows, d_y.to(x.dtype), x, PRECISION)
        store_block(sums + 2 * N * d, m, n, of_rows, d, d)
        tl.store(sums + 2 * N * d + d * d + N + m, lines, mask=m < d * first)


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
def store_block(out, m, n, value, M: tl.constexpr, N: tl.constexpr):
    """Write the block (m, n) of a matrix (M, N)."""
    at = m[:, None] * N + n[None, :]
    tl.store(out + at, value, mask=(m < M)[:, None] & (n < N)[None, :])
