"""What mini-batch training minimizes: cross-entropy, or a loss against sampled items."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hcarec.ops.hca.copying import trimmed
from hcarec.ops.loss import sampled
from hcarec.ops.loss.torch import cross_entropy
from hcarec.settings import MinibatchSettings

POPULARITY = 0.75
"""Exponent of how often an item occurs, where negatives are drawn by popularity."""


class Negatives(NamedTuple):
    """Items that were drawn (K,), ascending, and the log of the chance of each to be among them.

    Those of sampled softmax are distinct; the other losses draw some twice, and need no chances.
    """

    items: Tensor
    log_chances: Tensor


class Objective:
    """The mean loss over positions; negatives are drawn by torch's random numbers, per call."""

    def __init__(
        self,
        settings: MinibatchSettings,
        item_events: np.ndarray,
        device: torch.device,
        threads: int,
        backend: str | None,
    ) -> None:
        """`backend` computes cross-entropy; None for other losses."""
        assert settings.loss != "auto", "the plan has not chosen the loss"
        self._settings, self._n_items = settings, len(item_events)
        self._device, self._threads, self._backend = device, threads, backend
        weights = np.ones(len(item_events))
        if settings.sampling == "popularity":
            weights = np.maximum(item_events, 1).astype(np.float64) ** POPULARITY
        chances = weights / weights.sum()
        among = 1 - (1 - chances) ** settings.negatives
        self._chances = torch.from_numpy(chances).float().to(device)
        self._log_chances = torch.from_numpy(np.log(among)).float().to(device)

    @property
    def static(self) -> bool:
        """Say whether the loss takes positions and corrections that do not count, and never waits.

        Then all steps of one shape are the same work for a GPU.
        """
        return self._backend == "triton"

    def draw(self) -> Negatives | None:
        """Draw what a batch is scored against; None for the whole catalog."""
        if self._settings.loss == "cross-entropy":
            return None
        chances = self._chances if self._settings.sampling == "popularity" else None
        drawn = sampled.draw(self._settings.negatives, chances, self._n_items, self._device)
        if self._settings.loss == "sampled-softmax":
            drawn = torch.unique_consecutive(drawn)
        return Negatives(drawn, self._log_chances[drawn])

    def __call__(
        self,
        H: Tensor,
        Z: Tensor,
        targets: Tensor,
        corrections: tuple[Tensor, Tensor, Tensor] | None,
        negatives: Negatives | None,
    ) -> Tensor:
        """Return the mean loss of queries H (P, d); all items are numbers of rows of Z (n, d)."""
        if corrections is not None and not self.static:
            corrections = trimmed(corrections)
        if negatives is None:
            return cross_entropy(H, Z, targets, corrections, self._backend, self._threads)
        if self._settings.loss == "sampled-softmax":
            return sampled.sampled_softmax(H, Z, targets, *negatives, corrections, self._threads)
        found = sampled.scores(H, Z, targets, negatives.items, corrections)
        return sampled.bpr_max(found) if self._settings.loss == "bpr-max" else sampled.bce(found)


def narrow(items: Tensor, targets: Tensor, drawn: Tensor) -> tuple[Tensor, ...]:
    """Number the items of a batch (B, T), its targets (P,) and what was drawn (K,) anew.

    Return the items that occur, ascending, and all three by their places among them: so the batch
    reads and learns a few rows of the item vectors, not all.
    """
    together = torch.cat([items.flatten(), targets, drawn])
    occurring, places = torch.unique(together, return_inverse=True)
    of_items, *others = places.split([items.numel(), len(targets), len(drawn)])
    return occurring, of_items.view_as(items), *others
