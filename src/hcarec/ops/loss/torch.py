"""Full cross-entropy over the catalog as a differentiable function of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from hcarec.errors import ConfigError
from hcarec.ops.rank.corrections import Corrections

_CHUNK = 1 << 25  # logits that the plain path holds at once, 128 MiB of float32
_HAS_TRITON = find_spec("triton") is not None
BACKENDS = ("numba", "torch", "triton")


def cross_entropy(
    H: Tensor,
    Z: Tensor,
    targets: Tensor,
    corrections: tuple[Tensor, Tensor, Tensor] | None = None,
    backend: str | None = None,
    threads: int | None = None,
) -> Tensor:
    """Return the mean of -log softmax of the targets over the whole catalog, a scalar.

    H (P, d) and Z (n_items, d) float32, targets (P,) int64; corrections are (items int32,
    offsets int64, values float32) as in `Corrections`. H, Z and values may have gradients. The
    equations are those of `hcarec.ops.reference.cross_entropy`. Back-ends of a GPU leave out the
    positions whose target is -1; "triton" also takes corrections with n_items behind the last
    offset, which stand for none.

    The device of H decides on the back-end: "numba" on a CPU, which computes the gradients with
    the loss on `threads` threads (by default as many as torch has); on a GPU "triton", which never
    holds logits and takes half precision and autocast as well (`triton.precision_of` says how
    products are computed); and "torch" where that cannot run, which goes through the positions in
    chunks of plain torch operations and computes the logits again for the gradients.
    A back-end given by name that cannot run is a ConfigError.
    """
    if backend is None:
        backend = choose_backend(H, Z)
    if backend not in BACKENDS:
        raise ConfigError(
            f"back-end '{backend}' of the loss: expected one of {', '.join(BACKENDS)}"
        )
    if backend == "numba":
        _check_numba(H, Z)
    if backend == "triton" and (reason := _triton_obstacle(H, Z)):
        raise ConfigError(f"back-end 'triton' of the loss {reason}; use the back-end 'torch'")
    items, offsets, values = corrections if corrections is not None else _nothing(H)
    if backend == "triton":
        from hcarec.ops.loss import triton

        return triton.cross_entropy(H, Z, targets, (items, offsets, values))
    function = _Compiled if backend == "numba" else _Chunked
    return function.apply(H, Z, targets, threads, items, offsets, values)


def default_backend(device: str) -> str:
    """Return the back-end of a device ("cpu" or "cuda") where none is given by name."""
    if device == "cpu":
        return "numba"
    return "triton" if _HAS_TRITON else "torch"


def choose_backend(H: Tensor, Z: Tensor) -> str:
    """Return the back-end for the device of H; one of types that kernels lack takes "torch"."""
    backend = default_backend(H.device.type)
    return "torch" if backend == "triton" and _triton_obstacle(H, Z) else backend


def _triton_obstacle(H: Tensor, Z: Tensor) -> str | None:
    """Return why the back-end "triton" cannot run, or None."""
    if not _HAS_TRITON:
        return "needs the package triton, which is not installed"
    from hcarec.ops.loss import triton

    return triton.obstacle(H, Z)


def _check_numba(*tensors: Tensor) -> None:
    for tensor in tensors:
        if tensor.device.type != "cpu" or tensor.dtype != torch.float32:
            raise ConfigError(
                f"back-end 'numba' of the loss got {tensor.dtype} on {tensor.device}: "
                "it takes torch.float32 on a CPU; use the back-end 'torch'"
            )


def _nothing(H: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return corrections of no item."""
    offsets = torch.zeros(len(H) + 1, dtype=torch.int64, device=H.device)
    return offsets.new_zeros(0, dtype=torch.int32), offsets, H.new_zeros(0)


class _Compiled(torch.autograd.Function):
    """The compiled kernels: the gradients are there with the loss, and are scaled in backward."""

    @staticmethod
    def forward(
        ctx: Any, H: Tensor, Z: Tensor, targets: Tensor, threads: int | None, *corrections: Tensor
    ) -> Tensor:
        from hcarec.ops.loss import numba

        h, z, at, *rest = (
            tensor.detach().contiguous().numpy() for tensor in (H, Z, targets, *corrections)
        )
        threads = torch.get_num_threads() if threads is None else threads
        loss = numba.cross_entropy(h, z, at, Corrections(*rest), threads)
        ctx.save_for_backward(*map(torch.from_numpy, loss[1:]))
        return H.new_tensor(loss.value)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        dH, dZ, dvalues = ctx.saved_tensors
        return grad * dH, grad * dZ, None, None, None, None, grad * dvalues


