"""The recurrence of the paper's cell on a GPU, as one torch operation with a backward pass.

Rows are packed step after step, longest sequences first (see `packing`). One launch runs all steps
(`triton_cell_kernels`): a program takes some sequences through time, and the weights stay on chip;
above d = 128 several programs share them. The forward pass keeps the gates; from them the backward
pass makes the gradients of their inputs, and one more kernel those of the weights
(`triton_cell_weights`). No kernel adds floating-point numbers by atomics: the same input gives the
same bits.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from hcarec.errors import ConfigError
from hcarec.ops.hca.triton_cell_kernels import backward_kernel, forward_kernel, split_weights
from hcarec.ops.hca.triton_cell_weights import weights_kernel

LARGEST = 512
"""The largest d that the kernels take."""
SHARE, FEWEST_PARTS, MOST_PARTS = 1024, 16, 128
"""Rows of a sum, and how many sums a large d has: in tensor cores longer ones lose digits."""


class Launch(NamedTuple):
    """How a kernel runs."""

    sequences: int
    """Sequences of a program."""
    warps: int
    programs: int = 1
    """Programs on one multiprocessor, at most."""
    members: int = 1
    """Programs that share the weights."""


def forward_launch(D: int, batch: float, exact: bool) -> Launch:
    """Choose for D padded dimensions and the mean number of sequences of a step.

    Few sequences a program make a step shorter, as long as all programs run at once; the numbers
    were measured on an H200, which has 132 multiprocessors.
    """
    if D <= 32:
        return Launch(8, 2, programs=8)
    if D == 64:
        return Launch(8, 4, programs=2) if batch <= 1056 else Launch(16, 4, programs=2)
    if D == 128:
        return Launch(8, 8) if batch <= 1056 else Launch(16, 8)
    if D == 256 and exact:
        return Launch(8, 4, members=4) if batch <= 264 else Launch(16, 4, members=4)
    if D == 256:
        return Launch(8, 4, members=4) if batch <= 264 else Launch(16, 8, members=2)
    if exact:
        return Launch(8, 4, members=16)
    return Launch(8, 4, members=8) if batch <= 128 else Launch(16, 4, members=8)


backward_launch = forward_launch


def recurrence(g: Tensor, W: Tensor, starts: Tensor | np.ndarray) -> Tensor:
    """Return the hidden states of all steps, from h_0 = 0.

    g (P, 3, d) the inputs of the gates z, r and c, float32 or bfloat16; W (3, d, d);
    starts (steps + 1,) int64, best on the device of g -> (P, d) of g's type. Products are made in
    g's type with float32 sums.
    """
    if g.device.type != "cuda" and not triton.knobs.runtime.interpret:
        raise ConfigError(f"the Triton kernels run on a CUDA device; the tensors are on {g.device}")
    if g.dtype not in (torch.float32, torch.bfloat16):
        raise ConfigError(f"the Triton kernels take float32 or bfloat16, not {g.dtype}")
    if g.shape[2] > LARGEST:
        raise ConfigError(f"the Triton kernels take d up to {LARGEST}, not {g.shape[2]}")
    starts = torch.as_tensor(starts).to(g.device, torch.int64)
    save = torch.is_grad_enabled() and (g.requires_grad or W.requires_grad)
    return _forward(g, W, starts, save)[0]


@torch.library.custom_op("hcarec::recurrence", mutates_args=())
def _forward(g: Tensor, W: Tensor, starts: Tensor, save: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return h (P, d), and with `save` the gates (P, 3, d) and the row before each row (P,)."""
    h, gates, before = _outputs(g, W, starts, save)
    (P, _, d), steps = g.shape, len(starts) - 1
    if not P:
        return h, gates, before
    g, exact = g.contiguous(), g.dtype == torch.float32
    D = max(16, triton.next_power_of_2(d))
    launch = forward_launch(D, P / steps, exact)
    parts, scales = _split(W, D, exact, transposed=False)
    given = (g, parts, scales, starts, h, gates, before)
    _run(forward_kernel, launch, given, P, steps, d=d, D=D, EXACT=exact, SAVE=save)
    return h, gates, before


@_forward.register_fake
def _outputs(g: Tensor, W: Tensor, starts: Tensor, save: bool) -> tuple[Tensor, Tensor, Tensor]:
    P, _, d = g.shape
    kept = P if save else 0
    before = torch.empty(kept, dtype=torch.int64, device=g.device)
    return g.new_empty(P, d), g.new_empty(kept, 3, d), before


