"""The network as the paper writes it, in PyTorch: the specification that every fast path is tested against.

Equation numbers are the paper's. Sequences are ragged: `items` holds all users' events, `offsets` where each begins.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from hcarec.ops.parameters import State

Tensors = Mapping[str, Tensor]


def attend(rows: Tensor, Q: Tensor, r: Tensor, w: int) -> tuple[Tensor, Tensor]:
    """Attend over the last w rows of every step (Eqs. 2 and 4), zero vectors standing before the start.

    rows (T, d) -> contextual rows (T, d), weights (T, w) oldest first.
    """
    before = rows.new_zeros(w - 1, rows.shape[1])
    C = torch.cat([before, rows]).unfold(0, w, 1).transpose(1, 2)  # (T, w, d)
    e = torch.tanh(C @ Q.T) @ r  # a zero row scores 0 and keeps its share: nothing is masked
    a = torch.softmax(e, dim=1)
    return torch.einsum("tw,twd->td", a, C), a


def cell(theta: Tensors, h: Tensor, x: Tensor, x_c: Tensor | None) -> Tensor:
    """Return the next hidden state (d,): Eq. 1, or Eq. 3 where there is a contextual input."""
    U, W, b = theta["U"], theta["W"], theta["b"]
    g = U @ x + b if x_c is None else U @ x + theta["V"] @ x_c + b  # (3, d), gate order z, r, c
    z = torch.sigmoid(g[0] + W[0] @ h)
    r = torch.sigmoid(g[1] + W[1] @ h)
    c = torch.tanh(g[2] + W[2] @ (r * h))
    return (1 - z) * h + z * c


def hidden(theta: Tensors, items: Tensor, w_x: int) -> tuple[Tensor, Tensor | None]:
    """Run the recurrence over one sequence (n,) -> hidden states (n, d), weights a_x (n, w_x) or None."""
    x = theta["X"][items]
    x_c, a_x = attend(x, theta["Q_x"], theta["r_x"], w_x) if w_x > 1 else (None, None)
    h, states = x.new_zeros(x.shape[1]), []
    for t in range(len(x)):
        h = cell(theta, h, x[t], None if x_c is None else x_c[t])
        states.append(h)
    return torch.stack(states), a_x


def interest(theta: Tensors, h: Tensor, w_h: int) -> tuple[Tensor, Tensor | None]:
    """Turn hidden states (n, d) into overall interests (n, d), Eq. 5, and weights a_h (n, w_h) or None."""
    if w_h == 1:
        return h, None
    h_c, a_h = attend(h, theta["Q_h"], theta["r_h"], w_h)
    return torch.tanh(h @ theta["E"].T + h_c @ theta["F"].T), a_h


def encode(theta: Tensors, items: Tensor, offsets: Tensor, w_x: int, w_h: int) -> Tensor:
    """Return the overall interest after every user's last event, (n_users, d); zero for an empty history."""
    rows = []
    for begin, end in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        if begin == end:
            rows.append(theta["X"].new_zeros(theta["X"].shape[1]))
        else:
            rows.append(interest(theta, hidden(theta, items[begin:end], w_x)[0], w_h)[0][-1])
    return torch.stack(rows)


def start(theta: Tensors, w_x: int, w_h: int) -> State:
    """Return the state before the first event."""
    X = theta["X"]
    d = X.shape[1]
    return State(X.new_zeros(d), torch.full((w_x - 1,), -1, device=X.device), X.new_zeros(w_h - 1, d))


def step(theta: Tensors, state: State, item: int, w_x: int, w_h: int) -> tuple[State, Tensor]:
    """Add one event to a state: the new state and the overall interest (d,)."""
    items = torch.cat([state.items, state.items.new_tensor([item])])
    x = theta["X"][items] * (items >= 0).unsqueeze(1)
    x_c = attend(x, theta["Q_x"], theta["r_x"], w_x)[0][-1] if w_x > 1 else None
    h = cell(theta, state.h, x[-1], x_c)
    states = torch.cat([state.hidden, h.unsqueeze(0)])
    return State(h, items[1:], states[1:]), interest(theta, states, w_h)[0][-1]


def bpr_loss(theta: Tensors, items: Tensor, negatives: Tensor, w_x: int, w_h: int) -> Tensor:
    """Sum -ln sigma of the preferences of one user's steps (Eqs. 7 and 8 without the penalty).

    items (n,), negatives (n - 1,) -> scalar.
    """
    h_o, _ = interest(theta, hidden(theta, items[:-1], w_x)[0], w_h)
    preference = (h_o * (theta["X"][items[1:]] - theta["X"][negatives])).sum(1)
    return -logsigmoid(preference).sum()


def l2(theta: Tensors, positives: Tensor, negatives: Tensor, lam: float) -> Tensor:
    """Return lambda/2 |Theta|^2 of one user's step (Eq. 8).

    Every dense parameter counts once, an item row once per occurrence among positives and negatives.
    """
    dense = sum((value.square().sum() for name, value in theta.items() if name not in ("X", "P")), torch.tensor(0.0))
    return lam / 2 * (dense + theta["X"][positives].square().sum() + theta["X"][negatives].square().sum())


def cross_entropy(H: Tensor, Z: Tensor, targets: Tensor, corrections: tuple[Tensor, Tensor, Tensor] | None = None) -> Tensor:
    """Return mean_p [ log sum_i exp(s_pi) - s_p,target ], where s_pi = H_p . Z_i + v_pi and i goes over the whole catalog.

    H (P, d), Z (n_items, d), targets (P,) -> scalar. The corrections (items, offsets, values), ragged over the positions,
    are v; it is zero elsewhere.
    """
    s, every = H @ Z.T, torch.arange(len(H), device=H.device)
    if corrections is not None:
        items, offsets, values = corrections
        s = s.index_put((every.repeat_interleave(offsets.diff()), items.long()), values, accumulate=True)
    return (torch.logsumexp(s, 1) - s[every, targets]).mean()


def mf_loss(theta: Tensors, user: int, items: Tensor, negatives: Tensor) -> Tensor:
    """Sum -ln sigma of P[user] . (X[p] - X[q]) over one user's events (BPR matrix factorisation)."""
    return -logsigmoid((theta["X"][items] - theta["X"][negatives]) @ theta["P"][user]).sum()


def mf_l2(theta: Tensors, user: int, items: Tensor, negatives: Tensor, lam: float) -> Tensor:
    """Return the penalty of one user's step: its vector once, an item row once per occurrence."""
    return l2({"X": theta["X"]}, items, negatives, lam) + lam / 2 * theta["P"][user].square().sum()
