"""How the CPU engine lays out parameters and work space: padded, transposed, flat.

Every vector of length d is padded with zeros to D, a multiple of 8; the network keeps the padding at zero by itself.
Dense parameters lie in one flat array, each matrix transposed (input, output) and the three gates side by side, so that
the inner loop of a product runs over contiguous outputs. The backward pass needs them untransposed: a second flat array.
Work space has one record per time step, made of fields of D numbers. Row 0 stands before the start.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hcarec.ops.parameters import Theta

# Fields of a record. Z, R, C hold first the gates' inputs, then the gates, then the gradients of their inputs.
X, Z, R, C, H, RH, XQ, DH, DX, TMP = range(10)
XC, SX, DXC, HC, SH, DHC, O, DA = range(10, 18)
FIELDS = 18


class Packed(NamedTuple):
    """Parameters as the kernels read them: items X (n_items, d), dense ones flat and their transposes."""

    X: np.ndarray
    dense: np.ndarray
    back: np.ndarray
    w_x: int
    w_h: int


def padded(d: int) -> int:
    """Return d rounded up to whole vectors."""
    return -(-d // 8) * 8


def stride(n: int) -> int:
    """Return n or a little more, where rows n numbers apart would fall on the same few lines of the cache."""
    return n + 16 if n % 32 == 0 else n


def even(d: int) -> int:
    """Return d rounded up to an even number: the rows kept of a transposed matrix."""
    return d + d % 2


def places(d: int, w_x: int, w_h: int) -> dict[str, tuple[int, int, int]]:
    """Return where each dense parameter lies in `Packed.dense`: offset, rows, columns."""
    K, L, L3 = even(d), stride(padded(d)), stride(3 * padded(d))
    sizes = {"U": (K, L3), "W": (K, L3), "b": (1, L3)}
    if w_x > 1:
        sizes |= {"V": (K, L3), "Q_x": (K, L), "r_x": (1, L)}
    if w_h > 1:
        sizes |= {"Q_h": (K, L), "E": (K, L), "F": (K, L), "r_h": (1, L)}
    where, offset = {}, 0
    for name, (rows, columns) in sizes.items():
        where[name] = (offset, rows, columns)
        offset += rows * columns
    return where


def _gates(block: np.ndarray, d: int) -> np.ndarray:
    """View a padded block (rows, gates * D or a little more) as (gates, rows, d)."""
    D = padded(d)
    gates = 3 if block.shape[1] >= 3 * D else 1
    return block[:, : gates * D].reshape(len(block), gates, D)[:, :, :d].transpose(1, 0, 2)


def pack(theta: Theta, w_x: int, w_h: int) -> Packed:
    """Lay parameters out for the kernels; X is shared, not copied."""
    X = theta["X"]
    d = X.shape[1]
    where = places(d, w_x, w_h)
    dense = np.zeros(sum(rows * columns for _, rows, columns in where.values()), X.dtype)
    for name, (offset, rows, columns) in where.items():
        block = _gates(dense[offset : offset + rows * columns].reshape(rows, columns), d)
        value = theta[name]
        if rows > 1:  # a matrix; b is (3, d), which for d = 3 looks like one
            block[:, :d] = value.reshape(-1, d, d).transpose(0, 2, 1)
        else:
            block[:, 0] = value.reshape(-1, d)
    return Packed(X, dense, np.zeros(back_size(d, w_x, w_h), X.dtype), w_x, w_h)


def unpack(dense: np.ndarray, d: int, w_x: int, w_h: int) -> Theta:
    """Return the dense parameters (or their gradients) under their own names and shapes."""
    theta = {}
    for name, (offset, rows, columns) in places(d, w_x, w_h).items():
        block = _gates(dense[offset : offset + rows * columns].reshape(rows, columns), d)
        value = block[:, 0] if rows == 1 else block[:, :d].transpose(0, 2, 1)
        theta[name] = np.ascontiguousarray(value if name in ("U", "W", "b", "V") else value[0])
    return theta


def back_size(d: int, w_x: int, w_h: int) -> int:
    """Return the size of `Packed.back`: U, W, then V and Q_x, then Q_h, E and F, each (outputs, stride(D))."""
    D, K = padded(d), even(d)
    return stride(D) * (6 * D + (3 * D + K) * (w_x > 1) + 3 * K * (w_h > 1))


def record(D: int) -> int:
    """Return the length of the record of one time step."""
    return stride(FIELDS * D)


def level_h(d: int, w_x: int) -> tuple[int, int]:
    """Return where the parameters of the upper level begin in `Packed.dense` and in `Packed.back`."""
    D, K = padded(d), even(d)
    dense, back = (2 * K + 1) * stride(3 * D), 6 * D * stride(D)
    if w_x > 1:
        dense += K * stride(3 * D) + (K + 1) * stride(D)
        back += (3 * D + K) * stride(D)
    return dense, back
