"""Random streams without a state: every draw is a pure function of its key and its place."""

from __future__ import annotations

import numpy as np

STRIDE = 0x9E3779B97F4A7C15
_MASK = 2**64 - 1
ORDER, NEGATIVES = 1, 2  # streams that never meet

_u27, _u30, _u31 = (np.uint64(n) for n in (27, 30, 31))
_A, _B, _G = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB), np.uint64(STRIDE)


def mix(z):
    """Scramble 64 bits (the finalizer of splitmix64): an array, or a number in compiled code."""
    z = (z ^ (z >> _u30)) * _A
    z = (z ^ (z >> _u27)) * _B
    return z ^ (z >> _u31)


def stream(seed: int, epoch: int, purpose: int = NEGATIVES) -> np.uint64:
    """Return the key of all draws of one epoch."""
    key = np.zeros(1, np.uint64)
    for part in (purpose, seed, epoch):
        key = mix((key + np.uint64(part & _MASK)) * _G + _G)
    return np.uint64(key[0])


def epoch_order(n_users: int, seed: int, epoch: int) -> np.ndarray:
    """Return the users 0..n_users-1 in the random order of one epoch, (n_users,) int64."""
    keys = mix(stream(seed, epoch, ORDER) + _G * np.arange(1, n_users + 1, dtype=np.uint64))
    return np.argsort(keys, kind="stable")
