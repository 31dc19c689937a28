"""BPR: matrix factorization, a vector per user and per item."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Unpack

import numpy as np

from hcarec.models.base import Model
from hcarec.ops.parameters import Trained, initialise
from hcarec.sequences import Sequences
from hcarec.settings import NetworkSettings, UserSGDOptions, UserSGDSettings, whole
from hcarec.topk import Queries, Ragged

OPERATIONS = 3500.0
"""What an event costs, in arithmetic operations of the network's kernels (see benchmarks/train_cpu.py)."""


@dataclass(frozen=True, kw_only=True)
class BPRSettings(NetworkSettings):
    """User and item vectors."""

    d: int = whole(20, 1, 65536)
    """Size of user and item vectors."""

    @property
    def title(self) -> str:
        return "BPR"


class BPROptions(UserSGDOptions, total=False):
    """What `BPR` may be made with."""

    d: int


class BPR(Model):
    """Score by the product of user and item vectors; a bare history gets a user vector fitted to it."""

    name = "bpr"
    Network = BPRSettings
    trainers = ("user-sgd",)

    def __init__(self, /, **settings: Unpack[BPROptions]) -> None:
        super().__init__(**settings)

    @property
    def d(self) -> int:
        """Return the size of the vectors."""
        assert isinstance(self.config.network, BPRSettings)
        return self.config.network.d

    def shapes(self, n_items: int, n_users: int) -> dict[str, tuple[int, ...]]:
        """Return the shapes of user and item vectors."""
        return {"P": (n_users, self.d), "X": (n_items, self.d)}

    def set_catalog(self, data: Sequences, items: np.ndarray) -> None:
        """Take over users too: their vectors belong to them."""
        super().set_catalog(data, items)
        self.user_ids = data.user_ids

    def initialize(self, items: np.ndarray, offsets: np.ndarray, seed: int, threads: int | None = None) -> None:
        """Draw user and item vectors."""
        self.theta = initialise(self.shapes(len(self.item_ids), len(offsets) - 1), seed)

    def train_users(self, items: np.ndarray, offsets: np.ndarray, order: np.ndarray, settings: UserSGDSettings, seed: int, epoch: int) -> Trained:
        """Take one step per user."""
        from hcarec.ops import bpr

        return bpr.train_users(self.theta, items, offsets, order, seed=seed, epoch=epoch, learning_rate=settings.learning_rate, lam=settings.l2)

    def warm_training(self) -> None:
        """Compile the kernel of a step."""
        from hcarec.ops import bpr

        bpr.warm()

    def operations_per_event(self, n_items: int, n_users: int) -> float:
        """Return a constant: it is memory that costs the time."""
        return OPERATIONS

    def complete(self, trained: Ragged, history: Ragged) -> None:
        """Fit vectors to users without a training event: theirs are still as they were drawn."""
        for user in np.flatnonzero((np.diff(trained[1]) == 0) & (np.diff(history[1]) > 0)):
            begin, end = history[1][user : user + 2]
            self.theta["P"][user] = self.encode(history[0][begin:end], np.array([0, end - begin])).vectors[0]

    def encode(self, items: np.ndarray, offsets: np.ndarray, users: np.ndarray | None = None, threads: int | None = None) -> Queries:
        """Return the vectors of known users, or fit one to each history."""
        if users is not None:
            return Queries(self.theta["P"][users])
        from hcarec.ops.bpr import fold_in

        assert isinstance(self.config.training, UserSGDSettings)
        lam, cuts = self.config.training.l2, zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
        return Queries(np.stack([fold_in(self.theta["X"], items[begin:end], lam=lam) for begin, end in cuts]))
