"""The blocks of SASRec over packed rows: from item vectors to the outputs of the last block."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import embedding, gelu, scaled_dot_product_attention

from hcarec.ops.hca.dropping import Keys, drop
from hcarec.ops.network.torch import norm
from hcarec.ops.sas.packing import Packing
from hcarec.ops.sas.parameters import Network

Tensors = Mapping[str, Tensor]


def run_layers(
    theta: Tensors, network: Network, x: Tensor, packing: Packing, keys: Keys = None
) -> Tensor:
    """Return the outputs of the last block: packed item vectors (P, d) -> (P, d).

    Dropout takes its keys from `keys`; without them nothing is dropped.
    """
    x = drop(x + embedding(packing.steps, theta["P"]), network.input_dropout, keys)
    for prefix in network.prefixes:
        own = {name: value for name, value in theta.items() if name.startswith(prefix)}
        own = {name.removeprefix(prefix): value for name, value in own.items()}
        x = _block(own, network, x, packing, keys)
    return drop(x, network.output_dropout, keys)


def _block(own: Tensors, network: Network, x: Tensor, packing: Packing, keys: Keys) -> Tensor:
    """Return the output of one block, (P, d) -> (P, d)."""
    seen = _attend(own, network, norm(x, own["norm_1"]), packing)
    x = x + drop(seen, network.hidden_dropout, keys)
    inner = gelu(torch.addmm(own["a_1"], norm(x, own["norm_2"]), own["A_1"].t()))
    return x + drop(torch.addmm(own["a_2"], inner, own["A_2"].t()), network.hidden_dropout, keys)


def _attend(own: Tensors, network: Network, u: Tensor, packing: Packing) -> Tensor:
    """Let every row attend to those of its sequence up to itself, (P, d) -> (P, d)."""
    n, longest = packing.shape
    heads = n, longest, network.heads, network.d // network.heads

    def split(name: str) -> Tensor:
        rows = u @ own[name].t()
        padded = rows.new_zeros(n * longest, network.d).index_copy(0, packing.padded, rows)
        return padded.view(heads).transpose(1, 2)

    # The padding is behind the events, where no event looks. On a GPU the kernels that hold no
    # matrix of weights add up gradients in any order, so that a run would not repeat its bits.
    exact = nullcontext() if u.device.type == "cpu" else sdpa_kernel(SDPBackend.MATH)
    with exact:
        found = scaled_dot_product_attention(split("Q"), split("K"), split("V"), is_causal=True)
    rows = found.transpose(1, 2).reshape(n * longest, network.d)
    return rows.index_select(0, packing.padded) @ own["O"].t()
