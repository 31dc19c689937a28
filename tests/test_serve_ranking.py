"""Ranking many asks at once: each gets what it would get alone, and variety is as much as asked for, or as much as can be."""

from __future__ import annotations

from functools import cache
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcarec import HCAGRU
from hcarec.errors import ConfigError, DataError, InputError, ModelError
from hcarec.models import Model
from hcarec.recommendation import recommend
from hcarec.serve.asking import check, understand
from hcarec.serve.live import Known
from hcarec.serve.messages import Ask
from hcarec.serve.options import ServiceOptions
from hcarec.serve.people import NOBODY
from hcarec.serve.ranking import Ranked, Wish, rank_all, spread
from hcarec.serve.serving import Serving
from live_models import data, models

KINDS = ["hca-gru", "gru", "bpr", "pop", "random", "markov", "item-knn", "sasrec", "counting"]
VARIED = [name for name in KINDS if name not in ("pop", "markov", "item-knn")]
"""Models whose item vectors have a direction."""
ITEMS = [f"i{n:02}" for n in range(1, 51)]


@cache
def serving(name: str) -> Serving:
    return Serving(models()[name], f"{name:>12}")


LISTS = st.lists(st.sampled_from([*ITEMS, "unknown"]), max_size=8)
ASKS = st.lists(
    st.builds(
        Ask,
        history=LISTS,
        visit=LISTS,
        k=st.sampled_from([1, 3, 10, 49, 50, 10**9]),
        hide_seen=st.booleans(),
        allow=st.none() | st.lists(st.sampled_from([*ITEMS, "unknown"]), max_size=20),
        deny=st.lists(st.sampled_from(ITEMS), max_size=20),
        variety=st.sampled_from([0.0, 0.0, 0.3, 1.0]),
    ),
    min_size=1,
    max_size=6,
)


def wishes(asks: list[Ask], names: list[str]) -> list[Wish]:
    """Return what is ranked for asks of the models in turn; a model that cannot tell items apart is not asked for variety."""
    servings = [serving(names[n % len(names)]) for n in range(len(asks))]
    asked = [ask if one.model.compares_items else ask._replace(variety=0.0) for ask, one in zip(asks, servings, strict=True)]
    return [understand(ask, Known(one, NOBODY)).wish for ask, one in zip(asked, servings, strict=True)]


@pytest.mark.parametrize("name", ["pop", "markov", "item-knn"])
def test_a_model_without_directions_is_not_asked_for_variety(name: str) -> None:
    with pytest.raises(ConfigError, match=r"variety is 0.5, but .* has no item vectors to tell items apart by: leave variety out"):
        understand(Ask(history=ITEMS[:3], variety=0.5), Known(serving(name), NOBODY))


def plain(model: Model, ranked: Ranked) -> list[tuple[Any, float]]:
    return [(found.item, found.score) for found in model.named(ranked.items, ranked.scores, "")]


@given(asks=ASKS, names=st.lists(st.sampled_from(KINDS), min_size=1, max_size=2))
def test_every_ask_gets_what_it_would_get_alone_and_from_python(asks: list[Ask], names: list[str]) -> None:
    together = rank_all(wishes(asks, names), threads=1)
    for wish, ask, ranked in zip(wishes(asks, names), asks, together, strict=True):
        model = wish.serving.model
        alone = rank_all([wish], threads=1)[0]
        assert (plain(model, ranked), ranked.variety) == (plain(model, alone), alone.variety)
        if not wish.variety:
            past = [*(ask.history or ()), *ask.visit]
            right = recommend(model, past, ask.k, hide_seen=ask.hide_seen, allow=ask.allow, deny=ask.deny, threads=1)
            assert plain(model, ranked) == [(found.item, found.score) for found in right]


def distances(vectors: np.ndarray) -> np.ndarray:
    """Return the cosine distances between all vectors, infinite from one to itself; from a vector of zeros, as POP has some, they are 1."""
    X = vectors.astype(np.float64)
    X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-12)
    found: np.ndarray = 1 - X @ X.T
    np.fill_diagonal(found, np.inf)
    return found


def in_turn(D: np.ndarray, k: int, variety: float) -> list[int]:
    """Return, from the best down, up to k that keep the distance from each other."""
    taken: list[int] = []
    for place in range(len(D)):
        if len(taken) < k and all(D[place, other] >= variety for other in taken):
            taken.append(place)
    return taken


@given(
    ask=ASKS.map(lambda asks: asks[0]),
    k=st.sampled_from([1, 3, 8, 9, 10, 15, 30]),  # most leave a choice and are yet too many for the distance
    variety=st.sampled_from([0.05, 0.3, 0.7, 1.0]),
    name=st.sampled_from(["hca-gru", "bpr", "random"]),
)
def test_variety_keeps_a_distance_and_never_shortens(ask: Ask, k: int, variety: float, name: str) -> None:
    ask = ask._replace(k=k)
    off, on = (rank_all(wishes([ask._replace(variety=value)], [name]), threads=1)[0] for value in (0.0, variety))
    assert len(on.items) == len(off.items) == len(set(on.items.tolist()))
    assert (np.diff(on.scores) <= 0).all()
    if not len(on.items):
        return
    assert on.items[0] == off.items[0]  # the best one is always there
    pool = rank_all(wishes([ask._replace(k=max(ask.k, min(10 * ask.k, 1000)), variety=0.0)], [name]), threads=1)[0].items
    D = distances(serving(name).model.item_vectors[pool])
    taken = in_turn(D, ask.k, variety)
    while len(taken) < len(off.items):  # the farthest, and the first of those equally far
        taken.append(max((place for place in range(len(pool)) if place not in taken), key=lambda place: D[place, taken].min()))
    assert on.items.tolist() == pool[sorted(taken)].tolist()


