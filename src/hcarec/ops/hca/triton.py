"""One layer of the network on a GPU by Triton kernels, forward and backward.

Both attention levels are one operation, `level`, registered with torch: it works under autocast,
`torch.compile` and in the capture of a CUDA graph. Sums have a fixed order, so a run gives the same
bits again. `hcarec.ops.reference` is the specification.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor
from torch.library import custom_op, register_autocast

from hcarec.ops.hca.triton_backward import context_backward, rows_backward, weights_backward
from hcarec.ops.hca.triton_forward import level_forward, score_rows

FORMS = ("gates", "paper", "residual")
UNROLLED = 8
"""Rows of a window that are read at once."""
PROGRAMS = 264
"""Programs that the sums over all rows are shared out to, about: two for each processor."""


class Tiles(NamedTuple):
    """How rows and columns are cut for the programs of a kernel."""

    BM: int
    BN: int
    BK: int
    num_warps: int
    num_stages: int


def tiles_of(d: int) -> Tiles:
    """Return the tiles of kernels that write rows of size d."""
    columns = min(128, max(16, triton.next_power_of_2(d)))
    return Tiles(64, columns, min(32, columns), 4, 2)


def weight_tiles_of(d: int) -> Tiles:
    """Return the tiles of the kernel that sums over rows: BK rows at a time."""
    columns = min(64, max(16, triton.next_power_of_2(d)))
    return Tiles(64, columns, 32, 4, 2)


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

    rows (P, d) packed step after step, step (P,) and starts (steps + 1,) int32 as in `Packing`;
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
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the output and what the backward pass needs: y, context, s and lse."""
    assert form in FORMS and (W_0 is None) == (form == "residual") and (b is None) == (form != "gates")
    rows, Q, r, W_1 = (value.contiguous() for value in (rows, Q, r, W_1))
    (P, d), N, tiles = rows.shape, len(W_1), tiles_of(rows.shape[1])
    out, y, context = rows.new_empty(P, N), torch.empty_like(rows), torch.empty_like(rows)
    s, lse = (rows.new_empty(P, dtype=torch.float32) for _ in range(2))
    if P:
        W_0, b = _or(W_0, W_1), _or(b, r)
        grid, options = (triton.cdiv(P, tiles.BM),), tiles._asdict() | _precision(rows)
        score_rows[grid](rows, Q, r, y, s, P, d, **options)
        level_forward[grid](
            *(rows, s, step, starts, W_0, W_1, b, lse, context, out, P, d, N, w),
            **(options | {"UNROLL": min(w, UNROLLED), "MASKED": masked, "FORM": form}),
        )
    return out, y, context, s, lse


@_level.register_fake
def _(rows: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    P, N = len(rows), len(rest[5])
    s = rows.new_empty(P, dtype=torch.float32)
    every = torch.empty_like(rows), torch.empty_like(rows), s, torch.empty_like(s)
    return rows.new_empty(P, N), *every


@custom_op("hcarec::level_backward", mutates_args=())
def _level_backward(
    d_out: Tensor,
    out: Tensor,
    y: Tensor,
    context: Tensor,
    s: Tensor,
    lse: Tensor,
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
    (P, d), N, tiles = rows.shape, len(W_1), tiles_of(rows.shape[1])
    d_rows, n_parameters = torch.empty_like(rows), 2 * N * d + d * d + N + d
    if not P:
        return d_rows, rows.new_zeros(n_parameters)
    options = tiles._asdict() | _precision(rows) | {"FORM": form}
    grid, window = (triton.cdiv(P, tiles.BM),), {"UNROLL": min(w, UNROLLED)}
    d_sum = torch.empty_like(d_out) if form == "paper" else d_out
    d_context, c, d_s = torch.empty_like(rows), torch.empty_like(s), torch.empty_like(s)
    context_backward[grid](d_out, out, W_1, context, d_sum, d_context, c, P, d, N, **options)
    rows_backward[grid](
        *(d_sum, d_context, c, lse, rows, y, s, step, starts, _or(W_0, W_1), Q, r, d_s, d_rows),
        *(P, len(starts) - 1, d, N, w),
        **(options | window),
    )
    tiles = weight_tiles_of(d)
    jobs = (triton.cdiv(N, tiles.BM) + triton.cdiv(d, tiles.BM)) * triton.cdiv(d, tiles.BN)
    shares = min(triton.cdiv(P, 2 * tiles.BK), max(1, PROGRAMS // jobs))
    share = triton.cdiv(triton.cdiv(P, shares), tiles.BK) * tiles.BK
    sums = rows.new_empty(triton.cdiv(P, share), n_parameters, dtype=torch.float32)
    weights_backward[jobs, len(sums)](
        *(d_sum, rows, context, y, d_s, r, sums, P, share, d, N), **(options | tiles._asdict())
    )
    return d_rows, sums.sum(0).to(rows.dtype)


@_level_backward.register_fake
def _(d_out: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    rows, W_1 = rest[5], rest[11]
    N, d = W_1.shape
    return torch.empty_like(rows), rows.new_empty(2 * N * d + d * d + N + d)


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    *tensors, _b, ctx.w, _masked, ctx.form = inputs
    ctx.save_for_backward(*output, *tensors)
    ctx.set_materialize_grads(False)


def _gradients(ctx: Any, d_out: Tensor | None, *unused: None) -> tuple[Tensor | None, ...]:
    if d_out is None:
        return (None,) * 11
    rows, *_, W_1 = ctx.saved_tensors[5:]
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


def _precision(rows: Tensor) -> dict[str, str]:
    """Return how products of rows are computed: float32 by three products of 19 bits each."""
    return {"PRECISION": "tf32x3" if rows.dtype == torch.float32 else "tf32"}
