"""What networks in torch share: their parameters, and how outputs become scores.

`hcarec.ops.reference` is the specification. Only mini-batch training imports this module.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import Module, Parameter, ParameterDict
from torch.nn.functional import embedding, layer_norm

from hcarec.ops.hca.copying import copy_corrections
from hcarec.ops.hca.dropping import Keys
from hcarec.ops.hca.shards import cut, keys_of, run_shards
from hcarec.ops.hca.units import unit
from hcarec.ops.network.parameters import NetworkOptions
from hcarec.ops.transfer import Send, to_device

Theta = Mapping[str, np.ndarray | Tensor]
OUTSIDE = ("X", "norm_item", "norm_out", "temperature", "copy_")
"""Beginnings of the names of parameters that stand before or behind the layers."""


def norm(v: Tensor, N: Tensor) -> Tensor:
    """Normalize rows (n, d), then scale and shift them by N (2, d)."""
    if v.device.type != "cpu":
        scale, shift = N.unbind()
        return layer_norm(v, v.shape[-1:], scale, shift, eps=1e-5)
    # Not with torch's own scale and shift: their gradients depend on the number of threads.
    return torch.addcmul(N[1], layer_norm(v, v.shape[-1:], eps=1e-5), N[0])


class SequenceNetwork(Module):
    """A network over sequences of items; its parameters are `tensors`.

    They go by the names of `theta` with "_" for ".". Networks differ in their layers.
    """

    def __init__(self, network: NetworkOptions, theta: Theta, threads: int = 1) -> None:
        """Copy the parameters. On a CPU `threads` run parts of a batch, each with one torch thread.

        So use it within `shards.one_torch_thread()`.
        """
        super().__init__()
        self.threads = threads
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

    def item_vectors(self, X: Tensor | None = None) -> Tensor:
        """Return what queries are multiplied with, Z (n_items, d); of unit length for cosines.

        `X` holds some of the rows of the parameter X, where not all of them are needed.
        """
        Z = self.tensors["X"] if X is None else X
        if self.network.item_norm:
            Z = norm(Z, self.tensors["norm_item"])
        return unit(Z) if self.network.scores == "cosine" else Z

    @property
    def most_events(self) -> int | None:
        """Return how many of the last events of a history are read; None reads all of them."""
        return None

    @abstractmethod
    def pack(self, lengths: np.ndarray, rows: np.ndarray, T: int, send: Send) -> Any:
        """Lay out some rows of a batch padded to T; what is returned has `places`, see `run`.

        lengths (B,), rows (any number of them, in any order); arrays go to the device by `send`.
        """

    @abstractmethod
    def run_layers(
        self, theta: Mapping[str, Tensor], x: Tensor, packing: Any, keys: Keys
    ) -> Tensor:
        """Return the outputs of the last layer: packed item vectors (P, d) -> (P, d).

        Dropout takes its keys from `keys`; without them nothing is dropped.
        """

    def forward(self, items: Tensor, lengths: Tensor) -> Tensor:
        """Return the output of every step.

        items (B, T) int64, padded at the right with any item, lengths (B,) -> o (B, T, d), zero at
        padded steps. Lengths are best on the host: from a GPU they are waited for.
        """
        sizes = lengths.cpu().numpy().astype(np.int64)
        send = partial(to_device, items.device)
        return self.run(items, self.lay_out(sizes, items.shape[1], send))

    def lay_out(self, lengths: np.ndarray, T: int, send: Send) -> list[Any]:
        """Lay out a batch padded to T, lengths (B,), in one shard unless it is on a CPU."""
        on_cpu = self.tensors["X"].device.type == "cpu"
        shards = cut(lengths) if on_cpu else []
        return [self.pack(lengths, rows, T, send) for rows in shards or [np.arange(len(lengths))]]

    def run(self, items: Tensor, shards: Sequence[Any], X: Tensor | None = None) -> Tensor:
        """Return the output of every step of a batch that is laid out, see `forward`.

        With `X`, some rows of the parameter X, items are numbers of its rows.
        """
        d = self.network.d
        places = torch.cat([packing.places for packing in shards])
        x = self._rows(items.reshape(-1).index_select(0, places), X)
        seed = int(torch.randint(2**62, ())) if self.training else None  # of all dropout
        theta = self._layers()
        if len(shards) > 1:
            y = run_shards(self.run_layers, theta, x, shards, seed, self.threads)
        else:
            y = self.run_layers(theta, x, shards[0], keys_of(seed, 0))
        o = norm(y, self.tensors["norm_out"]) if self.network.output_norm else y
        return o.new_zeros(items.numel(), d).index_copy(0, places, o).view(*items.shape, d)

    def queries(self, o: Tensor) -> Tensor:
        """Return what item vectors are multiplied with: outputs (P, d) -> (P, d)."""
        if self.network.scores == "cosine":
            return torch.exp(self.tensors["temperature"]) * unit(o)
        return o

    def corrections(
        self, items: Tensor, rows: Tensor, steps: Tensor, o: Tensor, X: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor] | None:
        """Return the copy term of the positions (rows[p], steps[p]), or None without one.

        items (B, T) and X as in `run`, o (P, d) the outputs there -> items (n,) int32, ascending
        and distinct within each position, offsets (P + 1,) int64, values (n,), see
        `copy_corrections`.
        """
        if not self.network.copy_window:
            return None
        Z, n_items = self._rows(items.reshape(-1), X), len(self.tensors["X"] if X is None else X)
        query = o @ self.tensors["copy_Q"].t()
        bias, scale, rate = (self.tensors[f"copy_{name}"] for name in ("bias", "scale", "rate"))
        return copy_corrections(items, rows, steps, query, Z, bias, scale, rate, n_items)

    def _rows(self, items: Tensor, X: Tensor | None = None) -> Tensor:
        """Return the vectors of items (n,), see `run` -> (n, d), not at unit length."""
        x = embedding(items, self.tensors["X"] if X is None else X)
        return norm(x, self.tensors["norm_item"]) if self.network.item_norm else x

    def _layers(self) -> dict[str, Tensor]:
        """Return the parameters of all layers by the names of `theta`."""
        return {name: value for name, value in self.named().items() if not name.startswith(OUTSIDE)}


def _copy(value: np.ndarray | Tensor) -> Tensor:
    """Return a tensor of its own; the array may be read-only, a file mapped to memory."""
    return value.detach().clone() if isinstance(value, Tensor) else torch.from_numpy(value.copy())
