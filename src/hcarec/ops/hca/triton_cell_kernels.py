"""Triton kernels of the recurrence: a launch runs all steps, the weights stay on chip.

Rows are packed step after step (see `packing`). A program takes B sequences of neighboring ranks
through all their steps, forward or backward, then the next B. A tile is (D, B): dimensions down,
sequences across, D being d up to a power of two; the padding stays zero by itself. So the weights
are the left factor of every product and are loaded once; the state, the right factor, is in
registers and changes at every step.

A step has two products that wait for each other, as the reset gate acts before the matrix: W_z h
and W_r h, then W_c (r h); backward W_c^T d_c, then W_r^T d_r. The inputs of the next step are
loaded before them and arrive meanwhile.

Weights too large for one program (d above 128) are shared by MEMBERS programs: each owns J of the D
dimensions, of the weights the rows and of a tile the part (J, B). A product needs the whole right
factor, so before it the members write their parts to `work` (groups, 3, B, D) in memory, wait for
each other at a counter of their group, and read all parts.

Products of float32 are exact to about 22 bits: each factor is a sum of two float16 parts, high and
low, and three of the four products of parts are added in float32. A power of two keeps the parts in
range: one for each row of the weights, a fixed one for states (they lie within -1..1), and one for
each sequence and step of the gradients. Products of bfloat16 are plain (one part).
"""

from __future__ import annotations

import triton
import triton.language as tl

STATE_SCALE = tl.constexpr(16384.0)
"""What states are multiplied by before they are split: float16 ends at 65504."""


@triton.jit
def sigmoid(x):
    return 1 / (1 + tl.exp(-x))


@triton.jit
def tanh(x):
    """Return tanh, exact to some 1e-7 of its value: a polynomial near zero, exponentials beyond."""
    q = x * x
    near = -0.0066456 * q + 0.02129668
    near = near * q - 0.05389886
    near = near * q + 0.13332961
    near = near * q - 0.33333325
    e = tl.exp(-2 * tl.abs(x))
    far = (1 - e) / (1 + e)
    return tl.where(q < 0.25, x + x * q * near, tl.where(x < 0, -far, far))


@triton.jit
def power_of_two(amount, to: tl.constexpr):
    """Return the scale that brings amounts of 0 or more below 2^to, and its inverse."""
    exponent = tl.maximum(amount.to(tl.int32, bitcast=True) >> 23, to + 1)
    scale = ((253 + to - exponent) << 23).to(tl.float32, bitcast=True)
    return scale, ((exponent + 1 - to) << 23).to(tl.float32, bitcast=True)


@triton.jit
def split(x, parts, EXACT: tl.constexpr):
    """Return the parts of scaled numbers, of the type at `parts`: one part alone without EXACT."""
    if EXACT:
        high = x.to(tl.float16)
        return high, (x - high.to(tl.float32)).to(tl.float16)
    else:
        high = x.to(tl.bfloat16).to(parts.dtype.element_ty)
        return high, high


@triton.jit
def product(high, low, row_scale, x, scale, inverse, parts, EXACT: tl.constexpr):
    """Return weights times tile in float32: (J, D), (D, B) -> (J, B).

    row_scale (J, 1) belongs to the parts of the weights; the tile is split after it is multiplied
    by `scale`.
    """
    if EXACT:
        x_high, x_low = split(x * scale, parts, EXACT)
        out = tl.dot(high, x_high)
        out = tl.dot(high, x_low, out)
        out = tl.dot(low, x_high, out)
        return out * (row_scale * inverse)
    else:
        x_high, x_low = split(x, parts, EXACT)
        return tl.dot(high, x_high)


@triton.jit
def weights(parts, scales, gate: tl.constexpr, j, D: tl.constexpr, EXACT: tl.constexpr):
    """Load rows j of a gate's weights: their parts, each (J, D), and their scales (J, 1)."""
    at = (gate * D + j[:, None]) * D + tl.arange(0, D)
    high = tl.load(parts + at)
    if EXACT:
        low = tl.load(parts + 3 * D * D + at)
        scale = tl.load(scales + gate * D + j)[:, None]
    else:
        low, scale = high, 1.0
    return high, low, scale


