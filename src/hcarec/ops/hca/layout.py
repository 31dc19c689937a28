"""Where the engine finds the parameters of each layer (see `hcarec.ops.network.layout`)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hcarec.ops.hca.parameters import Network
from hcarec.ops.hca.state import kept_items, widest
from hcarec.ops.network.layout import Items, Scoring, flatten
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


class Sizes(NamedTuple):
    """The options of a network as whole numbers, which kernels can read; 0 is no, 1 is yes."""

    d: int
    w_x: int
    w_h: int
    layers: int
    f: int
    """Width of the FFN; 0 without a block."""
    residual: int
    masked: int
    dot_x: int
    dot_h: int
    kept: int
    """Items that a state keeps."""
    widest: int
    """Events that a state counts up to."""
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
    """Where `dense` holds each parameter of `LAYER`, (layers * PER_LAYER,) int64; -1 without."""


def lay_out(theta: Theta, network: Network) -> tuple[np.ndarray, np.ndarray, Sizes, Scoring]:
    """Return `dense`, `where`, `sizes` and `scoring` of a packed network."""
    dense, places = flatten(theta, network.d)
    names = [prefix + name for prefix in network.prefixes for name in LAYER]
    where = np.array([places.get(name, -1) for name in names], np.int64)
    scoring = Scoring.of(network, places, kept_items(network))
    sizes = Sizes(
        d=network.d,
        w_x=network.w_x,
        w_h=network.w_h,
        layers=len(network.prefixes),
        f=network.ffn * network.d if network.blocks else 0,
        residual=int(network.fusion == "residual"),
        masked=int(network.padding == "masked"),
        dot_x=int(network.attention_x == "dot"),
        dot_h=int(network.attention_h == "dot"),
        kept=scoring.kept,
        widest=widest(network),
        mask=scoring.mask,
        norm_out=scoring.norm_out,
    )
    return dense, where, sizes, scoring
