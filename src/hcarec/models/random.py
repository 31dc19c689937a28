"""Random: every item is as likely as any other, whatever the history."""

from __future__ import annotations

import numpy as np

from hcarec.models.base import Model


class Random(Model):
    """Score items by random directions: unit vectors for items, and for a history a vector drawn from its hash."""

    name = "random"
    basis = "random"

    def initialise(self, n_users: int, seed: int) -> None:
        """Draw a direction per item; all have the same length, so that none is favoured."""
        X = _normals(np.arange(len(self.item_ids), dtype=np.uint64) + np.uint64(seed * 0xD1B54A32D192ED03 % 2**64), self.config.d)
        self.theta = {"X": (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)}

    def encode(self, items: np.ndarray, offsets: np.ndarray, users: np.ndarray | None = None, threads: int | None = None) -> np.ndarray:
        """Draw a vector from the hash of each history."""
        place = np.arange(len(items), dtype=np.uint64) - np.repeat(offsets[:-1], np.diff(offsets)).astype(np.uint64)
        terms = np.concatenate([np.zeros(1, np.uint64), _mix(np.asarray(items).astype(np.uint64) ^ (place << np.uint64(32)))])
        sums = np.cumsum(terms, dtype=np.uint64)
        return _normals(_mix(sums[offsets[1:]] - sums[offsets[:-1]]), self.config.d).astype(np.float32)


def _normals(keys: np.ndarray, d: int) -> np.ndarray:
    """Return (n, d) normal numbers, each a pure function of its row's key and its column."""
    columns = np.arange(1, d + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    bits = _mix(_mix(keys)[:, None] + columns)
    radius = np.sqrt(-2 * np.log(((bits >> np.uint64(32)) + np.uint64(1)) / 2.0**32))
    return radius * np.cos(2 * np.pi * (bits & np.uint64(0xFFFFFFFF)) / 2.0**32)


def _mix(z: np.ndarray) -> np.ndarray:
    """Mix 64 bits well (the finaliser of splitmix64)."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