@given(ask=ASKS.map(lambda asks: asks[0]), variety=st.sampled_from([0.0, 0.05, 0.3, 1.0]), name=st.sampled_from(VARIED))
def test_an_answer_says_how_varied_it_is(ask: Ask, variety: float, name: str) -> None:
    found = rank_all(wishes([ask._replace(variety=variety)], [name]), threads=1)[0]
    if variety and len(found.items) > 1:
        assert found.variety == pytest.approx(distances(serving(name).model.item_vectors[found.items]).min(), rel=1e-6, abs=1e-12)
    else:
        assert found.variety is None


@given(n=st.integers(2, 8), d=st.integers(2, 4), k=st.integers(2, 5), variety=st.sampled_from([0.1, 0.5, 1.0]), seed=st.integers(0, 999))
def test_variety_is_reached_or_no_choice_of_the_rest_is_twice_as_far_apart(n: int, d: int, k: int, variety: float, seed: int) -> None:
    """Compare with every way to fill the answer: taking the farthest gives at least half of the greatest least angle."""
    V = np.random.default_rng(seed).standard_normal((n, d))
    D, (places, reached) = distances(V), spread(V, k, variety)
    kept = in_turn(D, k, variety)
    assert set(kept) <= set(places) and len(places) == min(n, k) and reached is not None
    if len(kept) == len(places):
        assert reached >= variety
        return
    fills = combinations([place for place in range(n) if place not in kept], len(places) - len(kept))
    best = max(D[np.ix_(full, full)].min() for full in ([*kept, *fill] for fill in fills))
    assert np.arccos(1 - reached) >= np.arccos(1 - best) / 2 - 1e-9


def test_the_more_variety_is_asked_for_the_more_there_is() -> None:
    """Ask for it among four kinds of items, each of three sorts with twenty items nearly alike, the best all of one sort."""
    V = np.zeros((4, 3, 20, 4, 4))
    for kind, sort in np.ndindex(4, 3):
        V[kind, sort, :, kind] = 0.01 * np.random.default_rng(3 * kind + sort).standard_normal((20, 4))
        V[kind, sort, :, kind, 0] += 1
        V[kind, sort, :, kind, 1 + sort] += 0.5
    V = V.reshape(240, 16)
    for k, most in ((4, 1.0), (12, 0.15), (20, 0.0001)):
        reached = [distances(V[spread(V, k, variety)[0]]).min() for variety in (1e-9, 0.0001, 0.1, 0.5, 1.0)]
        assert reached == sorted(reached) and reached[0] < 0.0001 <= most <= reached[-1], (k, reached)


@pytest.mark.parametrize("seed", range(5))
def test_of_items_equally_far_the_better_one_is_taken(seed: int) -> None:
    kinds = np.random.default_rng(seed).standard_normal((2, 64))
    places, reached = spread(np.repeat(kinds, (50, 153), axis=0), 5, 2.0)  # all of a kind are alike to the last bit
    n = sum(place < 50 for place in places)
    assert places == [*range(n), *range(50, 55 - n)] and 0 < n < 5
    assert reached == pytest.approx(0, abs=1e-12)


def test_asks_that_make_no_sense_are_refused() -> None:
    for ask in (Ask("u", ["i01"]), Ask(k=0), Ask(variety=1.5), Ask(variety=float("nan")), Ask("")):
        with pytest.raises((ConfigError, InputError)):
            check(ask)
    with pytest.raises(ConfigError):
        ServiceOptions(max_batch=0)
    with pytest.raises(ConfigError):
        ServiceOptions(retain_days=0)


@pytest.mark.parametrize("name", KINDS)
def test_similar_items_are_those_of_the_model(name: str) -> None:
    own = serving(name)
    if name == "pop":
        with pytest.raises(ConfigError):
            own.similar("i03", 5)
    else:
        assert own.similar("i03", 5) == models()[name].similar_items("i03", 5)
    with pytest.raises(DataError):
        own.similar("unknown\n", 5)


def test_a_model_that_cannot_answer_is_refused() -> None:
    with pytest.raises(ModelError):
        Serving(HCAGRU(), "0")
    spoiled = HCAGRU(preset="paper", d=6, window_x=3, window_h=2).fit(data(), epochs=0)
    spoiled.theta["X"] = np.full_like(spoiled.theta["X"], np.nan)
    with pytest.raises(ModelError):
        Serving(spoiled, "0")
