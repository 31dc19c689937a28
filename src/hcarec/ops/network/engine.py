"""What serving engines share: item vectors, states that move, queries.

Each engine has a function `move(packed, states, items, offsets)` that adds events to states of some
users, one user at a time, so that the bits depend neither on the batch nor on the threads.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from hcarec.ops.layout import padded
from hcarec.ops.network.engine_kernels import item_kernel, query_kernel
from hcarec.ops.network.layout import Items, Packed, Scoring
from hcarec.ops.parameters import Theta
from hcarec.ops.rank.corrections import Corrections
from hcarec.ops.tables.chunks import checked

USERS = 256
"""Users that a thread handles at a time."""
Move = Callable[[Any, np.ndarray, np.ndarray, np.ndarray], None]
Found = tuple[np.ndarray, Corrections | None]


def pack_items(theta: Theta, dense: np.ndarray, scoring: Scoring) -> Items:
    """Return what scores are made with; X is shared where it needs no change."""
    X = np.ascontiguousarray(theta["X"], np.float32)
    normed, d = scoring.norm_item >= 0, scoring.d
    Z = np.empty((len(X) if normed else 0, d), np.float32)
    ranked = np.empty((len(X) if scoring.cosine else 0, d), np.float32)
    if normed or scoring.cosine:
        item_kernel()(X, dense, np.empty(padded(d), np.float32), Z, ranked, scoring)
    Z = Z if normed else X
    bias = np.ascontiguousarray(theta.get("copy_bias", ()), np.float32)
    factors = np.exp([_number(theta, name) for name in ("temperature", "copy_rate")])
    numbers = np.array([factors[0], _number(theta, "copy_scale"), factors[1]])
    return Items(Z, ranked if scoring.cosine else Z, bias, numbers)


def _number(theta: Theta, name: str) -> float:
    """Return a parameter that is one number; 0 for a network without it."""
    return float(theta[name][0]) if name in theta else 0.0


def advance(
    packed: Packed,
    move: Move,
    states: np.ndarray,
    items: np.ndarray,
    offsets: np.ndarray,
    threads: int,
) -> None:
    """Add each user's events to its state, in place: items (n_events,), offsets (n + 1,)."""
    items, offsets = checked(items, offsets, len(packed.items.Z))
    assert states.shape == (len(offsets) - 1,), (states.shape, len(offsets))
    own = np.ascontiguousarray(states)

    def work(begin: int, end: int) -> None:
        move(packed, own[begin:end], items, offsets[begin : end + 1])

    _in_parts(work, len(states), threads)
    if own is not states:
        states[...] = own


def encode(
    packed: Packed,
    move: Move,
    start: Callable[[int], np.ndarray],
    items: np.ndarray,
    offsets: np.ndarray,
    threads: int | None,
) -> Found:
    """Return the queries (n, d) after every user's last event, and the copy term's corrections.

    `start(n)` gives states before the first event. An empty history gives zeros.
    """
    items, offsets = checked(items, offsets, len(packed.items.Z))

    def work(begin: int, end: int) -> Found:
        states = start(end - begin)
        move(packed, states, items, offsets[begin : end + 1])
        return queries(packed, states)

    query_kernel()  # compile once, before the threads start
    parts = _in_parts(work, len(offsets) - 1, threads or os.cpu_count() or 1)
    nothing = np.empty((0, packed.scoring.d), np.float32)
    vectors = np.concatenate([nothing, *(part[0] for part in parts)])
    if not packed.scoring.w_c:
        return vectors, None
    return vectors, Corrections.join([part for _, part in parts if part is not None])


def queries(packed: Packed, states: np.ndarray) -> Found:
    """Return the queries (n, d) float32 of users in these states, and the copy term's corrections.

    The query is o, or exp(temperature) o / |o| for cosine scores: to be multiplied with
    `packed.items.ranked`. A state without an event gives zeros.
    """
    states, n, w_c = np.ascontiguousarray(states), len(states), packed.scoring.w_c
    vectors, offsets = np.empty((n, packed.scoring.d), np.float32), np.zeros(n + 1, np.int64)
    items, values = np.empty(n * w_c, np.int32), np.empty(n * w_c, np.float32)
    count = query_kernel()(
        packed.items.Z, packed.dense, packed.items.copy_bias, packed.items.factors,
        np.empty(2 * padded(packed.scoring.d), np.float32), *views(states),
        vectors, offsets, items, values, packed.scoring,
    )  # fmt: skip
    if not w_c:
        return vectors, None
    return vectors, Corrections(items[:count].copy(), offsets, values[:count].copy())


def views(states: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Return contiguous states as flat float32, as flat int32, and the length of one."""
    return states.view(np.float32), states.view(np.int32), states.dtype.itemsize // 4


def _in_parts(work: Callable[[int, int], Any], n: int, threads: int) -> list[Any]:
    """Return `work(begin, end)` of n users, USERS at a time; the kernels release the GIL."""
    ranges = [(begin, min(begin + USERS, n)) for begin in range(0, n, USERS)]
    if threads <= 1 or len(ranges) <= 1:
        return [work(*users) for users in ranges]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(lambda users: work(*users), ranges))
