"""The serving engine of SASRec, in Numba.

The state of a user is its last `length` items and the output after them. Whatever comes, all that
the state keeps is read again, one user at a time by one kernel: so the bits depend neither on the
batch nor on the threads nor on how many events come at a time.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import numpy as np

from hcarec.ops.network import engine
from hcarec.ops.network.engine import Found, pack_items, queries, views
from hcarec.ops.network.state import fields, first_states, usable_states
from hcarec.ops.parameters import Theta
from hcarec.ops.sas.engine_kernels import advance_kernel, record
from hcarec.ops.sas.layout import Packed, lay_out
from hcarec.ops.sas.parameters import Network

__all__ = [
    "Packed",
    "advance",
    "encode",
    "pack",
    "queries",
    "start",
    "state_dtype",
    "usable",
]


@cache
def state_dtype(network: Network) -> np.dtype[Any]:
    """Return the type of a state; `events` counts up to `length`."""
    return np.dtype(fields(network.length, network.d))


def start(network: Network, n: int = 1) -> np.ndarray:
    """Return the states of n users before their first event."""
    return first_states(state_dtype(network), n)


def usable(network: Network, states: np.ndarray, n_items: int) -> np.ndarray:
    """Say which states (n,), read from elsewhere, the network can go on from."""
    return usable_states(states, network.length, n_items)


def pack(theta: Theta, network: Network) -> Packed:
    """Lay parameters out for the kernels; X is shared where it needs no change."""
    dense, where, sizes, scoring = lay_out(theta, network)
    return Packed(network, sizes, scoring, pack_items(theta, dense, scoring), dense, where)


def advance(
    packed: Packed, states: np.ndarray, items: np.ndarray, offsets: np.ndarray, threads: int = 1
) -> None:
    """Add each user's events to its state, in place.

    states (n,) of `state_dtype`, items (n_events,), offsets (n + 1,).
    """
    assert states.dtype == state_dtype(packed.network), states.dtype
    advance_kernel()  # compile once, before the threads start
    engine.advance(packed, _move, states, items, offsets, threads)


def encode(
    packed: Packed, items: np.ndarray, offsets: np.ndarray, threads: int | None = None
) -> Found:
    """Return the queries (n, d) after every user's last event, and the copy term's corrections.

    items (n_events,), offsets (n + 1,). An empty history gives zeros and no corrections.
    """
    advance_kernel()
    return engine.encode(packed, _move, partial(start, packed.network), items, offsets, threads)


def _move(packed: Packed, states: np.ndarray, items: np.ndarray, offsets: np.ndarray) -> None:
    """Call the kernel for some users."""
    grown = states["events"] + (offsets[1:] - offsets[:-1])
    most = min(int(grown.max(initial=0)), packed.sizes.length)
    advance_kernel()(
        packed.items.Z, packed.dense, packed.where,
        np.empty(most * record(packed.sizes), np.float32), np.empty(most, np.float32),
        items, offsets, *views(states), packed.sizes,
    )  # fmt: skip
