"""The kernel of dropout on a CPU."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numba import types, uint64

from hcarec.ops.compiled import array, compiled
from hcarec.ops.negatives import mix
from hcarec.ops.streams import STRIDE

_STRIDE = np.uint64(STRIDE)


@cache
def drop_kernel(dtype: str) -> Any:
    """Return the kernel of out = x with some numbers at zero and the others scaled, (n,)."""
    numbers = (types.uint64, types.uint64, getattr(types, dtype))
    return compiled(_make_kernel, types.void(array(dtype, given=True), *numbers, array(dtype)))


def _make_kernel(sources: int) -> Any:
    def kernel(x, key, threshold, scale, out):
        _ = sources
        for i in range(len(x)):
            kept = mix(key + _STRIDE * uint64(i)) >= threshold
            out[i] = x[i] * scale if kept else x.dtype.type(0)

    return kernel
