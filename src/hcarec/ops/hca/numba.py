"""The serving engine of the network with all its options, in Numba.

A history is taken in one user at a time by one kernel, whatever it is cut into, so that the bits
depend neither on the batch nor on the threads nor on how many events come at a time.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from hcarec.ops.hca.engine_kernels import advance_kernel
from hcarec.ops.hca.engine_layer import record
from hcarec.ops.hca.layout import Packed, lay_out
from hcarec.ops.hca.parameters import Network
from hcarec.ops.hca.state import start, state_dtype, usable
from hcarec.ops.network import engine
from hcarec.ops.network.engine import Found, pack_items, queries, views
from hcarec.ops.parameters import Theta

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

EVENTS = 32
"""Events of one user that go through the layers together: their records stay in the cache."""


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
    sizes = packed.sizes
    widest = max(sizes.w_x, sizes.w_h)
    longest = int((offsets[1:] - offsets[:-1]).max(initial=0))
    most = min(longest, max(EVENTS, widest))  # the rows before them are handled again each time
    rows = widest + most
    advance_kernel()(
        packed.items.Z, packed.dense, packed.where,
        np.empty(rows * record(sizes), np.float32), np.empty(widest, np.float32),
        np.empty(rows, np.float32), items, offsets, *views(states), most, sizes,
    )  # fmt: skip