@torch.library.custom_op("hcarec::recurrence_backward", mutates_args=())
def _backward(
    d_h: Tensor, W: Tensor, starts: Tensor, h: Tensor, gates: Tensor, before: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the gradients of g (P, 3, d) and of W (3, d, d)."""
    (P, d), steps = h.shape, len(starts) - 1
    d_g = torch.empty_like(gates)
    if not P:
        return d_g, torch.zeros_like(W)
    d_h, exact = d_h.contiguous(), h.dtype == torch.float32
    D = max(16, triton.next_power_of_2(d))
    launch = backward_launch(D, P / steps, exact)
    parts, scales = _split(W, D, exact, transposed=True)
    given = (d_h, parts, scales, gates, h, starts, d_g)
    _run(backward_kernel, launch, given, P, steps, d=d, D=D, EXACT=exact)
    return d_g, weight_gradients(d_g, gates, h, before).to(W.dtype)


@_backward.register_fake
def _(
    d_h: Tensor, W: Tensor, starts: Tensor, h: Tensor, gates: Tensor, before: Tensor
) -> tuple[Tensor, Tensor]:
    return torch.empty_like(gates), torch.empty_like(W)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    _, W, starts, _ = inputs
    ctx.save_for_backward(W, starts, *output)
    ctx.set_materialize_grads(False)  # the gates and rows have none


def _gradients(ctx: Any, d_h: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
    if d_h is None:
        return None, None, None, None
    return *_backward(d_h, *ctx.saved_tensors), None, None


_forward.register_autograd(_gradients, setup_context=_keep)


def weight_gradients(d_g: Tensor, gates: Tensor, h: Tensor, before: Tensor) -> Tensor:
    """Return the gradient of W (3, d, d) in float32 from the parts of all rows.

    Each program sums some rows; torch adds the sums in a fixed order.
    """
    P, d = h.shape
    tile, warps = (64, 4) if d > 32 else (32 if d > 16 else 16, 2)
    R = 32
    tiles = triton.cdiv(d, tile)
    at_once = max(2 * _multiprocessors(h) // tiles**2, FEWEST_PARTS)
    parts = max(1, min(triton.cdiv(P, 4 * R), at_once))
    parts = max(parts, min(triton.cdiv(P, SHARE), MOST_PARTS))
    rows_each = triton.cdiv(triton.cdiv(P, parts), R) * R
    parts = triton.cdiv(P, rows_each)
    out = torch.empty(parts, 3, d, d, dtype=torch.float32, device=h.device)
    # Both are exact to some 1e-7; on large tiles bfloat16 parts are faster. Interpreted: none.
    precision = "bf16x6" if tile == 64 and h.device.type == "cuda" else "tf32x3"
    sizes = {"d": d, "R": R, "J": tile, "K": tile, "TYPE": _product_type(h)}
    weights_kernel[parts, tiles, tiles](
        d_g, gates, h, before, out, P, rows_each,
        **sizes, PRECISION=precision, num_warps=warps, num_stages=1,
    )  # fmt: skip
    return out.sum(0)


def _run(
    kernel: Any, launch: Launch, given: tuple[Tensor, ...], P: int, steps: int, **sizes: int
) -> None:
    """Start a kernel; how many sequences there are, only the device knows."""
    device, (sequences, warps, programs, members) = given[0].device, launch
    if device.type != "cuda":
        members = 1  # Triton's interpreter runs programs one after another: none can wait
    groups = max(1, programs * _multiprocessors(given[0]) // members)
    groups = min(triton.cdiv(P, sequences), groups)
    work = torch.empty(groups if members > 1 else 0, 3, sequences, sizes["D"], device=device)
    counters = torch.zeros(groups if members > 1 else 0, dtype=torch.int32, device=device)
    kernel[groups * members,](
        *given, work, counters, steps, **sizes, B=sequences, MEMBERS=members,
        num_warps=warps, num_stages=1,  # more would read `work` a step ahead
        launch_cooperative_grid=members > 1,  # all members run at once, or none
    )  # fmt: skip


def _split(W: Tensor, D: int, exact: bool, transposed: bool) -> tuple[Tensor, Tensor]:
    """Return the parts of W (3, d, d), padded to D, and their scales; see `split_weights`."""
    d = W.shape[1]
    W = W.contiguous()
    dtype = torch.float16
    if not exact:  # Triton's interpreter multiplies no bfloat16; kernels round to it all the same
        dtype = torch.bfloat16 if W.device.type == "cuda" else torch.float32
    parts = torch.empty(2 if exact else 1, 3, D, D, dtype=dtype, device=W.device)
    scales = torch.empty(3, D, dtype=torch.float32, device=W.device)
    row, column = (1, d) if transposed else (d, 1)
    split_weights[3, D](W, parts, scales, row, column, d, D=D, EXACT=exact)
    return parts, scales


def _product_type(x: Tensor) -> tl.dtype:
    """Return the type of plain products; the interpreter knows none of bfloat16."""
    return tl.bfloat16 if x.dtype == torch.bfloat16 and x.device.type == "cuda" else tl.float32


def _multiprocessors(like: Tensor) -> int:
    if like.device.type == "cuda":
        return torch.cuda.get_device_properties(like.device).multi_processor_count
    return 2  # Triton's interpreter: one after another
