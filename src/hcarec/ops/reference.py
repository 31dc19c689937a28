"""The network as the paper writes it, in PyTorch: the specification that every fast path is tested against.

Equation numbers are the paper's. Sequences are ragged: `items` holds all users' events, `offsets` where each begins.
What the paper writes comes first, then the network with all its options (`Network`), one user's sequence at a time, then SASRec.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn.functional import gelu, logsigmoid, softplus

from hcarec.ops.hca.parameters import Network
from hcarec.ops.network.parameters import NetworkOptions
from hcarec.ops.parameters import State
from hcarec.ops.sas.parameters import Network as SASNetwork

Tensors = Mapping[str, Tensor]
Dropout = Callable[[str, Tensor], Tensor]
"""Maps a place ("input", "hidden" or "output") and the rows there to the rows that remain in training."""


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
    are v; it is zero elsewhere. A position whose target is -1 does not count.
    """
    s, every = H @ Z.T, torch.arange(len(H), device=H.device)
    if corrections is not None:
        items, offsets, values = corrections
        s = s.index_put((every.repeat_interleave(offsets.diff()), items.long()), values, accumulate=True)
    return (torch.logsumexp(s, 1) - s[every, targets])[targets >= 0].mean()


def sampled_softmax(s: Tensor, targets: Tensor, drawn: Tensor, chances: Tensor) -> Tensor:
    """Return mean_p [ log(e^s_pt + sum_j e^s_pj / c_j) - s_pt ], t = targets[p], j over the drawn items but t.

    Scores s (P, n_items), targets (P,), the items that were drawn, distinct (K,), and the chance of each item to be
    among them, (n_items,) -> scalar.
    """
    losses = []
    for scores, t in zip(s, targets, strict=True):
        others = drawn[drawn != t]
        relative = scores[others] - scores[t]
        losses.append(torch.log1p((relative.exp() / chances[others]).sum()))
    return torch.stack(losses).mean()


def mf_loss(theta: Tensors, user: int, items: Tensor, negatives: Tensor) -> Tensor:
    """Sum -ln sigma of P[user] . (X[p] - X[q]) over one user's events (BPR matrix factorisation)."""
    return -logsigmoid((theta["X"][items] - theta["X"][negatives]) @ theta["P"][user]).sum()


def mf_l2(theta: Tensors, user: int, items: Tensor, negatives: Tensor, lam: float) -> Tensor:
    """Return the penalty of one user's step: its vector once, an item row once per occurrence."""
    return l2({"X": theta["X"]}, items, negatives, lam) + lam / 2 * theta["P"][user].square().sum()


# The network with all its options. Each layer's parameters go by the paper's letters, see `layer_of`.


def no_dropout(place: str, rows: Tensor) -> Tensor:
    """Leave the rows as they are: outside training nothing is dropped."""
    return rows


def layer_of(theta: Tensors, prefix: str) -> Tensors:
    """Return the parameters of one layer by their letters; the first layer has no prefix."""
    return {name.removeprefix(prefix): value for name, value in theta.items() if name.startswith(prefix)}


def layer_norm(v: Tensor, N: Tensor) -> Tensor:
    """Return N[0] (v - mean) / sqrt(var + 1e-5) + N[1] of every row (.., d)."""
    centered = v - v.mean(-1, keepdim=True)
    return N[0] * centered / torch.sqrt(centered.square().mean(-1, keepdim=True) + 1e-5) + N[1]


def unit(v: Tensor) -> Tensor:
    """Return every row (.., d) at length 1; a zero row stays zero."""
    return v / v.norm(dim=-1, keepdim=True).clamp_min(1e-12)


