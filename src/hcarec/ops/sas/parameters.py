"""Options of SASRec, and names, shapes and first values of its parameters."""

from __future__ import annotations

from dataclasses import dataclass

from hcarec.ops.network.parameters import (
    NetworkOptions,
    Shapes,
    block_shapes,
    first_values,
    score_shapes,
)
from hcarec.ops.parameters import Theta

ZERO = ("P", "O", "a_1", "A_2", "a_2")
"""What starts at zero where first values are scaled: positions, and what a block adds to its input.

So a position that training never reaches adds nothing.
"""


@dataclass(frozen=True, kw_only=True)
class Network(NetworkOptions):
    """What the network computes, at least one block; `docs/network.md` has it in equations."""

    length: int
    """Last events that are read."""
    heads: int
    """Heads of the attention; they divide d."""


def shapes(network: Network, n_items: int) -> Shapes:
    """Return the shape of every parameter of a network."""
    d = network.d
    named: Shapes = {"X": (n_items, d), "P": (network.length, d)}
    matrices: Shapes = dict.fromkeys(("Q", "K", "V", "O"), (d, d))
    for prefix in network.prefixes:
        layer = matrices | block_shapes(network)
        named |= {prefix + name: shape for name, shape in layer.items()}
    return named | score_shapes(network)


def initialize(network: Network, n_items: int, seed: int) -> Theta:
    """Return the first values of all parameters, float32.

    "scaled" starts every block as the identity: O = 0 and A_2 = 0.
    """
    return first_values(network, shapes(network, n_items), ZERO, seed)
