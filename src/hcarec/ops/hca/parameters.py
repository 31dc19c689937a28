"""Options of the network, and names, shapes and first values of its parameters."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hcarec.ops.network.parameters import (
    NetworkOptions,
    Shapes,
    block_shapes,
    first_values,
    score_shapes,
)
from hcarec.ops.parameters import Theta

ZERO = ("b", "a_1", "a_2", "V", "F")
"""What starts at zero where first values are scaled: biases, and both levels at zero effect."""


@dataclass(frozen=True, kw_only=True)
class Network(NetworkOptions):
    """What the network computes; `docs/network.md` has each option as an equation.

    The defaults are the paper's network; `blocks` of 0 is one bare cell, L >= 1 are L layers, each
    a cell inside a block.
    """

    w_x: int
    """Width of the window over inputs; 1 turns the level off."""
    w_h: int
    """Width of the window over hidden states; 1 turns the level off."""
    fusion: str = "paper"
    """`paper` or `residual`."""
    padding: str = "zero"
    """`zero` or `masked`."""
    attention_x: str = "additive"
    """`additive` or `dot`."""
    attention_h: str = "additive"
    """`additive` or `dot`."""
    last_items: int = 0
    """Items that a state keeps at least, for what reads them outside the network."""

    @property
    def is_paper(self) -> bool:
        """Say whether this is the paper's network, however it is trained."""
        plain = Network(d=self.d, w_x=self.w_x, w_h=self.w_h)
        names = ("input_dropout", "hidden_dropout", "output_dropout", "initial")
        trained = {name: getattr(self, name) for name in names}
        return replace(plain, ffn=self.ffn, **trained) == self


def shapes(network: Network, n_items: int) -> Shapes:
    """Return the shape of every parameter of a network."""
    named: Shapes = {"X": (n_items, network.d)}
    for prefix in network.prefixes:
        named |= {prefix + name: shape for name, shape in _layer(network).items()}
    return named | score_shapes(network)


def _layer(network: Network) -> Shapes:
    """Return the shape of every parameter of one layer."""
    d = network.d
    named: Shapes = {"U": (3, d, d), "W": (3, d, d), "b": (3, d)}
    if network.w_x > 1:
        named |= {"V": (3, d, d), "Q_x": (d, d)}
        named |= {"K_x": (d, d)} if network.attention_x == "dot" else {"r_x": (d,)}
    if network.w_h > 1:
        named |= {"Q_h": (d, d)}
        named |= {"K_h": (d, d)} if network.attention_h == "dot" else {"r_h": (d,)}
        named |= {"E": (d, d), "F": (d, d)} if network.fusion == "paper" else {"F": (d, d)}
    return named | block_shapes(network) if network.blocks else named


def initialize(network: Network, n_items: int, seed: int) -> Theta:
    """Return the first values of all parameters, float32.

    "scaled" starts both levels at zero effect: V = 0 and F = 0.
    """
    return first_values(network, shapes(network, n_items), ZERO, seed)
