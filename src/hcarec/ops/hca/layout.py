"""How the engine lays out parameters: padded, transposed, flat.

A vector is padded with zeros to whole SIMD vectors; the network keeps the padding at zero by
itself. A matrix is transposed, (inputs, outputs), the three gates side by side, so that the inner
loop of a product runs over contiguous outputs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hcarec.ops.hca.parameters import Network
from hcarec.ops.hca.state import kept_items, widest
from hcarec.ops.layout import even, padded, stride
from hcarec.ops.parameters import Theta

LAYER = [
    "U",
    "W",
    "b",
    "V",
    "Q_x",
    "r_x",
    "K_x",
    "Q_h",
    "r_h",
    "K_h",
    "E",
    "F",
    "norm_1",
    "norm_2",
    "A_1",
    "a_1",
    "A_2",
    "a_2",
]
U, W, B, V, Q_X, R_X, K_X, Q_H, R_H, K_H, E, F, NORM_1, NORM_2, A_1, BIAS_1, A_2, BIAS_2 = range(18)
"""Columns of `Packed.where`: the parameters of a layer."""
PER_LAYER = len(LAYER)
VECTORS = ["b", "r_x", "r_h", "norm_1", "norm_2", "norm_item", "norm_out", "a_1", "a_2", "mask"]
"""Parameters whose rows are padded; all others are matrices."""
OUTSIDE = ("X", "temperature", "copy_bias", "copy_scale", "copy_rate")
"""Parameters that are not in `Packed.dense`."""


class Sizes(NamedTuple):
    """The options of a network as whole numbers, which kernels can read; 0 is no, 1 is yes."""

    d: int
    w_x: int
    w_h: int
    w_c: int
    layers: int
    f: int
    """Width of the FFN; 0 without a block."""
    residual: int
    masked: int
    dot_x: int
    dot_h: int
    cosine: int
    kept: int
    """Items that a state keeps."""
    widest: int
    """Events that a state counts up to."""
    mask: int
    """Where `Packed.dense` holds d ones, followed by the padding's zeros."""
    norm_item: int
    """Where `Packed.dense` holds norm_item; -1 without."""
    norm_out: int
    """Where `Packed.dense` holds norm_out; -1 without."""
    copy_Q: int
    """Where `Packed.dense` holds copy_Q; -1 without."""


class Packed(NamedTuple):
    """A network's parameters as the kernels read them."""

    network: Network
    sizes: Sizes
    Z: np.ndarray
    """Item vectors at the input, (n_items, d) float32."""
    ranked: np.ndarray
    """Item vectors that queries are multiplied with, (n_items, d) float32."""
    dense: np.ndarray
    """All other parameters, flat."""
    where: np.ndarray
    """Where `dense` holds each parameter of `LAYER`, (layers * PER_LAYER,) int64; -1 without."""
    copy_bias: np.ndarray
    """(w_c,) float32."""
    factors: np.ndarray
    """exp(temperature), copy_scale and exp(copy_rate), (3,) float64."""


def lay_out(theta: Theta, network: Network) -> tuple[np.ndarray, np.ndarray, Sizes]:
    """Return `dense`, `where` and `sizes` of a packed network."""
    named: Theta = dict(theta) | {"mask": np.ones(network.d, np.float32)}
    places, parts, length = {}, [], 0
    for name, value in named.items():
        if name not in OUTSIDE:
            parts.append(_block(name.rpartition(".")[2], value).reshape(-1))
            places[name] = length
            length += len(parts[-1])
    names = [prefix + name for prefix in network.prefixes for name in LAYER]
    where = np.array([places.get(name, -1) for name in names], np.int64)
    sizes = Sizes(
        d=network.d,
        w_x=network.w_x,
        w_h=network.w_h,
        w_c=network.copy_window,
        layers=len(network.prefixes),
        f=network.ffn * network.d if network.blocks else 0,
        residual=int(network.fusion == "residual"),
        masked=int(network.padding == "masked"),
        dot_x=int(network.attention_x == "dot"),
        dot_h=int(network.attention_h == "dot"),
        cosine=int(network.scores == "cosine"),
        kept=kept_items(network),
        widest=widest(network),
        mask=places["mask"],
        norm_item=places.get("norm_item", -1),
        norm_out=places.get("norm_out", -1),
        copy_Q=places.get("copy_Q", -1),
    )
    return np.concatenate(parts), where, sizes


def _block(name: str, value: np.ndarray) -> np.ndarray:
    """Return a parameter padded and, if a matrix, transposed: (rows, columns) float32."""
    if name in VECTORS:
        rows = value.reshape(-1, value.shape[-1])
        block = np.zeros((len(rows), padded(rows.shape[1])), np.float32)
        block[:, : rows.shape[1]] = rows
        return block
    outputs, inputs = value.shape[-2:]
    gates = value.reshape(-1, outputs, inputs)
    O = padded(outputs)
    block = np.zeros((even(inputs), stride(len(gates) * O)), np.float32)
    for gate, matrix in enumerate(gates):
        block[:inputs, gate * O : gate * O + outputs] = matrix.T
    return block
