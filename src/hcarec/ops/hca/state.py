"""The state of a user: all that one more event needs, of constant size whatever the history."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from hcarec.ops.hca.parameters import Network
from hcarec.ops.network.state import fields, first_states, usable_states


def kept_items(network: Network) -> int:
    """Return how many items a state keeps: those that window, copy term or others read."""
    return max(network.w_x - 1, network.copy_window, network.last_items)


def widest(network: Network) -> int:
    """Return the width of the widest window: what `events` of a state counts up to."""
    return max(network.w_x, network.w_h, network.copy_window, network.last_items)


@cache
def state_dtype(network: Network) -> np.dtype[Any]:
    """Return the type of a state; every number has four bytes.

    `events` counts events up to the widest window, which says how many rows are real. Each layer
    has `hidden`, its last w_h - 1 hidden states (at least the one that the recurrence goes on
    from), and each but the first `inputs`, its last w_x - 1 inputs; rows before the start are zero.
    Layers have the prefixes of their parameters.
    """
    d, w_x, w_h = network.d, network.w_x, network.w_h
    named = fields(kept_items(network), d)
    for prefix in network.prefixes:
        named.append((prefix + "hidden", "<f4", (max(1, w_h - 1), d)))
        if prefix:
            named.append((prefix + "inputs", "<f4", (w_x - 1, d)))
    return np.dtype(named)


def start(network: Network, n: int = 1) -> np.ndarray:
    """Return the states of n users before their first event."""
    return first_states(state_dtype(network), n)


def usable(network: Network, states: np.ndarray, n_items: int) -> np.ndarray:
    """Say which states (n,), read from elsewhere, the network can go on from."""
    return usable_states(states, widest(network), n_items)
