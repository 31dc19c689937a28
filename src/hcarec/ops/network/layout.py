"""How engines lay out parameters: padded, transposed, flat.

A vector is padded with zeros to whole SIMD vectors; the network keeps the padding at zero by
itself. A matrix is transposed, (inputs, outputs), the gates or heads side by side, so that the
inner loop of a product runs over contiguous outputs.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from hcarec.ops.layout import even, padded, stride
from hcarec.ops.network.parameters import NetworkOptions, score_shapes
from hcarec.ops.parameters import Theta

VECTORS = (
    "b",
    "r_x",
    "r_h",
    "norm_1",
    "norm_2",
    "norm_item",
    "norm_out",
    "a_1",
    "a_2",
    "P",
    "mask",
)
"""Parameters whose rows are padded; all others are matrices."""
OUTSIDE = ("X", "temperature", "copy_bias", "copy_scale", "copy_rate")
"""Parameters that are not in `Packed.dense`."""


class Scoring(NamedTuple):
    """What makes scores of a state, as whole numbers, which kernels can read; 0 is no, 1 is yes."""

    d: int
    w_c: int
    cosine: int
    kept: int
    """Items that a state keeps."""
    mask: int
    """Where `Packed.dense` holds d ones, followed by the padding's zeros."""
    norm_item: int
    """Where `Packed.dense` holds norm_item; -1 without."""
    norm_out: int
    """Where `Packed.dense` holds norm_out; -1 without."""
    copy_Q: int
    """Where `Packed.dense` holds copy_Q; -1 without."""

    @classmethod
    def of(cls, network: NetworkOptions, places: dict[str, int], kept: int) -> Scoring:
        """Return the numbers of a network whose parameters lie at these places."""
        there = score_shapes(network)
        names = ("norm_item", "norm_out", "copy_Q")
        own = {name: places[name] if name in there else -1 for name in names}
        cosine = int(network.scores == "cosine")
        return cls(network.d, network.copy_window, cosine, kept, places["mask"], **own)


class Items(NamedTuple):
    """What scores are made with: item vectors, and the numbers of temperature and copy term."""

    Z: np.ndarray
    """Item vectors at the input, (n_items, d) float32."""
    ranked: np.ndarray
    """Item vectors that queries are multiplied with, (n_items, d) float32."""
    copy_bias: np.ndarray
    """(w_c,) float32."""
    factors: np.ndarray
    """exp(temperature), copy_scale and exp(copy_rate), (3,) float64."""


class Packed(Protocol):
    """A network's parameters as the kernels that all engines share read them."""

    @property
    def scoring(self) -> Scoring:
        """Return the numbers that kernels read."""

    @property
    def items(self) -> Items:
        """Return what scores are made with."""

    @property
    def dense(self) -> np.ndarray:
        """Return all other parameters, flat."""


def flatten(theta: Theta, d: int) -> tuple[np.ndarray, dict[str, int]]:
    """Return all dense parameters in one array, and where each lies, the mask of d ones among them.

    A matrix (outputs, inputs) or (gates, outputs, inputs).
    """
    named: Theta = dict(theta) | {"mask": np.ones(d, np.float32)}
    places, parts, length = {}, [], 0
    for name, value in named.items():
        if name not in OUTSIDE:
            parts.append(_block(name.rpartition(".")[2], value).reshape(-1))
            places[name] = length
            length += len(parts[-1])
    return np.concatenate(parts), places


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
