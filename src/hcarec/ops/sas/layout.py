"""Where the engine of SASRec finds its parameters (see `hcarec.ops.network.layout`).

Each head is padded to whole SIMD vectors: H numbers, all heads HEADS * H.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hcarec.ops.layout import padded
from hcarec.ops.network.layout import Items, Scoring, flatten
from hcarec.ops.parameters import Theta
from hcarec.ops.sas.parameters import Network

LAYER = ["Q", "K", "V", "O", "norm_1", "norm_2", "A_1", "a_1", "A_2", "a_2"]
Q, K, V, O, NORM_1, NORM_2, A_1, BIAS_1, A_2, BIAS_2 = range(10)
"""Columns of `Packed.where`: the parameters of a layer."""
PER_LAYER = len(LAYER)


class Sizes(NamedTuple):
    """The options of a network as whole numbers, which kernels can read."""

    d: int
    length: int
    heads: int
    layers: int
    f: int
    """Width of the FFN."""
    positions: int
    """Where `Packed.dense` holds P."""
    mask: int
    """Where `Packed.dense` holds d ones, followed by the padding's zeros."""
    norm_out: int
    """Where `Packed.dense` holds norm_out; -1 without."""


class Packed(NamedTuple):
    """A network's parameters as the kernels read them."""

    network: Network
    sizes: Sizes
    scoring: Scoring
    items: Items
    dense: np.ndarray
    """All parameters but those of `items`, flat."""
    where: np.ndarray
    """Where `dense` holds each parameter of `LAYER`, (layers * PER_LAYER,) int64."""


def lay_out(theta: Theta, network: Network) -> tuple[np.ndarray, np.ndarray, Sizes, Scoring]:
    """Return `dense`, `where`, `sizes` and `scoring` of a packed network."""
    dense, places = flatten(
        {name: _by_head(name, theta[name], network) for name in theta}, network.d
    )
    names = [prefix + name for prefix in network.prefixes for name in LAYER]
    where = np.array([places[name] for name in names], np.int64)
    scoring = Scoring.of(network, places, network.length)
    sizes = Sizes(
        d=network.d,
        length=network.length,
        heads=network.heads,
        layers=network.blocks,
        f=network.ffn * network.d,
        positions=places["P"],
        mask=scoring.mask,
        norm_out=scoring.norm_out,
    )
    return dense, where, sizes, scoring


def _by_head(name: str, value: np.ndarray, network: Network) -> np.ndarray:
    """Return Q, K and V as (heads, d / heads, d), O with the inputs of each head padded."""
    letter, heads, own = name.rpartition(".")[2], network.heads, network.d // network.heads
    if letter in ("Q", "K", "V"):
        return value.reshape(heads, own, network.d)
    if letter == "O":
        wide = np.zeros((network.d, heads, padded(own)), np.float32)
        wide[:, :, :own] = value.reshape(network.d, heads, own)
        return wide.reshape(network.d, -1)
    return value
