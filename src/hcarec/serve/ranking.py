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
from hcarec.topk import Queries, Ragged, pair_scores

SHALLOW = 100
"""Lists up to this length are ranked together; longer ones apart, so that they slow nobody down."""
POOL, LARGEST_POOL = 10, 1000
"""Candidates looked at for variety: so many times the length of the answer, but about this many at most."""

Candidates = tuple[np.ndarray, np.ndarray]
"""Items, best first, and their scores."""


class Ranked(NamedTuple):
    """Items, best first, their scores, and, where variety was asked for, the least cosine distance between two of them."""

    items: np.ndarray
    scores: np.ndarray
    variety: float | None = None


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
    answers = [Ranked(NOTHING, np.zeros(0, np.float32))] * len(wishes)
    groups: dict[tuple[int, str], list[int]] = {}
    for place, wish in enumerate(wishes):
        groups.setdefault((id(wish.serving), _way(wish)), []).append(place)
    for (_, way), places in groups.items():
        group = [wishes[place] for place in places]
        found = [wish.serving.popular(wish.depth, wish.hidden, wish.allowed) for wish in group] if way == "popular" else _ranked(group, way, threads)
        for place, wish, candidates in zip(places, group, found, strict=True):
            answers[place] = varied(wish, candidates)
    return answers


def _way(wish: Wish) -> str:
    if not wish.personal or wish.serving.model.basis == "popular":
        return "popular"
    return "listed" if wish.allowed is not None else "shallow" if wish.depth <= SHALLOW else "deep"


def _ranked(wishes: list[Wish], way: str, threads: int | None) -> list[Candidates]:
    model = wishes[0].serving.model
    queries = wishes[0].serving.queries([wish.row for wish in wishes], [wish.items for wish in wishes])
    if way == "listed":
        return _listed(wishes, queries, threads)
    depth = max(wish.depth for wish in wishes)
    items, scores = model.top(queries, depth, _ragged([wish.hidden for wish in wishes]), None, threads)
    ranked = []
    for n, wish in enumerate(wishes):
        there = items[n, : wish.depth] >= 0
        ranked.append((items[n, : wish.depth][there], scores[n, : wish.depth][there]))
    return ranked


def _listed(wishes: list[Wish], queries: Queries, threads: int | None) -> list[Candidates]:
    """Rank only the items of allow lists, with the scores that the whole ranking would give them."""
    model = wishes[0].serving.model
    items, offsets = _ragged([np.setdiff1d(wish.allowed if wish.allowed is not None else NOTHING, wish.hidden) for wish in wishes])
    scores = pair_scores(queries.vectors, model.item_vectors, items, offsets, corrections=queries.corrections, threads=threads)
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


def varied(wish: Wish, candidates: Candidates) -> Ranked:
    """Return the k best of the candidates, or, where variety is asked for, the k that `spread` finds; always ordered by score."""
    items, scores = candidates
    if wish.variety <= 0 or not len(items):
        return Ranked(items[: wish.k], scores[: wish.k])
    places, least = spread(wish.serving.model.item_vectors[items], wish.k, wish.variety)
    return Ranked(items[places], scores[places], least)


def spread(vectors: np.ndarray, k: int, variety: float) -> tuple[list[int], float | None]:
    """Return the places of k of the vectors (n, d), best first, and the least cosine distance between two of them; None for fewer than two.

    One after another the best of those is taken that keep the distance `variety` from all taken before; where none does, the farthest
    from them, and among equals the best.
    """
    V = vectors.astype(np.float64)
    V /= np.maximum(np.linalg.norm(V, axis=1, keepdims=True), 1e-12)
    distance, least = np.full(len(V), np.inf), np.inf  # from each vector to the nearest one taken; between two that are taken
    taken: list[int] = []
    for _ in range(min(k, len(V))):
        place = int(np.argmax(np.minimum(distance, variety)))  # farther than asked for is no better: the first of them is
        least = min(least, float(distance[place]))
        taken.append(place)
        np.minimum(distance, 1 - np.vecdot(V, V[place]), out=distance)  # not `@`, whose bits depend on where in V a vector stands
        distance[place] = -np.inf
    return sorted(taken), max(least, 0.0) if len(taken) > 1 else None
