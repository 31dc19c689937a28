from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcarec.data.markov import Markov, order_matters
from hcarec.data.synthetic import synthetic
from hcarec.ids import Ids
from hcarec.sequences import Sequences

N_ITEMS = 6
logs = st.lists(st.lists(st.integers(0, N_ITEMS - 1), max_size=10), min_size=1, max_size=5)


def flat(users: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    offsets = np.cumsum([0, *map(len, users)]).astype(np.int64)
    return np.array([item for user in users for item in user], np.int64), offsets


def slow_list(users: list[list[int]], last: int, lag: int) -> list[int]:
    """Rank all items after `last` by counting in loops."""
    steps = [(a, b) for user in users for a, b in zip(user, user[lag:], strict=False)]
    seen = [item for user in users for item in user]
    return sorted(range(N_ITEMS), key=lambda item: (-steps.count((last, item)), -seen.count(item), item))


@given(logs, st.integers(1, 3))
def test_ranks_are_those_of_counting_in_loops(users: list[list[int]], lag: int) -> None:
    model = Markov.fit(*flat(users), N_ITEMS, lag)
    for last in range(N_ITEMS):
        expected = slow_list(users, last, lag)
        assert model.recommend(last, N_ITEMS).tolist() == expected
        assert model.recommend(last, 2).tolist() == expected[:2]
        ranks = model.ranks(np.full(N_ITEMS, last), np.arange(N_ITEMS))
        assert [expected.index(item) + 1 for item in range(N_ITEMS)] == ranks.tolist()


def test_order_matters_where_one_item_leads_to_the_next() -> None:
    found = order_matters(synthetic(users=600, items=300, lag=1, interest=0.7, taste=0.2), seed=1)
    assert found["best"] == 1
    first = found["by_lag"][0]
    assert first["gain"] > 0.3
    assert first["gain"] > 10 * first["error"]
    assert first["gain"] == pytest.approx(first["hit@20"] - first["shuffled"]["hit@20"])
    assert first["mrr"] > first["shuffled"]["mrr"] + 0.3
    assert "tied" not in found


def test_it_looks_several_events_back() -> None:
    found = order_matters(synthetic(users=600, items=300, lag=3, interest=0.6, taste=0.2))
    assert found["best"] == 3
    assert found["by_lag"][2]["gain"] > 0.3
    assert found["by_lag"][0]["gain"] < 0.05


def test_order_does_not_matter_where_there_is_none() -> None:
    """Over many logs without order the gain is nothing, give or take its error."""
    sure = [order_matters(synthetic(users=300, items=200, interest=0, seed=seed), seed)["by_lag"][0] for seed in range(12)]
    assert all(abs(figures["gain"]) < 4 * figures["error"] for figures in sure)
    assert abs(np.mean([figures["gain"] / figures["error"] for figures in sure])) < 1.5


def test_an_order_among_ties_alone_is_told_apart() -> None:
    data = synthetic(users=600, items=300, lag=1, interest=0.7, taste=0.2)
    assert data.times is not None
    tied = Sequences(data.items, data.offsets, data.user_ids, data.item_ids, np.zeros(data.n_events, np.int64), "s")
    found = order_matters(tied)
    assert found["tied"]["gain"] > 0.9 * found["by_lag"][0]["gain"]
    place = np.arange(data.n_events) - np.repeat(data.offsets[:-1], data.lengths)
    rarely = Sequences(data.items, data.offsets, data.user_ids, data.item_ids, place - (place % 50 == 49), "s")
    found = order_matters(rarely)
    assert abs(found["tied"]["gain"]) < 0.1 * found["by_lag"][0]["gain"]


def test_the_same_seed_gives_the_same_answer() -> None:
    data = synthetic(users=200)
    assert order_matters(data, 5) == order_matters(data, 5)
    assert order_matters(data, 5) != order_matters(data, 6)


def test_a_large_log_is_sampled_by_whole_users() -> None:
    data = synthetic(users=1000)
    found = order_matters(data, events=5000)
    assert found["sampled"]
    assert found["events"] <= 5000
    assert 50 < found["users"] < 300
    assert not order_matters(data)["sampled"]


def test_one_endless_user_is_cut() -> None:
    data = synthetic(users=1, mean_length=3000)
    found = order_matters(data, events=500)
    assert found["users"] == 1
    assert found["events"] == 501


@pytest.mark.parametrize("users", [[], [[]], [[0]], [[0, 1], [2]]])
def test_too_short_users_are_left_out(users: list[list[int]]) -> None:
    items, offsets = flat(users)
    data = Sequences(items.astype(np.int32), offsets, Ids.of(range(len(users))), Ids.of(range(N_ITEMS)))
    assert order_matters(data)["users"] == 0
