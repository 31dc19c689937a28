"""The serving engine of the network with all its options, in Numba.

A history is taken in one user at a time by one kernel, whatever it is cut into, so that the bits
depend neither on the batch nor on the threads nor on how many events come at a time.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from hcarec.ops.hca.engine_kernels import advance_kernel, item_kernel, query_kernel
from hcarec.ops.hca.engine_layer import record
from hcarec.ops.hca.layout import Packed, lay_out
from hcarec.ops.hca.parameters import Network
from hcarec.ops.hca.state import start, state_dtype, usable
from hcarec.ops.layout import padded
from hcarec.ops.parameters import Theta
from hcarec.ops.rank.corrections import Corrections
from hcarec.ops.tables.chunks import checked

__all__ = [
    "Packed",
    "advance",
    "encode",
    "pack",
    "queries",
    "start",
    "state_dtype",
    "usable",
    "warm",
]

EVENTS = 32
"""Events of one user that go through the layers together: their records stay in the cache."""
USERS = 256
"""Users that a thread handles at a time."""


def pack(theta: Theta, network: Network) -> Packed:
    """Lay parameters out for the kernels; X is shared where it needs no change."""
    X = np.ascontiguousarray(theta["X"], np.float32)
    dense, where, sizes = lay_out(theta, network)
    Z = np.empty((len(X) if network.item_norm else 0, network.d), np.float32)
    ranked = np.empty((len(X) if sizes.cosine else 0, network.d), np.float32)
    if network.item_norm or sizes.cosine:
        item_kernel()(X, dense, np.empty(padded(network.d), np.float32), Z, ranked, sizes)
    Z = Z if network.item_norm else X
    bias = np.ascontiguousarray(theta.get("copy_bias", ()), np.float32)
    factors = np.exp([_number(theta, name) for name in ("temperature", "copy_rate")])
    numbers = np.array([factors[0], _number(theta, "copy_scale"), factors[1]])
    return Packed(network, sizes, Z, ranked if sizes.cosine else Z, dense, where, bias, numbers)


def _number(theta: Theta, name: str) -> float:
    """Return a parameter that is one number; 0 for a network without it."""
    return float(theta[name][0]) if name in theta else 0.0


def warm() -> None:
    """Compile all kernels, or load them compiled."""
    advance_kernel(), query_kernel(), item_kernel()


def advance(
    packed: Packed, states: np.ndarray, items: np.ndarray, offsets: np.ndarray, threads: int = 1
) -> None:
    """Add each user's events to its state, in place.

    states (n,) of `state_dtype`, items (n_events,), offsets (n + 1,).
    """
    items, offsets = checked(items, offsets, len(packed.Z))
    assert states.dtype == state_dtype(packed.network), states.dtype
    assert states.shape == (len(offsets) - 1,), (states.shape, len(offsets))
    own = np.ascontiguousarray(states)

    def work(begin: int, end: int) -> None:
        _advance(packed, own[begin:end], items, offsets[begin : end + 1])

    advance_kernel()  # compile once, before the threads start
    _in_parts(work, len(states), threads)
    if own is not states:
        states[...] = own


def _advance(packed: Packed, states: np.ndarray, items: np.ndarray, offsets: np.ndarray) -> None:
    """Call the kernel for some users."""
    sizes = packed.sizes
    widest = max(sizes.w_x, sizes.w_h)
    longest = int((offsets[1:] - offsets[:-1]).max(initial=0))
    most = min(longest, max(EVENTS, widest))  # the rows before them are handled again each time
    rows = widest + most
    advance_kernel()(
        packed.Z, packed.dense, packed.where,
        np.empty(rows * record(sizes), np.float32), np.empty(widest, np.float32),
        np.empty(rows, np.float32), items, offsets, *_views(states), most, sizes,
    )  # fmt: skip


def _views(states: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Return contiguous states as flat float32, as flat int32, and the length of one."""
    return states.view(np.float32), states.view(np.int32), states.dtype.itemsize // 4


def queries(packed: Packed, states: np.ndarray) -> tuple[np.ndarray, Corrections | None]:
    """Return the queries (n, d) float32 of users in these states, and the copy term's corrections.

    The query is o, or exp(temperature) o / |o| for cosine scores: to be multiplied with
    `packed.ranked`. A state without an event gives zeros.
    """
    states, n, w_c = np.ascontiguousarray(states), len(states), packed.sizes.w_c
    vectors, offsets = np.empty((n, packed.sizes.d), np.float32), np.zeros(n + 1, np.int64)
    items, values = np.empty(n * w_c, np.int32), np.empty(n * w_c, np.float32)
    count = query_kernel()(
        packed.Z, packed.dense, packed.copy_bias, packed.factors,
        np.empty(2 * padded(packed.sizes.d), np.float32), *_views(states),
        vectors, offsets, items, values, packed.sizes,
    )  # fmt: skip
    if not w_c:
        return vectors, None
    return vectors, Corrections(items[:count].copy(), offsets, values[:count].copy())


def encode(
    packed: Packed, items: np.ndarray, offsets: np.ndarray, threads: int | None = None
) -> tuple[np.ndarray, Corrections | None]:
    """Return the queries (n, d) after every user's last event, and the copy term's corrections.

    items (n_events,), offsets (n + 1,). An empty history gives zeros and no corrections.
    """
    items, offsets = checked(items, offsets, len(packed.Z))
    network = packed.network

    def work(begin: int, end: int) -> tuple[np.ndarray, Corrections | None]:
        states = start(network, end - begin)
        _advance(packed, states, items, offsets[begin : end + 1])
        return queries(packed, states)

    warm()  # compile once, before the threads start
    parts = _in_parts(work, len(offsets) - 1, threads or os.cpu_count() or 1)
    vectors = np.concatenate([np.empty((0, network.d), np.float32), *(part[0] for part in parts)])
    return vectors, _join([part for _, part in parts if part is not None], network)


def _join(parts: list[Corrections], network: Network) -> Corrections | None:
    """Return the corrections of all users, None without a copy term."""
    if not network.copy_window:
        return None
    sizes = [np.zeros(1, np.int64), *(np.diff(part.offsets) for part in parts)]
    return Corrections(
        np.concatenate([np.empty(0, np.int32), *(part.items for part in parts)]),
        np.cumsum(np.concatenate(sizes)),
        np.concatenate([np.empty(0, np.float32), *(part.values for part in parts)]),
    )


def _in_parts(work: Callable[[int, int], Any], n: int, threads: int) -> list[Any]:
    """Return `work(begin, end)` of n users, USERS at a time; the kernels release the GIL."""
    ranges = [(begin, min(begin + USERS, n)) for begin in range(0, n, USERS)]
    if threads <= 1 or len(ranges) <= 1:
        return [work(*users) for users in ranges]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(lambda users: work(*users), ranges))
