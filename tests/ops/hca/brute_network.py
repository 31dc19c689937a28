"""The network in plain NumPy loops, float64, one event at a time, straight from the equations."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from hcarec.ops.hca.parameters import Network, shapes
from hcarec.ops.parameters import Theta

erf = np.vectorize(math.erf, otypes=[float])


class Result(NamedTuple):
    """Output, scores and corrections after the last event; the weights of all steps."""

    o: np.ndarray
    scores: np.ndarray
    corrections: dict[int, float]
    a_x: np.ndarray
    a_h: np.ndarray


def draw(network: Network, n_items: int, seed: int) -> Theta:
    """Draw all parameters, none at a value that hides an error."""
    rng = np.random.default_rng(seed)
    theta = {}
    for name, shape in shapes(network, n_items).items():
        value = rng.normal(0, 0.5, shape)
        if "norm_" in name:
            value[0] += 1
        elif len(shape) > 1 and name != "X":
            value *= 2 / math.sqrt(shape[-1])
        theta[name] = value.astype(np.float32)
    return theta


def sigmoid(v: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-v))


def layer_norm(v: np.ndarray, N: np.ndarray) -> np.ndarray:
    return N[0] * (v - np.mean(v)) / np.sqrt(np.var(v) + 1e-5) + N[1]


def item_vectors(theta: Theta, network: Network) -> np.ndarray:
    X = theta["X"].astype(float)
    if network.item_norm:
        X = np.array([layer_norm(v, theta["norm_item"].astype(float)) for v in X])
    return X


def attend(own: Theta, network: Network, level: str, past: list[np.ndarray]) -> list[np.ndarray]:
    """Return the contextual vector of the newest row, and the weights (w,)."""
    w, form = network.w_x, network.attention_x
    if level == "h":
        w, form = network.w_h, network.attention_h
    rows = past[-w:]
    missing = w - len(rows)
    rows = [np.zeros(network.d)] * missing + rows
    scores = np.empty(w)
    for j, vector in enumerate(rows):
        if form == "dot":
            query = own[f"Q_{level}"] @ rows[-1]
            scores[j] = query @ (own[f"K_{level}"] @ vector) / math.sqrt(network.d)
        else:
            scores[j] = own[f"r_{level}"] @ np.tanh(own[f"Q_{level}"] @ vector)
    shares = np.exp(scores)
    if network.padding == "masked":
        shares[:missing] = 0
    a = shares / shares.sum()
    return [sum(weight * vector for weight, vector in zip(a, rows, strict=True)), a]


def run_layer(own: Theta, network: Network, xs: list[np.ndarray]) -> tuple[list[np.ndarray], ...]:
    """Run one layer over a sequence: outputs, weights a_x and a_h of every step."""
    h, hs, ys, all_a_x, all_a_h = np.zeros(network.d), [], [], [], []
    for t, x in enumerate(xs):
        g = own["U"] @ x + own["b"]
        if network.w_x > 1:
            x_c, a_x = attend(own, network, "x", xs[: t + 1])
            g = g + own["V"] @ x_c
            all_a_x.append(a_x)
        z, r = sigmoid(g[0] + own["W"][0] @ h), sigmoid(g[1] + own["W"][1] @ h)
        h = (1 - z) * h + z * np.tanh(g[2] + own["W"][2] @ (r * h))
        hs.append(h)
        y = h
        if network.w_h > 1:
            h_c, a_h = attend(own, network, "h", hs)
            y = h + own["F"] @ h_c
            if network.fusion == "paper":
                y = np.tanh(own["E"] @ h + own["F"] @ h_c)
            all_a_h.append(a_h)
        if network.blocks:
            y = layer_norm(x + y, own["norm_1"])
            v = own["A_1"] @ y + own["a_1"]
            inner = v * 0.5 * (1 + erf(v / math.sqrt(2)))
            y = layer_norm(y + own["A_2"] @ inner + own["a_2"], own["norm_2"])
        ys.append(y)
    return ys, all_a_x, all_a_h


def run(theta: Theta, network: Network, items: list[int]) -> Result:
    """Run the network over a history that is not empty."""
    theta = {name: value.astype(float) for name, value in theta.items()}
    Z = item_vectors(theta, network)
    ys = [Z[item] for item in items]
    a_x = a_h = []
    for layer in range(1, max(1, network.blocks) + 1):
        letters = [name.split(".")[-1] for name in theta]
        own = {name: theta[key] for name in letters if (key := prefixed(layer, name)) in theta}
        ys, a_x, a_h = run_layer(own, network, ys)
    o = layer_norm(ys[-1], theta["norm_out"]) if network.output_norm else ys[-1]
    if network.scores == "cosine":
        lengths = np.linalg.norm(Z, axis=1) * np.linalg.norm(o)
        scores = np.exp(theta["temperature"][0]) * (Z @ o) / lengths
    else:
        scores = Z @ o
    corrections = copy_term(theta, network, Z, items, o)
    for item, value in corrections.items():
        scores[item] += value
    return Result(o, scores, corrections, np.array(a_x), np.array(a_h))


def prefixed(layer: int, name: str) -> str:
    return name if layer == 1 else f"{layer}.{name}"


def copy_term(
    theta: Theta, network: Network, Z: np.ndarray, items: list[int], o: np.ndarray
) -> dict[int, float]:
    """Return the correction of every item in the window."""
    sums: dict[int, float] = {}
    for distance in range(min(network.copy_window, len(items))):
        item = items[-1 - distance]
        score = Z[item] @ (theta["copy_Q"] @ o) + theta["copy_bias"][distance]
        sums[item] = sums.get(item, 0.0) + math.log(1 + math.exp(score))
    return {
        item: theta["copy_scale"][0] * math.log(1 + math.exp(theta["copy_rate"][0]) * weight)
        for item, weight in sums.items()
    }
