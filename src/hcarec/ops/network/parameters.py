"""Options that all networks share, and names, shapes and first values of what they bring."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from hcarec.ops.parameters import Theta

TEMPERATURE = math.log(10)
"""First value of the temperature of cosine scores."""
Shapes = dict[str, tuple[int, ...]]
_NOT_DRAWN = ("norm_", "temperature", "copy_")


@dataclass(frozen=True, kw_only=True)
class NetworkOptions:
    """What a network does with item vectors and outputs; `docs/network.md` has each as an equation.

    Whoever makes one has checked the values.
    """

    d: int
    """Size of item and hidden vectors."""
    blocks: int = 0
    """Layers; 0 is a network of one layer without a block around it."""
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
    def prefixes(self) -> tuple[str, ...]:
        """Return what the parameters of each layer are prefixed with."""
        return ("", *(f"{layer}." for layer in range(2, self.blocks + 1)))


def block_shapes(network: NetworkOptions) -> Shapes:
    """Return the shapes of a block's norms and FFN."""
    d, f = network.d, network.ffn * network.d
    norms: Shapes = {"norm_1": (2, d), "norm_2": (2, d)}
    return norms | {"A_1": (f, d), "a_1": (f,), "A_2": (d, f), "a_2": (d,)}


def score_shapes(network: NetworkOptions) -> Shapes:
    """Return the shapes of what normalizes item vectors and outputs and makes scores of them."""
    d = network.d
    named: Shapes = {}
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


def first_values(
    network: NetworkOptions, shapes: Mapping[str, tuple[int, ...]], zero: Collection[str], seed: int
) -> Theta:
    """Return the first values of all parameters, float32.

    Each has a stream of its own, keyed by seed and name, so that an option changes no parameter
    that stands without it. "scaled" starts the letters of `zero` at zero.
    """
    theta: Theta = {}
    for name, shape in shapes.items():
        letter = name.rpartition(".")[2]
        if letter.startswith(_NOT_DRAWN):
            theta[name] = _constant(letter, shape)
        elif network.initial == "paper":
            theta[name] = (_stream(seed, name).random(shape) - 0.5).astype(np.float32)
        elif letter == "X":
            normal = _stream(seed, name).standard_normal(shape)
            theta[name] = (normal / math.sqrt(network.d)).astype(np.float32)
        elif letter in zero:
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
