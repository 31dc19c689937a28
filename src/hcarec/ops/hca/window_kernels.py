"""Kernels over windows of rows: sums, products, and the way back.

`before` (P, w) lists the rows of each window, -1 where there is none: that place counts nothing.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from numba import types

from hcarec.ops.compiled import array, compiled
from hcarec.ops.simd import constant, load, pointer, spread, store, total


@cache
def window_sum(dtype: str) -> Any:
    """Return the kernel of out[p] = sum over j of a[p, j] x[before[p, j]].

    a (P, w), x (n, d), before (P, w) -> out (P, d).
    """
    given = array(dtype, 2, given=True)
    return compiled(_sum, types.void(given, given, _before(), array(dtype, 2)))


@cache
def window_dot(dtype: str) -> Any:
    """Return the kernel of out[p, j] = q[p] . k[before[p, j]].

    q (P, d), k (n, d), before (P, w) -> out (P, w).
    """
    given = array(dtype, 2, given=True)
    return compiled(_dot, types.void(given, given, _before(), array(dtype, 2)))


@cache
def window_spread(dtype: str) -> Any:
    """Return the kernel of out[before[p, j]] += a[p, j] y[p].

    a (P, w), y (P, d), before (P, w) -> out (n, d).
    """
    given = array(dtype, 2, given=True)
    return compiled(_spread, types.void(given, given, _before(), array(dtype, 2)))


def _before() -> Any:
    return array("int64", 2, given=True)


def _sum(sources: int) -> Any:
    def kernel(a, x, before, out):
        _ = sources
        w, d = before.shape[1], x.shape[1]
        whole = d - d % 8
        A, X, B, O = pointer(a), pointer(x), pointer(before), pointer(out)
        for p in range(len(before)):
            for k in range(0, whole, 8):
                sums = constant(O, 0)
                for j in range(p * w, p * w + w):
                    if B[j] >= 0:
                        sums = sums + spread(A[j]) * load(X, B[j] * d + k)
                store(O, p * d + k, sums)
            for k in range(whole, d):
                O[p * d + k] = 0
                for j in range(p * w, p * w + w):
                    if B[j] >= 0:
                        O[p * d + k] += A[j] * X[B[j] * d + k]

    return kernel


def _dot(sources: int) -> Any:
    def kernel(q, k, before, out):
        _ = sources
        w, d = before.shape[1], k.shape[1]
        whole = d - d % 8
        Q, K, B, O = pointer(q), pointer(k), pointer(before), pointer(out)
        for p in range(len(before)):
            for j in range(p * w, p * w + w):
                sums = constant(O, 0)
                O[j] = 0
                if B[j] >= 0:
                    for i in range(0, whole, 8):
                        sums = sums + load(Q, p * d + i) * load(K, B[j] * d + i)
                    O[j] = total(sums)
                    for i in range(whole, d):
                        O[j] += Q[p * d + i] * K[B[j] * d + i]

    return kernel


def _spread(sources: int) -> Any:
    def kernel(a, y, before, out):
        _ = sources
        w, d = before.shape[1], y.shape[1]
        whole = d - d % 8
        A, Y, B, O = pointer(a), pointer(y), pointer(before), pointer(out)
        for p in range(len(before)):
            for j in range(p * w, p * w + w):
                if B[j] >= 0:
                    factor = spread(A[j])
                    for k in range(0, whole, 8):
                        at = B[j] * d + k
                        store(O, at, load(O, at) + factor * load(Y, p * d + k))
                    for k in range(whole, d):
                        O[B[j] * d + k] += A[j] * Y[p * d + k]

    return kernel
