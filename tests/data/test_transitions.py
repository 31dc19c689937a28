from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcarec.data.transitions import count_steps, count_transitions, normalize_rows
from hcarec.tables import Table, check

N_ITEMS = 6
logs = st.lists(st.lists(st.integers(0, N_ITEMS - 1), max_size=10), max_size=5)
weightings = st.lists(st.sampled_from([0.0, 0.1, 0.3, 0.5, 1.0]), min_size=1, max_size=4)


def flat(users: list[list[int]], dtype: type = np.int32) -> tuple[np.ndarray, np.ndarray]:
    offsets = np.cumsum([0, *map(len, users)]).astype(np.int64)
    return np.array([item for user in users for item in user], dtype), offsets


def slow_steps(users: list[list[int]], distance: int) -> Counter[tuple[int, int]]:
    return Counter(
        (user[at], user[at + distance]) for user in users for at in range(len(user) - distance)
    )


def entries(table: Table) -> dict[tuple[int, int], float]:
    rows = np.repeat(np.arange(len(table.indptr) - 1), np.diff(table.indptr)).tolist()
    pairs = zip(rows, table.indices.tolist(), strict=True)
    return dict(zip(pairs, table.values.tolist(), strict=True))


@given(logs, st.integers(1, 12), st.sampled_from([np.int32, np.int64]))
def test_steps_are_those_of_counting_in_loops(
    users: list[list[int]], distance: int, dtype: type
) -> None:
    keys, counts = count_steps(*flat(users, dtype), N_ITEMS, distance)
    expected = sorted(slow_steps(users, distance).items())
    assert keys.tolist() == [before * N_ITEMS + after for (before, after), _ in expected]
    assert counts.tolist() == [count for _, count in expected]
    assert keys.dtype == counts.dtype == np.int64


@given(logs, weightings)
def test_transitions_are_the_weighted_counts(users: list[list[int]], weights: list[float]) -> None:
    table = count_transitions(*flat(users), N_ITEMS, weights)
    expected: dict[tuple[int, int], float] = {}
    for distance, weight in enumerate(weights, 1):
        for pair, count in slow_steps(users, distance).items():
            if weight:
                expected[pair] = expected.get(pair, 0.0) + weight * count
    assert entries(table) == {pair: float(np.float32(sum_)) for pair, sum_ in expected.items()}
    assert check(table, N_ITEMS) is None


@given(logs, weightings, st.integers(1, 9))
def test_pieces_change_nothing(users: list[list[int]], weights: list[float], at_once: int) -> None:
    whole = count_transitions(*flat(users), N_ITEMS, weights)
    pieces = count_transitions(*flat(users), N_ITEMS, weights, at_once=at_once)
    assert all(np.array_equal(a, b) for a, b in zip(whole, pieces, strict=True))


def test_no_step_leads_from_one_user_to_the_next() -> None:
    table = count_transitions(*flat([[0, 1], [], [2], [3, 4, 5]]), N_ITEMS, (1.0, 0.5))
    assert entries(table) == {(0, 1): 1.0, (3, 4): 1.0, (4, 5): 1.0, (3, 5): 0.5}


def test_keys_of_billions_of_items_do_not_overflow() -> None:
    n_items, last = 2**31 - 1, 2**31 - 2
    keys, counts = count_steps(*flat([[last, last, last - 1]]), n_items, 1)
    assert keys.tolist() == [last * n_items + last - 1, last * n_items + last]
    assert counts.tolist() == [1, 1]


def test_millions_of_items() -> None:
    n_items = 3_000_000
    table = count_transitions(
        *flat([[n_items - 1, 0, n_items - 2], [n_items - 1, 0]]), n_items, (1,)
    )
    assert entries(table) == {(n_items - 1, 0): 2.0, (0, n_items - 2): 1.0}
    assert check(table, n_items) is None


def test_an_empty_catalog_gives_an_empty_table() -> None:
    assert check(count_transitions(*flat([]), 0, (1.0,)), 0) is None


@pytest.mark.parametrize("item", [-1, N_ITEMS])
def test_items_outside_the_catalog_are_refused(item: int) -> None:
    with pytest.raises(AssertionError):
        count_transitions(*flat([[0, item]]), N_ITEMS, (1.0,))


@given(logs, weightings)
def test_rows_are_divided_by_the_root_of_their_sum(
    users: list[list[int]], weights: list[float]
) -> None:
    table = count_transitions(*flat(users), N_ITEMS, weights)
    normalized = normalize_rows(table)
    dense = np.zeros((N_ITEMS, N_ITEMS))
    for pair, value in entries(table).items():
        dense[pair] = value
    for (row, item), value in entries(normalized).items():
        assert value == pytest.approx(dense[row, item] / dense[row].sum() ** 0.5, rel=1e-6)
    assert normalized.values.dtype == np.float32
    assert len(normalized.values) == len(table.values)
