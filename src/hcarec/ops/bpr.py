"""BPR matrix factorisation on the CPU: a vector per user and per item, one user at a time, exactly.

The step of a user is the gradient of its summed loss at the values before the step: rows that occur several times are
read once, before anything changes, and their corrections add up.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
from numba import types

from hcarec.ops import layout
from hcarec.ops.compiled import array, compiled
from hcarec.ops.cpu_backward import correct
from hcarec.ops.cpu_forward import copy_row, padded
from hcarec.ops.negatives import bitmap, draw, draw_user, known_items
from hcarec.ops.parameters import Theta, Trained
from hcarec.ops.simd import constant, load, pointer, scalar, spread, store, total
from hcarec.ops.streams import stream


@cache
def trainer(dtype: str) -> Any:
    """Return the training kernel for float32 or float64."""
    own, number, table = array(dtype), getattr(types, dtype), array(dtype, 2)
    data = (array("int32", given=True), array("int64", given=True), array("int64", given=True), types.uint64)
    space = (own, own, array("int32"), array("uint64"))
    return compiled(
        _trainer,
        types.void(table, table, *space, *data, number, number, number, types.boolean, array("float64"), array("int64")),
    )


def _trainer(sources: int) -> Any:
    def train(P, X, space, lines, drawn, seen, items, offsets, order, key, rate, lam, bound, learn, sums, counts):
        """Take one SGD step per user of `order`; with `learn` false only compute, from the negatives in `drawn`.

        `space` holds the user's row, its gradient and then positive and negative row by row, zero in the padding;
        `lines` the slopes. sums and counts are those of `Trained`.
        """
        _ = sources
        n_items, d = X.shape
        D = padded(d)
        users, rows, S, slope = pointer(P), pointer(X), pointer(space), pointer(lines)
        zero, one = scalar(S, 0), scalar(S, 1)
        for position in range(len(order)):
            user = order[position]
            begin, end = offsets[user], offsets[user + 1]
            n = end - begin
            if n < 1:
                continue
            if not known_items(items, begin, end, n_items):
                counts[2] = position
                return
            if learn and not draw(items, begin, end, user, n_items, key, seen, drawn, n):
                counts[1] += 1
                continue
            copy_row(S, 0, users, user * d, d)
            for t in range(n):
                copy_row(S, (2 + 2 * t) * D, rows, items[begin + t] * d, d)
                copy_row(S, (3 + 2 * t) * D, rows, drawn[t] * d, d)
            squares, loss = constant(S, 0), 0.0
            for k in range(0, D, 8):
                u = load(S, k)
                squares = squares + u * u
                store(S, D + k, constant(S, 0))
            for t in range(n):
                o, preference = (2 + 2 * t) * D, constant(S, 0)
                for k in range(0, D, 8):
                    p, q = load(S, o + k), load(S, o + D + k)
                    preference = preference + load(S, k) * (p - q)
                    squares = squares + p * p + q * q
                s = total(preference)
                small = math.exp(-abs(s))
                step_loss = math.log1p(small) - min(s, zero)
                if not step_loss <= bound:
                    counts[2], counts[3] = position, t + 1
                    return
                loss += step_loss
                slope[t] = -(small if s > zero else one) / (one + small)
            for t in range(n):
                o, g = (2 + 2 * t) * D, spread(slope[t])
                for k in range(0, D, 8):
                    store(S, D + k, load(S, D + k) + g * (load(S, o + k) - load(S, o + D + k)))
            sums[0] += loss
            sums[1] += 0.5 * lam * total(squares)
            counts[0] += n
            if learn:
                correct(users, user * d, S, D, rate, 0, rate * lam, d)
                for t in range(n):
                    o, step = (2 + 2 * t) * D, rate * slope[t]
                    correct(rows, items[begin + t] * d, S, 0, step, o, rate * lam, d)
                    correct(rows, drawn[t] * d, S, 0, -step, o + D, rate * lam, d)

    return train


def warm(dtype: Any = np.float32) -> None:
    """Compile what training needs, or load it compiled."""
    trainer(np.dtype(dtype).name)


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
    bound: float = 1e4,
) -> Trained:
    """Train P (n_users, d) and X (n_items, d) on the users of `order`, one SGD step each, in place.

    Every event of a user is a positive with a negative of its own; a user without events gives no step.
    """
    items, offsets = np.ascontiguousarray(items, np.int32), np.ascontiguousarray(offsets, np.int64)
    order = np.ascontiguousarray(order, np.int64)
    assert len(theta["P"]) == len(offsets) - 1, "P has one row per user"
    settings = (stream(seed, epoch), learning_rate, lam, bound)
    sums, counts, _, _ = _run(theta, items, offsets, order, None, settings)
    return Trained(sums[0], sums[1], *counts)


def _run(
    theta: Theta, items: np.ndarray, offsets: np.ndarray, order: np.ndarray, negatives: np.ndarray | None, settings: Any
) -> tuple[list[float], list[int], np.ndarray, np.ndarray]:
    """Call the kernel, which learns unless negatives are given: sums, counts, work space and slopes."""
    P, X = theta["P"], theta["X"]
    begins, ends = offsets[order], offsets[order + 1]
    assert (begins >= 0).all() and (begins <= ends).all() and (ends <= len(items)).all(), "offsets point outside items"
    longest = int((ends - begins).max(initial=1))
    space, lines = np.zeros(2 * (longest + 1) * layout.padded(X.shape[1]), X.dtype), np.empty(longest, X.dtype)
    drawn = np.empty(longest, np.int32) if negatives is None else np.array(negatives, np.int32)
    sums, counts = np.zeros(2), np.array([0, 0, -1, -1])
    key, *numbers = settings
    arguments = (P, X, space, lines, drawn, bitmap(len(X)), items, offsets, order, key, *map(X.dtype.type, numbers))
    trainer(X.dtype.name)(*arguments, negatives is None, sums, counts)
    assert counts[2] < 0 or counts[3] > 0, "an item index lies outside the catalogue"
    return sums.tolist(), counts.tolist(), space, lines


def user_gradients(theta: Theta, user: int, items: np.ndarray, negatives: np.ndarray, lam: float) -> tuple[float, float, Theta]:
    """Return loss, penalty and gradients of one user's step, from the very kernel that trains.

    items (n,), negatives (n,) -> loss, penalty, gradients shaped as theta.
    """
    n, number = len(items), theta["X"].dtype.type
    own = {"P": np.ascontiguousarray(theta["P"][user : user + 1]), "X": theta["X"]}
    settings = (np.uint64(0), 0, lam, np.inf)
    flat = np.ascontiguousarray(items, np.int32)
    (loss, penalty), _, space, slope = _run(own, flat, np.array([0, n]), np.zeros(1, np.int64), negatives, settings)
    u, gradient = space.reshape(2 * (n + 1), -1)[:2, : own["P"].shape[1]]
    gradients = {name: np.zeros_like(value) for name, value in theta.items()}
    gradients["P"][user] = gradient + number(lam) * u
    np.add.at(gradients["X"], items, slope[:, None] * u + number(lam) * theta["X"][items])
    np.add.at(gradients["X"], negatives, -slope[:, None] * u + number(lam) * theta["X"][negatives])
    return loss, penalty, gradients


def fold_in(X: np.ndarray, items: np.ndarray, *, lam: float, seed: int = 0, rounds: int = 50, negatives: int = 20) -> np.ndarray:
    """Fit a user vector to a bare history, the items fixed: (d,).

    Minimises the penalised BPR loss over the history's items, each against `negatives` items drawn once, by Newton's
    method; the problem is convex in the user vector, so the answer depends on the history and the seed alone.
    """
    items = np.asarray(items)
    d = X.shape[1]
    drawn = draw_user(items, 0, len(X), seed, 0, len(items) * negatives)
    if len(items) == 0 or drawn is None:
        return np.zeros(d, X.dtype)
    pairs = (np.repeat(X[items], negatives, axis=0) - X[drawn]).astype(np.float64)
    u, weight = np.zeros(d), 1 / negatives
    for _ in range(rounds):
        slope = -1 / (1 + np.exp(np.clip(pairs @ u, -500, 500)))
        gradient = weight * (slope @ pairs) + lam * u
        curvature = weight * (pairs.T * (-slope * (1 + slope))) @ pairs + max(lam, 1e-6) * np.eye(d)
        change = np.linalg.solve(curvature, gradient)
        size = float(np.linalg.norm(change))
        u -= change * min(1.0, 2 / max(size, 1e-12))  # never far at once
        if size < 1e-9:
            break
    return u.astype(X.dtype)
