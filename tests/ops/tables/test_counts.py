"""The counting term: bounded rows, and sums of counts that become corrections."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hcarec.ops.rank.corrections import Corrections
from hcarec.ops.tables import add_counts, sum_rows
from hcarec.tables import Table, check, keep_greatest

N_ITEMS = 8
items = st.integers(0, N_ITEMS - 1)
copies = st.dictionaries(items, st.floats(-9, 9, width=32))
rows = st.lists(
    st.dictionaries(items, st.sampled_from([0.0, 0.25, 1.5, 40.0])), min_size=1, max_size=6
)


def corrections(users: list[dict[int, float]]) -> Corrections:
    """Return what some users' items gain, in order."""
    gaining = [item for user in users for item in sorted(user)]
    values = [user[item] for user in users for item in sorted(user)]
    offsets = np.cumsum([0, *map(len, users)])
    return Corrections(np.array(gaining, np.int32), offsets, np.array(values, np.float32))


def by_user(found: Corrections) -> list[dict[int, float]]:
    return [
        dict(zip(found.items[begin:end].tolist(), found.values[begin:end].tolist(), strict=True))
        for begin, end in pairwise(found.offsets)
    ]


@settings(deadline=None)
@given(rows, st.data(), st.sampled_from([0.0, 0.5, 3.0]), st.sampled_from([1e-4, 0.3]))
def test_the_term_is_that_of_loops_to_the_last_bit(
    counted: list[dict[int, float]], data: st.DataObject, scale: float, floor: float
) -> None:
    n = len(counted)
    copied = data.draw(st.lists(copies, min_size=n, max_size=n))
    found = add_counts(corrections(copied), corrections(counted), scale, floor)
    found.check(len(counted), N_ITEMS)
    s, e = float(np.float32(scale)), float(np.float32(floor))
    expected = []
    for own, sums in zip(copied, counted, strict=True):
        user = {item: np.float32(value) for item, value in own.items()}
        for item, m in sums.items():
            user[item] = user.get(item, np.float32(0)) + np.float32(s * math.log1p(m / e))
        expected.append({item: float(user[item]) for item in sorted(user)})
    assert by_user(found) == expected


def test_without_other_corrections_there_is_the_term_alone() -> None:
    counted = corrections([{3: 1.0, 5: 2.0}, {}, {0: 4.0}])
    alone = add_counts(None, counted, 2.0, 0.5)
    empty = add_counts(corrections([{}, {}, {}]), counted, 2.0, 0.5)
    assert [part.tolist() for part in alone] == [part.tolist() for part in empty]
    assert alone.values == pytest.approx(2 * np.log([3, 5, 9]))


def test_the_term_is_that_of_the_reference() -> None:
    torch = pytest.importorskip("torch")
    from hcarec.ops import reference

    rng = np.random.default_rng(3)
    dense = rng.random((N_ITEMS, N_ITEMS)) * (rng.random((N_ITEMS, N_ITEMS)) < 0.4)
    row, column = np.nonzero(dense)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=N_ITEMS))])
    table = Table(indptr, column.astype(np.int32), dense[row, column].astype(np.float32))
    assert check(table, N_ITEMS) is None
    past, weights = rng.integers(0, N_ITEMS, 9).astype(np.int32), [1.0, 0.5, 0.3]
    by_weight = torch.tensor(weights, dtype=torch.float64)
    steps = torch.tensor(past, dtype=torch.int64)
    expected = reference.counting_term(torch.tensor(dense), by_weight, 1.7, 0.02, steps)
    for step in range(len(past)):
        log = past[: step + 1], np.array([0, step + 1])
        found = add_counts(None, Corrections(*sum_rows(table, *log, weights)), 1.7, 0.02)
        scores = np.zeros(N_ITEMS)
        scores[found.items] = found.values
        np.testing.assert_allclose(scores, expected[step].numpy(), rtol=1e-5, atol=1e-6)


@settings(deadline=None)
@given(rows, st.integers(1, 9))
def test_rows_keep_their_greatest_values(users: list[dict[int, float]], most: int) -> None:
    whole = corrections([*users, *[{}] * (N_ITEMS - len(users))])
    table = keep_greatest(Table(whole.offsets, whole.items, whole.values), most)
    assert check(table, N_ITEMS) is None
    kept = by_user(Corrections(table.indices, table.indptr, table.values))
    for row, user in zip(kept, users, strict=False):
        best = sorted(user, key=lambda item: (-user[item], item))[:most]
        assert row == {item: user[item] for item in sorted(best)}