@triton.jit
def publish(tile, to, j, D: tl.constexpr, B: tl.constexpr, MEMBERS: tl.constexpr):
    """Write the own part (J, B) of a right factor for the other members."""
    if MEMBERS > 1:
        tl.store(to + tl.arange(0, B)[None, :] * D + j[:, None], tile)


@triton.jit
def meet(counter, met, MEMBERS: tl.constexpr):
    """Wait until all members of the group have come here, and return how often they have."""
    met += 1
    if MEMBERS > 1:
        tl.debug_barrier()
        come = tl.atomic_add(counter, 1, sem="acq_rel") + 1
        while come < met * MEMBERS:
            come = tl.atomic_add(counter, 0, sem="acquire")
        tl.debug_barrier()
    return met


@triton.jit
def collect(tile, at, D: tl.constexpr, B: tl.constexpr, MEMBERS: tl.constexpr):
    """Return all parts of a right factor, (D, B)."""
    if MEMBERS > 1:  # volatile: other programs write it
        k = tl.arange(0, D)[:, None]
        return tl.load(at + tl.arange(0, B)[None, :] * D + k, volatile=True)
    else:
        return tile


@triton.jit
def gradient_scale(known, x, MEMBERS: tl.constexpr):
    """Return the scales of a right factor x (D, B) of gradients, and their inverses, (1, B).

    A single program takes them from the `known` size of what all its factors come from.
    """
    if MEMBERS > 1:
        known = tl.max(tl.abs(x), 0)
    scale, inverse = power_of_two(known, 3)
    return scale[None, :], inverse[None, :]


@triton.jit
def split_weights(
    W, parts, scales, stride_row, stride_column, d, D: tl.constexpr, EXACT: tl.constexpr
):
    """Split a row of a gate's weights, padded with zeros.

    W (3, d, d) -> parts (2, 3, D, D), or (1, 3, D, D), and scales (3, D): what a product with the
    parts is multiplied by. The strides tell rows from columns: backward the weights are transposed.
    """
    gate, row = tl.program_id(0), tl.program_id(1)
    k = tl.arange(0, D)
    at = gate * d * d + row * stride_row + k * stride_column
    w = tl.load(W + at, mask=k < tl.where(row < d, d, 0), other=0).to(tl.float32)
    to = parts + (gate * D + row) * D + k
    if EXACT:
        scale, inverse = power_of_two(tl.max(tl.abs(w)), 14)
        high, low = split(w * scale, parts, EXACT)
        tl.store(to, high)
        tl.store(to + 3 * D * D, low)
        tl.store(scales + gate * D + row, inverse)
    else:
        high, low = split(w, parts, EXACT)
        tl.store(to, high)


@triton.jit
def steps_of(starts, steps, rank):
    """Return how many of the steps the sequence of a rank has."""
    t = tl.arange(0, 128)
    found = 0
    for first in range(0, steps, 128):
        inside = first + t < steps
        begin = tl.load(starts + first + t, mask=inside, other=0)
        end = tl.load(starts + first + t + 1, mask=inside, other=0)
        found += tl.sum((end - begin > rank).to(tl.int32))
    return found


@triton.jit
def rows_of(starts, t, inside, ranks):
    """Return the rows of ranks (B,) at a step, and which of them there are."""
    begin = tl.load(starts + t, mask=inside, other=0)
    end = tl.load(starts + t + 1, mask=inside, other=0)
    return begin + ranks, ranks < end - begin


@triton.jit
def read(of, rows, there, k, d: tl.constexpr, stride: tl.constexpr):
    """Load a tile (D, B) in float32, zero where there is no row and beyond d."""
    at = of + rows[None, :] * stride + k[:, None]
    return tl.load(at, mask=there[None, :] & (k < d)[:, None], other=0).to(tl.float32)


