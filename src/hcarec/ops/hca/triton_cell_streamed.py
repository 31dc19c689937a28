"""Triton kernels of the recurrence whose weights do not fit on chip (d above 128).

They compute what `triton_cell_kernels` does, with the same tiles (dimensions down, sequences
across) and the same products, but J dimensions at a time: each step reads all weights, from the
cache that all programs share. What a product of one tile needs of the others goes through work
space in memory, one place for each program, with a barrier after it is written:

    state (programs, B, D)           float32: the state, or its gradient
    work (programs, 3, 2, B, D)      the right factors of products, each in a high and a low part

D is d up to a multiple of J and of K.
"""

from __future__ import annotations

import triton
import triton.language as tl

from hcarec.ops.hca.triton_cell_kernels import (
    STATE_SCALE,
    power_of_two,
    read,
    rows_of,
    sigmoid,
    split,
    steps_of,
    tanh,
    write,
)


@triton.jit
def add_product(
    out, parts, gate: tl.constexpr, x, j, places,
    D: tl.constexpr, K: tl.constexpr, B: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """Add some rows of a gate's weights times what is at x, (B, D) in parts, to `out` (J, B)."""
    W = parts + gate * D * D + j[:, None] * D
    for first in range(0, D, K):
        k = first + tl.arange(0, K)
        high, x_high = tl.load(W + k), tl.load(x + places[None, :] * D + k[:, None])
        out = tl.dot(high, x_high, out)
        if EXACT:
            low = tl.load(W + 3 * D * D + k)
            x_low = tl.load(x + B * D + places[None, :] * D + k[:, None])
            out = tl.dot(high, x_low, out)
            out = tl.dot(low, x_high, out)
    return out


@triton.jit
def keep_parts(x, tile, j, places, D: tl.constexpr, B: tl.constexpr, EXACT: tl.constexpr):
    """Split a scaled tile (J, B) and store its parts in work space."""
    at = x + places[None, :] * D + j[:, None]
    high, low = split(tile, x, EXACT)
    tl.store(at, high)
    if EXACT:
        tl.store(at + B * D, low)


@triton.jit
def forward_streamed(
    g, parts, scales, starts, h, gates, before, state, work, steps,
    d: tl.constexpr, D: tl.constexpr, B: tl.constexpr, J: tl.constexpr, K: tl.constexpr,
    EXACT: tl.constexpr, SAVE: tl.constexpr,
):  # fmt: skip
    """Run sequences forward, see `forward_kernel`; z is kept in `gates` or, without SAVE, in h."""
    places = tl.arange(0, B)
    state += tl.program_id(0).to(tl.int64) * B * D
    x = work + tl.program_id(0).to(tl.int64) * 6 * B * D
    reset = x + 2 * B * D
    factor = STATE_SCALE if EXACT else 1.0
    batch = tl.load(starts + 1) - tl.load(starts)
    for first in range(tl.program_id(0) * B, batch, tl.num_programs(0) * B):
        own = steps_of(starts, steps, first)
        earlier = tl.full((B,), -1, tl.int64)
        for first_j in range(0, D, J):
            j = first_j + tl.arange(0, J)
            zero = tl.zeros((J, B), tl.float32)
            tl.store(state + places[None, :] * D + j[:, None], zero)
            keep_parts(x, zero, j, places, D, B, EXACT)
        for t in range(own):
            rows, there = rows_of(starts, t, True, first + places)
            tl.debug_barrier()
            for first_j in range(0, D, J):
                j = first_j + tl.arange(0, J)
                zero = tl.zeros((J, B), tl.float32)
                z = add_product(zero, parts, 0, x, j, places, D, K, B, EXACT)
                r = add_product(zero, parts, 1, x, j, places, D, K, B, EXACT)
                if EXACT:
                    z *= tl.load(scales + j)[:, None] / STATE_SCALE
                    r *= tl.load(scales + D + j)[:, None] / STATE_SCALE
                z = sigmoid(read(g, rows, there, j, d, 3 * d) + z)
                r = sigmoid(read(g + d, rows, there, j, d, 3 * d) + r)
                own_state = tl.load(state + places[None, :] * D + j[:, None])
                keep_parts(reset, r * own_state * factor, j, places, D, B, EXACT)
                if SAVE:
                    write(gates, rows, there, j, d, 3 * d, z)
                    write(gates + d, rows, there, j, d, 3 * d, r)
                else:
                    write(h, rows, there, j, d, d, z)
            tl.debug_barrier()
            for first_j in range(0, D, J):
                j = first_j + tl.arange(0, J)
                zero = tl.zeros((J, B), tl.float32)
                c = add_product(zero, parts, 2, reset, j, places, D, K, B, EXACT)
                if EXACT:
                    c *= tl.load(scales + 2 * D + j)[:, None] / STATE_SCALE
                c = tanh(read(g + 2 * d, rows, there, j, d, 3 * d) + c)
                if SAVE:
                    z = read(gates, rows, there, j, d, 3 * d)
                    write(gates + 2 * d, rows, there, j, d, 3 * d, c)
                else:
                    z = read(h, rows, there, j, d, d)
                at = state + places[None, :] * D + j[:, None]
                own_state = tl.load(at)
                own_state += z * (c - own_state)
                tl.store(at, own_state)
                keep_parts(x, own_state * factor, j, places, D, B, EXACT)
                write(h, rows, there, j, d, d, own_state)
            if SAVE:
                tl.store(before + rows, earlier, mask=there)
            earlier = rows


@triton.jit
def backward_streamed(
    d_h, parts, scales, gates, h, starts, d_g, state, work, steps,
    d: tl.constexpr, D: tl.constexpr, B: tl.constexpr, J: tl.constexpr, K: tl.constexpr,
    EXACT: tl.constexpr,
):  # fmt: skip
    """Run sequences backward, see `backward_kernel`; `state` holds the gradient of the state."""
    places = tl.arange(0, B)
    state += tl.program_id(0).to(tl.int64) * B * D
    x_z = work + tl.program_id(0).to(tl.int64) * 6 * B * D
    x_r, x_c = x_z + 2 * B * D, x_z + 4 * B * D
    batch = tl.load(starts + 1) - tl.load(starts)
    for first in range(tl.program_id(0) * B, batch, tl.num_programs(0) * B):
        ranks = first + places
        own = steps_of(starts, steps, first)
        rows, there = rows_of(starts, own - 1, True, ranks)
        largest = tl.zeros((B,), tl.float32)
        for first_j in range(0, D, J):
            j = first_j + tl.arange(0, J)
            d_state = read(d_h, rows, there, j, d, d)
            tl.store(state + places[None, :] * D + j[:, None], d_state)
            largest = tl.maximum(largest, tl.max(tl.abs(d_state), 0))
        for back in range(own):
            t = own - 1 - back
            next_rows, next_there = rows_of(starts, t - 1, t > 0, ranks)
            if EXACT:
                scale, inverse = power_of_two(largest, 3)
                scale, inverse = scale[None, :], inverse[None, :]
            else:
                scale, inverse = 1.0, 1.0
            largest = tl.zeros((B,), tl.float32)
            tl.debug_barrier()
            for first_j in range(0, D, J):
                j = first_j + tl.arange(0, J)
                d_state = tl.load(state + places[None, :] * D + j[:, None])
                z = read(gates, rows, there, j, d, 3 * d)
                c = read(gates + 2 * d, rows, there, j, d, 3 * d)
                own_state = read(h, next_rows, next_there, j, d, d)
                d_c = d_state * z * (1 - c * c)
                d_z = d_state * (c - own_state) * z * (1 - z)
                write(d_g, rows, there, j, d, 3 * d, d_z)
                write(d_g + 2 * d, rows, there, j, d, 3 * d, d_c)
                keep_parts(x_c, d_c * scale, j, places, D, B, EXACT)
                keep_parts(x_z, d_z * scale, j, places, D, B, EXACT)
            tl.debug_barrier()
            for first_j in range(0, D, J):
                j = first_j + tl.arange(0, J)
                zero = tl.zeros((J, B), tl.float32)
                d_rh = add_product(zero, parts, 2, x_c, j, places, D, K, B, EXACT)
                d_before = add_product(zero, parts, 0, x_z, j, places, D, K, B, EXACT)
                if EXACT:
                    d_rh *= tl.load(scales + 2 * D + j)[:, None] * inverse
                    d_before *= tl.load(scales + j)[:, None] * inverse
                z = read(gates, rows, there, j, d, 3 * d)
                r = read(gates + d, rows, there, j, d, 3 * d)
                at = state + places[None, :] * D + j[:, None]
                d_before += tl.load(at) * (1 - z) + d_rh * r
                tl.store(at, d_before)
                d_r = d_rh * read(h, next_rows, next_there, j, d, d) * r * (1 - r)
                write(d_g + d, rows, there, j, d, 3 * d, d_r)
                keep_parts(x_r, d_r * scale, j, places, D, B, EXACT)
            tl.debug_barrier()
            for first_j in range(0, D, J):
                j = first_j + tl.arange(0, J)
                zero = tl.zeros((J, B), tl.float32)
                d_before = add_product(zero, parts, 1, x_r, j, places, D, K, B, EXACT)
                if EXACT:
                    d_before *= tl.load(scales + D + j)[:, None] * inverse
                at = state + places[None, :] * D + j[:, None]
                d_before += tl.load(at) + read(d_h, next_rows, next_there, j, d, d)
                tl.store(at, d_before)
                largest = tl.maximum(largest, tl.max(tl.abs(d_before), 0))
            rows, there = next_rows, next_there
