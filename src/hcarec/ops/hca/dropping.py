"""Dropout that stores no mask: each number's fate follows from a key and its place.

The backward pass computes it again.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import torch
from numba import types, uint64
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.functional import dropout

from hcarec.ops.compiled import array, compiled
from hcarec.ops.negatives import mix

Keys = Iterator[np.uint64] | None
"""One key for each place of the network where something is dropped; None drops nothing."""
_STRIDE = np.uint64(0x9E3779B97F4A7C15)


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
    x = x.contiguous()
    out = torch.empty_like(x)
    given, made = x.detach().view(-1).numpy(), out.view(-1).numpy()
    scale, threshold = given.dtype.type(1 / (1 - p)), np.uint64(p * 2**64)
    _kernel(given.dtype.name)(given, key, threshold, scale, made)
    return out


@cache
def _kernel(dtype: str) -> Any:
    numbers = (types.uint64, types.uint64, getattr(types, dtype))
    return compiled(_make_kernel, types.void(array(dtype, given=True), *numbers, array(dtype)))


def _make_kernel(sources: int) -> Any:
    def kernel(x, key, threshold, scale, out):
        _ = sources
        for i in range(len(x)):
            kept = mix(key + _STRIDE * uint64(i)) >= threshold
            out[i] = x[i] * scale if kept else x.dtype.type(0)

    return kernel
