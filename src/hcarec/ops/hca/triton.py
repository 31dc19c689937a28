"""One layer of the network on a GPU by Triton kernels, forward and backward.

Both attention levels are one operation, `level`, registered with torch: it works under autocast,
`torch.compile` and in the capture of a CUDA graph. Sums have a fixed order, so a run gives the same
bits again. `hcarec.ops.reference` is the specification.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor
from torch.library import custom_op, register_autocast

from hcarec.ops.hca.triton_backward import context_backward, rows_backward, weights_backward
from hcarec.ops.hca.triton_forward import level_product, score_rows, window_forward
from hcarec.ops.hca.triton_rows import split_weights

FORMS = ("gates", "paper", "residual")
UNROLLED = 8
"""Rows of a window that are read at once."""
WINDOW, WINDOW_BACKWARD = 1024, 2048
"""Numbers of the rows that a program which reads windows owns, forward and backward."""
PROGRAMS = 528
"""Programs that sum over rows at a time, about."""
SHARE = 1024
"""Rows that one of them sums up at most: in tensor cores longer sums lose digits."""
PARTS = 33
"""The least d at which products of float32 are made of float16 parts: preparing them takes time."""


class Tiles(NamedTuple):
    """How rows and columns are cut for the programs of a kernel."""

    BM: int
    BN: int
    BK: int
    num_warps: int
    num_stages: int


def product_tiles(d: int, gates: bool = False) -> Tiles:
    """Return the tiles of kernels that multiply rows of size d with matrices, of three gates."""
    columns = min(128, max(16, triton.next_power_of_2(d)))
    if columns == 64:
        return Tiles(64, 64, 64, 4, 2) if gates else Tiles(64, 64, 32, 4, 3)
    return Tiles(64, columns, min(32, columns), 4, 2)


def weight_tiles(d: int) -> Tiles:
    """Return the tiles of the kernel that sums over rows, BK at a time."""
    if d <= 32:
        columns = max(16, triton.next_power_of_2(d))
        return Tiles(columns, columns, 32, 2, 3)
    return Tiles(64, 64, 32, 4, 3)


def window_tiles(d: int, size: int) -> dict[str, int]:
    """Return the tiles of kernels that read windows, each program for `size` numbers."""
    columns = min(128, max(32, triton.next_power_of_2(d)))
    return {"BM": size // columns, "BK": columns, "num_warps": 4}


def level(
    rows: Tensor,
    step: Tensor,
    starts: Tensor,
    Q: Tensor,
    r: Tensor,
    W_0: Tensor | None,
    W_1: Tensor,
    b: Tensor | None,
    w: int,
    masked: bool,
    form: str,
) -> Tensor:
    """Attend over the last w rows of every step and return the level's output.

    rows (P, d) packed step after step, step (P,) and starts (steps + 1,) int64 as in `Packing`;
    Q (d, d), r (d,), W_0 and W_1 (N, d), b (N,). The output is W_0 row + W_1 context + b ("gates"),
    tanh(W_0 row + W_1 context) ("paper") or row + W_1 context ("residual"), (P, N).
    """
    return _level(rows, step, starts, Q, r, W_0, W_1, b, w, masked, form)[0]


@custom_op("hcarec::level", mutates_args=())
def _level(
    rows: Tensor,
    step: Tensor,
    starts: Tensor,
    Q: Tensor,
    r: Tensor,
    W_0: Tensor | None,
    W_1: Tensor,
    b: Tensor | None,
    w: int,
    masked: bool,
    form: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the output, and for the backward pass y, context, s, lse and the top of rows."""
    assert form in FORMS and (W_0 is None) == (form == "residual")
    assert (b is None) == (form != "gates")
    rows, Q, r, W_1 = (value.contiguous() for value in (rows, Q, r, W_1))
    W_0, b = _or(W_0, W_1), _or(b, r)
    (P, d), N, tiles = rows.shape, len(W_1), _tiles(rows)
    window = window_tiles(d, WINDOW)
    out, y, context = rows.new_empty(P, N), torch.empty_like(rows), torch.empty_like(rows)
    s, lse = (rows.new_empty(P, dtype=torch.float32) for _ in range(2))
    top = _top_of_rows(rows, form)
    if P:
        (M_0, M_1, M_Q), (of_W, of_Q) = _matrices(W_0, W_1, Q, form, True)
        grid = (triton.cdiv(P, tiles["BM"]),)
        score_rows[grid](rows, M_Q, r, top, of_Q, y, s, P, d, **tiles)
        window_forward[triton.cdiv(P, window["BM"]),](
            *(rows, s, step, starts, lse, context, P, d, w, min(w, UNROLLED), masked), **window
        )
        tiles |= product_tiles(d, form == "gates")._asdict()
        level_product[triton.cdiv(P, tiles["BM"]),](
            *(rows, context, M_0, M_1, b, top, of_W, out, P, d, N, form), **tiles
        )
    return out, y, context, s, lse, top


