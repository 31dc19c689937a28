from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcarec.data.statistics import Distribution, statistics
from hcarec.ids import Ids
from hcarec.sequences import Sequences

numbers = st.lists(st.integers(0, 3000), min_size=1, max_size=60)


def log(users: list[list[int]], n_items: int = 5, times: list[int] | None = None) -> Sequences:
    return Sequences(
        items=np.array([item for user in users for item in user], np.int32),
        offsets=np.cumsum([0, *map(len, users)]).astype(np.int64),
        user_ids=Ids.of(range(len(users))),
        item_ids=Ids.of(range(n_items)),
        times=None if times is None else np.array(times, np.int64),
        time_unit=None if times is None else "s",
    )


@given(numbers, st.sampled_from([0, 1, 25, 50, 90, 100]))
def test_quantiles(values: list[int], percent: int) -> None:
    found = Distribution.of(np.array(values)).quantile(percent)
    assert found in values
    assert sum(value <= found for value in values) >= percent / 100 * len(values)
    assert found == min(values) or sum(value < found for value in values) < percent / 100 * len(values)


@given(numbers)
def test_gini_is_the_mean_difference_between_pairs(values: list[int]) -> None:
    array = np.array(values, float)
    differences = np.abs(array[:, None] - array[None]).mean()
    expected = differences / (2 * array.mean()) if array.sum() else 0.0
    assert Distribution.of(np.array(values)).gini() == pytest.approx(expected, abs=1e-9)


@given(numbers, st.sampled_from([0.01, 0.1, 0.5, 1.0]))
def test_the_share_of_the_largest(values: list[int], share: float) -> None:
    largest = sorted(values, reverse=True)[: int(np.ceil(share * len(values)))]
    expected = sum(largest) / sum(values) if sum(values) else 0.0
    assert Distribution.of(np.array(values)).top(share) == pytest.approx(expected)


@given(numbers)
def test_bins_hold_everything_and_leave_no_gap(values: list[int]) -> None:
    bins = Distribution.of(np.array(values)).bins()
    assert sum(count for _, _, count in bins) == len(values)
    for low, high, count in bins:
        assert count == sum(low <= value <= high for value in values)
    assert all(before[1] + 1 == after[0] for before, after in pairwise(bins))
    assert bins[0][2] > 0
    assert bins[-1][2] > 0


@given(st.lists(st.lists(st.integers(0, 4), max_size=8), min_size=1, max_size=5))
def test_counts_are_what_a_loop_gives(users: list[list[int]]) -> None:
    figures = statistics(log(users))
    events = sum(map(len, users))
    assert (figures.users, figures.items, figures.events) == (len(users), 5, events)
    assert figures.mean_length == pytest.approx(events / len(users))
    if events:
        repeats = sum(len(user) - len(set(user)) for user in users)
        again = sum(a == b for user in users for a, b in pairwise(user))
        assert figures.repeats == pytest.approx(repeats / events)
        assert figures.consecutive_repeats == pytest.approx(again / events)
    assert figures.lengths.n == len(users)
    assert figures.lengths.total == figures.popularity.total == events
    assert figures.popularity.n == 5


@pytest.mark.parametrize(
    ("users", "items", "events", "mean_length", "sparsity"),
    [(36_986, 267_948, 1_640_433, "44.35", "99.9834"), (65_573, 69_210, 833_646, "12.71", "99.9816")],
)
def test_the_papers_table(users: int, items: int, events: int, mean_length: str, sparsity: str) -> None:
    """The sizes of the paper's Taobao and Outbrain give the figures printed there."""
    offsets = np.linspace(0, events, users + 1).astype(np.int64)
    nameless = [Ids(np.zeros(0, np.uint8), np.zeros(count + 1, np.int64)) for count in (users, items)]
    figures = statistics(Sequences(np.arange(events, dtype=np.int32) % items, offsets, *nameless))
    assert f"{figures.mean_length:.2f}" == mean_length
    assert f"{100 * figures.sparsity:.4f}" == sparsity


def test_sparsity_does_not_fall_below_nothing() -> None:
    assert statistics(log([[0] * 50], n_items=2)).sparsity == 0.0


def test_ties_count_within_a_user_only() -> None:
    figures = statistics(log([[0, 1, 2], [3, 4]], times=[5, 5, 6, 6, 6]))
    assert figures.ties == pytest.approx(2 / 5)
    assert (figures.first_time, figures.last_time) == (5, 6)
    assert statistics(log([[0, 1]])).ties is None


def test_users_without_events_change_no_share() -> None:
    figures = statistics(log([[], [1, 1], [], [1], []], times=[3, 3, 3]))
    assert figures.consecutive_repeats == pytest.approx(1 / 3)
    assert figures.ties == pytest.approx(1 / 3)
    assert figures.repeats == pytest.approx(1 / 3)


@pytest.mark.parametrize("users", [[], [[]], [[1]]])
def test_next_to_nothing_gives_figures_too(users: list[list[int]]) -> None:
    text = json.dumps(statistics(log(users)).as_dict(), allow_nan=False)
    assert json.loads(text)["events"] == sum(map(len, users))