@triton.jit
def write(to, rows, there, k, d: tl.constexpr, stride: tl.constexpr, tile):
    """Store a tile (D, B)."""
    at = to + rows[None, :] * stride + k[:, None]
    tl.store(at, tile.to(to.dtype.element_ty), mask=there[None, :] & (k < d)[:, None])


@triton.jit
def forward_kernel(
    g, parts, scales, starts, h, gates, before, work, counters, steps,
    d: tl.constexpr, D: tl.constexpr, B: tl.constexpr, MEMBERS: tl.constexpr,
    EXACT: tl.constexpr, SAVE: tl.constexpr,
):  # fmt: skip
    """Run sequences forward: g (P, 3, d) -> h (P, d), gates (P, 3, d), before (P,).

    `before` is the row of the state before each row, -1 at the first step. Without SAVE neither
    it nor the gates are written: only the backward pass reads them.
    """
    J: tl.constexpr = D // MEMBERS
    group, member = tl.program_id(0) // MEMBERS, tl.program_id(0) % MEMBERS
    groups = tl.num_programs(0) // MEMBERS
    j = member * J + tl.arange(0, J)
    work += group * 3 * B * D
    z_high, z_low, z_scale = weights(parts, scales, 0, j, D, EXACT)
    r_high, r_low, r_scale = weights(parts, scales, 1, j, D, EXACT)
    c_high, c_low, c_scale = weights(parts, scales, 2, j, D, EXACT)
    batch, met = tl.load(starts + 1) - tl.load(starts), 0
    for first in range(group * B, batch, groups * B):
        ranks = first + tl.arange(0, B)
        own = steps_of(starts, steps, first)
        rows, there = rows_of(starts, 0, True, ranks)
        earlier = tl.full((B,), -1, tl.int64)
        next_rows, next_there = rows_of(starts, 1, own > 1, ranks)
        in_z = read(g, rows, there, j, d, 3 * d)
        in_r = read(g + d, rows, there, j, d, 3 * d)
        in_c = read(g + 2 * d, rows, there, j, d, 3 * d)
        state = tl.zeros((J, B), tl.float32)
        for t in range(own):
            next_z = read(g, next_rows, next_there, j, d, 3 * d)
            next_r = read(g + d, next_rows, next_there, j, d, 3 * d)
            next_c = read(g + 2 * d, next_rows, next_there, j, d, 3 * d)
            then_rows, then_there = rows_of(starts, t + 2, t + 2 < own, ranks)
            publish(state, work, j, D, B, MEMBERS)
            met = meet(counters + group, met, MEMBERS)
            x = collect(state, work, D, B, MEMBERS)
            up, down = STATE_SCALE, 1 / STATE_SCALE
            z = in_z + product(z_high, z_low, z_scale, x, up, down, parts, EXACT)
            r = in_r + product(r_high, r_low, r_scale, x, up, down, parts, EXACT)
            r = sigmoid(r)
            reset = r * state
            publish(reset, work + B * D, j, D, B, MEMBERS)
            met = meet(counters + group, met, MEMBERS)
            x = collect(reset, work + B * D, D, B, MEMBERS)
            c = in_c + product(c_high, c_low, c_scale, x, up, down, parts, EXACT)
            z = sigmoid(z)
            c = tanh(c)
            state += z * (c - state)
            write(h, rows, there, j, d, d, state)
            if SAVE:
                write(gates, rows, there, j, d, 3 * d, z)
                write(gates + d, rows, there, j, d, 3 * d, r)
                write(gates + 2 * d, rows, there, j, d, 3 * d, c)
                tl.store(before + rows, earlier, mask=there)  # by each member, all the same
            earlier, rows, there = rows, next_rows, next_there
            next_rows, next_there = then_rows, then_there
            in_z, in_r, in_c = next_z, next_r, next_c


