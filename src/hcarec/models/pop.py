"""POP: the items that occur most in training, the same for all."""

from __future__ import annotations

import numpy as np

from hcarec.errors import ConfigError
from hcarec.models.base import Model, Recommendation


class Pop(Model):
    """Score items by how often they occur in training."""

    name = "pop"
    basis = "popular"

    def initialise(self, n_users: int, seed: int) -> None:
        """Count; nothing is drawn."""
        self.theta = {"X": self.item_events.astype(np.float32)[:, None]}

    def similar_items(self, item: str | int, k: int = 10) -> list[Recommendation]:
        """Refuse: counts say nothing about which items are alike."""
        raise ConfigError("POP knows only how often items occur, not which are alike: use bpr, gru or hca-gru")

    def encode(self, items: np.ndarray, offsets: np.ndarray, users: np.ndarray | None = None, threads: int | None = None) -> np.ndarray:
        """Return 1 for every history."""
        return np.ones((len(offsets) - 1, 1), np.float32)
