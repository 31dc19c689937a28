"""Rank for many asks at once; each gets exactly what it would get alone.

Scores are those of `hcarec.topk`, whose bits depend on nothing but the two vectors. Asks share one pass through the
catalogue: hidden and denied items are left out for each ask by itself, and an ask with an allow list has the items of that
list scored and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hcarec.errors import ModelError
from hcarec.serve.serving import NOTHING, Serving
from hcarec.topk import Ragged, pair_scores

SHALLOW = 100
"""Lists up to this length are ranked together; longer ones apart, so that they slow nobody down."""
POOL, LARGEST_POOL = 10, 1000
"""Candidates looked at for variety: so many times the length of the answer, but about this many at most."""

Ranked = tuple[np.ndarray, np.ndarray]
"""Items, best first, and their scores."""


class Wish(NamedTuple):
    """What is to be ranked for one ask: the state's `row`, `items` that come after it, and the rules of the answer.

    `personal` is False where there is nothing to go by: then the popular items are the answer. `hidden` and `allowed` are item indices.
    """

    serving: Serving
    row: bytes | None
    items: np.ndarray
    personal: bool
    k: int
    hidden: np.ndarray = NOTHING
    allowed: np.ndarray | None = None
    variety: float = 0.0

    @property
    def depth(self) -> int:
        """How many of the best items are needed to answer."""
        wanted = max(self.k, min(POOL * self.k, LARGEST_POOL)) if self.variety > 0 else self.k
        return min(wanted, len(self.serving.model.item_ids))


def rank_all(wishes: Sequence[Wish], threads: int | None = None) -> list[Ranked]:
    """Return the answer to every wish; they may be about different models."""
    answers: list[Ranked] = [(NOTHING, np.zeros(0, np.float32))] * len(wishes)
    groups: dict[tuple[int, str], list[int]] = {}
    for place, wish in enumerate(wishes):
        groups.setdefault((id(wish.serving), _way(wish)), []).append(place)
    for (_, way), places in groups.items():
        group = [wishes[place] for place in places]
        found = [wish.serving.popular(wish.depth, wish.hidden, wish.allowed) for wish in group] if way == "popular" else _ranked(group, way, threads)
        for place, wish, ranked in zip(places, group, found, strict=True):
            answers[place] = varied(wish, ranked)
    return answers


def _way(wish: Wish) -> str:
    if not wish.personal or wish.serving.model.basis == "popular":
        return "popular"
    return "listed" if wish.allowed is not None else "shallow" if wish.depth <= SHALLOW else "deep"


def _ranked(wishes: list[Wish], way: str, threads: int | None) -> list[Ranked]:
    model = wishes[0].serving.model
    H = wishes[0].serving.vectors([wish.row for wish in wishes], [wish.items for wish in wishes])
    if way == "listed":
        return _listed(wishes, H, threads)
    depth = max(wish.depth for wish in wishes)
    items, scores = model.top(H, depth, _ragged([wish.hidden for wish in wishes]), None, threads)
    ranked = []
    for n, wish in enumerate(wishes):
        there = items[n, : wish.depth] >= 0
        ranked.append((items[n, : wish.depth][there], scores[n, : wish.depth][there]))
    return ranked


def _listed(wishes: list[Wish], H: np.ndarray, threads: int | None) -> list[Ranked]:
    """Rank only the items of allow lists, with the scores that the whole ranking would give them."""
    model = wishes[0].serving.model
    items, offsets = _ragged([np.setdiff1d(wish.allowed if wish.allowed is not None else NOTHING, wish.hidden) for wish in wishes])
    scores = pair_scores(H, model.item_vectors, items, offsets, threads=threads)
    if np.isnan(scores).any():
        raise ModelError("some scores are not numbers (NaN): the model has diverged, train it again with a lower learning rate")
    ranked = []
    for n, wish in enumerate(wishes):
        own, score = items[offsets[n] : offsets[n + 1]], scores[offsets[n] : offsets[n + 1]]
        best = np.lexsort((model.tie_rank[own], -score))[: wish.depth]
        ranked.append((own[best], score[best]))
    return ranked


def _ragged(lists: Sequence[np.ndarray]) -> Ragged:
    return np.concatenate(lists).astype(np.int32), np.cumsum([0, *map(len, lists)])


def varied(wish: Wish, ranked: Ranked) -> Ranked:
    """Return the k best of the candidates no two of which are nearer than the variety asked for, by cosine distance.

    From the best to the worst, a candidate too near to one taken before is passed over. Where too few are left, the best of
    those passed over fill the answer up. It stays ordered by score.
    """
    items, scores = ranked
    if wish.variety <= 0 or len(items) <= 1:
        return items[: wish.k], scores[: wish.k]
    V = wish.serving.model.item_vectors[items].astype(np.float32)
    V /= np.maximum(np.linalg.norm(V, axis=1, keepdims=True), np.float32(1e-12))
    taken: list[int] = []
    passed: list[int] = []
    for place in range(len(items)):
        if len(taken) == wish.k:
            break
        near = bool(taken) and 1 - float((V[taken] @ V[place]).max()) < wish.variety
        (passed if near else taken).append(place)
    places = sorted([*taken, *passed[: wish.k - len(taken)]])
    return items[places], scores[places]
