"""Markov and ItemKNN against their definitions, written out plainly."""

from __future__ import annotations

from collections import defaultdict
from math import sqrt

import numpy as np
import pytest

from hcarec import ItemKNN, Markov, Sequences, synthetic, train
from hcarec.errors import ConfigError
from hcarec.models.counting import TIE_BREAKER
from hcarec.topk import pair_scores


@pytest.fixture(scope="module")
def data() -> Sequences:
    return synthetic(users=70, items=40, mean_length=15, seed=5)


def all_scores(model: Markov | ItemKNN, history: list[int]) -> np.ndarray:
    """Return the scores of all items after a history, as ranking sees them."""
    n = len(model.item_ids)
    queries = model.encode(np.array(history, np.int32), np.array([0, len(history)]))
    items = np.arange(n, dtype=np.int32), np.array([0, n])
    return pair_scores(queries.vectors, model.item_vectors, *items, corrections=queries.corrections)


def popularity(data: Sequences) -> np.ndarray:
    counts = np.bincount(data.items, minlength=data.n_items)
    return TIE_BREAKER * counts / counts.max()


def test_markov_counts_what_follows_what(data: Sequences) -> None:
    counts: dict[int, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for items in data:
        for n, item in enumerate(items.tolist()):
            for distance, weight in ((1, 1.0), (2, 0.5), (3, 0.3), (4, 0.2), (5, 0.1)):
                if n + distance < len(items):
                    counts[item][int(items[n + distance])] += weight
    model = Markov().fit(data)
    for user in range(12):
        history = data[user].tolist()
        expected = popularity(data)
        for item, weight in zip(reversed(history), (1, 0.5, 0.3, 0.2, 0.1), strict=False):
            for other, count in counts[item].items():
                expected[other] += weight * count / sqrt(sum(counts[item].values()))
        np.testing.assert_allclose(all_scores(model, history), expected, rtol=1e-5, atol=1e-9)


def test_item_knn_adds_the_similarity_to_the_last_events(data: Sequences) -> None:
    users: dict[int, set[int]] = defaultdict(set)
    for user, items in enumerate(data):
        for item in items.tolist():
            users[item].add(user)

    def similarity(a: int, b: int) -> float:
        return len(users[a] & users[b]) / (sqrt(len(users[a]) * len(users[b])) + 2.5)

    model = ItemKNN(neighbors=7, shrinkage=2.5, history=4, decay=0.6).fit(data)
    for user in range(12):
        history = data[user].tolist()
        expected = popularity(data)
        for age, item in enumerate(reversed(history[-4:])):
            others = [other for other in range(data.n_items) if other != item]
            others = [other for other in others if users[item] & users[other]]
            nearest = sorted(others, key=lambda other: (-similarity(item, other), other))[:7]
            for other in nearest:
                expected[other] += 0.6**age * similarity(item, other)
        np.testing.assert_allclose(all_scores(model, history), expected, rtol=1e-5, atol=1e-9)


def test_popularity_decides_where_the_table_says_nothing(data: Sequences) -> None:
    model = Markov().fit(data)
    found = model.recommend([data.item_ids[3]], k=data.n_items)
    followed = {int(item) for item in model.similar(3, data.n_items)[0]} | {3}
    rest = [data.item_ids.find(one.item) for one in found]
    rest = [item for item in rest if item not in followed]
    assert len(rest) > 3
    assert (np.diff(model.item_events[rest]) <= 0).all()


def test_both_find_the_order_of_a_log_that_has_one() -> None:
    """Where the next event follows from the last one, counting beats what is popular by far."""
    log = synthetic(users=400, items=60, mean_length=20, interest=0.9, taste=0.05, lag=1, seed=2)
    figures = {
        name: train(log, model=name, compare=False).about["metrics"]["ndcg@10"]
        for name in ("pop", "markov", "item-knn")
    }
    assert figures["markov"] > 2 * figures["pop"]
    assert figures["item-knn"] > 1.2 * figures["pop"]


@pytest.mark.parametrize("given", ["", "a,b", [], [-1.0], None, [[1.0]]])
def test_weights_that_make_no_sense(given: object) -> None:
    with pytest.raises(
        ConfigError, match=r"history_weights is .*: give 1 to 1,000 numbers, .* such as 1,0.5"
    ):
        Markov(history_weights=given)  # type: ignore[arg-type]


def test_weights_are_given_as_text_or_numbers() -> None:
    for given in ("1, 0.5", [1, 0.5], (1.0, 0.5)):
        assert Markov(history_weights=given).weights == (1.0, 0.5)  # type: ignore[arg-type]
    assert Markov(history_weights=2).weights == (2.0,)  # type: ignore[arg-type]
