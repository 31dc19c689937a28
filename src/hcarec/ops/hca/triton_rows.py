"""What the Triton kernels of a layer share: rows of a window, products of a tile, tanh.

Rows are packed step after step (see `packing`), so the row j steps away follows from a row's step,
its rank within the step and where steps start. Each program owns some rows and reads others.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def tanh(v):
    """Return tanh(v), also where exp overflows."""
    return 1 - 2 / (tl.exp(2 * v) + 1)


@triton.jit
def earlier(step, rank, starts, j):
    """Return the row j steps before each of some rows, and whether there is one."""
    t = step - j
    return tl.load(starts + t, mask=t >= 0, other=0) + rank, t >= 0


@triton.jit
def later(step, rank, starts, n_steps, j):
    """Return the row j steps after each of some rows, and whether there is one."""
    t = step + j
    row = tl.load(starts + t, mask=t < n_steps, other=0) + rank
    return row, row < tl.load(starts + t + 1, mask=t < n_steps, other=0)


@triton.jit
def load_rows(A, row, there, k, d: tl.constexpr):
    """Return A[row, k], zero where there is no row and beyond column d."""
    at = row.to(tl.int64)[:, None] * d + k[None, :]
    return tl.load(A + at, mask=there[:, None] & (k < d)[None, :], other=0)


@triton.jit
def store_rows(A, row, there, k, value, d: tl.constexpr):
    """Write A[row, k] where there is a row and up to column d."""
    at = row.to(tl.int64)[:, None] * d + k[None, :]
    value = value.to(A.dtype.element_ty)
    tl.store(A + at, value, mask=there[:, None] & (k < d)[None, :])


@triton.jit
def load_matrix(M, k, n, K: tl.constexpr, N: tl.constexpr, TURNED: tl.constexpr):
    """Return the block (k, n) of a matrix (K, N), or of the transpose of a matrix (N, K)."""
    at = n[None, :] * K + k[:, None] if TURNED else k[:, None] * N + n[None, :]
    return tl.load(M + at, mask=(k < K)[:, None] & (n < N)[None, :], other=0)


@triton.jit
def product(
    total,
    A,
    row,
    there,
    M,
    n,
    K: tl.constexpr,
    N: tl.constexpr,
    TURNED: tl.constexpr,
    BK: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Add A[row] (K,) times the columns n of a matrix, see `load_matrix`, to total (rows, n)."""
    for k_0 in range(0, K, BK):
        k = k_0 + tl.arange(0, BK)
        a = load_rows(A, row, there, k, K)
        total = tl.dot(a, load_matrix(M, k, n, K, N, TURNED), total, input_precision=PRECISION)
    return total
