"""POP: the items that occur most in training, the same for all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Unpack

import numpy as np

from hcarec.models.base import Model
from hcarec.settings import NetworkSettings, PresetOptions
from hcarec.topk import Queries


@dataclass(frozen=True, kw_only=True)
class PopSettings(NetworkSettings):
    """Counts, with nothing to set."""

    @property
    def title(self) -> str:
        return "POP"


class Pop(Model):
    """Score items by how often they occur in training."""

    name = "pop"
    basis = "popular"
    Network = PopSettings
    seeded = False
    compares_items = False

    def __init__(self, /, **settings: Unpack[PresetOptions]) -> None:
        super().__init__(**settings)

    def shapes(self, n_items: int, n_users: int) -> dict[str, tuple[int, ...]]:
        """Return the shape of the counts."""
        return {"X": (n_items, 1)}

    def initialize(self, items: np.ndarray, offsets: np.ndarray, seed: int, threads: int | None = None) -> None:
        """Count; nothing is drawn."""
        self.theta = {"X": self.item_events.astype(np.float32)[:, None]}

    def encode(self, items: np.ndarray, offsets: np.ndarray, users: np.ndarray | None = None, threads: int | None = None) -> Queries:
        """Return 1 for every history."""
        return Queries(np.ones((len(offsets) - 1, 1), np.float32))
