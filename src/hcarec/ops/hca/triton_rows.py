"""What the Triton kernels of a layer share: rows of a window, products of a tile, tanh.

Rows are packed step after step (see `packing`), so the row j steps away follows from a row's step,
its rank within the step and where steps start. Each program owns some rows and reads others.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def tanh(v):
    """Return tanh(v) from an exponential that never overflows."""
    e = tl.exp(-2 * tl.abs(v))
    size = (1 - e) / (1 + e)
    return tl.where(v < 0, -size, size)


@triton.jit
def earlier(step, rank, starts, j):
    """Return the row j steps before each of some rows, and whether there is one."""
    t = step - j
    return tl.load(starts + t, mask=t >= 0, other=0).to(tl.int32) + rank, t >= 0


@triton.jit
def later(step, rank, starts, n_steps, j):
    """Return the row j steps after each of some rows, and whether there is one."""
    t = step + j
    row = tl.load(starts + t, mask=t < n_steps, other=0).to(tl.int32) + rank
    return row, row < tl.load(starts + t + 1, mask=t < n_steps, other=0).to(tl.int32)


@triton.jit
def load_rows(A, row, there, k, d: tl.constexpr):
    """Return A[row, k], zero where there is no row and beyond column d."""
    return load_part(A, row, there, k, d, d)


@triton.jit
def load_part(A, row, there, k, d: tl.constexpr, N: tl.constexpr):
    """Return A[row, k] of rows of size N, zero where there is no row and beyond column d."""
    at = row.to(tl.int64)[:, None] * N + k[None, :]
    return tl.load(A + at, mask=there[:, None] & (k < d)[None, :], other=0)


@triton.jit
def store_rows(A, row, there, k, value, d: tl.constexpr):
    """Write A[row, k] where there is a row and up to column d."""
    store_part(A, row, there, k, value, d, d)


@triton.jit
def store_part(A, row, there, k, value, d: tl.constexpr, N: tl.constexpr):
    """Write A[row, k] of rows of size N where there is a row and up to column d."""
    at = row.to(tl.int64)[:, None] * N + k[None, :]
    value = value.to(A.dtype.element_ty)
    tl.store(A + at, value, mask=there[:, None] & (k < d)[None, :])


@triton.jit
def load_matrix(M, k, n, K: tl.constexpr, N: tl.constexpr, TURNED: tl.constexpr):
    """Return the block (k, n) of a matrix (K, N), or of the transpose of a matrix (N, K)."""
    at = n[None, :] * K + k[:, None] if TURNED else k[:, None] * N + n[None, :]
    return tl.load(M + at, mask=(k < K)[:, None] & (n < N)[None, :], other=0)


@triton.jit
def scale_of(top):
    """Return the power of two that brings amounts up to top below 2^15, and its inverse."""
    exponent = tl.maximum(top.to(tl.int32, bitcast=True) >> 23, 20)
    scale = ((268 - exponent) << 23).to(tl.float32, bitcast=True)
    return scale, ((exponent - 14) << 23).to(tl.float32, bitcast=True)


@triton.jit
def split(a):
    """Return the two float16 parts, high and low, of scaled numbers."""
    high = a.to(tl.float16)
    return high, (a - high.to(tl.float32)).to(tl.float16)


@triton.jit
def add_product(
    total,
    a,
    M,
    k,
    n,
    K: tl.constexpr,
    N: tl.constexpr,
    LOW: tl.constexpr,
    TURNED: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Add a (rows, k) times the block (k, n) of a matrix, see `load_matrix`, to total (rows, n).

    By "fp16x3" a is scaled, and M holds the high parts of scaled numbers, LOW before the low ones.
    """
    if PRECISION == "fp16x3":
        high, low = split(a)
        m = load_matrix(M, k, n, K, N, TURNED)
        total = tl.dot(high, m, total)
        total = tl.dot(low, m, total)
        total = tl.dot(high, load_matrix(M + LOW, k, n, K, N, TURNED), total)
    else:
        m = load_matrix(M, k, n, K, N, TURNED)
        total = tl.dot(a, m, total, input_precision=PRECISION)
    return total


@triton.jit
def load_scaled(A, row, there, k, d: tl.constexpr, N: tl.constexpr, scale, PRECISION: tl.constexpr):
    """Return what `load_part` returns, scaled where products are made of parts."""
    a = load_part(A, row, there, k, d, N)
    if PRECISION == "fp16x3":
        a = a * scale
    return a


@triton.jit
def split_weights(
    W_0,
    W_1,
    Q,
    parts,
    inverses,
    d: tl.constexpr,
    N: tl.constexpr,
    FIRST: tl.constexpr,
    BY_ROW: tl.constexpr,
    B: tl.constexpr,
    C: tl.constexpr,
):
    """Write the float16 parts of W_0 and W_1 (N, d) and of Q (d, d), and inverses of their scales.

    parts holds high and low ones of each in turn. A scale belongs to a row or to a column, W_0 and
    W_1 have it in common: N or d of W, then d of Q.
    """
    i = tl.program_id(0) * B + tl.arange(0, B)
    if tl.program_id(1) == 0:
        top = tops(W_1, i, N, d, BY_ROW, B, C)
        if FIRST:
            top = tl.maximum(top, tops(W_0, i, N, d, BY_ROW, B, C))
        scale, inverse = scale_of(top)
        if FIRST:
            write_parts(W_0, parts, i, scale, N, d, BY_ROW, B, C)
        write_parts(W_1, parts + 2 * N * d, i, scale, N, d, BY_ROW, B, C)
        tl.store(inverses + i, inverse, mask=i < (N if BY_ROW else d))
    else:
        scale, inverse = scale_of(tops(Q, i, d, d, BY_ROW, B, C))
        write_parts(Q, parts + 4 * N * d, i, scale, d, d, BY_ROW, B, C)
        tl.store(inverses + (N if BY_ROW else d) + i, inverse, mask=i < d)


@triton.jit
def tops(
    M, i, R: tl.constexpr, d: tl.constexpr, BY_ROW: tl.constexpr, B: tl.constexpr, C: tl.constexpr
):
    """Return the largest amounts of some rows or columns of a matrix (R, d)."""
    top = tl.zeros((B,), tl.float32)
    for j_0 in range(0, d if BY_ROW else R, C):
        at, there = entries(i, j_0 + tl.arange(0, C), R, d, BY_ROW)
        top = tl.maximum(top, tl.max(tl.abs(tl.load(M + at, mask=there, other=0)), 1))
    return top


@triton.jit
def write_parts(
    M,
    parts,
    i,
    scale,
    R: tl.constexpr,
    d: tl.constexpr,
    BY_ROW: tl.constexpr,
    B: tl.constexpr,
    C: tl.constexpr,
):
    """Write the high, then the low parts of some rows or columns of a matrix (R, d)."""
    for j_0 in range(0, d if BY_ROW else R, C):
        at, there = entries(i, j_0 + tl.arange(0, C), R, d, BY_ROW)
        high, low = split(tl.load(M + at, mask=there, other=0) * scale[:, None])
        tl.store(parts + at, high, mask=there)
        tl.store(parts + R * d + at, low, mask=there)


@triton.jit
def entries(i, j, R: tl.constexpr, d: tl.constexpr, BY_ROW: tl.constexpr):
    """Return where the entries (i, j) of a matrix (R, d), or (j, i) by columns, lie, if they do."""
    if BY_ROW:
        at, there = i[:, None] * d + j[None, :], (i < R)[:, None] & (j < d)[None, :]
    else:
        at, there = j[None, :] * d + i[:, None], (i < d)[:, None] & (j < R)[None, :]
    return at, there
