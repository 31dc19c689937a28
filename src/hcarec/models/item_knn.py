"""ItemKNN: items that the same users have, by cosine similarity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Unpack

import numpy as np

from hcarec.data.split import Part
from hcarec.hardware import Cost
from hcarec.models.counting import CountingModel
from hcarec.settings import NetworkSettings, PresetOptions, number, whole
from hcarec.tables import Table

ENTRY = 12 * 2
"""Bytes of an entry of the table, and of what counting holds beside it."""
PAIRS = 8e7
"""Pairs of items that are counted in a second, about."""


@dataclass(frozen=True, kw_only=True)
class ItemKNNSettings(NetworkSettings):
    """Which neighbors are kept, and how they are read."""

    neighbors: int = whole(100, 1, 100_000)
    """Most similar items that are kept for each item."""
    shrinkage: float = number(10.0)
    """Added to the denominator of the cosine, so that few shared users do not make items alike."""
    history: int = whole(20, 1, 1000)
    """Last events of a user that are read; a user's state holds as many items."""
    decay: float = number(0.8, 0.0, 1.0)
    """Weight of an event relative to the one after it."""
    user_items: int = whole(1000, 2, 100_000)
    """Latest distinct items of a user that count: the cost of a user is the square of their number."""

    @property
    def title(self) -> str:
        return "ItemKNN"


class ItemKNNOptions(PresetOptions, total=False):
    """What `ItemKNN` may be made with."""

    neighbors: int
    shrinkage: float
    history: int
    decay: float
    user_items: int


class ItemKNN(CountingModel):
    """Score items by their similarity to the last events, the latest ones weighing most."""

    name = "item-knn"
    Network = ItemKNNSettings

    def __init__(self, /, **settings: Unpack[ItemKNNOptions]) -> None:
        super().__init__(**settings)

    @property
    def settings(self) -> ItemKNNSettings:
        """Return the settings of the neighborhood."""
        assert isinstance(self.config.network, ItemKNNSettings)
        return self.config.network

    @property
    def weights(self) -> tuple[float, ...]:
        """Return powers of the decay."""
        return tuple(self.settings.decay**age for age in range(self.settings.history))

    def count(self, items: np.ndarray, offsets: np.ndarray, threads: int | None) -> Table:
        """Find the neighbors of every item."""
        from hcarec.ops.tables import nearest_items

        one = self.settings
        return nearest_items(items, offsets, len(self.item_ids), one.neighbors, one.shrinkage, one.user_items, threads)

    def row_sizes(self, part: Part, n_items: int) -> np.ndarray:
        """Return the neighbors that are kept of every item, as if no pair of items were shared twice."""
        beside = np.repeat(np.minimum(part.lengths, self.settings.user_items) - 1.0, part.lengths)
        pairs = np.bincount(part.items, weights=beside, minlength=n_items)
        return np.minimum(pairs, min(self.settings.neighbors, n_items)).astype(np.int64)

    def counting_cost(self, part: Part, n_items: int) -> Cost:
        """Count the pairs of every user's items."""
        pairs = float((np.minimum(part.lengths, self.settings.user_items).astype(np.float64) ** 2).sum())
        return Cost(pairs / PAIRS, ENTRY * int(self.row_sizes(part, n_items).sum()) + 24 * len(part.items))
