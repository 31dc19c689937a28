"""The sparse parts of cross-entropy on a GPU: targets, corrections, and sums over both.

A program works on one position, or on one item; each sum has one order, so that the same call
gives the same bits. Exponents are base 2, as in `triton_kernels`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from hcarec.ops.loss.triton_kernels import LOG2E, LOWEST, load_rows

LN2 = tl.constexpr(0.6931471805599453)
CHUNK = tl.constexpr(16)
"""Rows that a program gathers at once."""


@triton.jit
def _as_factor(x, PRECISION: tl.constexpr):
    """Return float32 numbers as the products read them: tf32 drops the last 13 bits."""
    x = x.to(tl.float32)
    if PRECISION == "tf32":
        x = (x.to(tl.int32, bitcast=True) & -8192).to(tl.float32, bitcast=True)
    return x


@triton.jit
def spread_kernel(
    keys, ranks, order, positions, values, items, dense, excluded, n, end, n_items, n_words,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write for `corrected_kernel` which items it takes, and their corrections.

    keys (n,) are tile * n_items + item, ascending, and `end` for what is no correction; `ranks`
    numbers the distinct ones, `order` says which correction each belongs to. items (n,), dense
    (n, ROWS) and the bits of excluded (tiles, n_words) hold zeros before.
    """
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = places < n
    key = tl.load(keys + places, mask=there, other=0).to(tl.int64)
    there = there & (key < end)
    before = tl.load(keys + places - 1, mask=there & (places > 0), other=-1).to(tl.int64)
    rank = tl.load(ranks + places, mask=there, other=0)
    pair = tl.load(order + places, mask=there, other=0)
    position = tl.load(positions + pair, mask=there, other=0)
    value = tl.load(values + pair, mask=there, other=0.0)
    tl.store(dense + rank * ROWS + position % ROWS, value, mask=there)
    tile, item = key // n_items, key % n_items
    first = there & (key != before)
    tl.store(items + rank, item.to(tl.int32), mask=first)
    bit = tl.full([BLOCK], 1, tl.int32) << (item % 32).to(tl.int32)
    tl.atomic_or(excluded + tile * n_words + item // 32, bit, mask=first)


@triton.jit
def combine_kernel(
    H, Z, targets, counted, items, offsets, values, maxima, sums, parts, n_parts, n_positions,
    n_items, lse, losses, dH, d: tl.constexpr, D: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write the loss of a position, its dH (d,) and lse from what the segments found.

    Of a position without a target loss and dH are zero, and lse is infinite; `counted` (1,) are
    the others.
    """
    p = tl.program_id(0).to(tl.int64)
    some, columns = tl.arange(0, CHUNK), tl.arange(0, D)
    highest = tl.full([CHUNK], LOWEST, tl.float32)
    for first in range(0, n_parts, CHUNK):
        part = (first + some).to(tl.int64)
        there = part < n_parts
        m = tl.load(maxima + part * n_positions + p, mask=there, other=LOWEST)
        highest = tl.maximum(highest, m)
    m = tl.max(highest, 0)
    total = tl.zeros([CHUNK], tl.float32)
    mean = tl.zeros([D], tl.float32)
    for first in range(0, n_parts, CHUNK):
        part = (first + some).to(tl.int64)
        there = part < n_parts
        place = part * n_positions + p
        scale = tl.exp2(tl.load(maxima + place, mask=there, other=LOWEST) - m)
        total += scale * tl.load(sums + place, mask=there, other=0.0)
        inside = there[:, None] & (columns < d)[None, :]
        rows = tl.load(parts + place[:, None] * d + columns[None, :], mask=inside, other=0.0)
        mean += tl.sum(scale[:, None] * rows, 0)
    S = tl.sum(total, 0)
    logarithm = m + tl.log2(S)
    target = tl.load(targets + p)
    counts = target >= 0
    h = tl.load(H + p * d + columns, mask=columns < d, other=0.0)
    z = tl.load(Z + tl.maximum(target, 0) * d + columns, mask=columns < d, other=0.0)
    s = tl.sum(_as_factor(h, PRECISION) * _as_factor(z, PRECISION), 0)
    end = tl.load(offsets + p + 1)
    for first in range(tl.load(offsets + p), end, CHUNK):
        places = first + some
        item = tl.load(items + places, mask=places < end, other=n_items)
        s += tl.sum(tl.load(values + places, mask=(places < end) & (item == target), other=0.0), 0)
    tl.store(lse + p, tl.where(counts, logarithm, float("inf")))
    tl.store(losses + p, tl.where(counts, (logarithm - s * LOG2E) * LN2, 0.0))
    slope = tl.where(counts, (mean / S - z.to(tl.float32)) / tl.load(counted), 0.0)
    tl.store(dH + p * d + columns, slope, mask=columns < d)


@triton.jit
def slopes_kernel(
    H, Z, targets, items, offsets, values, lse, scale, dvalues, slopes, n_items,
    d: tl.constexpr, D: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write dvalues and, in `slopes`, the weights in dZ that `items_kernel` is wrong by.

    Both (n,) are of the corrections of a position. The weight of a target is -1, see `add_kernel`.
    """
    p = tl.program_id(0).to(tl.int64)
    some, columns = tl.arange(0, CHUNK), tl.arange(0, D)
    h = tl.load(H + p * d + columns, mask=columns < d, other=0.0)
    logarithm, target, by = tl.load(lse + p), tl.load(targets + p), tl.load(scale)
    end = tl.load(offsets + p + 1)
    for first in range(tl.load(offsets + p), end, CHUNK):
        places = first + some
        there = places < end
        item = tl.load(items + places, mask=there, other=n_items)
        z = load_rows(Z, item, n_items, d, D)
        s = tl.sum(_as_factor(h, PRECISION)[None, :] * _as_factor(z, PRECISION), 1)
        corrected = s + tl.load(values + places, mask=there, other=0.0)
        weight = tl.exp2(corrected * LOG2E - logarithm)
        exponent = tl.minimum(s * LOG2E - logarithm, 0.0, propagate_nan=tl.PropagateNan.ALL)
        counted = _as_factor(tl.exp2(exponent).to(Z.dtype.element_ty), PRECISION)
        tl.store(slopes + places, weight - counted, mask=there)
        tl.store(dvalues + places, by * (weight - (item == target)), mask=there)


@triton.jit
def add_kernel(
    H, pair_items, order, positions, slopes, scale, dZ, n_pairs, n_positions, n_items,
    d: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """Add to dZ the positions of pairs, weighted by their slopes and scale[0].

    pair_items (n_pairs,) are ascending; `order` says which pair each belongs to. A program takes
    all pairs of an item, if it starts at the first of them. An item outside the catalog stands for
    no pair.
    """
    at = tl.program_id(0)
    some, columns = tl.arange(0, CHUNK), tl.arange(0, D)
    item = tl.load(pair_items + at)
    first = item != tl.load(pair_items + at - 1, mask=at > 0, other=-1)
    if first & (item >= 0) & (item < n_items):
        row = tl.zeros([D], tl.float32)
        n_found = at * 0 + CHUNK
        while n_found == CHUNK:
            places = at + some
            own = tl.load(pair_items + places, mask=places < n_pairs, other=-1) == item
            pair = tl.load(order + places, mask=own, other=0)
            slope = tl.load(slopes + pair, mask=own, other=0.0)
            position = tl.load(positions + pair, mask=own, other=n_positions)
            h = load_rows(H, position, n_positions, d, D).to(tl.float32)
            row += tl.sum(slope[:, None] * h, 0)
            n_found = tl.sum(own.to(tl.int32), 0)
            at += CHUNK
        place = dZ + item.to(tl.int64) * d + columns
        old = tl.load(place, mask=columns < d, other=0.0).to(tl.float32)
        tl.store(place, old + tl.load(scale) * row, mask=columns < d)
