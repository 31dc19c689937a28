"""Kernels of the recurrence over a batch: the gates step by step, for some of its sequences.

Rows are packed step after step (see `packing`); a kernel works on the sequences of rank
first..last. Every size d is a multiple of 8. `h` has the rows of h_0 = 0, one for each sequence,
before those of the first step. `gates` (P, 3 d) hold z, r and c. All arrays but `starts` are of one
dtype.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from numba import types

from hcarec.ops.activations import sigmoid, tanh
from hcarec.ops.compiled import array, compiled
from hcarec.ops.simd import constant, load, pointer, store
from hcarec.ops.tile import matmul

_STARTS, _RANGE = array("int64", given=True), (types.int64, types.int64)


@cache
def cell_forward(dtype: str) -> Any:
    """Return the kernel of the forward pass.

    g (P, 3 d) the inputs of the gates, W_T (d, 3 d) -> gates (P, 3 d), h (B + P, d);
    rh (sequences, d) is work space.
    """
    given, own = array(dtype, 2, given=True), array(dtype, 2)
    return compiled(_forward, types.void(given, given, _STARTS, *_RANGE, own, own, own))


@cache
def cell_backward(dtype: str) -> Any:
    """Return the kernel of the backward pass.

    d_out (P, d) gradients of the hidden states, W (3 d, d), gates and h of the forward pass ->
    d_g (P, 3 d), d_W (3 d, d), added to; carry, d_rh and rh (sequences, d) are work space, carry
    being zero.
    """
    given, own = array(dtype, 2, given=True), array(dtype, 2)
    kinds = (given, given, given, given, _STARTS, *_RANGE, own, own, own, own, own)
    return compiled(_backward, types.void(*kinds))


def _forward(sources: int) -> Any:
    def kernel(g, W_T, starts, first, last, gates, h, work):
        _ = sources
        d, batch = h.shape[1], len(h) - len(g)
        IN, W, G, H, RH = pointer(g), pointer(W_T), pointer(gates), pointer(h), pointer(work)
        half = constant(G, 0.5)
        for t in range(len(starts) - 1):
            n = min(last, starts[t + 1] - starts[t]) - first
            if n <= 0:
                break
            at = (starts[t] + first) * 3 * d
            to = (batch + starts[t] + first) * d
            before = (first if t == 0 else batch + starts[t - 1] + first) * d
            for k in range(0, n * 3 * d, 8):
                store(G, at + k, load(IN, at + k))
            if t > 0:
                matmul(G, at, 3 * d, H, before, d, 1, W, 0, 3 * d, n, 2 * d, d, True)
            for row in range(n):
                for k in range(0, d, 8):
                    z = at + row * 3 * d + k
                    r = sigmoid(load(G, z + d), half)
                    store(G, z, sigmoid(load(G, z), half))
                    store(G, z + d, r)
                    store(RH, row * d + k, r * load(H, before + row * d + k))
            if t > 0:
                matmul(G, at + 2 * d, 3 * d, RH, 0, d, 1, W, 2 * d, 3 * d, n, d, d, True)
            for row in range(n):
                for k in range(0, d, 8):
                    z = at + row * 3 * d + k
                    c, own = tanh(load(G, z + 2 * d)), load(H, before + row * d + k)
                    store(G, z + 2 * d, c)
                    store(H, to + row * d + k, own + load(G, z) * (c - own))

    return kernel


def _backward(sources: int) -> Any:
    def kernel(d_out, W, gates, h, starts, first, last, d_g, d_W, carry, d_work, work):
        _ = sources
        d, batch = h.shape[1], len(h) - len(d_out)
        D_OUT, M, G, H = pointer(d_out), pointer(W), pointer(gates), pointer(h)
        D_G, D_W, DH = pointer(d_g), pointer(d_W), pointer(carry)
        D_RH, RH = pointer(d_work), pointer(work)
        one = constant(G, 1)
        for t in range(len(starts) - 2, -1, -1):
            n = min(last, starts[t + 1] - starts[t]) - first
            if n <= 0:
                continue
            at = (starts[t] + first) * 3 * d
            own = (starts[t] + first) * d
            before = (first if t == 0 else batch + starts[t - 1] + first) * d
            for row in range(n):
                for k in range(0, d, 8):
                    i, gate = row * d + k, at + row * 3 * d + k
                    z, c = load(G, gate), load(G, gate + 2 * d)
                    dh = load(DH, i) + load(D_OUT, own + i)
                    dc = dh * z
                    store(D_G, gate + 2 * d, dc * (one - c * c))
                    store(D_G, gate, dc * (c - load(H, before + i)) * (one - z))
                    store(DH, i, dh - dc)
            matmul(D_RH, 0, d, D_G, at + 2 * d, 3 * d, 1, M, 2 * d * d, d, n, d, d, False)
            for row in range(n):
                for k in range(0, d, 8):
                    i, gate = row * d + k, at + row * 3 * d + k
                    r, d_rh, h_before = load(G, gate + d), load(D_RH, i), load(H, before + i)
                    rh = r * h_before
                    store(RH, i, rh)
                    store(D_G, gate + d, d_rh * rh * (one - r))
                    store(DH, i, load(DH, i) + d_rh * r)
            if t > 0:  # h_0 = 0 has no gradient and gives W none
                matmul(DH, 0, d, D_G, at, 3 * d, 1, M, 0, d, n, d, 2 * d, True)
                matmul(D_W, 0, d, D_G, at, 1, 3 * d, H, before, d, 2 * d, d, n, True)
                matmul(D_W, 2 * d * d, d, D_G, at + 2 * d, 1, 3 * d, RH, 0, d, d, d, n, True)

    return kernel
