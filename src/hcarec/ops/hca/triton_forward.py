"""One attention level on a GPU, forward: scores of rows, contextual rows, the products of both.

The score of a row depends on the row alone and is computed once, not once a window.
"""

from __future__ import annotations

import triton
import triton.language as tl

from hcarec.ops.hca.triton_rows import (
    add_product,
    earlier,
    load_rows,
    load_scaled,
    scale_of,
    store_part,
    store_rows,
    tanh,
)


@triton.jit(do_not_specialize=["P"])
def score_rows(
    rows,
    Q,
    r,
    top,
    inverses,
    y,
    s,
    P,
    d: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Write y = tanh(Q row) (P, d) and the score s = r . y (P,) of every row (P, d)."""
    p = tl.program_id(0) * BM + tl.arange(0, BM)
    live = p < P
    scale, inverse = scale_of(tl.load(top))
    score = tl.zeros((BM,), tl.float32)
    for n_0 in range(0, d, BN):
        n = n_0 + tl.arange(0, BN)
        value = tl.zeros((BM, BN), tl.float32)
        for k_0 in range(0, d, BK):
            k = k_0 + tl.arange(0, BK)
            a = load_scaled(rows, p, live, k, d, d, scale, PRECISION)
            value = add_product(value, a, Q, k, n, d, d, d * d, True, PRECISION)
        value = tanh(unscaled(value, inverse, inverses, n, d, PRECISION))
        store_rows(y, p, live, n, value, d)
        weights = tl.load(r + n, mask=n < d, other=0).to(tl.float32)
        score += tl.sum(value * weights[None, :], 1)
    tl.store(s + p, score, mask=live)


@triton.jit(do_not_specialize=["P"])
def window_forward(
    rows,
    s,
    step,
    starts,
    lse,
    context,
    P,
    d: tl.constexpr,
    W: tl.constexpr,
    UNROLL: tl.constexpr,
    MASKED: tl.constexpr,
    BM: tl.constexpr,
    BK: tl.constexpr,
):
    """Write contextual rows (P, d) and the log-sum-exps of their windows (P,)."""
    p = tl.program_id(0) * BM + tl.arange(0, BM)
    live = p < P
    t = tl.load(step + p, mask=live, other=0).to(tl.int32)
    rank = p - tl.load(starts + t).to(tl.int32)
    top = tl.load(s + p, mask=live, other=0)
    total = tl.full((BM,), 1, tl.float32)
    for j_0 in range(1, W, UNROLL):
        for i in tl.static_range(UNROLL):
            row, there = earlier(t, rank, starts, j_0 + i)
            e = tl.load(s + row, mask=live & there, other=0)  # a zero row scores 0
            counts = (j_0 + i < W) & (there | (not MASKED))
            e = tl.where(counts, e, float("-inf"))
            before, top = top, tl.maximum(top, e)
            total = total * tl.exp(before - top) + tl.exp(e - top)
    log_sum = top + tl.log(total)
    tl.store(lse + p, log_sum, mask=live)
    for k_0 in range(0, d, BK):
        k = k_0 + tl.arange(0, BK)
        mean = tl.zeros((BM, BK), tl.float32)
        for j_0 in range(0, W, UNROLL):
            for i in tl.static_range(UNROLL):
                row, there = earlier(t, rank, starts, j_0 + i)
                there = live & there & (j_0 + i < W)
                a = tl.exp(tl.load(s + row, mask=there, other=0) - log_sum)
                mean += a[:, None] * load_rows(rows, row, there, k, d)
        store_rows(context, p, live, k, mean, d)


@triton.jit(do_not_specialize=["P"])
def level_product(
    rows,
    context,
    W_0,
    W_1,
    b,
    top,
    inverses,
    out,
    P,
    d: tl.constexpr,
    N: tl.constexpr,
    FORM: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Write the output (P, N) of rows and contextual rows (P, d).

    It is W_0 row + W_1 context + b ("gates"), tanh(W_0 row + W_1 context) ("paper") or
    row + W_1 context ("residual"). Blocks of the three gates share what is read of rows.
    """
    p = tl.program_id(0) * BM + tl.arange(0, BM)
    live = p < P
    scale, inverse = scale_of(tl.load(top))
    for n_0 in range(0, d, BN):
        n = n_0 + tl.arange(0, BN)
        z = tl.zeros((BM, BN), tl.float32)
        r = tl.zeros((BM, BN), tl.float32)
        c = tl.zeros((BM, BN), tl.float32)
        for k_0 in range(0, d, BK):
            k = k_0 + tl.arange(0, BK)
            if FORM != "residual":
                a = load_scaled(rows, p, live, k, d, d, scale, PRECISION)
                z = add_product(z, a, W_0, k, n, d, d, N * d, True, PRECISION)
                if FORM == "gates":
                    r = add_product(r, a, W_0 + d * d, k, n, d, d, N * d, True, PRECISION)
                    c = add_product(c, a, W_0 + 2 * d * d, k, n, d, d, N * d, True, PRECISION)
            a = load_scaled(context, p, live, k, d, d, scale, PRECISION)
            z = add_product(z, a, W_1, k, n, d, d, N * d, True, PRECISION)
            if FORM == "gates":
                r = add_product(r, a, W_1 + d * d, k, n, d, d, N * d, True, PRECISION)
                c = add_product(c, a, W_1 + 2 * d * d, k, n, d, d, N * d, True, PRECISION)
        z = unscaled(z, inverse, inverses, n, d, PRECISION)
        if FORM == "gates":
            r = unscaled(r, inverse, inverses + d, n, d, PRECISION)
            c = unscaled(c, inverse, inverses + 2 * d, n, d, PRECISION)
            store_gate(out, p, live, n, z, b, d)
            store_gate(out + d, p, live, n, r, b + d, d)
            store_gate(out + 2 * d, p, live, n, c, b + 2 * d, d)
        elif FORM == "paper":
            store_rows(out, p, live, n, tanh(z), d)
        else:
            store_rows(out, p, live, n, z + load_rows(rows, p, live, n, d), d)


@triton.jit
def unscaled(value, inverse, inverses, n, d: tl.constexpr, PRECISION: tl.constexpr):
    """Return sums of products of scaled numbers (rows, n) as they are without scales."""
    if PRECISION == "fp16x3":
        value *= inverse * tl.load(inverses + n, mask=n < d, other=0)[None, :]
    return value


@triton.jit
def store_gate(out, row, there, n, value, b, d: tl.constexpr):
    """Write the input of one gate, its bias added, into rows of three gates."""
    value += tl.load(b + n, mask=n < d, other=0)[None, :]
    store_part(out, row, there, n, value, d, 3 * d)
