"""What models that run a network have in common: an engine for the parameters as they are."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from hcarec.data.split import Part
from hcarec.hardware import Cost
from hcarec.models.base import Model
from hcarec.models.counting import pack_items
from hcarec.models.counting_term import FLOOR, LAST, MOST_ENTRIES, NAMES, SCALE, CountingTerm, count_table
from hcarec.models.engines import Engine
from hcarec.models.markov import followers_cost, row_sizes
from hcarec.ops.parameters import Theta
from hcarec.sequences import Sequences
from hcarec.topk import Queries, Ragged


def has_counting(model: Model) -> bool:
    """Say whether a model is a network with the counting term."""
    return isinstance(model, NetworkModel) and bool(model.settings.counting)


class NetworkModel(Model):
    """A model whose histories, states and item vectors are those of a network.

    With the setting `counting`, the network trains alone; `complete` then counts the table of the counting term.
    """

    counting_term: CountingTerm | None = None
    """The term that joins the scores; None where the setting is off, and while the network trains."""
    scale_and_floor: tuple[float, float] = SCALE, FLOOR
    """What the term is made with when it is counted."""

    @property
    @abstractmethod
    def settings(self) -> Any:
        """Return the settings of the network."""

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

    # -- the counting term -----------------------------------------------------------------------------------------

    def set_catalog(self, data: Sequences, items: np.ndarray) -> None:
        """Take over the catalog of a data set; a table of another one is dropped."""
        super().set_catalog(data, items)
        self.counting_term = None

    def complete(self, trained: Ragged, history: Ragged) -> None:
        """Count the table on all that a prediction may start from."""
        if self.settings.counting:
            self.counting_term = CountingTerm(count_table(*history, len(self.item_ids)), *self.scale_and_floor)

    def counting_cost(self, part: Part, n_items: int) -> Cost:
        """Estimate what it takes to count the table."""
        return followers_cost(part, n_items) if self.settings.counting else Cost(0.0, 0)

    def corrected_items(self, part: Part, n_items: int) -> float:
        """Take every event as an item whose row is read."""
        if not self.settings.counting or not len(part.items):
            return 0.0
        return LAST * float(np.minimum(row_sizes(part, n_items), MOST_ENTRIES)[part.items].mean())

    @property
    def tensors(self) -> Theta:
        """Return the parameters of the network, and the counting term."""
        return self.theta | (self.counting_term.tensors if self.counting_term is not None else {})

    def set_tensors(self, tensors: Theta) -> None:
        """Take over what a folder holds."""
        self.theta = tensors
        if self.settings.counting:
            self.counting_term = CountingTerm.of(tensors, len(self.item_ids))
            self.theta = {name: array for name, array in tensors.items() if name not in NAMES}

    # -- what a history means ------------------------------------------------------------------------------------

    @property
    def item_vectors(self) -> np.ndarray:
        """The vectors that scores are products with."""
        return self.engine.item_vectors

    def encode(self, items: np.ndarray, offsets: np.ndarray, users: np.ndarray | None = None, threads: int | None = None) -> Queries:
        """Run the network over each history; add the counting term."""
        queries = self.engine.encode(items, offsets, threads)
        return queries if self.counting_term is None else self.counting_term.add(queries, (items, offsets), threads)

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
        queries = self.engine.queries(states)
        return queries if self.counting_term is None else self.counting_term.add(queries, pack_items(states["items"][:, -LAST:]))

    def usable(self, states: np.ndarray) -> np.ndarray:
        """Say which states the network can go on from."""
        return self.engine.usable(states)