@triton.jit
def backward_kernel(
    d_h, parts, scales, gates, h, starts, d_g, work, counters, steps,
    d: tl.constexpr, D: tl.constexpr, B: tl.constexpr, MEMBERS: tl.constexpr,
    EXACT: tl.constexpr,
):  # fmt: skip
    """Run sequences backward: d_h (P, d), the gradients of the states -> d_g (P, 3, d).

    The parts are those of the transposed weights.
    """
    J: tl.constexpr = D // MEMBERS
    group, member = tl.program_id(0) // MEMBERS, tl.program_id(0) % MEMBERS
    groups = tl.num_programs(0) // MEMBERS
    j = member * J + tl.arange(0, J)
    work_z = work + group * 3 * B * D
    work_r, work_c = work_z + B * D, work_z + 2 * B * D
    z_high, z_low, z_scale = weights(parts, scales, 0, j, D, EXACT)
    r_high, r_low, r_scale = weights(parts, scales, 1, j, D, EXACT)
    c_high, c_low, c_scale = weights(parts, scales, 2, j, D, EXACT)
    batch, met = tl.load(starts + 1) - tl.load(starts), 0
    for first in range(group * B, batch, groups * B):
        ranks = first + tl.arange(0, B)
        own = steps_of(starts, steps, first)
        rows, there = rows_of(starts, own - 1, True, ranks)
        next_rows, next_there = rows_of(starts, own - 2, own > 1, ranks)
        z = read(gates, rows, there, j, d, 3 * d)
        r = read(gates + d, rows, there, j, d, 3 * d)
        c = read(gates + 2 * d, rows, there, j, d, 3 * d)
        state = read(h, next_rows, next_there, j, d, d)
        d_state = read(d_h, rows, there, j, d, d)
        for back in range(own):
            t = own - 1 - back
            then_rows, then_there = rows_of(starts, t - 2, t > 1, ranks)
            next_z = read(gates, next_rows, next_there, j, d, 3 * d)
            next_r = read(gates + d, next_rows, next_there, j, d, 3 * d)
            next_c = read(gates + 2 * d, next_rows, next_there, j, d, 3 * d)
            next_state = read(h, then_rows, then_there, j, d, d)
            next_d = read(d_h, next_rows, next_there, j, d, d)
            known = tl.max(tl.abs(d_state), 0)
            d_c = d_state * z * (1 - c * c)
            d_z = d_state * (c - state) * z * (1 - z)
            publish(d_c, work_c, j, D, B, MEMBERS)
            publish(d_z, work_z, j, D, B, MEMBERS)
            met = meet(counters + group, met, MEMBERS)
            x = collect(d_c, work_c, D, B, MEMBERS)
            up, down = gradient_scale(known, x, MEMBERS)
            d_rh = product(c_high, c_low, c_scale, x, up, down, parts, EXACT)
            x = collect(d_z, work_z, D, B, MEMBERS)
            up, down = gradient_scale(known, x, MEMBERS)
            d_before = product(z_high, z_low, z_scale, x, up, down, parts, EXACT)
            d_r = d_rh * state * r * (1 - r)
            publish(d_r, work_r, j, D, B, MEMBERS)
            met = meet(counters + group, met, MEMBERS)
            x = collect(d_r, work_r, D, B, MEMBERS)
            up, down = gradient_scale(known, x, MEMBERS)
            d_before += product(r_high, r_low, r_scale, x, up, down, parts, EXACT)
            write(d_g, rows, there, j, d, 3 * d, d_z)
            write(d_g + d, rows, there, j, d, 3 * d, d_r)
            write(d_g + 2 * d, rows, there, j, d, 3 * d, d_c)
            d_state = next_d + d_before + d_state * (1 - z) + d_rh * r
            z, r, c, state = next_z, next_r, next_c, next_state
            rows, there, next_rows, next_there = next_rows, next_there, then_rows, then_there
