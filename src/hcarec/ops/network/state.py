"""States of users: what all networks keep, of constant size whatever the history.

`events` counts a user's events up to some number, `items` are the last ones, oldest first, -1
before the start, `o` (d,) is the output of the last event; every number has four bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def fields(kept: int, d: int) -> list[Any]:
    """Return the fields that every state begins with, where it keeps so many items."""
    return [("events", "<i4"), ("items", "<i4", (kept,)), ("o", "<f4", (d,))]


def first_states(dtype: np.dtype[Any], n: int) -> np.ndarray:
    """Return the states of n users before their first event."""
    states = np.zeros(n, dtype)
    states["items"] = -1
    return states


def usable_states(states: np.ndarray, most: int, n_items: int) -> np.ndarray:
    """Say which states (n,) from elsewhere can be gone on from; they count up to `most` events."""
    events, items = states["events"], states["items"]
    there = np.arange(items.shape[1], 0, -1) <= events[:, None]  # the places that hold an item
    fine = (events >= 0) & (events <= most)
    fine &= np.where(there, (items >= 0) & (items < n_items), items == -1).all(axis=1)
    for name in states.dtype.names or ():
        fine &= np.isfinite(states[name]).reshape(len(states), -1).all(axis=1)
    return np.asarray(fine)
