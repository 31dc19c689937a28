"""Networks and parameters that the tests of SASRec share."""

from __future__ import annotations

from typing import Any

import numpy as np

from hcarec.ops.sas.parameters import Network, shapes

N_ITEMS = 11


def network_of(**options: Any) -> Network:
    return Network(**{"d": 6, "heads": 2, "blocks": 2, "length": 13, **options})


def random_theta(network: Network, seed: int = 0, dtype: Any = np.float64) -> dict[str, np.ndarray]:
    """Draw every parameter, those that start at zero or one too."""
    rng = np.random.default_rng(seed)
    named = shapes(network, N_ITEMS).items()
    return {name: rng.uniform(-0.7, 0.7, shape).astype(dtype) for name, shape in named}
