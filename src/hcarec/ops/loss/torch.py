"""Full cross-entropy over the catalog as a differentiable function of tensors."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

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
    equations are those of `hcarec.ops.reference.cross_entropy`.

    The device of H decides on the back-end: "numba" on a CPU, which computes the gradients with
    the loss on `threads` threads (by default as many as torch has); on a GPU "triton", which never
    holds logits and takes half precision and autocast as well (`triton.precision_of` says how
    products are computed); and "torch" where that cannot run, which goes through the positions in
    chunks of plain torch operations and computes the logits again for the gradients.
    A back-end given by name that cannot run is a ConfigError.
    """
    if backend is None:
        backend = _choose(H, Z)
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


def _choose(H: Tensor, Z: Tensor) -> str:
    """Return the back-end for the device of H."""
    if H.device.type == "cpu":
        return "numba"
    return "torch" if _triton_obstacle(H, Z) else "triton"


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
    """Plain torch operations, a chunk of positions at a time; backward computes logits again."""

    @staticmethod
    def forward(
        ctx: Any, H: Tensor, Z: Tensor, targets: Tensor, threads: int | None, *corrections: Tensor
    ) -> Tensor:
        totals, total = H.new_empty(len(H)), H.new_zeros((), dtype=torch.float64)
        for start, end in _chunks(H, Z):
            logits, *_ = _logits(H, Z, corrections, start, end)
            totals[start:end] = logits.logsumexp(1)
            of_targets = logits.gather(1, targets[start:end, None]).squeeze(1)
            total += (totals[start:end] - of_targets).sum(dtype=torch.float64)
        ctx.save_for_backward(H, Z, targets, totals, *corrections)
        return (total / len(H)).to(H.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        H, Z, targets, totals, *corrections = ctx.saved_tensors
        dH, dZ, dvalues = torch.empty_like(H), torch.zeros_like(Z), torch.empty_like(corrections[2])
        for start, end in _chunks(H, Z):
            slopes, rows, items, some = _logits(H, Z, corrections, start, end)
            slopes.sub_(totals[start:end, None]).exp_()
            slopes[torch.arange(end - start, device=H.device), targets[start:end]] -= 1
            slopes *= grad / len(H)
            dH[start:end] = slopes @ Z
            dZ.addmm_(slopes.T, H[start:end])
            dvalues[some] = slopes[rows, items]
        return dH, dZ, None, None, None, None, dvalues


def _chunks(H: Tensor, Z: Tensor) -> list[tuple[int, int]]:
    step = max(1, _CHUNK // len(Z))
    return [(start, min(start + step, len(H))) for start in range(0, len(H), step)]


def _logits(H: Tensor, Z: Tensor, corrections: Any, start: int, end: int) -> Any:
    """Return the logits of a chunk, the rows and items that are corrected, and their place."""
    items, offsets, values = corrections
    logits = H[start:end] @ Z.T
    some = slice(int(offsets[start]), int(offsets[end]))
    every = torch.arange(end - start, device=H.device)
    rows, columns = every.repeat_interleave(offsets[start : end + 1].diff()), items[some].long()
    logits[rows, columns] += values[some]  # no item of a position occurs twice
    return logits, rows, columns, some
