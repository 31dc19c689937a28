"""How fast this machine is, beside the one that the constants of a plan were fitted on.

It is stated with a plan and decides nothing: what a run computes never depends on a clock.
"""

from __future__ import annotations

import statistics
import time
from functools import cache

import numpy as np

ROUNDS, PRODUCTS = 7, 1_500
REFERENCE = 9.9
"""Milliseconds of a round on the machine of the constants."""


@cache
def slowness() -> float:
    """Return how many times as long as there a core takes here; some 70 ms, once a process."""
    A = np.linspace(-1, 1, 64 * 64, dtype=np.float32).reshape(64, 64)  # small: on one thread
    return statistics.median(_round(A) for _ in range(ROUNDS)) / REFERENCE


def _round(A: np.ndarray) -> float:
    """Return the milliseconds of some products and exponentials."""
    began = time.perf_counter()
    for _ in range(PRODUCTS):
        np.exp(A @ A)
    return 1000 * (time.perf_counter() - began)
