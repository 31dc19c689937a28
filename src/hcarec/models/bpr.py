"""BPR: matrix factorisation, a vector per user and per item."""

from __future__ import annotations

import numpy as np

from hcarec.models.base import Model
from hcarec.ops.parameters import Trained, initialise
from hcarec.sequences import Sequences
from hcarec.topk import Ragged


class BPR(Model):
    """Score by the product of user and item vectors; a bare history gets a user vector fitted to it."""

    name = "bpr"

    def adopt(self, data: Sequences, items: np.ndarray) -> None:
        """Take over users too: their vectors belong to them."""
        super().adopt(data, items)
        self.user_ids = data.user_ids

    def initialise(self, n_users: int, seed: int) -> None:
        """Draw user and item vectors."""
        self.theta = initialise({"P": (n_users, self.config.d), "X": (len(self.item_ids), self.config.d)}, seed)

    def train_users(self, items: np.ndarray, offsets: np.ndarray, order: np.ndarray, seed: int, epoch: int) -> Trained:
        """Take one step per user."""
        from hcarec.ops import bpr

        return bpr.train_users(self.theta, items, offsets, order, seed=seed, epoch=epoch, learning_rate=self.config.learning_rate, lam=self.config.l2)

    def complete(self, trained: Ragged, history: Ragged) -> None:
        """Fit vectors to users without a training event: theirs are still as they were drawn."""
        for user in np.flatnonzero((np.diff(trained[1]) == 0) & (np.diff(history[1]) > 0)):
            begin, end = history[1][user : user + 2]
            self.theta["P"][user] = self.encode(history[0][begin:end], np.array([0, end - begin]))[0]

    def encode(self, items: np.ndarray, offsets: np.ndarray, users: np.ndarray | None = None, threads: int | None = None) -> np.ndarray:
        """Return the vectors of known users, or fit one to each history."""
        if users is not None:
            return self.theta["P"][users]
        from hcarec.ops.bpr import fold_in

        cuts = zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
        return np.stack([fold_in(self.theta["X"], items[begin:end], lam=self.config.l2) for begin, end in cuts])
