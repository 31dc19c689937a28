"""What mini-batch training minimizes: cross-entropy, or a loss against sampled items."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from hcarec.ops.hca.copying import trimmed
from hcarec.ops.loss import sampled
from hcarec.ops.loss.torch import cross_entropy
from hcarec.settings import MinibatchSettings

POPULARITY = 0.75
"""Exponent of how often an item occurs, where negatives are drawn by popularity."""


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
        self._chances = torch.from_numpy(weights / weights.sum()).float().to(device)

    @property
    def static(self) -> bool:
        """Say whether the loss takes positions and corrections that do not count, and never waits.

        Then all steps of one shape are the same work for a GPU.
        """
        return self._backend == "triton"

    def __call__(
        self,
        H: Tensor,
        Z: Tensor,
        targets: Tensor,
        corrections: tuple[Tensor, Tensor, Tensor] | None,
    ) -> Tensor:
        """Return the mean loss of queries H (P, d) against item vectors Z (n_items, d)."""
        if corrections is not None and not self.static:
            corrections = trimmed(corrections)
        if self._settings.loss == "cross-entropy":
            return cross_entropy(H, Z, targets, corrections, self._backend, self._threads)
        chances = self._chances if self._settings.sampling == "popularity" else None
        drawn = sampled.draw(self._settings.negatives, chances, self._n_items, self._device)
        found = sampled.scores(H, Z, targets, drawn, corrections)
        if self._settings.loss == "sampled-softmax":
            return sampled.sampled_softmax(found, self._chances[drawn].log())
        return sampled.bpr_max(found) if self._settings.loss == "bpr-max" else sampled.bce(found)
