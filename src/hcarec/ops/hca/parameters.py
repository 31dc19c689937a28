"""Options of the network, and names, shapes and first values of its parameters."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace

import numpy as np

from hcarec.ops.parameters import Theta

TEMPERATURE = math.log(10)
"""First value of the temperature of cosine scores."""
_NOT_DRAWN = ("norm_", "temperature", "copy_")
_BIASES = ("b", "a_1", "a_2")
_LEVELS = ("V", "F")


@dataclass(frozen=True, kw_only=True)
class Network:
    """What the network computes; `docs/network.md` has each option as an equation.

    The defaults are the paper's network. Whoever makes one has checked the values.
    """

    d: int
    """Size of item and hidden vectors."""
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
    blocks: int = 0
    """0 is one bare cell; L >= 1 are L layers, each a cell inside a block."""
    ffn: int = 4
    """Width of a block's FFN in multiples of d."""
    item_norm: bool = False
    """Normalize item vectors."""
    output_norm: bool = False
    """Normalize outputs."""
    scores: str = "dot"
    """`dot` or `cosine`."""
    copy_window: int = 0
    """Events that the copy term looks at; 0 turns it off."""
    input_dropout: float = 0.0
    hidden_dropout: float = 0.0
    output_dropout: float = 0.0
    initial: str = "paper"
    """`paper` or `scaled`."""

    @property
    def is_paper(self) -> bool:
        """Say whether this is the paper's network, however it is trained."""
        plain = Network(d=self.d, w_x=self.w_x, w_h=self.w_h)
        names = ("input_dropout", "hidden_dropout", "output_dropout", "initial")
        trained = {name: getattr(self, name) for name in names}
        return replace(plain, ffn=self.ffn, **trained) == self

    @property
    def prefixes(self) -> tuple[str, ...]:
        """Return what the parameters of each layer are prefixed with."""
        return ("", *(f"{layer}." for layer in range(2, self.blocks + 1)))


def shapes(network: Network, n_items: int) -> dict[str, tuple[int, ...]]:
    """Return the shape of every parameter of a network."""
    d = network.d
    named: dict[str, tuple[int, ...]] = {"X": (n_items, d)}
    for prefix in network.prefixes:
        named |= {prefix + name: shape for name, shape in _layer(network).items()}
    if network.item_norm:
        named["norm_item"] = (2, d)
    if network.output_norm:
        named["norm_out"] = (2, d)
    if network.scores == "cosine":
        named["temperature"] = (1,)
    if network.copy_window:
        named |= {"copy_Q": (d, d), "copy_bias": (network.copy_window,)}
        named |= {"copy_scale": (1,), "copy_rate": (1,)}
    return named


def _layer(network: Network) -> dict[str, tuple[int, ...]]:
    """Return the shape of every parameter of one layer."""
    d, f = network.d, network.ffn * network.d
    named: dict[str, tuple[int, ...]] = {"U": (3, d, d), "W": (3, d, d), "b": (3, d)}
    if network.w_x > 1:
        named |= {"V": (3, d, d), "Q_x": (d, d)}
        named |= {"K_x": (d, d)} if network.attention_x == "dot" else {"r_x": (d,)}
    if network.w_h > 1:
        named |= {"Q_h": (d, d)}
        named |= {"K_h": (d, d)} if network.attention_h == "dot" else {"r_h": (d,)}
        named |= {"E": (d, d), "F": (d, d)} if network.fusion == "paper" else {"F": (d, d)}
    if network.blocks:
        named |= {"norm_1": (2, d), "norm_2": (2, d)}
        named |= {"A_1": (f, d), "a_1": (f,), "A_2": (d, f), "a_2": (d,)}
    return named


def initialize(network: Network, n_items: int, seed: int) -> Theta:
    """Return the first values of all parameters, float32.

    Each has a stream of its own, keyed by seed and name, so that an option changes no parameter
    that stands without it. "scaled" starts both levels at zero effect: V = 0 and F = 0.
    """
    theta: Theta = {}
    for name, shape in shapes(network, n_items).items():
        letter = name.rpartition(".")[2]
        if letter.startswith(_NOT_DRAWN):
            theta[name] = _constant(letter, shape)
        elif network.initial == "paper":
            theta[name] = (_stream(seed, name).random(shape) - 0.5).astype(np.float32)
        elif letter == "X":
            normal = _stream(seed, name).standard_normal(shape)
            theta[name] = (normal / math.sqrt(network.d)).astype(np.float32)
        elif letter in _BIASES or letter in _LEVELS:
            theta[name] = np.zeros(shape, np.float32)
        else:
            theta[name] = _xavier(_stream(seed, name), shape)
    return theta


def _stream(seed: int, name: str) -> np.random.Generator:
    key = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
    return np.random.Generator(np.random.PCG64([seed, key]))


def _constant(letter: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return the first values of a parameter that is not drawn."""
    value = np.zeros(shape, np.float32)
    if letter.startswith("norm_"):
        value[0] = 1  # scale; the shift is 0
    elif letter == "temperature":
        value[:] = TEMPERATURE
    elif letter == "copy_scale":
        value[:] = 1
    return value


def _xavier(stream: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Draw matrices (.., outputs, inputs) uniformly, in the limits of Glorot and Bengio.

    A vector is a matrix of one output.
    """
    fan_out, fan_in = shape[-2:] if len(shape) > 1 else (1, shape[0])
    limit = math.sqrt(6 / (fan_in + fan_out))
    return ((2 * stream.random(shape) - 1) * limit).astype(np.float32)
