from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from hcarec.ops.tables import nearest, nearest_items, rows, sum_rows
from hcarec.tables import Table, check

N_ITEMS = 8
logs = st.lists(st.lists(st.integers(0, N_ITEMS - 1), max_size=12), max_size=6)
numbers = st.integers(0, 2**32)


def flat(users: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    offsets = np.cumsum([0, *map(len, users)]).astype(np.int64)
    return np.array([item for user in users for item in user], np.int32), offsets


def random_log(rng: np.random.Generator, n_users: int, n_items: int) -> list[list[int]]:
    """A log with popular items and users of very different lengths."""
    lengths = rng.geometric(0.1, n_users) - 1
    return [(n_items * rng.random(length) ** 2).astype(int).tolist() for length in lengths]


def random_table(rng: np.random.Generator, n_items: int, density: float) -> Table:
    dense = rng.random((n_items, n_items), np.float32) * (rng.random((n_items, n_items)) < density)
    return from_dense(dense)


def from_dense(dense: np.ndarray) -> Table:
    matrix = sparse.csr_array(dense)
    return Table(
        matrix.indptr.astype(np.int64),
        matrix.indices.astype(np.int32),
        matrix.data.astype(np.float32),
    )


def same(a: tuple[np.ndarray, ...], b: tuple[np.ndarray, ...]) -> bool:
    return all(x.dtype == y.dtype and x.tobytes() == y.tobytes() for x, y in zip(a, b, strict=True))


def slow_sums(table: Table, user: list[int], weights: np.ndarray) -> dict[int, np.float32]:
    sums: dict[int, np.float32] = {}
    for item, weight in zip(reversed(user), weights, strict=False):
        for at in range(table.indptr[item], table.indptr[item + 1]):
            other, value = int(table.indices[at]), weight * table.values[at]
            sums[other] = sums[other] + value if other in sums else value
    return dict(sorted(sums.items()))


@given(logs, numbers, st.integers(0, 6), st.sampled_from([0.0, 0.2, 0.7, 1.0]))
def test_sums_are_those_of_loops_to_the_last_bit(
    users: list[list[int]], seed: int, n_weights: int, density: float
) -> None:
    rng = np.random.default_rng(seed)
    table, weights = random_table(rng, N_ITEMS, density), rng.random(n_weights, np.float32)
    items, offsets, values = sum_rows(table, *flat(users), weights)
    assert (items.dtype, offsets.dtype, values.dtype) == (np.int32, np.int64, np.float32)
    assert len(offsets) == len(users) + 1
    for user, (begin, end) in enumerate(pairwise(offsets)):
        expected = slow_sums(table, users[user], weights)
        assert items[begin:end].tolist() == list(expected)
        assert values[begin:end].tolist() == [float(value) for value in expected.values()]


def test_the_newest_event_has_the_first_weight() -> None:
    table = from_dense(np.eye(4, dtype=np.float32))
    found = sum_rows(table, *flat([[0, 1, 2, 3], [3], []]), [1.0, 0.5])
    assert [part.tolist() for part in found] == [[2, 3, 3], [0, 2, 3, 3], [0.5, 1.0, 1.0]]


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_chunks_threads_and_batches_do_not_change_a_sum(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    rng = np.random.default_rng(5)
    users, table = random_log(rng, 60, 50), random_table(rng, 50, 0.3)
    weights = rng.random(5, np.float32)
    whole = sum_rows(table, *flat(users), weights, threads=1)
    monkeypatch.setattr(rows, "_ENTRIES", size)
    assert all(same(whole, sum_rows(table, *flat(users), weights, threads=n)) for n in (1, 2, 5))
    for user, history in enumerate(users):
        begin, end = whole[1][user : user + 2]
        alone = sum_rows(table, *flat([history]), weights)
        assert same((alone[0], alone[2]), (whole[0][begin:end], whole[2][begin:end]))


@pytest.mark.parametrize("item", [-1, N_ITEMS, 2**32])
def test_items_outside_the_table_never_reach_a_kernel(
    monkeypatch: pytest.MonkeyPatch, item: int
) -> None:
    def never(*arguments: object) -> None:
        pytest.fail("a kernel was asked for")

    monkeypatch.setattr(rows, "_kernel", never)
    monkeypatch.setattr(nearest, "distinct_items", never)
    items, offsets = np.array([0, item, 1]), np.array([0, 3])
    with pytest.raises(AssertionError, match="outside"):
        sum_rows(from_dense(np.eye(N_ITEMS)), items, offsets, [1.0])
    with pytest.raises(AssertionError, match="outside"):
        nearest_items(items, offsets, N_ITEMS, 3, 1.0, 10)


@pytest.mark.parametrize("offsets", [[1, 3], [0, 2], [0, 4], [0, 3, 1, 3]])
def test_offsets_that_do_not_fit_are_refused(offsets: list[int]) -> None:
    with pytest.raises(AssertionError):
        sum_rows(from_dense(np.eye(N_ITEMS)), np.array([0, 1, 2]), np.array(offsets), [1.0])


def latest_distinct(user: list[int], longest: int) -> list[int]:
    return list(dict.fromkeys(reversed(user)))[:longest]


def slow_neighbors(
    users: list[list[int]], n_items: int, neighbors: int, shrinkage: float, longest: int
) -> list[dict[int, float]]:
    """Sort the whole row of a dense matrix of similarities."""
    has = np.zeros((len(users), n_items))
    for user, history in enumerate(users):
        has[user, latest_distinct(history, longest)] = 1
    shared, count = has.T @ has, has.sum(axis=0)
    table = []
    for i in range(n_items):
        similar = {
            j: shared[i, j] / (np.sqrt(count[i] * count[j]) + shrinkage)
            for j in range(n_items)
            if j != i and shared[i, j]
        }
        best = sorted(similar, key=lambda j: (-similar[j], j))[:neighbors]
        table.append({j: float(np.float32(similar[j])) for j in sorted(best)})
    return table


def as_dicts(table: Table) -> list[dict[int, float]]:
    bounds = pairwise(table.indptr)
    return [
        dict(zip(table.indices[a:b].tolist(), table.values[a:b].tolist(), strict=True))
        for a, b in bounds
    ]


@given(logs, st.integers(1, 9), st.sampled_from([0.0, 0.5, 10.0]), st.integers(1, 9))
def test_neighbors_are_those_of_sorting_the_whole_row(
    users: list[list[int]], neighbors: int, shrinkage: float, longest: int
) -> None:
    table = nearest_items(*flat(users), N_ITEMS, neighbors, shrinkage, longest)
    assert as_dicts(table) == slow_neighbors(users, N_ITEMS, neighbors, shrinkage, longest)
    assert check(table, N_ITEMS) is None


@settings(max_examples=15)
@given(numbers, st.sampled_from([1, 2, 3, 16, 17, 40]), st.sampled_from([3, 1000]))
def test_neighbors_of_a_larger_log(seed: int, neighbors: int, longest: int) -> None:
    users = random_log(np.random.default_rng(seed), 80, 70)
    table = nearest_items(*flat(users), 70, neighbors, 2.0, longest)
    assert as_dicts(table) == slow_neighbors(users, 70, neighbors, 2.0, longest)


def test_the_latest_distinct_items_of_a_long_user_count() -> None:
    table = nearest_items(*flat([[0, 1, 2, 1, 3]]), 4, 3, 0.0, 2)
    assert as_dicts(table) == [{}, {3: 1.0}, {}, {1: 1.0}]


def test_equal_neighbors_stand_by_index() -> None:
    table = nearest_items(*flat([[5, 4, 3, 2, 1, 0]]), 6, 2, 1.0, 100)
    assert [list(row) for row in as_dicts(table)] == [[1, 2], [0, 2], *[[0, 1]] * 4]


@pytest.mark.parametrize("size", [1, 50, 10_000])
def test_chunks_and_threads_do_not_change_the_neighbors(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    log = flat(random_log(np.random.default_rng(3), 150, 90))
    whole = nearest_items(*log, 90, 7, 3.0, 1000, threads=1)
    monkeypatch.setattr(nearest, "_WORK", size)
    assert all(same(whole, nearest_items(*log, 90, 7, 3.0, 1000, threads=n)) for n in (1, 2, 5))


@pytest.mark.parametrize("n_items", [0, 1])
def test_a_catalog_without_neighbors_gives_an_empty_table(n_items: int) -> None:
    log = flat([[0] * n_items, []])
    table = nearest_items(*log, n_items, 5, 0.0, 10)
    assert check(table, n_items) is None
    assert [part.tolist() for part in sum_rows(table, *log, [1.0])] == [[], [0, 0, 0], []]
    assert sum_rows(table, *flat([]), [1.0])[1].tolist() == [0]


def test_millions_of_items() -> None:
    n_items = 3_000_000
    log = flat([[n_items - 1, 0, n_items - 1], [0, n_items - 1], [7]])
    table = nearest_items(*log, n_items, 100, 1.0, 1000)
    assert check(table, n_items) is None
    assert table.indices.tolist() == [n_items - 1, 0]
    assert table.values.tolist() == pytest.approx([2 / 3, 2 / 3])
    found = sum_rows(table, *log, [1.0])
    assert [part.tolist() for part in found[:2]] == [[0, 0], [0, 1, 2, 2]]


def test_mapped_logs_and_tables_are_only_read() -> None:
    items, offsets = flat([[0, 1, 2], [2, 1]])
    items.flags.writeable = offsets.flags.writeable = False
    table = nearest_items(items, offsets, 3, 2, 1.0, 10)
    for array in table:
        array.flags.writeable = False
    assert len(sum_rows(table, items, offsets, [1.0, 0.5])[1]) == 3


def with_part(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Table:
    table = Table(np.array([0, 2, 2, 4]), np.array([0, 2, 0, 1], np.int32), np.ones(4, np.float32))
    return table._replace(**{name: change(getattr(table, name).copy())})


def test_a_good_table_passes() -> None:
    assert check(with_part("values", lambda a: a), 3) is None
    empty = Table(np.zeros(4, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32))
    assert check(empty, 3) is None
    assert check(Table(np.zeros(1, np.int64), *empty[1:]), 0) is None


HUGE = np.iinfo(np.int64).min


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("indptr", lambda a: a.astype(np.int32), "indptr is int32"),
        ("indptr", lambda a: a.astype(">i8"), "indptr is >i8"),
        ("indptr", lambda a: a[:, None], "with shape (4, 1), expected int64"),
        ("indptr", lambda a: a[:0], "indptr has 0 entries, expected 4"),
        ("indptr", lambda a: a[:-1], "indptr has 3 entries, expected 4"),
        ("indptr", lambda a: np.array([1, 2, 2, 4]), "from 1 to 4, expected 0 to 4"),
        ("indptr", lambda a: np.array([0, 2, 2, 3]), "from 0 to 3, expected 0 to 4"),
        ("indptr", lambda a: np.array([0, 2, 2, 5]), "from 0 to 5, expected 0 to 4"),
        ("indptr", lambda a: np.array([0, 3, 2, 4]), "descends after row 1"),
        ("indptr", lambda a: np.array([0, HUGE, -HUGE - 1, 4]), "descends after row 0"),
        ("indptr", lambda a: np.array([0, 0, 3, 4]), "row 1 do not ascend"),
        ("indices", lambda a: a.astype(np.int64), "indices is int64"),
        ("indices", lambda a: a[:-1], "3 indices and 4 values"),
        ("indices", lambda a: np.array([0, 3, 0, 1], np.int32), "index 3 is outside the 3"),
        ("indices", lambda a: np.array([-1, 2, 0, 1], np.int32), "index -1 is outside the 3"),
        ("indices", lambda a: np.array([0, 2, 1, 1], np.int32), "row 2 do not ascend"),
        ("indices", lambda a: np.array([2, 0, 0, 1], np.int32), "row 0 do not ascend"),
        ("values", lambda a: a.astype(np.float64), "values is float64"),
        ("values", lambda a: a * np.float32(np.nan), "value 0 is nan"),
        ("values", lambda a: np.array([1, 1, np.inf, 1], np.float32), "value 2 is inf"),
    ],
)
def test_a_damaged_table_is_told(
    name: str, change: Callable[[np.ndarray], np.ndarray], words: str
) -> None:
    fault = check(with_part(name, change), 3)
    assert fault is not None and words in fault
