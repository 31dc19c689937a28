"""Write network.json: the network on a small case in plain NumPy, from the paper's equations alone.

It shares no code with the package. Gradients come from complex-step differentiation, exact to rounding.
Run `python make_network.py` beside this file to make the values anew.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

D, N_ITEMS, LAM = 3, 7, 0.01
ITEMS, NEGATIVES = [2, 5, 2, 0, 6, 3], [1, 4, 4, 1, 5]
CASES = [(1, 1), (3, 1), (1, 2), (3, 2), (2, 9)]
SHAPES = {
    "X": (N_ITEMS, D), "U": (3, D, D), "W": (3, D, D), "b": (3, D), "V": (3, D, D), "Q_x": (D, D), "r_x": (D,),
    "Q_h": (D, D), "r_h": (D,), "E": (D, D), "F": (D, D),
}  # fmt: skip


def parameters(w_x: int, w_h: int) -> dict[str, np.ndarray]:
    """Fill the parameters from a formula, so that nothing depends on a random generator."""
    off = (["V", "Q_x", "r_x"] if w_x == 1 else []) + (["Q_h", "r_h", "E", "F"] if w_h == 1 else [])
    theta = {}
    for number, (name, shape) in enumerate(SHAPES.items()):
        if name not in off:
            count = int(np.prod(shape))
            theta[name] = 0.7 * np.sin(1.3 * np.arange(count) + number).reshape(shape)
    return theta


def sigma(v):
    return 1 / (1 + np.exp(-v))


def context(rows, t, w, Q, r):
    """Weigh rows t-w+1..t, zero vectors standing before row 0."""
    window = [rows[s] if s >= 0 else np.zeros(D) for s in range(t - w + 1, t + 1)]
    shares = [np.exp(r @ np.tanh(Q @ row)) for row in window]
    weights = [share / sum(shares) for share in shares]
    return sum(weight * row for weight, row in zip(weights, window, strict=True)), weights


def forward(theta, items, w_x, w_h):
    """Return hidden states, overall interests and both kinds of weights, step by step."""
    U, W, b = theta["U"], theta["W"], theta["b"]
    inputs, h, hs, h_os, a_xs, a_hs = [theta["X"][i] for i in items], np.zeros(D), [], [], [], []
    for t, x in enumerate(inputs):
        g = [U[i] @ x + b[i] for i in range(3)]
        if w_x > 1:
            x_c, a_x = context(inputs, t, w_x, theta["Q_x"], theta["r_x"])
            g = [g[i] + theta["V"][i] @ x_c for i in range(3)]
            a_xs.append(a_x)
        z, r = sigma(g[0] + W[0] @ h), sigma(g[1] + W[1] @ h)
        h = (1 - z) * h + z * np.tanh(g[2] + W[2] @ (r * h))
        hs.append(h)
        if w_h > 1:
            h_c, a_h = context(hs, t, w_h, theta["Q_h"], theta["r_h"])
            h_os.append(np.tanh(theta["E"] @ h + theta["F"] @ h_c))
            a_hs.append(a_h)
        else:
            h_os.append(h)
    return hs, h_os, a_xs, a_hs


def losses(theta, w_x, w_h):
    """Return the summed loss and the penalty of the user's step."""
    _, h_os, _, _ = forward(theta, ITEMS[:-1], w_x, w_h)
    X = theta["X"]
    loss = sum(-np.log(sigma(h_os[t] @ (X[p] - X[q]))) for t, (p, q) in enumerate(zip(ITEMS[1:], NEGATIVES, strict=True)))
    squares = sum((value * value).sum() for name, value in theta.items() if name != "X")
    squares += sum((X[i] * X[i]).sum() for i in ITEMS[1:] + NEGATIVES)
    return loss, LAM / 2 * squares


def gradient(theta, name, w_x, w_h):
    """Differentiate loss + penalty by one parameter: Im f(x + i e) / e."""
    result = np.zeros(theta[name].shape)
    for index in np.ndindex(*result.shape):
        moved = theta | {name: theta[name].astype(complex)}
        moved[name][index] += 1e-30j
        result[index] = sum(losses(moved, w_x, w_h)).imag / 1e-30
    return result


def main() -> None:
    cases = []
    for w_x, w_h in CASES:
        theta = parameters(w_x, w_h)
        h, h_o, a_x, a_h = forward(theta, ITEMS, w_x, w_h)
        loss, penalty = losses(theta, w_x, w_h)
        values = {"h": h, "h_o": h_o, "a_x": a_x, "a_h": a_h, "loss": loss, "l2": penalty}
        values["theta"] = theta
        values["gradients"] = {name: gradient(theta, name, w_x, w_h) for name in theta}
        cases.append({"w_x": w_x, "w_h": w_h, "items": ITEMS, "negatives": NEGATIVES, "lam": LAM} | values)
    text = json.dumps(cases, default=lambda value: value.tolist())
    Path(__file__).with_name("network.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
