"""Rows at length 1, for cosine scores, with few operations forward and backward."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

LEAST = 1e-12
"""A row that is shorter is divided by this: a zero row stays zero."""


def unit(v: Tensor) -> Tensor:
    """Return every row of v (n, d) at length 1; what autocast made of v is taken to float32."""
    return _Unit.apply(v.to(torch.promote_types(v.dtype, torch.float32)))


class _Unit(Function):
    @staticmethod
    def forward(ctx: Any, v: Tensor) -> Tensor:
        length = torch.linalg.vector_norm(v, dim=1, keepdim=True).clamp_min_(LEAST)
        u = v / length
        ctx.save_for_backward(u, length)
        return u

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> Tensor:
        u, length = ctx.saved_tensors
        along = (d_out * u).sum(1, keepdim=True)
        return torch.addcmul(d_out, u, along, value=-1).div_(length)
