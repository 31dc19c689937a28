"""The network with all its options as a torch module, over a batch of sequences at once.

`hcarec.ops.reference` is the specification. Only mini-batch training imports this module.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from hcarec.ops.hca.layers import run_layers
from hcarec.ops.hca.packing import Packing, pack
from hcarec.ops.hca.parameters import Network
from hcarec.ops.hca.shards import cut, keys_of, run_shards
from hcarec.ops.network.torch import ScoringNetwork


class HCANetwork(ScoringNetwork):
    """The network; its parameters are `tensors`, by the names of `theta` with "_" for "."."""

    network: Network

    def forward(self, items: Tensor, lengths: Tensor) -> Tensor:
        """Return the output of every step.

        items (B, T) int64, padded at the right with any item, lengths (B,) -> o (B, T, d), zero at
        padded steps.
        """
        shards = self._shards(lengths, items.shape[1])
        places = torch.cat([packing.places for packing in shards])
        x = self.rows(items.reshape(-1)[places])
        seed = int(torch.randint(2**62, ())) if self.training else None  # of all dropout
        theta = self.layers()
        if len(shards) > 1:
            y = run_shards(run_layers, theta, self.network, x, shards, seed, self.threads)
        else:
            y = run_layers(theta, self.network, x, shards[0], keys_of(seed, 0))
        return self.outputs(y, places, items.shape)

    def _shards(self, lengths: Tensor, T: int) -> list[Packing]:
        """Lay out a batch padded to T; in one shard unless it is on a CPU."""
        sizes = lengths.cpu().numpy().astype(np.int64)
        every = [np.arange(len(sizes))]
        shards = cut(sizes) or every if lengths.device.type == "cpu" else every
        w = max(self.network.w_x, self.network.w_h)
        return [pack(sizes, rows, T, w, lengths.device) for rows in shards]
