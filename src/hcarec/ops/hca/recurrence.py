"""The recurrence as one differentiable operation, with a backward pass of its own.

Rows are packed step after step (see `packing`). On a CPU compiled kernels run one group of
sequences after another; elsewhere Triton kernels (`triton_cell`) or plain torch operations, which
run all sequences step by step. What compiles is imported where it is used: a machine that trains
on a GPU needs no Numba.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

from hcarec.ops.hca.packing import Packing

GROUP = 32
"""Sequences that a kernel takes together: their rows of one step stay in the nearest cache."""


def recur(g: Tensor, W: Tensor, packing: Packing, backend: str) -> Tensor:
    """Return the hidden states of all steps, from h_0 = 0.

    g (P, 3, d) the inputs of the gates z, r and c, W (3, d, d) -> (P, d).
    """
    if backend == "triton":
        from hcarec.ops.hca.triton_cell import recurrence

        return recurrence(g, W, packing.device_starts)
    if backend == "torch":
        return TorchRecurrence.apply(g, W, packing.starts)
    d, starts = g.shape[2], packing.starts
    if d % 8 == 0:
        return KernelRecurrence.apply(g, W, starts)
    more = -d % 8  # kernels work on whole vectors; the padding stays zero by itself
    h = KernelRecurrence.apply(pad(g, (0, more)), pad(W, (0, more, 0, more)), starts)
    return h[:, :d]


class KernelRecurrence(Function):
    """The recurrence by compiled kernels; d is a multiple of 8."""

    @staticmethod
    def forward(ctx: Any, g: Tensor, W: Tensor, starts: np.ndarray) -> Tensor:
        from hcarec.ops.hca.cell_kernels import cell_forward

        (n, _, d), batch = g.shape, int(starts[1]) if len(starts) > 1 else 0
        g, W = g.contiguous().view(n, 3 * d), W.contiguous().view(3 * d, d)
        gates, h = torch.empty_like(g), g.new_empty(batch + n, d)
        h[:batch] = 0
        W_T = W.t().contiguous()
        arrays, out = (g.numpy(), W_T.numpy(), starts), (gates.numpy(), h.numpy())
        kernel = cell_forward(g.numpy().dtype.name)
        rh = g.new_empty(GROUP, d).numpy()
        for first in range(0, batch, GROUP):
            kernel(*arrays, first, min(first + GROUP, batch), *out, rh)
        ctx.save_for_backward(W, gates, h)
        ctx.starts = starts
        return h[batch:]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor, Tensor, None]:
        from hcarec.ops.hca.cell_kernels import cell_backward

        W, gates, h = ctx.saved_tensors
        (n, d), batch = d_out.shape, len(h) - len(d_out)
        d_g, d_W = torch.empty_like(gates), torch.zeros_like(W)
        arrays = tuple(part.numpy() for part in (d_out.contiguous(), W, gates, h))
        kernel = cell_backward(arrays[0].dtype.name)
        carry, d_rh, rh = (np.empty((GROUP, d), arrays[0].dtype) for _ in range(3))
        for first in range(0, batch, GROUP):
            carry.fill(0)
            ranks = first, min(first + GROUP, batch)
            kernel(*arrays, ctx.starts, *ranks, d_g.numpy(), d_W.numpy(), carry, d_rh, rh)
        return d_g.view(n, 3, d), d_W.view(3, d, d), None


class TorchRecurrence(Function):
    """The recurrence by plain torch operations; six a step forward, eight a step backward.

    They are of the type of W, whatever autocast made of g.
    """

    @staticmethod
    def forward(ctx: Any, g: Tensor, W: Tensor, starts: np.ndarray) -> Tensor:
        n, _, d = g.shape
        g = g.reshape(n, 3 * d).to(W.dtype)
        zr, c, h, rh = g.new_empty(n, 2 * d), *(g.new_empty(n, d) for _ in range(3))
        W_zr, W_c = W[:2].reshape(2 * d, d).t(), W[2].t()
        before = g.new_zeros(int(starts[1]) if n else 0, d)
        for begin, end in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
            rows, before = slice(begin, end), before[: end - begin]
            torch.addmm(g[rows, : 2 * d], before, W_zr, out=zr[rows]).sigmoid_()
            torch.mul(zr[rows, d:], before, out=rh[rows])
            torch.addmm(g[rows, 2 * d :], rh[rows], W_c, out=c[rows]).tanh_()
            before = torch.lerp(before, c[rows], zr[rows, :d], out=h[rows])
        ctx.save_for_backward(W, zr, c, h, rh)
        ctx.starts = starts
        return h

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor, Tensor, None]:
        W, zr, c, h, rh = ctx.saved_tensors
        n, d = h.shape
        if n == 0:
            return h.new_zeros(0, 3, d), torch.zeros_like(W), None
        before = _before(h, ctx.starts)
        z, r = zr[:, :d], zr[:, d:]
        # The factors of dh and of d(r h), for all steps at once.
        to_c, to_z, to_r = z * (1 - c * c), (c - before) * z * (1 - z), rh * (1 - r)
        keep, r = 1 - z, r.contiguous()
        d_zr, d_c = torch.empty_like(zr), torch.empty_like(c)
        W_zr, W_c = W[:2].reshape(2 * d, d), W[2]
        batch = int(ctx.starts[1])
        carry, d_rh = h.new_zeros(batch, d), h.new_empty(batch, d)
        for t in range(len(ctx.starts) - 2, -1, -1):
            rows = slice(int(ctx.starts[t]), int(ctx.starts[t + 1]))
            dh, own = carry[: rows.stop - rows.start], d_rh[: rows.stop - rows.start]
            dh += d_out[rows]
            torch.mul(dh, to_c[rows], out=d_c[rows])
            torch.mul(dh, to_z[rows], out=d_zr[rows, :d])
            torch.mm(d_c[rows], W_c, out=own)
            torch.mul(own, to_r[rows], out=d_zr[rows, d:])
            dh.mul_(keep[rows]).addcmul_(own, r[rows]).addmm_(d_zr[rows], W_zr)
        d_W = torch.cat([d_zr.t() @ before, d_c.t() @ rh]).view(3, d, d)
        return torch.cat([d_zr, d_c], dim=1).view(n, 3, d), d_W, None


def _before(h: Tensor, starts: np.ndarray) -> Tensor:
    """Return the hidden state before each of h (P, d)."""
    before = torch.zeros_like(h)
    for t in range(1, len(starts) - 1):
        count = int(starts[t + 1] - starts[t])
        before[starts[t] : starts[t + 1]] = h[starts[t - 1] : starts[t - 1] + count]
    return before
