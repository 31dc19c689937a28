"""HCA-GRU: a GRU with attention over the last inputs and the last hidden states."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from hcarec.models.base import Model
from hcarec.ops.parameters import State, Trained, initialise, shapes


class HCAGRU(Model):
    """The paper's network; `window_x` or `window_h` of 1 turns that level off."""

    name = "hca-gru"

    @property
    def windows(self) -> tuple[int, int]:
        """Return w_x and w_h."""
        return self.config.window_x, self.config.window_h

    def initialise(self, n_users: int, seed: int) -> None:
        """Draw all parameters."""
        self.theta = initialise(shapes(len(self.item_ids), self.config.d, *self.windows), seed)

    def train_users(self, items: np.ndarray, offsets: np.ndarray, order: np.ndarray, seed: int, epoch: int) -> Trained:
        """Take one step per user."""
        from hcarec.ops import cpu

        w_x, w_h = self.windows
        return cpu.train_users(
            self.theta, items, offsets, order, seed=seed, epoch=epoch, learning_rate=self.config.learning_rate, lam=self.config.l2, w_x=w_x, w_h=w_h
        )

    def encode(self, items: np.ndarray, offsets: np.ndarray, users: np.ndarray | None = None, threads: int | None = None) -> np.ndarray:
        """Run the network over each history and return its last overall interest."""
        from hcarec.ops import cpu

        return cpu.encode(self.theta, items, offsets, *self.windows, threads=threads or os.cpu_count() or 1)

    # -- one event at a time -------------------------------------------------------------------------------------

    def start(self) -> State:
        """Return the state before the first event."""
        from hcarec.ops import cpu

        return State(*(field[0] for field in cpu.start(1, self.config.d, *self.windows)))

    def step(self, state: State, item: int) -> tuple[State, np.ndarray]:
        """Take in one event (an item index): return the new state and the overall interest (d,), at a cost that does not depend on the history."""
        from hcarec.ops import cpu

        return cpu.step(self.theta, state, item, *self.windows)

    def state_of(self, items: Sequence[int] | np.ndarray) -> tuple[State, np.ndarray]:
        """Return the state and the overall interest after a history of item indices."""
        from hcarec.ops import cpu

        states, interest = cpu.encode_states(self.theta, np.asarray(items, np.int32), np.array([0, len(items)]), *self.windows)
        return State(*(field[0] for field in states)), interest[0]
