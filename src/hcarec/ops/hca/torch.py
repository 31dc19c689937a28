"""The network with all its options as a torch module, over a batch of sequences at once.

`hcarec.ops.reference` is the specification. Only mini-batch training imports this module.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from torch import Tensor

from hcarec.ops.hca.dropping import Keys
from hcarec.ops.hca.layers import run_layers
from hcarec.ops.hca.packing import Packing, pack
from hcarec.ops.hca.parameters import Network
from hcarec.ops.network.torch import SequenceNetwork, Theta
from hcarec.ops.transfer import Send


class HCANetwork(SequenceNetwork):
    """The network with its recurrence, windows and blocks."""

    network: Network

    def __init__(
        self, network: Network, theta: Theta, threads: int = 1, backend: str | None = None
    ) -> None:
        """Copy the parameters, see `SequenceNetwork`.

        What computes the layers, `backend`, is chosen by the device unless it is given, see
        `hcarec.ops.hca.backends`.
        """
        super().__init__(network, theta, threads)
        self.backend = backend

    def pack(self, lengths: np.ndarray, rows: np.ndarray, T: int, send: Send) -> Packing:
        """Lay out some rows of a batch."""
        w = max(self.network.w_x, self.network.w_h)
        return pack(lengths, rows, T, w, send)

    def run_layers(
        self, theta: Mapping[str, Tensor], x: Tensor, packing: Packing, keys: Keys
    ) -> Tensor:
        """Run all layers over packed rows."""
        return run_layers(theta, self.network, x, packing, keys, self.backend)
