"""The dense passes of cross-entropy on a GPU, flash-attention-like: no logit leaves the chip.

A program holds a tile of rows and goes through the other side, a tile of columns at a time: it
computes logits, turns them into exponentials and multiplies those by the columns again. Rows are
positions and columns are items in `positions_kernel`, the other way round in `items_kernel`.
Exponents are base 2.

Products of float32 ask for the inner index to be the contiguous one, so that the second product
reads the columns from a transposed copy where TRANSPOSED.
"""

from __future__ import annotations

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
LOWEST = tl.constexpr(-1e30)
"""The logit of what does not count: its exponential is 0 beside any other."""


@triton.jit
def load_rows(X, rows, n_rows, d: tl.constexpr, D: tl.constexpr):
    """Return rows of X (n_rows, d) as (len(rows), D), zeros beyond both ends."""
    columns = tl.arange(0, D)
    place = rows.to(tl.int64)[:, None] * d + columns[None, :]
    return tl.load(X + place, mask=(rows < n_rows)[:, None] & (columns < d)[None, :], other=0.0)


@triton.jit
def transpose_kernel(
    X, Xt, n, n_padded, d: tl.constexpr, D: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    """Write X (n, d) as Xt (d, n_padded), zeros beyond n."""
    rows, inner = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS), tl.arange(0, D)
    place = inner.to(tl.int64)[:, None] * n_padded + rows[None, :]
    tl.store(Xt + place, tl.trans(load_rows(X, rows, n, d, D)), mask=(inner < d)[:, None])


@triton.jit
def _load_columns(
    X, Xt, first, n, n_padded, d: tl.constexpr,
    D: tl.constexpr, COLUMNS: tl.constexpr, WHOLE: tl.constexpr, TRANSPOSED: tl.constexpr,
):  # fmt: skip
    """Return the rows first.. of X (n, d) as (D, COLUMNS) and as (COLUMNS, D).

    WHOLE: none of them is beyond the end. Xt (d, n_padded) is padded with zeros.
    """
    inner, outer = tl.arange(0, D), tl.arange(0, COLUMNS)
    start = X + tl.cast(first, tl.int64) * d
    there = (inner < d)[:, None]
    if not WHOLE:
        there = there & (first + outer < n)[None, :]
    left = tl.load(start + outer[None, :] * d + inner[:, None], mask=there, other=0.0)
    if TRANSPOSED:
        across = inner.to(tl.int64)[:, None] * n_padded + outer[None, :]
        right = tl.trans(tl.load(Xt + first + across, mask=(inner < d)[:, None], other=0.0))
    else:
        right = tl.trans(left)
    return left, right


@triton.jit
def _fold(s, right, m, total, acc, PRECISION: tl.constexpr):
    """Take logits s (ROWS, COLUMNS) into the maxima, the sums and the weighted columns so far."""
    highest = tl.maximum(m, tl.max(s, 1) * LOG2E)
    e = tl.exp2(s * LOG2E - highest[:, None])
    scale = tl.exp2(m - highest)
    total = total * scale + tl.sum(e, 1)
    acc = tl.dot(e.to(right.dtype), right, acc * scale[:, None], input_precision=PRECISION)
    return highest, total, acc


@triton.jit
def _store_part(
    maxima, sums, parts, part, rows, n_rows, m, total, acc, d: tl.constexpr, D: tl.constexpr
):
    """Write what a program found out about its rows: (n_parts, n_rows) and (.., n_rows, d)."""
    place = part.to(tl.int64) * n_rows + rows
    tl.store(maxima + place, m, mask=rows < n_rows)
    tl.store(sums + place, total, mask=rows < n_rows)
    columns = tl.arange(0, D)
    there = (rows < n_rows)[:, None] & (columns < d)[None, :]
    tl.store(parts + place[:, None] * d + columns[None, :], acc, mask=there)


