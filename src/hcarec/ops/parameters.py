"""Names, shapes and first values of the network's parameters."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

Theta = dict[str, np.ndarray]
"""Parameters by the paper's letters."""


class State(NamedTuple):
    """All that one more event needs, for one user (or with a leading axis, for many).

    `h` (d,); `items` (w_x - 1,) the last items, oldest first, -1 before the start; `hidden` (w_h - 1, d) the last
    hidden states, oldest first, zero before the start. A level that is off has no rows.
    """

    h: Any
    items: Any
    hidden: Any


class Trained(NamedTuple):
    """What a stretch of training did: sums over its steps, and where it had to stop."""

    loss: float
    """-ln sigma, summed over all steps."""
    l2: float
    """The penalty, summed over all users' steps."""
    steps: int
    """Preferences learned from."""
    without_negative: int
    """Users who have the whole catalogue and so gave no step."""
    bad_position: int
    """Position in `order` of the user whose loss was not finite or far too large, or -1; its update was not applied."""
    bad_step: int
    """The first such step of that user, from 1, or -1."""


def shapes(n_items: int, d: int, w_x: int, w_h: int) -> dict[str, tuple[int, ...]]:
    """Return the shape of every parameter of a network; a width of 1 means that the level is off."""
    named: dict[str, tuple[int, ...]] = {"X": (n_items, d), "U": (3, d, d), "W": (3, d, d), "b": (3, d)}
    if w_x > 1:
        named |= {"V": (3, d, d), "Q_x": (d, d), "r_x": (d,)}
    if w_h > 1:
        named |= {"Q_h": (d, d), "r_h": (d,), "E": (d, d), "F": (d, d)}
    return named


def initialise(shapes: Mapping[str, tuple[int, ...]], seed: int, dtype: Any = np.float32) -> Theta:
    """Draw every parameter uniformly from [-0.5, 0.5].

    Each has a stream of its own, keyed by seed and name, so that turning a level on changes no other parameter.
    """
    theta = {}
    for name, shape in shapes.items():
        key = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
        stream = np.random.Generator(np.random.PCG64([seed, key]))
        theta[name] = (stream.random(shape, dtype=np.float64) - 0.5).astype(dtype)
    return theta
