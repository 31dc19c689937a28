from __future__ import annotations

import numpy as np
import pytest

from hcarec.data.markov import Markov
from hcarec.data.statistics import statistics
from hcarec.data.synthetic import synthetic
from hcarec.errors import ConfigError
from hcarec.sequences import Sequences


def first_guess(data: Sequences, lag: int) -> float:
    """Return how often what most often follows the item `lag` back is the next item."""
    model = Markov.fit(data.items.astype(np.int64), data.offsets, data.n_items, lag)
    place = np.arange(data.n_events) - np.repeat(data.offsets[:-1], data.lengths)
    later = np.flatnonzero(place >= lag)
    return float((model.ranks(data.items[later - lag], data.items[later]) == 1).mean())


def test_the_same_seed_gives_the_same_log() -> None:
    assert synthetic(users=50, seed=3).fingerprint == synthetic(users=50, seed=3).fingerprint
    assert synthetic(users=50, seed=3).fingerprint != synthetic(users=50, seed=4).fingerprint


def test_sizes_are_as_asked() -> None:
    data = synthetic(users=3000, items=500, mean_length=30)
    assert (data.n_users, data.n_items) == (3000, 500)
    assert data.items.dtype == np.int32
    assert 0 <= data.items.min() <= data.items.max() < 500
    assert data.lengths.min() >= 1
    assert data.lengths.mean() == pytest.approx(30, rel=0.1)


@pytest.mark.parametrize("lag", [1, 2, 3, 4])
def test_the_item_lag_back_decides_and_no_other(lag: int) -> None:
    data = synthetic(users=2000, items=500, interest=0.6, taste=0.2, lag=lag)
    for other in range(1, 6):
        found = first_guess(data, other)
        if other % lag:
            assert found < 0.15
        else:  # a chain of successors: with a lag of 2, the item 4 back decides where two steps in a row followed
            assert found == pytest.approx(0.6 ** (other // lag), abs=0.08)


def test_without_interest_no_item_decides() -> None:
    data = synthetic(interest=0)
    assert max(first_guess(data, lag) for lag in range(1, 6)) < 0.15


def test_taste_draws_users_to_groups() -> None:
    def in_two_groups(taste: float) -> float:
        data = synthetic(users=500, interest=0, taste=taste, repeats=0)
        kind = np.array([title.split()[2] for title in data.titles.texts()])  # type: ignore[union-attr]
        shares = [np.sort(np.unique(kind[items], return_counts=True)[1])[-2:].sum() / len(items) for items in data]
        return float(np.mean(shares))

    assert in_two_groups(0.9) > in_two_groups(0.5) + 0.2 > in_two_groups(0.0) + 0.4


def test_zipf_bends_popularity() -> None:
    gini = [statistics(synthetic(zipf=zipf, interest=0, taste=0)).popularity.gini() for zipf in (0.0, 0.7, 1.4)]
    assert gini[0] < 0.15 < gini[1] < gini[2]


def test_repeats_are_those_asked_for_where_nothing_else_leads_back() -> None:
    for asked in (0.0, 0.2, 0.4):
        found = statistics(synthetic(items=5000, interest=0, repeats=asked)).repeats
        assert found == pytest.approx(asked, abs=0.04)


def test_times_rise_and_look_like_a_clock() -> None:
    data = synthetic(users=300)
    assert data.times is not None
    gaps = np.diff(data.times)
    gaps[data.offsets[1:-1] - 1] = 1
    assert gaps.min() >= 1
    assert data.time_unit == "s"
    assert data.times.min() >= 1_704_067_200


def test_items_have_names_of_their_own() -> None:
    data = synthetic(users=5, items=30_000)
    assert data.titles is not None
    names = list(data.titles.texts())
    assert len(set(names)) == 30_000
    assert all(len(name.split()) in (3, 4) for name in names)


@pytest.mark.parametrize(("users", "items", "mean_length"), [(1, 1, 1), (1, 2, 300), (40, 1, 5), (3, 10_000, 1)])
def test_odd_sizes_work(users: int, items: int, mean_length: float) -> None:
    data = synthetic(users=users, items=items, mean_length=mean_length)
    assert (data.n_users, data.n_items) == (users, items)
    assert data.n_events == data.offsets[-1] == len(data.times)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "knobs",
    [{"users": 0}, {"items": 0}, {"lag": 0}, {"mean_length": 0.5}, {"mean_length": float("nan")}, {"zipf": -1}, {"taste": 0.8}, {"repeats": -0.1}],
)
def test_knobs_that_make_no_sense(knobs: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(knobs))):
        synthetic(**knobs)  # type: ignore[arg-type]


def test_all_shares_may_be_taken() -> None:
    data = synthetic(users=200, taste=0.0, interest=1.0, repeats=0.0, lag=2)
    assert first_guess(data, 2) > 0.99
