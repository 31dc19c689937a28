"""One attention level on a GPU, forward: scores of rows, then contextual rows and the product.

The score of a row depends on the row alone and is computed once, not once a window.
"""

from __future__ import annotations

import triton
import triton.language as tl

from hcarec.ops.hca.triton_rows import earlier, load_rows, product, store_rows, tanh


@triton.jit(do_not_specialize=["P"])
def score_rows(
    rows,
    Q,
    r,
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
    score = tl.zeros((BM,), tl.float32)
    for n_0 in range(0, d, BN):
        n = n_0 + tl.arange(0, BN)
        total = tl.zeros((BM, BN), tl.float32)
        total = tanh(product(total, rows, p, live, Q, n, d, d, True, BK, PRECISION))
        store_rows(y, p, live, n, total, d)
        weights = tl.load(r + n, mask=n < d, other=0).to(tl.float32)
        score += tl.sum(total * weights[None, :], 1)
    tl.store(s + p, score, mask=live)


@triton.jit(do_not_specialize=["P"])
def level_forward(
    rows,
    s,
    step,
    starts,
    W_0,
    W_1,
    b,
    lse,
    context,
    out,
    P,
    d: tl.constexpr,
    N: tl.constexpr,
    W: tl.constexpr,
    UNROLL: tl.constexpr,
    MASKED: tl.constexpr,
    FORM: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Write contextual rows (P, d), log-sum-exps of their windows (P,) and the output (P, N).

    The output is W_0 row + W_1 context + b ("gates"), tanh(W_0 row + W_1 context) ("paper") or
    row + W_1 context ("residual").
    """
    p = tl.program_id(0) * BM + tl.arange(0, BM)
    live = p < P
    t = tl.load(step + p, mask=live, other=0)
    rank = p - tl.load(starts + t)

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
    tl.debug_barrier()  # from here on other threads of the program read what these have written

    for n_0 in range(0, N, BN):
        n = n_0 + tl.arange(0, BN)
        value = tl.zeros((BM, BN), tl.float32)
        if FORM != "residual":
            value = product(value, rows, p, live, W_0, n, d, N, True, BK, PRECISION)
        value = product(value, context, p, live, W_1, n, d, N, True, BK, PRECISION)
        if FORM == "gates":
            value += tl.load(b + n, mask=n < N, other=0)[None, :]
        elif FORM == "paper":
            value = tanh(value)
        else:
            value += load_rows(rows, p, live, n, d)
        store_rows(out, p, live, n, value, N)
