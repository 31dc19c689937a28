"""tanh and the logistic function of a vector in compiled code: exact in float64, a rational function in float32."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import overload, register_jitable

from hcarec.ops.simd import clip, spread, tanh_lanes

# tanh(x) = x P(x^2) / Q(x^2) on [-8.3, 8.3], a minimax fit of the relative error (4e-7 with float32 arithmetic, and
# never above 1); beyond that float32 can hardly tell tanh from 1.
_LIMIT = np.float32(8.3)
_P0, _P1, _P2, _P3, _P4 = (
    np.float32(p) for p in (0.9999999468235546, 0.13360268560759428, 0.0034694278640941636, 2.010902072897488e-05, 1.2508952246338775e-08)
)
_Q1, _Q2, _Q3, _Q4 = (np.float32(q) for q in (0.46693601679068647, 0.02578147308967593, 0.00032399725526859686, 7.464093895482019e-07))
_ONE, _HALF = np.float32(1), np.float32(0.5)


def tanh(x: Any) -> Any:
    """Return tanh of every lane."""
    raise NotImplementedError("only in compiled code")


def _rational(x):
    x = clip(x, spread(_LIMIT))
    y = x * x
    p = (((spread(_P4) * y + spread(_P3)) * y + spread(_P2)) * y + spread(_P1)) * y + spread(_P0)
    q = (((spread(_Q4) * y + spread(_Q3)) * y + spread(_Q2)) * y + spread(_Q1)) * y + spread(_ONE)
    return x * p / q


@overload(tanh)
def _tanh(x):
    return _rational if x.dtype == types.float32 else lambda x: tanh_lanes(x)


@register_jitable(error_model="numpy")
def sigmoid(x, half):
    """Return the logistic function of every lane; `half` is a vector of 0.5."""
    return half + half * tanh(half * x)
