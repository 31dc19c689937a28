"""What models that run a network have in common: an engine for the parameters as they are."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from hcarec.models.base import Model
from hcarec.models.engines import Engine
from hcarec.topk import Queries


class NetworkModel(Model):
    """A model whose histories, states and item vectors are those of a network."""

    @abstractmethod
    def make_engine(self) -> Engine:
        """Make what runs the network with the parameters as they are."""

    _engine: Engine | None = None

    @property
    def engine(self) -> Engine:
        """What runs the network with the parameters as they are."""
        if self._engine is None:
            self._engine = self.make_engine()
        return self._engine

    def parameters_changed(self) -> None:
        super().parameters_changed()
        self._engine = None

    # -- what a history means ------------------------------------------------------------------------------------

    @property
    def item_vectors(self) -> np.ndarray:
        """The vectors that scores are products with."""
        return self.engine.item_vectors

    def encode(self, items: np.ndarray, offsets: np.ndarray, users: np.ndarray | None = None, threads: int | None = None) -> Queries:
        """Run the network over each history."""
        return self.engine.encode(items, offsets, threads)

    def attention(self, items: np.ndarray, last: int) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Return a_x and a_h of the last steps, oldest first."""
        return self.engine.attention(items, last)

    # -- one event at a time -------------------------------------------------------------------------------------

    @property
    def state_dtype(self) -> np.dtype[Any]:
        """Return what one more event needs, and the last output."""
        return self.engine.state_dtype

    def start(self, n: int = 1) -> np.ndarray:
        """Return states before the first event."""
        return self.engine.start(n)

    def advance(self, states: np.ndarray, items: np.ndarray, offsets: np.ndarray) -> None:
        """Run the network from each state on."""
        self.engine.advance(states, items, offsets)

    def queries(self, states: np.ndarray) -> Queries:
        """Return what the states are ranked by."""
        return self.engine.queries(states)

    def usable(self, states: np.ndarray) -> np.ndarray:
        """Say which states the network can go on from."""
        return self.engine.usable(states)
