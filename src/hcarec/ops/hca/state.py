"""The state of a user: all that one more event needs, of constant size whatever the history."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from hcarec.ops.hca.parameters import Network


def kept_items(network: Network) -> int:
    """Return how many items a state keeps: for the first layer's window and for the copy term."""
    return max(network.w_x - 1, network.copy_window)


def widest(network: Network) -> int:
    """Return the width of the widest window: what `events` of a state counts up to."""
    return max(network.w_x, network.w_h, network.copy_window)


@cache
def state_dtype(network: Network) -> np.dtype[Any]:
    """Return the type of a state; every number has four bytes.

    `events` counts events up to the widest window, which says how many rows are real. `items` are
    the last ones, oldest first, -1 before the start. `o` (d,) is the output of the last event.
    Each layer has `hidden`, its last w_h - 1 hidden states (at least the one that the recurrence
    goes on from), and each but the first `inputs`, its last w_x - 1 inputs; rows before the start
    are zero. Layers have the prefixes of their parameters.
    """
    d, w_x, w_h = network.d, network.w_x, network.w_h
    fields: list[Any] = [("events", "<i4"), ("items", "<i4", (kept_items(network),))]
    fields.append(("o", "<f4", (d,)))
    for prefix in network.prefixes:
        fields.append((prefix + "hidden", "<f4", (max(1, w_h - 1), d)))
        if prefix:
            fields.append((prefix + "inputs", "<f4", (w_x - 1, d)))
    return np.dtype(fields)


def start(network: Network, n: int = 1) -> np.ndarray:
    """Return the states of n users before their first event."""
    states = np.zeros(n, state_dtype(network))
    states["items"] = -1
    return states


def usable(network: Network, states: np.ndarray, n_items: int) -> np.ndarray:
    """Say which states (n,), read from elsewhere, the network can go on from."""
    events, items = states["events"], states["items"]
    there = np.arange(items.shape[1], 0, -1) <= events[:, None]  # the places that hold an item
    fine = (events >= 0) & (events <= widest(network))
    fine &= np.where(there, (items >= 0) & (items < n_items), items == -1).all(axis=1)
    for name in states.dtype.names or ():
        fine &= np.isfinite(states[name]).reshape(len(states), -1).all(axis=1)
    return np.asarray(fine)
