"""The layers of the network over packed rows: from inputs to the outputs of the last layer."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn.functional import gelu

from hcarec.ops.hca.backends import choose_backend
from hcarec.ops.hca.dropping import Keys, drop
from hcarec.ops.hca.packing import Packing
from hcarec.ops.hca.parameters import Network
from hcarec.ops.hca.recurrence import recur
from hcarec.ops.hca.windows import products, weighted_sum
from hcarec.ops.network.torch import norm

Tensors = Mapping[str, Tensor]


def run_layers(
    theta: Tensors,
    network: Network,
    x: Tensor,
    packing: Packing,
    keys: Keys = None,
    backend: str | None = None,
) -> Tensor:
    """Return the outputs of the last layer: packed inputs (P, d) -> (P, d).

    Dropout takes its keys from `keys`; without them nothing is dropped. The back-end is chosen by
    the device unless it is given, see `choose_backend`.
    """
    backend = choose_backend(backend, x)
    y = drop(x, network.input_dropout, keys)
    for prefix in network.prefixes:
        own = {name: value for name, value in theta.items() if name.startswith(prefix)}
        own = {name.removeprefix(prefix): value for name, value in own.items()}
        y = _layer(own, network, y, packing, keys, backend)
    return drop(y, network.output_dropout, keys)


def _layer(
    own: Tensors, network: Network, x: Tensor, packing: Packing, keys: Keys, backend: str
) -> Tensor:
    """Return the outputs of one layer, (P, d) -> (P, d)."""
    g = _gates(own, network, x, packing, backend)
    h = recur(g.view(-1, 3, network.d), own["W"], packing, backend)
    h_o = _interest(own, network, h, packing, backend) if network.w_h > 1 else h
    return _block(own, network, x, h_o, keys) if network.blocks else h_o


def _gates(own: Tensors, network: Network, x: Tensor, packing: Packing, backend: str) -> Tensor:
    """Return the inputs of the three gates, (P, d) -> (P, 3 d)."""
    d = network.d
    U, b = own["U"].reshape(3 * d, d), own["b"].reshape(-1)
    if network.w_x == 1:
        return torch.addmm(b, x, U.t())
    V = own["V"].reshape(3 * d, d)
    if backend == "triton" and network.attention_x == "additive":
        return _level(own, network, "x", x, packing, (U, V, b), "gates")
    return torch.addmm(torch.addmm(b, x, U.t()), _attend(own, network, "x", x, packing), V.t())


def _interest(own: Tensors, network: Network, h: Tensor, packing: Packing, backend: str) -> Tensor:
    """Return the overall interest of hidden states and their windows, (P, d) -> (P, d)."""
    if backend == "triton" and network.attention_h == "additive":
        weights = own.get("E"), own["F"], None
        return _level(own, network, "h", h, packing, weights, network.fusion)
    return _fuse(own, network, h, _attend(own, network, "h", h, packing))


def _level(
    own: Tensors,
    network: Network,
    name: str,
    rows: Tensor,
    packing: Packing,
    weights: tuple[Tensor | None, Tensor, Tensor | None],
    form: str,
) -> Tensor:
    """Return the output of the level "x" or "h" by Triton kernels, (P, d) -> (P, 3 d) or (P, d)."""
    from hcarec.ops.hca.triton import level

    w, masked = network.w_x if name == "x" else network.w_h, network.padding == "masked"
    Q, r, (W_0, W_1, b) = own[f"Q_{name}"], own[f"r_{name}"], weights
    step, starts = packing.step, packing.device_starts
    return level(rows, step, starts, Q, r, W_0, W_1, b, w, masked, form)


def _attend(own: Tensors, network: Network, level: str, rows: Tensor, packing: Packing) -> Tensor:
    """Return the contextual rows of the level "x" or "h", (P, d) -> (P, d)."""
    on_x = level == "x"
    before = packing.before[:, : network.w_x if on_x else network.w_h].contiguous()
    projected = rows @ own[f"Q_{level}"].t()
    if (network.attention_x if on_x else network.attention_h) == "dot":
        keys = rows @ own[f"K_{level}"].t()
        e = products(projected, keys, before) / math.sqrt(network.d)
    else:  # a row's score depends on the row alone
        scores = (projected.tanh_() @ own[f"r_{level}"])[:, None]
        e = products(torch.ones_like(scores), scores, before)
    if network.padding == "masked":
        e = e.masked_fill(before < 0, -math.inf)
    return weighted_sum(torch.softmax(e, dim=1), rows, before)


def _fuse(own: Tensors, network: Network, h: Tensor, h_c: Tensor) -> Tensor:
    """Return the overall interest of hidden and contextual hidden states, (P, d) -> (P, d)."""
    if network.fusion == "residual":
        return torch.addmm(h, h_c, own["F"].t())
    return torch.addmm(h @ own["E"].t(), h_c, own["F"].t()).tanh_()


def _block(own: Tensors, network: Network, x: Tensor, h_o: Tensor, keys: Keys) -> Tensor:
    """Return the output of a block around the cell, (P, d) -> (P, d)."""
    y = norm(x + drop(h_o, network.hidden_dropout, keys), own["norm_1"])
    ffn = gelu(torch.addmm(own["a_1"], y, own["A_1"].t()))
    ffn = torch.addmm(own["a_2"], ffn, own["A_2"].t())
    return norm(y + drop(ffn, network.hidden_dropout, keys), own["norm_2"])
