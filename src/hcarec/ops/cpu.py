"""The fast CPU engine: the paper's training and encoding, one user's sequence at a time, compiled once and cached."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from hcarec.ops.cpu_kernels import encoder, trainer
from hcarec.ops.layout import DX, FIELDS, XQ, H, O, Packed, X, pack, padded, record, unpack
from hcarec.ops.negatives import bitmap
from hcarec.ops.parameters import State, Theta, Trained
from hcarec.ops.streams import stream

CHUNK = 4096
"""Users or items handled at once where many are asked for."""


class _Work(NamedTuple):
    """Work space for sequences up to a length: records, attention weights, numbers per step, negatives."""

    S: np.ndarray
    a_x: np.ndarray
    a_h: np.ndarray
    lines: np.ndarray
    drawn: np.ndarray


def _work(longest: int, packed: Packed) -> _Work:
    """Make work space; the rows that stand before the start are zero, the rest may be anything."""
    d, dtype = packed.X.shape[1], packed.X.dtype
    S = np.empty((longest + 1, record(padded(d))), dtype)
    S[: max(packed.w_x, packed.w_h)] = 0
    a_x, a_h = (np.empty(longest * w, dtype) for w in (packed.w_x, packed.w_h))
    return _Work(S.reshape(-1), a_x, a_h, np.empty(3 * (longest + 1), dtype), np.empty(longest, np.int32))


def _ragged(items: Any, offsets: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return items as int32 and offsets as int64, without a copy where they are that already."""
    items, offsets = np.ascontiguousarray(items, np.int32), np.ascontiguousarray(offsets, np.int64)
    assert len(offsets) > 0, "offsets hold one number more than there are users"
    return items, offsets


def _longest(items: np.ndarray, begins: np.ndarray, ends: np.ndarray) -> int:
    """Return the length of the longest sequence, having checked that all lie within items."""
    assert (begins >= 0).all() and (begins <= ends).all() and (ends <= len(items)).all(), "offsets point outside items"
    return int((ends - begins).max(initial=1))


def warm(dtype: Any = np.float32) -> None:
    """Compile what training and encoding need, or load it compiled."""
    trainer(np.dtype(dtype).name)
    encoder(np.dtype(dtype).name)


def train_users(
    theta: Theta,
    items: np.ndarray,
    offsets: np.ndarray,
    order: np.ndarray,
    *,
    seed: int,
    epoch: int,
    learning_rate: float,
    lam: float,
    w_x: int,
    w_h: int,
    bound: float = 1e4,
) -> Trained:
    """Train on the users of `order`, one SGD step each, in place.

    items (n_events,), offsets (n_users + 1,), order (any number of users: a slice of an epoch's order will do). A user
    with fewer than two events gives no step. A step whose loss is not a number or above `bound` stops the work.
    """
    items, offsets = _ragged(items, offsets)
    order = np.ascontiguousarray(order, np.int64)
    packed = pack(theta, w_x, w_h)
    work = _work(_longest(items, offsets[order], offsets[order + 1]), packed)
    sums, counts, _ = _run(packed, work, items, offsets, order, (stream(seed, epoch), learning_rate, lam, bound), True)
    for name, value in unpack(packed.dense, packed.X.shape[1], w_x, w_h).items():
        theta[name][...] = value
    return Trained(sums[0], sums[1], *counts)


def _run(packed: Packed, work: _Work, items: Any, offsets: Any, order: Any, settings: Any, learn: bool) -> tuple[list[float], list[int], np.ndarray]:
    """Call the training kernel: sums, counts, gradients of the dense parameters."""
    number = packed.X.dtype.type
    key, *numbers = settings
    gradients = np.zeros_like(packed.dense)  # the kernel leaves the padding between rows alone
    sums, counts = np.zeros(2), np.array([0, 0, -1, -1])
    trainer(packed.X.dtype.name)(
        packed.X, packed.dense, packed.back, gradients, *work, bitmap(len(packed.X)), items, offsets, order,
        key, *map(number, numbers), packed.w_x, packed.w_h, learn, sums, counts,
    )  # fmt: skip
    assert counts[2] < 0 or counts[3] > 0, "an item index lies outside the catalogue"
    return sums.tolist(), counts.tolist(), gradients


