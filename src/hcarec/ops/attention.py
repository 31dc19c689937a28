"""The attention weights of every step, in double precision: what the network looked at, for explanations."""

from __future__ import annotations

import numpy as np

from hcarec.ops import cpu
from hcarec.ops.layout import pack
from hcarec.ops.parameters import State, Theta

EXACT = 1024
"""Steps at the end of a history that are run in double precision; the engine takes in what lies before, at its own precision."""
CHUNK = 4096
"""Events that the engine takes in at once: its work space grows with them."""


def attention(theta: Theta, items: np.ndarray, w_x: int, w_h: int, last: int) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Return the weights of the last n = min(last, len(items)) steps of one history, each row oldest first.

    items (len,) -> a_x (n, w_x) over inputs and a_h (n, w_h) over hidden states, None for a level that is off. Before the start
    stand zero vectors, which keep their share.
    """
    begin = max(0, len(items) - max(last, EXACT))
    state = _state(theta, items[:begin], w_x, w_h)
    own = {name: value.astype(np.float64) for name, value in theta.items() if name != "X"}
    x = item_rows(theta["X"], np.concatenate([state.items, items[begin:]]))  # w_x - 1 rows more than steps
    a_x = _weights(x, own["Q_x"], own["r_x"], w_x) if w_x > 1 else None
    if w_h == 1:
        return None if a_x is None else a_x[-last:], None
    h = np.concatenate([state.hidden, recur(own, state.h, x, a_x)])
    a_h = _weights(h, own["Q_h"], own["r_h"], w_h)
    return None if a_x is None else a_x[-last:], a_h[-last:]


def _state(theta: Theta, items: np.ndarray, w_x: int, w_h: int) -> State:
    """Return the state of one user after some events, in double precision; `items` (w_x - 1,) and `hidden` (w_h - 1, d)."""
    packed = pack(theta, w_x, w_h)
    state = cpu.start(1, theta["X"].shape[1], w_x, w_h, theta["X"].dtype)
    for begin in range(0, len(items), CHUNK):
        part = np.ascontiguousarray(items[begin : begin + CHUNK], np.int32)
        cpu.advance(packed, state, part, np.array([0, len(part)]))
    return State(state.h[0].astype(np.float64), state.items[0], state.hidden[0].astype(np.float64))


def item_rows(X: np.ndarray, items: np.ndarray) -> np.ndarray:
    """Return the vectors of items, zero for -1, which stands before the start."""
    return np.where((items >= 0)[:, None], X[items], 0).astype(np.float64)


def _weights(rows: np.ndarray, Q: np.ndarray, r: np.ndarray, w: int) -> np.ndarray:
    """Return the weights over every window of w rows (Eqs. 2 and 4): rows (n + w - 1, d) -> (n, w)."""
    return softmax(additive_scores(rows, Q, r, w))


def additive_scores(rows: np.ndarray, Q: np.ndarray, r: np.ndarray, w: int) -> np.ndarray:
    """Return the scores r . tanh(Q row) of every window of w rows: rows (n + w - 1, d) -> (n, w)."""
    return np.lib.stride_tricks.sliding_window_view(np.tanh(rows @ Q.T) @ r, w)


def softmax(scores: np.ndarray) -> np.ndarray:
    """Return the softmax of every row (n, w); -inf has no share."""
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights: np.ndarray = shares / shares.sum(axis=1, keepdims=True)
    return weights


def recur(theta: Theta, h: np.ndarray, x: np.ndarray, a_x: np.ndarray | None) -> np.ndarray:
    """Run the recurrence (Eqs. 1 and 3) from h (d,) on: inputs x (w_x - 1 + n, d), their weights (n, w_x) -> hidden states (n, d)."""
    U, W, b = theta["U"], theta["W"], theta["b"]
    w_x = 1 if a_x is None else a_x.shape[1]
    g = np.einsum("gij,tj->tgi", U, x[w_x - 1 :]) + b  # (n, 3, d), gate order z, r, c
    if a_x is not None:
        x_c = np.einsum("tw,tdw->td", a_x, np.lib.stride_tricks.sliding_window_view(x, w_x, axis=0))
        g += np.einsum("gij,tj->tgi", theta["V"], x_c)
    states = np.empty((len(g), len(h)))
    for t in range(len(g)):
        z, r = 1 / (1 + np.exp(-(g[t, :2] + W[:2] @ h)))
        h = h + z * (np.tanh(g[t, 2] + W[2] @ (r * h)) - h)
        states[t] = h
    return states
