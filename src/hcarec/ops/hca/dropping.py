"""Dropout that stores no mask: each number's fate follows from a key and its place.

The backward pass computes it again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.functional import dropout

Keys = Iterator[np.uint64] | None
"""One key for each place of the network where something is dropped; None drops nothing."""


def drop(x: Tensor, p: float, keys: Keys) -> Tensor:
    """Set each number to zero with probability p and divide the others by 1 - p."""
    if keys is None or p == 0:
        return x
    if x.device.type != "cpu" or p == 1:
        return dropout(x, p)
    return _Drop.apply(x, p, next(keys))


class _Drop(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float, key: np.uint64) -> Tensor:
        ctx.p, ctx.key = p, key
        return _masked(x, p, key)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor, None, None]:
        return _masked(d_out, ctx.p, ctx.key), None, None


def _masked(x: Tensor, p: float, key: np.uint64) -> Tensor:
    from hcarec.ops.hca.dropping_kernels import drop_kernel

    x = x.contiguous()
    out = torch.empty_like(x)
    given, made = x.detach().view(-1).numpy(), out.view(-1).numpy()
    scale, threshold = given.dtype.type(1 / (1 - p)), np.uint64(p * 2**64)
    drop_kernel(given.dtype.name)(given, key, threshold, scale, made)
    return out
