"""SASRec as a torch module, over a batch of sequences at once.

`hcarec.ops.reference` is the specification. Only mini-batch training imports this module.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from torch import Tensor

from hcarec.ops.hca.dropping import Keys
from hcarec.ops.network.torch import SequenceNetwork
from hcarec.ops.sas.layers import run_layers
from hcarec.ops.sas.packing import Packing, pack
from hcarec.ops.sas.parameters import Network
from hcarec.ops.transfer import Send


class SASNetwork(SequenceNetwork):
    """SASRec; no sequence of a batch is longer than the network's `length`."""

    network: Network

    @property
    def most_events(self) -> int:
        """Return the network's `length`."""
        return self.network.length

    def pack(self, lengths: np.ndarray, rows: np.ndarray, T: int, send: Send) -> Packing:
        """Lay out some rows of a batch."""
        assert lengths.max(initial=0) <= self.network.length, (lengths, self.network.length)
        return pack(lengths, rows, T, send)

    def run_layers(
        self, theta: Mapping[str, Tensor], x: Tensor, packing: Packing, keys: Keys
    ) -> Tensor:
        """Run all layers over packed rows."""
        return run_layers(theta, self.network, x, packing, keys)