@triton.jit
def positions_kernel(
    H, Z, Zt, excluded, maxima, sums, parts, n_positions, n_items, n_padded, n_words, segment,
    d: tl.constexpr, D: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    PRECISION: tl.constexpr, TRANSPOSED: tl.constexpr, CORRECTED: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """Sum exponentials, and items weighted by them, over a segment of the catalog.

    Where CORRECTED, items whose bit in `excluded` (tiles, n_words) is set do not count for the
    positions of a tile: `corrected_kernel` takes them.
    """
    tile, part = tl.program_id(0), tl.program_id(1)
    rows, columns = tile * ROWS + tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    h = load_rows(H, rows, n_positions, d, D)
    m = tl.full([ROWS], LOWEST, tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, D], tl.float32)
    begin, end = part * segment, tl.minimum(part * segment + segment, n_items)
    whole = begin + (end - begin) // COLUMNS * COLUMNS
    bits = excluded + tile.to(tl.int64) * n_words
    for first in tl.range(begin, whole, COLUMNS, num_stages=STAGES):
        if CORRECTED:
            word_0 = tl.load(bits + first // 32)
            word_1 = tl.load(bits + first // 32 + 1)
        left, right = _load_columns(
            Z, Zt, first, n_items, n_padded, d, D, COLUMNS, True, TRANSPOSED
        )
        s = tl.dot(h, left, input_precision=PRECISION)
        if CORRECTED:
            if (word_0 | word_1) != 0:
                out = (tl.where(columns < 32, word_0, word_1) >> (columns & 31)) & 1
                s = tl.where((out != 0)[None, :], LOWEST, s)
        m, total, acc = _fold(s, right, m, total, acc, PRECISION)
    if whole < end:
        left, right = _load_columns(
            Z, Zt, whole, n_items, n_padded, d, D, COLUMNS, False, TRANSPOSED
        )
        s = tl.dot(h, left, input_precision=PRECISION)
        out = whole + columns >= end
        if CORRECTED:
            word_0 = tl.load(bits + whole // 32)
            word_1 = tl.load(bits + whole // 32 + 1)
            out = out | (((tl.where(columns < 32, word_0, word_1) >> (columns & 31)) & 1) != 0)
        s = tl.where(out[None, :], LOWEST, s)
        m, total, acc = _fold(s, right, m, total, acc, PRECISION)
    _store_part(maxima, sums, parts, part, rows, n_positions, m, total, acc, d, D)


@triton.jit
def corrected_kernel(
    H, Z, items, values, begins, maxima, sums, parts, n_positions, n_items, first_part,
    d: tl.constexpr, D: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Sum, as `positions_kernel` does, over the items that some position of a tile corrects.

    items (n,) are those of all tiles, one tile's from begins[tile] to begins[tile + 1]; values
    (n, ROWS) are the corrections, zero where a position has none.
    """
    tile, part, n_parts = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    inside, columns = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    rows = tile * ROWS + inside
    h = load_rows(H, rows, n_positions, d, D)
    m = tl.full([ROWS], LOWEST, tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, D], tl.float32)
    first, last = tl.load(begins + tile), tl.load(begins + tile + 1)
    step = tl.cdiv(tl.cdiv(last - first, COLUMNS), n_parts) * COLUMNS
    begin = first + part * step
    end = tl.minimum(begin + step, last)
    for start in tl.range(begin, end, COLUMNS, num_stages=1):
        places = start + columns
        there = places < end
        right = load_rows(Z, tl.load(items + places, mask=there, other=n_items), n_items, d, D)
        s = tl.dot(h, tl.trans(right), input_precision=PRECISION)
        corrections = values + places.to(tl.int64)[None, :] * ROWS + inside[:, None]
        s += tl.load(corrections, mask=there[None, :], other=0.0)
        s = tl.where(there[None, :], s, LOWEST)
        m, total, acc = _fold(s, right, m, total, acc, PRECISION)
    part += first_part
    _store_part(maxima, sums, parts, part, rows, n_positions, m, total, acc, d, D)


@triton.jit
def items_kernel(
    Z, H, Ht, lse, scale, dZ, n_items, n_padded,
    d: tl.constexpr, D: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    PRECISION: tl.constexpr, TRANSPOSED: tl.constexpr, CORRECTED: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """Write scale[0] times the sum over positions of their vectors, weighted by the softmax.

    H (n_padded, d) and Ht (d, n_padded) are padded with zeros. lse (n_padded,) is the logarithm of
    the sum of exponentials, base 2 and infinite beyond the last position. Corrections are left out
    here: without its correction a logit may be above lse, by any amount, and is cut off there, so
    that little is to be put right afterwards.
    """
    rows, columns = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    z = load_rows(Z, rows, n_items, d, D)
    acc = tl.zeros([ROWS, D], tl.float32)
    for first in tl.range(0, n_padded, COLUMNS, num_stages=STAGES):
        left, right = _load_columns(
            H, Ht, first, n_padded, n_padded, d, D, COLUMNS, True, TRANSPOSED
        )
        shift = tl.load(lse + first + columns)
        exponent = tl.dot(z, left, input_precision=PRECISION) * LOG2E - shift[None, :]
        if CORRECTED:
            exponent = tl.minimum(exponent, 0.0, propagate_nan=tl.PropagateNan.ALL)
        e = tl.exp2(exponent).to(right.dtype)
        acc = tl.dot(e, right, acc, input_precision=PRECISION)
    inner = tl.arange(0, D)
    place = rows.to(tl.int64)[:, None] * d + inner[None, :]
    there = (rows < n_items)[:, None] & (inner < d)[None, :]
    tl.store(dZ + place, acc * tl.load(scale), mask=there)
