"""What evaluation ranks by: a model's engine on the CPU, or its network in torch on a device."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from hcarec import topk
from hcarec.models import Model
from hcarec.models.network import NetworkModel
from hcarec.topk import WORTH_SCREENING, Catalogue, Queries, Ragged


class Asked(NamedTuple):
    """Users (n,) whose next items are asked for, as packed items.

    `past` is what is known of them, `test` what is to be found; `drawn` has a sampled negative for
    each test item, -1 where there is none. `read` is what of the past a model is given, where that
    is not all of it.
    """

    users: np.ndarray
    past: Ragged
    test: Ragged
    drawn: np.ndarray
    read: Ragged | None = None


class Ranked(NamedTuple):
    """The ranking of some users: `items` (n, k) best first, -1 where there are fewer.

    `test_scores` and `negative_scores` are those of each test item and of its sampled negative, NaN
    where there is none; `below` and `n_negatives` as in `hcarec.topk.Ranking`, if asked for.
    """

    items: np.ndarray
    test_scores: np.ndarray
    negative_scores: np.ndarray
    below: np.ndarray | None
    n_negatives: np.ndarray | None


class Ranker(Protocol):
    """Encodes histories and ranks the whole catalog for them."""

    @property
    def n_items(self) -> int:
        """Return the size of the catalog."""

    def encode(self, items: np.ndarray, offsets: np.ndarray, users: np.ndarray | None = None) -> Queries:
        """Return the queries of histories given as packed items, and of their users where they are known."""

    def rank(self, asked: Asked, k: int, *, hide_seen: bool, exact: bool) -> Ranked:
        """Rank for some users; `exact` counts the negatives that score below each test item."""


def ranker(model: Model, device: str = "cpu", threads: int | None = None) -> Ranker:
    """Return what ranks by a model with its parameters as they are.

    That is its own engine on the CPU, and its network in torch on another device.
    """
    if device == "cpu":
        return ModelRanker(model, threads)
    from hcarec.network_ranker import NetworkRanker

    assert isinstance(model, NetworkModel)  # nothing else is trained or ranked on a device
    return NetworkRanker(model, device, threads)


def warm(device: str) -> None:
    """Compile what ranking on a device needs, or load it compiled."""
    if device == "cpu":
        topk.warm()


class ModelRanker:
    """Ranks by the model's own engine, on the CPU."""

    def __init__(self, model: Model, threads: int | None) -> None:
        self._model, self._threads = model, threads
        self._packed: Catalogue | None = None

    @property
    def n_items(self) -> int:
        return len(self._model.item_ids)

    def encode(self, items: np.ndarray, offsets: np.ndarray, users: np.ndarray | None = None) -> Queries:
        return self._model.encode(items, offsets, users=users, threads=self._threads)

    def rank(self, asked: Asked, k: int, *, hide_seen: bool, exact: bool) -> Ranked:
        model, threads, past, test = self._model, self._threads, asked.past, asked.test
        X = model.item_vectors
        if self._packed is None:
            screened = not exact and len(asked.users) >= WORTH_SCREENING
            self._packed = topk.pack(X, screened=screened)
        H, corrections = self.encode(*(asked.read or past), asked.users)
        how: dict[str, Any] = {"corrections": corrections, "threads": threads}
        counted: dict[str, Any] = {"test": test, "exclude": past} if exact else {}
        found = topk.rank(
            H, X, model.tie_rank, k, hidden=past if hide_seen else None, packed=self._packed,
            by_tie=model.by_tie, **counted, **how,
        )  # fmt: skip
        test_scores = found.test_scores
        if test_scores is None:
            test_scores = topk.pair_scores(H, X, *test, **how)
        drawn_scores = topk.pair_scores(H, X, np.maximum(asked.drawn, 0), test[1], **how)
        negative_scores = np.where(asked.drawn >= 0, drawn_scores, np.nan)
        return Ranked(found.items, test_scores, negative_scores, found.below, found.n_negatives)
