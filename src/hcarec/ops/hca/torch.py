"""The network with all its options as a torch module, over a batch of sequences at once.

`hcarec.ops.reference` is the specification. Only mini-batch training imports this module.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor
from torch.nn import Module, Parameter, ParameterDict
from torch.nn.functional import embedding, normalize

from hcarec.ops.hca.copying import copy_corrections
from hcarec.ops.hca.layers import norm, run_layers
from hcarec.ops.hca.packing import Packing, pack
from hcarec.ops.hca.parameters import Network
from hcarec.ops.hca.shards import cut, keys_of, run_shards

Theta = Mapping[str, np.ndarray | Tensor]


class HCANetwork(Module):
    """The network; its parameters are `tensors`, by the names of `theta` with "_" for "."."""

    def __init__(
        self, network: Network, theta: Theta, threads: int = 1, backend: str | None = None
    ) -> None:
        """Copy the parameters. On a CPU `threads` run parts of a batch, each with one torch thread.

        So use it within `shards.one_torch_thread()`. What computes the layers, `backend`, is chosen
        by the device unless it is given, see `hcarec.ops.hca.backends`.
        """
        super().__init__()
        self.threads, self.backend = threads, backend
        self.network = network
        self._keys = {name: name.replace(".", "_") for name in theta}  # a key holds no dot
        values = {key: _copy(theta[name]) for name, key in self._keys.items()}
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
        Z = self.tensors["X"]
        if self.network.item_norm:
            Z = norm(Z, self.tensors["norm_item"])
        return normalize(Z, dim=1) if self.network.scores == "cosine" else Z

    def forward(self, items: Tensor, lengths: Tensor) -> Tensor:
        """Return the output of every step.

        items (B, T) int64, padded at the right with any item, lengths (B,) -> o (B, T, d), zero at
        padded steps. Lengths are best on the host: from a GPU they are waited for.
        """
        d, shards = self.network.d, self._shards(lengths, items)
        places = torch.cat([packing.places for packing in shards])
        x = self._rows(items.reshape(-1).index_select(0, places))
        seed = int(torch.randint(2**62, ())) if self.training else None  # of all dropout
        theta = self._layers()
        if len(shards) > 1:
            y = run_shards(theta, self.network, x, shards, seed, self.threads, self.backend)
        else:
            y = run_layers(theta, self.network, x, shards[0], keys_of(seed, 0), self.backend)
        o = norm(y, self.tensors["norm_out"]) if self.network.output_norm else y
        return o.new_zeros(items.numel(), d).index_copy(0, places, o).view(*items.shape, d)

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
        x = embedding(items, self.tensors["X"])
        return norm(x, self.tensors["norm_item"]) if self.network.item_norm else x

    def _shards(self, lengths: Tensor, items: Tensor) -> list[Packing]:
        """Lay out a batch; in one shard unless it is on a CPU."""
        sizes = lengths.cpu().numpy().astype(np.int64)
        every = [np.arange(len(sizes))]
        shards = cut(sizes) or every if items.device.type == "cpu" else every
        w = max(self.network.w_x, self.network.w_h)
        return [pack(sizes, rows, items.shape[1], w, items.device) for rows in shards]

    def _layers(self) -> dict[str, Tensor]:
        """Return the parameters of all layers by the names of `theta`."""
        outside = ("X", "norm_item", "norm_out", "temperature", "copy_")
        return {name: value for name, value in self.named().items() if not name.startswith(outside)}


def _copy(value: np.ndarray | Tensor) -> Tensor:
    """Return a tensor of its own; the array may be read-only, a file mapped to memory."""
    return value.detach().clone() if isinstance(value, Tensor) else torch.from_numpy(value.copy())
