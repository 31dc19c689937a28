"""Random: every item is as likely as any other, whatever the history."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Unpack

import numpy as np

from hcarec.models.base import Model
from hcarec.settings import NetworkSettings, PresetOptions, whole
from hcarec.topk import Queries


@dataclass(frozen=True, kw_only=True)
class RandomSettings(NetworkSettings):
    """Random vectors."""

    d: int = whole(20, 1, 65536)
    """Size of the vectors."""

    @property
    def title(self) -> str:
        return "Random"


class RandomOptions(PresetOptions, total=False):
    """What `Random` may be made with."""

    d: int


class Random(Model):
    """Score items by random directions: unit vectors for items, and for a history a vector drawn from its hash."""

    name = "random"
    basis = "random"
    Network = RandomSettings

    def __init__(self, /, **settings: Unpack[RandomOptions]) -> None:
        super().__init__(**settings)

    @property
    def d(self) -> int:
        """Return the size of the vectors."""
        assert isinstance(self.config.network, RandomSettings)
        return self.config.network.d

    def shapes(self, n_items: int, n_users: int) -> dict[str, tuple[int, ...]]:
        """Return the shape of the item vectors."""
        return {"X": (n_items, self.d)}

    def initialize(self, items: np.ndarray, offsets: np.ndarray, seed: int, threads: int | None = None) -> None:
        """Draw a direction per item; all have the same length, so that none is favored."""
        X = _normals(np.arange(len(self.item_ids), dtype=np.uint64) + np.uint64(seed * 0xD1B54A32D192ED03 % 2**64), self.d)
        self.theta = {"X": (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)}

    def encode(self, items: np.ndarray, offsets: np.ndarray, users: np.ndarray | None = None, threads: int | None = None) -> Queries:
        """Draw a vector from the hash of each history."""
        place = np.arange(len(items), dtype=np.uint64) - np.repeat(offsets[:-1], np.diff(offsets)).astype(np.uint64)
        terms = np.concatenate([np.zeros(1, np.uint64), _mix(np.asarray(items).astype(np.uint64) ^ (place << np.uint64(32)))])
        sums = np.cumsum(terms, dtype=np.uint64)
        return Queries(_normals(_mix(sums[offsets[1:]] - sums[offsets[:-1]]), self.d).astype(np.float32))


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
