"""The attention weights of the last layer, in double precision, for explanations."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hcarec.ops.attention import EXACT, additive_scores, item_rows, recur, softmax
from hcarec.ops.hca.numba import advance, pack, start
from hcarec.ops.hca.parameters import Network
from hcarec.ops.parameters import Theta

Weights = tuple[np.ndarray | None, np.ndarray | None]
_windows = np.lib.stride_tricks.sliding_window_view
_erf = np.vectorize(math.erf, otypes=[np.float64])


def attention(theta: Theta, network: Network, items: np.ndarray, last: int) -> Weights:
    """Return the last layer's weights of the last n = min(last, len(items)) steps of one history.

    items (len,) -> a_x (n, w_x) over inputs and a_h (n, w_h) over hidden states, each row oldest
    first, None for a level that is off. Masked padding has weight 0. The engine takes in what lies
    before the last `EXACT` steps, at its own precision.
    """
    begin = max(0, len(items) - max(last, EXACT))
    states = start(network)
    if begin:
        advance(pack(theta, network), states, items[:begin], np.array([0, begin]))
    state: Any = states[0]
    x = _item_rows(theta, network, items[begin:])
    for prefix in network.prefixes:
        own = {
            name.removeprefix(prefix): value.astype(np.float64)
            for name, value in theta.items()
            if name.rpartition(".")[0] == prefix.rstrip(".") and name != "X"
        }
        if prefix:
            before = state[prefix + "inputs"].astype(np.float64)
        else:
            before = _item_rows(theta, network, state["items"][_tail(network.w_x, state["items"])])
        kept = state[prefix + "hidden"].astype(np.float64)
        x, a_x, a_h = _layer(own, network, int(state["events"]), np.concatenate([before, x]), kept)
    return None if a_x is None else a_x[-last:], None if a_h is None else a_h[-last:]


def _tail(w: int, rows: np.ndarray) -> slice:
    """Return the last w - 1 of some rows, which may be none."""
    return slice(len(rows) - (w - 1), None)


def _item_rows(theta: Theta, network: Network, items: np.ndarray) -> np.ndarray:
    """Return the vectors Z of items, (n, d), zero for -1."""
    X = item_rows(theta["X"], items)
    if not network.item_norm:
        return X
    return np.where((items >= 0)[:, None], _normalize(X, theta["norm_item"]), 0)


def _layer(
    own: Theta, network: Network, seen: int, x: np.ndarray, kept: np.ndarray
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
    """Run a layer: inputs x (w_x - 1 + n, d), hidden states before them -> y (n, d), a_x and a_h.

    `seen` is the number of events before, as far as the windows reach.
    """
    w_x, w_h = network.w_x, network.w_h
    a_x = _weights(own, network, "x", network.attention_x, x, w_x, seen) if w_x > 1 else None
    new = recur(own, kept[-1], x, a_x)
    a_h, h_o = None, new
    if w_h > 1:
        h = np.concatenate([kept[_tail(w_h, kept)], new])
        a_h = _weights(own, network, "h", network.attention_h, h, w_h, seen)
        h_o = np.einsum("tw,tdw->td", a_h, _windows(h, w_h, axis=0)) @ own["F"].T
        h_o = new + h_o if network.fusion == "residual" else np.tanh(new @ own["E"].T + h_o)
    return (_block(own, x[w_x - 1 :], h_o) if network.blocks > 1 else h_o), a_x, a_h


def _weights(
    own: Theta, network: Network, level: str, form: str, rows: np.ndarray, w: int, seen: int
) -> np.ndarray:
    """Return the weights over every window of w rows: rows (n + w - 1, d) -> (n, w)."""
    Q = own[f"Q_{level}"]
    if form == "dot":
        keys = _windows(rows @ own[f"K_{level}"].T, w, axis=0)  # (n, d, w)
        scores = np.einsum("td,tdw->tw", rows[w - 1 :] @ Q.T, keys) / math.sqrt(network.d)
    else:
        scores = additive_scores(rows, Q, own[f"r_{level}"], w)
    if network.padding == "masked":
        real = np.arange(w - 1, -1, -1) <= seen + np.arange(len(scores))[:, None]
        scores = np.where(real, scores, -np.inf)
    return softmax(scores)


def _block(own: Theta, x: np.ndarray, h_o: np.ndarray) -> np.ndarray:
    """Return the output of a block, (n, d)."""
    y = _normalize(x + h_o, own["norm_1"])
    inner = y @ own["A_1"].T + own["a_1"]
    inner = inner * (1 + _erf(inner / math.sqrt(2))) / 2
    return _normalize(y + inner @ own["A_2"].T + own["a_2"], own["norm_2"])


def _normalize(rows: np.ndarray, norm: np.ndarray) -> np.ndarray:
    """Return LN of every row."""
    centered = rows - rows.mean(axis=1, keepdims=True)
    variance = (centered**2).mean(axis=1, keepdims=True)
    normal: np.ndarray = norm[0] * centered / np.sqrt(variance + 1e-5) + norm[1]
    return normal