class _Chunked(torch.autograd.Function):
    """Plain torch operations, a chunk of positions at a time; backward computes logits again.

    Under autocast the products are of its type, all else of float32.
    """

    @staticmethod
    def forward(
        ctx: Any, H: Tensor, Z: Tensor, targets: Tensor, threads: int | None, *corrections: Tensor
    ) -> Tensor:
        device, ctx.low = H.device.type, H.dtype
        if torch.is_autocast_enabled(device):
            ctx.low = torch.get_autocast_dtype(device)
        ctx.chunks = _chunks(H, Z, corrections)
        full = torch.promote_types(H.dtype, torch.float32)
        totals, total = H.new_empty(len(H), dtype=full), H.new_zeros((), dtype=torch.float64)
        low = H.to(ctx.low), Z.to(ctx.low)
        for chunk in ctx.chunks:
            part = slice(chunk.start, chunk.end)
            logits, _, _ = _logits(*low, full, corrections, chunk)
            totals[part] = logits.logsumexp(1)
            of_targets = logits.gather(1, targets[part, None].clamp(min=0)).squeeze(1)
            losses = (totals[part] - of_targets) * (targets[part] >= 0)
            total += losses.sum(dtype=torch.float64)
        ctx.save_for_backward(H, Z, targets, totals, *corrections)
        return (total / (targets >= 0).sum()).to(full)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        H, Z, targets, totals, *corrections = ctx.saved_tensors
        low = H.to(ctx.low), Z.to(ctx.low)
        dH, dZ = torch.empty_like(H), torch.zeros_like(Z, dtype=totals.dtype)
        dvalues, scale = torch.empty_like(corrections[2]), grad / (targets >= 0).sum()
        for chunk in ctx.chunks:
            part = slice(chunk.start, chunk.end)
            slopes, rows, items = _logits(*low, totals.dtype, corrections, chunk)
            slopes.sub_(totals[part, None]).exp_()
            every = torch.arange(chunk.end - chunk.start, device=H.device)
            slopes[every, targets[part]] -= 1  # one of -1 touches a row that does not count
            slopes *= (targets[part] >= 0)[:, None] * scale
            dvalues[chunk.corrected] = slopes[rows, items].to(dvalues.dtype)
            slopes = slopes.to(ctx.low)
            dH[part] = slopes @ low[1]
            dZ += slopes.T @ low[0][part]
        return dH, dZ, None, None, None, None, dvalues


class _Chunk(NamedTuple):
    """The positions [start, end), and where their corrections lie."""

    start: int
    end: int
    corrected: slice


def _chunks(H: Tensor, Z: Tensor, corrections: tuple[Tensor, ...]) -> list[_Chunk]:
    """Cut the positions; a GPU is waited for only where corrections belong to several chunks."""
    step = max(1, _CHUNK // len(Z))
    bounds = [*range(0, len(H), step), len(H)]
    items, offsets, _ = corrections
    if len(items) == 0 or len(bounds) <= 2:
        cuts = [0] * (len(bounds) - 1) + [len(items)]
    else:
        cuts = offsets[bounds].tolist()
    places = [slice(*ends) for ends in pairwise(cuts)]
    return [_Chunk(*ends, place) for ends, place in zip(pairwise(bounds), places, strict=True)]


def _logits(
    H: Tensor, Z: Tensor, full: torch.dtype, corrections: Sequence[Tensor], chunk: _Chunk
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the logits of a chunk, and the rows and items that are corrected."""
    items, offsets, values = corrections
    logits = (H[chunk.start : chunk.end] @ Z.T).to(full)
    columns = items[chunk.corrected].long()
    rows = torch.repeat_interleave(
        torch.arange(len(logits), device=H.device),
        offsets[chunk.start : chunk.end + 1].diff(),
        output_size=len(columns),
    )
    if len(columns):
        logits[rows, columns] += values[chunk.corrected]  # no item of a position occurs twice
    return logits, rows, columns
