"""Dropout that stores no mask: each number's fate follows from a key and its place.

The backward pass computes it again. The key is drawn from torch's generator, so that a seed
reproduces a run.
"""

from __future__ import annotations

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
from hcarec.ops.hca.threads import in_threads
from hcarec.ops.negatives import mix

_STRIDE = np.uint64(0x9E3779B97F4A7C15)


def drop(x: Tensor, p: float, training: bool) -> Tensor:
    """Set each number to zero with probability p and divide the others by 1 - p, in training."""
    if not training or p == 0 or x.device.type != "cpu" or p == 1:
        return dropout(x, p, training)
    return _Drop.apply(x, p, int(torch.randint(2**62, ())))


class _Drop(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float, key: int) -> Tensor:
        ctx.p, ctx.key = p, key
        return _masked(x, p, key)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor, None, None]:
        return _masked(d_out, ctx.p, ctx.key), None, None


def _masked(x: Tensor, p: float, key: int) -> Tensor:
    x = x.contiguous()
    out = torch.empty_like(x)
    given, made = x.detach().view(-1).numpy(), out.view(-1).numpy()
    kernel, scale = _kernel(given.dtype.name), given.dtype.type(1 / (1 - p))
    threshold = np.uint64(p * 2**64)

    def work(first: int, last: int) -> None:
        kernel(given, np.uint64(key), threshold, scale, first, last, made)

    in_threads(work, len(given))
    return out


@cache
def _kernel(dtype: str) -> Any:
    numbers = (types.uint64, types.uint64, getattr(types, dtype), types.int64, types.int64)
    return compiled(_make_kernel, types.void(array(dtype, given=True), *numbers, array(dtype)))


def _make_kernel(sources: int) -> Any:
    def kernel(x, key, threshold, scale, first, last, out):
        _ = sources
        for i in range(first, last):
            kept = mix(key + _STRIDE * uint64(i)) >= threshold
            out[i] = x[i] * scale if kept else x.dtype.type(0)

    return kernel
