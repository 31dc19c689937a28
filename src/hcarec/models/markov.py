"""Markov: what follows what, counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Unpack

import numpy as np

from hcarec.data.split import Part
from hcarec.data.transitions import count_transitions, normalize_rows
from hcarec.hardware import Cost
from hcarec.models.counting import CountingModel
from hcarec.settings import NetworkSettings, PresetOptions, numbers
from hcarec.tables import Table

ENTRY = 12 * 4
"""Bytes of an entry of the table, and of what counting holds beside it."""
STEPS = 6e6
"""Steps that are counted in a second, about."""
DISTANCE_WEIGHTS = (1.0, 0.5, 0.3, 0.2, 0.1)
"""Default weights of a step from an item to the one right after it, to the second one after it, and so on."""
HISTORY_WEIGHTS = (1.0, 0.5, 0.3, 0.2, 0.1)
"""Default weights of the last event of a history, of the one before it, and so on."""


def count_followers(items: np.ndarray, offsets: np.ndarray, n_items: int, distance_weights: Sequence[float] = DISTANCE_WEIGHTS) -> Table:
    """Count which items follow which, and divide each row by the root of its sum."""
    return normalize_rows(count_transitions(items, offsets, n_items, distance_weights))


def row_sizes(part: Part, n_items: int, distances: int = len(DISTANCE_WEIGHTS)) -> np.ndarray:
    """Return the steps from every item over so many distances, as if no two were alike, (n_items,)."""
    return np.minimum(distances * np.bincount(part.items, minlength=n_items), n_items)


def followers_cost(part: Part, n_items: int, distances: int = len(DISTANCE_WEIGHTS)) -> Cost:
    """Estimate what it takes to count every event once for each distance."""
    return Cost(distances * len(part.items) / STEPS, ENTRY * int(row_sizes(part, n_items, distances).sum()))


@dataclass(frozen=True, kw_only=True)
class MarkovSettings(NetworkSettings):
    """How steps are counted, and how the counts are read."""

    distance_weights: tuple[float, ...] = numbers(DISTANCE_WEIGHTS)
    """Weight of a step from an item to the one right after it, to the second one after it, and so on."""
    history_weights: tuple[float, ...] = numbers(HISTORY_WEIGHTS)
    """Weight of the last event of a history, of the one before it, and so on; a user's state holds as many items."""

    @property
    def title(self) -> str:
        return "Markov"


class MarkovOptions(PresetOptions, total=False):
    """What `Markov` may be made with."""

    distance_weights: Sequence[float]
    history_weights: Sequence[float]


class Markov(CountingModel):
    """Score items by how often they followed the last events; each row is divided by the root of its sum."""

    name = "markov"
    Network = MarkovSettings

    def __init__(self, /, **settings: Unpack[MarkovOptions]) -> None:
        super().__init__(**settings)

    @property
    def settings(self) -> MarkovSettings:
        """Return the settings of counting."""
        assert isinstance(self.config.network, MarkovSettings)
        return self.config.network

    @property
    def weights(self) -> tuple[float, ...]:
        """Return the weight of the last event, of the one before it, and so on."""
        return self.settings.history_weights

    def count(self, items: np.ndarray, offsets: np.ndarray, threads: int | None) -> Table:
        """Count which items follow which."""
        return count_followers(items, offsets, len(self.item_ids), self.settings.distance_weights)

    def row_sizes(self, part: Part, n_items: int) -> np.ndarray:
        """Return the steps from every item, as if no two were alike."""
        return row_sizes(part, n_items, len(self.settings.distance_weights))

    def counting_cost(self, part: Part, n_items: int) -> Cost:
        """Count every event once for each distance."""
        return followers_cost(part, n_items, len(self.settings.distance_weights))
