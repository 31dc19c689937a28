"""Differentiable sums and products over windows of rows, without a copy of the windows.

`before` (P, w) int64 lists the rows of each window, -1 where there is none; within a column no row
is listed twice. The gradient of either is made of the other and of `_spread`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable


def weighted_sum(a: Tensor, x: Tensor, before: Tensor) -> Tensor:
    """Return sum over j of a[p, j] x[before[p, j]]: a (P, w), x (n, d) -> (P, d)."""
    return _WeightedSum.apply(a, x, before)


def products(q: Tensor, k: Tensor, before: Tensor) -> Tensor:
    """Return q[p] . k[before[p, j]], 0 where there is no row: q (P, d), k (n, d) -> (P, w)."""
    return _Products.apply(q, k, before)


def totals(a: Tensor, group: Tensor, n: int) -> Tensor:
    """Return the sum of a over the places of each group: a (P, w), group (P, w) or -1 -> (n,).

    No group stands in two rows.
    """
    return _Totals.apply(a, group, n)


class _WeightedSum(Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, x: Tensor, before: Tensor) -> Tensor:
        a, x = a.contiguous(), x.contiguous()
        ctx.save_for_backward(a, x, before)
        return _sum(a, x, before)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor, Tensor, None]:
        a, x, before = ctx.saved_tensors
        d_out = d_out.contiguous()
        return _dot(d_out, x, before), _spread(a, d_out, before, len(x)), None


class _Products(Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, before: Tensor) -> Tensor:
        q, k = q.contiguous(), k.contiguous()
        ctx.save_for_backward(q, k, before)
        return _dot(q, k, before)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor, Tensor, None]:
        q, k, before = ctx.saved_tensors
        d_out = d_out.contiguous()
        return _sum(d_out, k, before), _spread(d_out, q, before, len(k)), None


class _Totals(Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, group: Tensor, n: int) -> Tensor:
        ctx.save_for_backward(group)
        return _spread(a.contiguous(), a.new_ones(len(a), 1), group, n)[:, 0]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor, None, None]:
        (group,) = ctx.saved_tensors
        d_out = d_out.contiguous()[:, None]
        return _dot(d_out.new_ones(len(group), 1), d_out, group), None, None


def _sum(a: Tensor, x: Tensor, before: Tensor) -> Tensor:
    if x.device.type != "cpu":
        return sum_in_torch(a, x, before)
    from hcarec.ops.hca.window_kernels import window_sum

    out = x.new_empty(len(a), x.shape[1])
    window_sum(_name(x))(a.numpy(), x.numpy(), before.numpy(), out.numpy())
    return out


def _dot(q: Tensor, k: Tensor, before: Tensor) -> Tensor:
    if q.device.type != "cpu":
        return dot_in_torch(q, k, before)
    from hcarec.ops.hca.window_kernels import window_dot

    out = q.new_empty(before.shape)
    window_dot(_name(q))(q.numpy(), k.numpy(), before.numpy(), out.numpy())
    return out


def _spread(a: Tensor, y: Tensor, before: Tensor, n: int) -> Tensor:
    if y.device.type != "cpu":
        return spread_in_torch(a, y, before, n)
    from hcarec.ops.hca.window_kernels import window_spread

    out = y.new_zeros(n, y.shape[1])
    window_spread(_name(y))(a.numpy(), y.numpy(), before.numpy(), out.numpy())
    return out


def _name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


# The same in plain torch, one lag at a time; -1 reads the last row, and its share is put to zero.


def sum_in_torch(a: Tensor, x: Tensor, before: Tensor) -> Tensor:
    """Return what `weighted_sum` returns."""
    a = a * (before >= 0)
    out = x.new_zeros(len(a), x.shape[1], dtype=torch.promote_types(a.dtype, x.dtype))
    for lag in range(before.shape[1]):
        out.addcmul_(a[:, lag, None], x[before[:, lag]])
    return out


def dot_in_torch(q: Tensor, k: Tensor, before: Tensor) -> Tensor:
    """Return what `products` returns."""
    lags = [(q * k[before[:, lag]]).sum(1) for lag in range(before.shape[1])]
    return torch.stack(lags, dim=1) * (before >= 0)


def spread_in_torch(a: Tensor, y: Tensor, before: Tensor, n: int) -> Tensor:
    """Return out (n, d), where out[before[p, j]] is the sum of a[p, j] y[p]."""
    # The last row takes what belongs to no row.
    out = y.new_zeros(n + 1, y.shape[1], dtype=torch.promote_types(a.dtype, y.dtype))
    to = torch.where(before < 0, n, before)
    for lag in range(before.shape[1]):
        # No row is listed twice in a lag, so the order of additions does not matter.
        out.index_add_(0, to[:, lag], a[:, lag, None] * y)
    return out[:n]