@_level.register_fake
def _(rows: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    P, N = len(rows), len(rest[5])
    s = rows.new_empty(P, dtype=torch.float32)
    every = torch.empty_like(rows), torch.empty_like(rows), s, torch.empty_like(s)
    return rows.new_empty(P, N), *every, s.new_empty(())


@custom_op("hcarec::level_backward", mutates_args=())
def _level_backward(
    d_out: Tensor,
    out: Tensor,
    y: Tensor,
    context: Tensor,
    s: Tensor,
    lse: Tensor,
    top: Tensor,
    rows: Tensor,
    step: Tensor,
    starts: Tensor,
    Q: Tensor,
    r: Tensor,
    W_0: Tensor | None,
    W_1: Tensor,
    w: int,
    form: str,
) -> tuple[Tensor, Tensor]:
    """Return the gradients of rows (P, d), and of W_0, W_1, Q, b and r one after another."""
    rows, Q, r, W_1, d_out = (value.contiguous() for value in (rows, Q, r, W_1, d_out))
    W_0 = _or(W_0, W_1)
    (P, d), N, tiles = rows.shape, len(W_1), _tiles(rows)
    window = window_tiles(d, WINDOW_BACKWARD)
    d_rows, n_parameters = torch.empty_like(rows), 2 * N * d + d * d + N + d
    if not P:
        return d_rows, rows.new_zeros(n_parameters)
    (M_0, M_1, _), (of_W, _) = _matrices(W_0, W_1, Q, form, False)
    d_sum = torch.empty_like(d_out) if form == "paper" else d_out
    d_context, c, d_s = torch.empty_like(rows), torch.empty_like(s), torch.empty_like(s)
    top_slope = _top(d_out)
    context_backward[triton.cdiv(P, tiles["BM"]),](
        *(d_out, out, context, M_0, M_1, top_slope, of_W, d_sum, d_context, d_rows, c),
        *(P, d, N, form),
        **tiles,
    )
    others = d_out if form == "residual" else d_rows
    rows_backward[triton.cdiv(P, window["BM"]),](
        *(others, d_context, c, lse, rows, y, s, step, starts, Q, r, d_s, d_rows),
        *(P, len(starts) - 1, d, w, min(w, UNROLLED)),
        **window,
        PRECISION="tf32x3",
    )
    tiles |= weight_tiles(d)._asdict()
    m = triton.cdiv(N, tiles["BM"]) + triton.cdiv(d, tiles["BM"])
    n = triton.cdiv(d, tiles["BN"])
    at_once = max(1, PROGRAMS // (m * n))
    shares = at_once * triton.cdiv(P, at_once * SHARE)
    share = triton.cdiv(triton.cdiv(P, shares), tiles["BK"]) * tiles["BK"]
    sums = rows.new_empty(triton.cdiv(P, share), n_parameters, dtype=torch.float32)
    weights_backward[m, n, len(sums)](
        *(d_sum, rows, context, y, d_s, r, top, top_slope, sums, P, share, d, N, form), **tiles
    )
    return d_rows, sums.sum(0).to(rows.dtype)


@_level_backward.register_fake
def _(d_out: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    rows, W_1 = rest[6], rest[12]
    N, d = W_1.shape
    return torch.empty_like(rows), rows.new_empty(2 * N * d + d * d + N + d)


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    *tensors, _b, ctx.w, _masked, ctx.form = inputs
    ctx.save_for_backward(*output, *tensors)
    ctx.set_materialize_grads(False)


def _gradients(ctx: Any, d_out: Tensor | None, *unused: None) -> tuple[Tensor | None, ...]:
    if d_out is None:
        return (None,) * 11
    W_1 = ctx.saved_tensors[-1]
    d_rows, sums = _level_backward(d_out, *ctx.saved_tensors, ctx.w, ctx.form)
    N, d = W_1.shape
    d_W_0, d_W_1, d_Q, d_b, d_r = sums.split([N * d, N * d, d * d, N, d])
    first = d_W_0.view(N, d) if ctx.form != "residual" else None
    bias = d_b if ctx.form == "gates" else None
    return d_rows, None, None, d_Q.view(d, d), d_r, first, d_W_1.view(N, d), bias, None, None, None


_level.register_autograd(_gradients, setup_context=_keep)
register_autocast("hcarec::level", "cuda", torch.bfloat16)


def _or(value: Tensor | None, other: Tensor) -> Tensor:
    """Return a parameter, or one in its place that the form never reads."""
    return other if value is None else value.contiguous()


def _tiles(rows: Tensor) -> dict[str, Any]:
    """Return the tiles of products, with how they are computed."""
    return product_tiles(rows.shape[1])._asdict() | {"PRECISION": _precision(rows)}


def _precision(rows: Tensor) -> str:
    """Return how products are computed: those of float32 as three products of parts."""
    if rows.dtype != torch.float32:
        return "tf32"
    return "fp16x3" if rows.shape[1] >= PARTS else "tf32x3"


def _top(value: Tensor) -> Tensor:
    """Return the largest amount, a scalar; anything where products are not made of parts."""
    if _precision(value) != "fp16x3" or not value.numel():
        return value.new_ones((), dtype=torch.float32)
    return torch.linalg.vector_norm(value, math.inf)


def _top_of_rows(rows: Tensor, form: str) -> Tensor:
    """Return the largest amount of rows; hidden states lie within -1..1."""
    return _top(rows) if form == "gates" else rows.new_ones((), dtype=torch.float32)


def _matrices(
    W_0: Tensor, W_1: Tensor, Q: Tensor, form: str, by_row: bool
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Return W_0, W_1 and Q as products read them, and the inverse scales of W and of Q."""
    if _precision(W_1) != "fp16x3":
        return (W_0, W_1, Q), (W_1, Q)
    N, d = W_1.shape
    lines = N if by_row else d
    parts = W_1.new_empty(4 * N * d + 2 * d * d, dtype=torch.float16)
    inverses = W_1.new_empty(lines + d, dtype=torch.float32)
    split_weights[triton.cdiv(lines, 16), 1 + by_row](
        *(W_0, W_1, Q, parts, inverses, d, N, form != "residual", by_row), B=16, C=128
    )
    return parts.split([2 * N * d, 2 * N * d, 2 * d * d]), inverses.split([lines, d])
