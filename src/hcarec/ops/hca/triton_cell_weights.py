"""Triton kernel of the gradients of the recurrence's weights, over all rows at once."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def weights_kernel(
    d_g, gates, h, before, out, P, rows_each,
    d: tl.constexpr, R: tl.constexpr, J: tl.constexpr, K: tl.constexpr, TYPE: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Sum d_z h^T, d_r h^T and d_c (r h)^T over some rows, h being the state before each.

    d_g and gates (P, 3, d), h (P, d), before (P,) -> out (parts of the rows, 3, d, d). A program
    takes J x K entries of each matrix and `rows_each` of the P rows, R at a time. Products are made
    in TYPE; PRECISION says of how many products of parts those of float32 consist.
    """
    part, j, k = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    j = j * J + tl.arange(0, J)
    k = k * K + tl.arange(0, K)
    end = tl.minimum((part + 1) * rows_each, P)
    for_z = tl.zeros((J, K), tl.float32)
    for_r = tl.zeros((J, K), tl.float32)
    for_c = tl.zeros((J, K), tl.float32)
    for first in range(part * rows_each, end, R):
        rows = (first + tl.arange(0, R)).to(tl.int64)
        earlier = tl.load(before + rows, mask=rows < end, other=-1)
        at = rows[:, None] * (3 * d) + j
        inside = (rows < end)[:, None] & (j < d)
        d_z = tl.load(d_g + at, mask=inside, other=0)
        d_r = tl.load(d_g + d + at, mask=inside, other=0)
        d_c = tl.load(d_g + 2 * d + at, mask=inside, other=0)
        known = (earlier >= 0)[:, None] & (k < d)
        state = tl.load(h + earlier[:, None] * d + k, mask=known, other=0)
        r = tl.load(gates + d + rows[:, None] * (3 * d) + k, mask=known, other=0)
        reset = (r.to(tl.float32) * state.to(tl.float32)).to(TYPE)
        state = state.to(TYPE)
        for_z = tl.dot(d_z.to(TYPE).T, state, for_z, input_precision=PRECISION)
        for_r = tl.dot(d_r.to(TYPE).T, state, for_r, input_precision=PRECISION)
        for_c = tl.dot(d_c.to(TYPE).T, reset, for_c, input_precision=PRECISION)
    to = out + part * 3 * d * d + j[:, None] * d + k
    inside = (j < d)[:, None] & (k < d)
    tl.store(to, for_z, mask=inside)
    tl.store(to + d * d, for_r, mask=inside)
    tl.store(to + 2 * d * d, for_c, mask=inside)