def user_gradients(theta: Theta, items: np.ndarray, negatives: np.ndarray, w_x: int, w_h: int, lam: float) -> tuple[float, float, Theta]:
    """Return loss, penalty and all gradients of one user's step, from the very kernel that trains.

    items (n,), negatives (n - 1,) -> loss, penalty, gradients shaped as theta.
    """
    items, offsets = _ragged(items, [0, len(items)])
    packed, n = pack(theta, w_x, w_h), len(items)
    d, number = packed.X.shape[1], packed.X.dtype.type
    work = _work(n, packed)
    work.drawn[: n - 1] = negatives
    settings = (np.uint64(0), 0, lam, np.inf)
    (loss, penalty), _, dense = _run(packed, work, items, offsets, np.zeros(1, np.int64), settings, False)
    gradients = unpack(dense + number(lam) * packed.dense, d, w_x, w_h)
    gradients["X"] = np.zeros_like(theta["X"])
    records = work.S.reshape(n + 1, -1)[:, : FIELDS * padded(d)].reshape(n + 1, FIELDS, -1)[:, :, :d]
    slope = work.lines.reshape(3, -1)[1, 1:n, None]
    np.add.at(gradients["X"], items, records[1:, DX])
    np.add.at(gradients["X"], items[1:], number(lam) * records[2:, X])
    np.add.at(gradients["X"], negatives, number(lam) * records[1:n, XQ] - slope * records[1:n, O if w_h > 1 else H])
    return loss, penalty, gradients


def start(n_users: int, d: int, w_x: int, w_h: int, dtype: Any = np.float32) -> State:
    """Return the states of users before their first event, with a leading axis (n_users,)."""
    last = np.full((n_users, w_x - 1), -1, np.int32)
    return State(np.zeros((n_users, d), dtype), last, np.zeros((n_users, w_h - 1, d), dtype))


def advance(packed: Packed, state: State, items: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Add each user's events to its state, in place; return the overall interests (n_users, d)."""
    w_x, w_h = packed.w_x, packed.w_h
    work = _work(_longest(items, offsets[:-1], offsets[1:]) + max(w_x, w_h), packed)
    interest = np.zeros((len(offsets) - 1, packed.X.shape[1]), packed.X.dtype)
    kernel = encoder(packed.X.dtype.name)
    bad = kernel(packed.X, packed.dense, *work[:4], items, offsets, w_x, w_h, interest, *state)
    assert bad < 0, f"an item index of user {bad} lies outside the catalogue"
    return interest


def encode_states(theta: Theta | Packed, items: np.ndarray, offsets: np.ndarray, w_x: int, w_h: int) -> tuple[State, np.ndarray]:
    """Return the state and the overall interest (n_users, d) after every user's events."""
    packed = theta if isinstance(theta, Packed) else pack(theta, w_x, w_h)
    items, offsets = _ragged(items, offsets)
    state = start(len(offsets) - 1, packed.X.shape[1], w_x, w_h, packed.X.dtype)
    return state, advance(packed, state, items, offsets)


def encode(theta: Theta | Packed, items: np.ndarray, offsets: np.ndarray, w_x: int, w_h: int, threads: int = 1) -> np.ndarray:
    """Return the overall interest after every user's last event, (n_users, d); zero for an empty history."""
    packed = theta if isinstance(theta, Packed) else pack(theta, w_x, w_h)
    items, offsets = _ragged(items, offsets)
    n_users = len(offsets) - 1
    interest = np.empty((n_users, packed.X.shape[1]), packed.X.dtype)

    def fill(begin: int) -> None:
        end = min(begin + CHUNK, n_users)
        interest[begin:end] = encode_states(packed, items, offsets[begin : end + 1], w_x, w_h)[1]

    encoder(packed.X.dtype.name)  # compile once, before the threads start
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(fill, range(0, n_users, CHUNK)))
    return interest


def step(theta: Theta | Packed, state: State, item: int, w_x: int, w_h: int) -> tuple[State, np.ndarray]:
    """Add one event to one user's state: the new state and the overall interest (d,)."""
    packed = theta if isinstance(theta, Packed) else pack(theta, w_x, w_h)
    state = State(*(np.array(part[None]) for part in state))
    interest = advance(packed, state, np.array([item], np.int32), np.array([0, 1]))
    return State(*(part[0] for part in state)), interest[0]


def item_scores_x(theta: Theta) -> np.ndarray:
    """Return the input attention's score of every catalogue item, (n_items,): it depends on the item alone."""
    X, scores = theta["X"], np.empty(len(theta["X"]), theta["X"].dtype)
    for begin in range(0, len(X), CHUNK):
        scores[begin : begin + CHUNK] = np.tanh(X[begin : begin + CHUNK] @ theta["Q_x"].T) @ theta["r_x"]
    return scores