def attend_level(theta: Tensors, network: Network, level: str, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Attend over the last w_x ("x") or w_h ("h") rows of every step.

    rows (n, d) -> contextual rows (n, d), weights (n, w) oldest first.
    """
    w, form, Q = (network.w_x, network.attention_x, theta["Q_x"]) if level == "x" else (network.w_h, network.attention_h, theta["Q_h"])
    n, d = rows.shape
    C = torch.cat([rows.new_zeros(w - 1, d), rows]).unfold(0, w, 1).transpose(1, 2)  # (n, w, d)
    if form == "dot":
        e = torch.einsum("td,twd->tw", rows @ Q.T, C @ theta[f"K_{level}"].T) / math.sqrt(d)
    else:
        e = torch.tanh(C @ Q.T) @ theta[f"r_{level}"]
    if network.padding == "masked":
        before = torch.arange(n)[:, None] + torch.arange(w) < w - 1
        e = e.masked_fill(before.to(e.device), -math.inf)
    a = torch.softmax(e, dim=1)
    return torch.einsum("tw,twd->td", a, C), a


def fuse(theta: Tensors, network: Network, h: Tensor, h_c: Tensor) -> Tensor:
    """Return the overall interest h_o (n, d) of hidden and contextual hidden states (n, d)."""
    if network.fusion == "residual":
        return h + h_c @ theta["F"].T
    return torch.tanh(h @ theta["E"].T + h_c @ theta["F"].T)


def block(theta: Tensors, network: Network, x: Tensor, h_o: Tensor, dropout: Dropout = no_dropout) -> Tensor:
    """Return the output y (n, d) of a layer: LayerNorm, residual from x, FFN; without blocks y = h_o."""
    if not network.blocks:
        return h_o
    y = layer_norm(x + dropout("hidden", h_o), theta["norm_1"])
    ffn = gelu(y @ theta["A_1"].T + theta["a_1"]) @ theta["A_2"].T + theta["a_2"]
    return layer_norm(y + dropout("hidden", ffn), theta["norm_2"])


def layer_outputs(theta: Tensors, network: Network, x: Tensor, dropout: Dropout = no_dropout) -> Tensor:
    """Return the output y of every step of one layer: x (n, d) -> (n, d)."""
    x_c = attend_level(theta, network, "x", x)[0] if network.w_x > 1 else None
    h, states = x.new_zeros(x.shape[1]), []
    for t in range(len(x)):
        h = cell(theta, h, x[t], None if x_c is None else x_c[t])
        states.append(h)
    h = torch.stack(states)
    h_o = fuse(theta, network, h, attend_level(theta, network, "h", h)[0]) if network.w_h > 1 else h
    return block(theta, network, x, h_o, dropout)


def item_rows(theta: Tensors, network: NetworkOptions) -> Tensor:
    """Return the item vectors Z (n_items, d)."""
    return layer_norm(theta["X"], theta["norm_item"]) if network.item_norm else theta["X"]


def network_outputs(theta: Tensors, network: Network, items: Tensor, dropout: Dropout = no_dropout) -> Tensor:
    """Return the output o of every step of one sequence: items (n,) -> (n, d)."""
    y = dropout("input", item_rows(theta, network)[items])
    for prefix in network.prefixes:
        y = layer_outputs(layer_of(theta, prefix), network, y, dropout)
    y = dropout("output", y)
    return layer_norm(y, theta["norm_out"]) if network.output_norm else y


def copy_term(theta: Tensors, network: NetworkOptions, items: Tensor, o: Tensor) -> Tensor:
    """Return what the last w_c events of every step add to the scores: items (n,), o (n, d) -> (n, n_items)."""
    Z, counts = item_rows(theta, network), []
    for t in range(len(items)):
        last = items[max(0, t + 1 - network.copy_window) : t + 1].flip(0)  # newest first: the place is the distance
        w = softplus(Z[last] @ (theta["copy_Q"] @ o[t]) + theta["copy_bias"][: len(last)])
        counts.append(o.new_zeros(len(Z)).index_add(0, last, w))
    return theta["copy_scale"] * torch.log1p(torch.exp(theta["copy_rate"]) * torch.stack(counts))


def counting_term(T: Tensor, weights: Tensor, scale: float, floor: float, items: Tensor) -> Tensor:
    """Return what counting adds to the scores after every step.

    T (n_items, n_items), row j the counts of what follows item j; weights (w,), that of the newest event first; items (n,) -> (n, n_items).
    """
    last = [items[max(0, t + 1 - len(weights)) : t + 1].flip(0) for t in range(len(items))]  # newest first
    m = torch.stack([weights[: len(recent)] @ T[recent] for recent in last])
    return scale * torch.log1p(m / floor)


def score_all(theta: Tensors, network: NetworkOptions, items: Tensor, o: Tensor) -> Tensor:
    """Return the scores of all items after every step of one sequence: items (n,), o (n, d) -> (n, n_items)."""
    Z = item_rows(theta, network)
    scores = torch.exp(theta["temperature"]) * unit(o) @ unit(Z).T if network.scores == "cosine" else o @ Z.T
    return scores + copy_term(theta, network, items, o) if network.copy_window else scores


LayerState = tuple[Tensor, Tensor, Tensor]
"""What the next event needs of one layer: h (d,), its last w_x - 1 inputs and w_h - 1 hidden states, fewer near the start."""


def network_start(theta: Tensors, network: Network) -> list[LayerState]:
    """Return the state of every layer before the first event."""
    X = theta["X"]
    return [(X.new_zeros(network.d), X.new_zeros(0, network.d), X.new_zeros(0, network.d)) for _ in network.prefixes]


def network_step(theta: Tensors, network: Network, states: list[LayerState], item: int) -> tuple[list[LayerState], Tensor]:
    """Add one event to the states of all layers: the new states and the output o (d,)."""
    y, after = item_rows(theta, network)[item], []
    for prefix, (h, inputs, hidden) in zip(network.prefixes, states, strict=True):
        own, x = layer_of(theta, prefix), y
        inputs = torch.cat([inputs, x[None]])
        h = cell(own, h, x, attend_level(own, network, "x", inputs)[0][-1] if network.w_x > 1 else None)
        hidden = torch.cat([hidden, h[None]])
        h_o = fuse(own, network, h, attend_level(own, network, "h", hidden)[0][-1]) if network.w_h > 1 else h
        y = block(own, network, x, h_o)
        after.append((h, inputs[max(0, len(inputs) - network.w_x + 1) :], hidden[max(0, len(hidden) - network.w_h + 1) :]))
    return after, layer_norm(y, theta["norm_out"]) if network.output_norm else y


# SASRec: attention over the last events in place of the recurrence; item vectors, scores and copy term are those above.


def self_attention(theta: Tensors, network: SASNetwork, u: Tensor) -> Tensor:
    """Let every step attend to itself and the steps before it, each head on its own part of the vectors: u (n, d) -> (n, d)."""
    n, d = u.shape
    q, k, v = ((u @ theta[name].T).view(n, network.heads, -1).transpose(0, 1) for name in ("Q", "K", "V"))  # (heads, n, d / heads)
    e = q @ k.transpose(1, 2) / math.sqrt(d / network.heads)
    later = torch.ones(n, n, dtype=torch.bool, device=u.device).triu(1)
    a = torch.softmax(e.masked_fill(later, -math.inf), dim=2)
    return (a @ v).transpose(0, 1).reshape(n, d) @ theta["O"].T


def sas_block(theta: Tensors, network: SASNetwork, x: Tensor, dropout: Dropout = no_dropout) -> Tensor:
    """Return the output of one block: attention, then FFN, each on the normalized input and added to it: x (n, d) -> (n, d)."""
    x = x + dropout("hidden", self_attention(theta, network, layer_norm(x, theta["norm_1"])))
    u = layer_norm(x, theta["norm_2"])
    return x + dropout("hidden", gelu(u @ theta["A_1"].T + theta["a_1"]) @ theta["A_2"].T + theta["a_2"])


def sas_outputs(theta: Tensors, network: SASNetwork, items: Tensor, dropout: Dropout = no_dropout) -> Tensor:
    """Return the output o of every step of at most `length` events, whose positions count from the first of them: items (n,) -> (n, d)."""
    assert len(items) <= network.length, (len(items), network.length)
    x = dropout("input", item_rows(theta, network)[items] + theta["P"][: len(items)])
    for prefix in network.prefixes:
        x = sas_block(layer_of(theta, prefix), network, x, dropout)
    x = dropout("output", x)
    return layer_norm(x, theta["norm_out"]) if network.output_norm else x


def sas_last(theta: Tensors, network: SASNetwork, items: Tensor) -> Tensor:
    """Return the output after a whole history, of which the last `length` events are read: items (n,) -> (d,)."""
    return sas_outputs(theta, network, items[-network.length :])[-1]
