"""The network with all its options as a torch module, over a batch of sequences at once.

`hcarec.ops.reference` is the specification. Only mini-batch training imports this module.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor
from torch.nn import Module, Parameter, ParameterDict
from torch.nn.functional import embedding, gelu, layer_norm, normalize

from hcarec.ops.hca.copying import copy_corrections
from hcarec.ops.hca.dropping import drop
from hcarec.ops.hca.packing import Packing, pack
from hcarec.ops.hca.parameters import Network
from hcarec.ops.hca.recurrence import recur
from hcarec.ops.hca.windows import products, weighted_sum

Theta = Mapping[str, np.ndarray | Tensor]


class HCANetwork(Module):
    """The network; its parameters are `tensors`, by the names of `theta` with "_" for "."."""

    def __init__(self, network: Network, theta: Theta) -> None:
        super().__init__()
        self.network = network
        self._keys = {name: name.replace(".", "_") for name in theta}  # a key holds no dot
        values = {key: torch.as_tensor(theta[name]).clone() for name, key in self._keys.items()}
        self.tensors = ParameterDict({key: Parameter(value) for key, value in values.items()})

    def theta(self) -> dict[str, np.ndarray]:
        """Return copies of all parameters, float32."""
        named = {name: value.detach() for name, value in self.named().items()}
        numbers = {name: value.to("cpu", torch.float32) for name, value in named.items()}
        return {name: value.numpy().copy() for name, value in numbers.items()}

    def named(self) -> dict[str, Parameter]:
        """Return all parameters by the names of `theta`."""
        return {name: self.tensors[key] for name, key in self._keys.items()}

    def item_vectors(self) -> Tensor:
        """Return what queries are multiplied with, Z (n_items, d); of unit length for cosines."""
        Z = self._norm(self.tensors["X"], "norm_item", self.network.item_norm)
        return normalize(Z, dim=1) if self.network.scores == "cosine" else Z

    def forward(self, items: Tensor, lengths: Tensor) -> Tensor:
        """Return the output of every step.

        items (B, T) int64, padded at the right with any item, lengths (B,) -> o (B, T, d), zero at
        padded steps.
        """
        network = self.network
        packing = pack(lengths, items.shape[1], max(network.w_x, network.w_h))
        y = self._rows(items.reshape(-1)[packing.places])
        y = drop(y, network.input_dropout, self.training)
        for prefix in network.prefixes:
            y = self._layer(prefix, y, packing)
        y = drop(y, network.output_dropout, self.training)
        o = self._norm(y, "norm_out", network.output_norm)
        out = o.new_zeros(items.numel(), network.d).index_copy(0, packing.places, o)
        return out.view(*items.shape, network.d)

    def queries(self, o: Tensor) -> Tensor:
        """Return what item vectors are multiplied with: outputs (P, d) -> (P, d)."""
        if self.network.scores == "cosine":
            return torch.exp(self.tensors["temperature"]) * normalize(o, dim=1)
        return o

    def corrections(
        self, items: Tensor, lengths: Tensor, rows: Tensor, steps: Tensor, o: Tensor
    ) -> tuple[Tensor, Tensor, Tensor] | None:
        """Return the copy term of the positions (rows[p], steps[p]), or None without one.

        items (B, T) and lengths (B,) as in `forward`, o (P, d) the outputs there -> items (n,)
        int32, ascending and distinct within each position, offsets (P + 1,) int64, values (n,).
        """
        if not self.network.copy_window:
            return None
        Z, n_items = self._rows(items.reshape(-1)), len(self.tensors["X"])
        query = o @ self.tensors["copy_Q"].t()
        bias, scale, rate = (self.tensors[f"copy_{name}"] for name in ("bias", "scale", "rate"))
        return copy_corrections(items, rows, steps, query, Z, bias, scale, rate, n_items)

    def _rows(self, items: Tensor) -> Tensor:
        """Return the vectors of items (n,) -> (n, d), not at unit length."""
        return self._norm(embedding(items, self.tensors["X"]), "norm_item", self.network.item_norm)

    def _norm(self, v: Tensor, name: str, on: bool) -> Tensor:
        """Normalize rows (n, d), or return them as they are."""
        if not on:
            return v
        scale, shift = self.tensors[name]
        # Not with torch's own scale and shift: their gradients depend on the number of threads.
        return torch.addcmul(shift, layer_norm(v, (self.network.d,), eps=1e-5), scale)

    def _layer(self, prefix: str, x: Tensor, packing: Packing) -> Tensor:
        """Return the outputs of one layer: packed inputs (P, d) -> (P, d)."""
        network, d = self.network, self.network.d
        own = {
            name.removeprefix(prefix): self.tensors[key]
            for name, key in self._keys.items()
            if name.startswith(prefix)
        }
        g = torch.addmm(own["b"].reshape(-1), x, own["U"].reshape(3 * d, d).t())
        if network.w_x > 1:
            x_c = self._attend(own, "x", network.w_x, network.attention_x, x, packing)
            g = g.addmm_(x_c, own["V"].reshape(3 * d, d).t())
        h = recur(g.view(-1, 3, d), own["W"], packing.starts)
        h_o = self._fuse(own, h, packing) if network.w_h > 1 else h
        if not network.blocks:
            return h_o
        h_o = drop(h_o, network.hidden_dropout, self.training)
        y = self._norm(x + h_o, prefix.replace(".", "_") + "norm_1", True)
        ffn = torch.addmm(own["a_1"], y, own["A_1"].t())
        ffn = torch.addmm(own["a_2"], gelu(ffn), own["A_2"].t())
        ffn = drop(ffn, network.hidden_dropout, self.training)
        return self._norm(y + ffn, prefix.replace(".", "_") + "norm_2", True)

    def _fuse(self, own: Mapping[str, Tensor], h: Tensor, packing: Packing) -> Tensor:
        """Return the overall interest of hidden states (P, d) -> (P, d)."""
        h_c = self._attend(own, "h", self.network.w_h, self.network.attention_h, h, packing)
        if self.network.fusion == "residual":
            return torch.addmm(h, h_c, own["F"].t())
        return (h @ own["E"].t()).addmm_(h_c, own["F"].t()).tanh_()

    def _attend(
        self,
        own: Mapping[str, Tensor],
        level: str,
        w: int,
        form: str,
        rows: Tensor,
        packing: Packing,
    ) -> Tensor:
        """Return the contextual rows (P, d) of packed rows (P, d)."""
        before = packing.before[:, :w].contiguous()
        projected = rows @ own[f"Q_{level}"].t()
        if form == "dot":
            keys = rows @ own[f"K_{level}"].t()
            e = products(projected, keys, before) / math.sqrt(self.network.d)
        else:  # a row's score depends on the row alone
            scores = (projected.tanh_() @ own[f"r_{level}"])[:, None]
            e = products(torch.ones_like(scores), scores, before)
        if self.network.padding == "masked":
            e = e.masked_fill(before < 0, -math.inf)
        return weighted_sum(torch.softmax(e, dim=1), rows, before)
