"""Corrected scores: ranks and counts are what sorting the whole table gives, bit by bit."""

from __future__ import annotations

import ctypes
import ctypes.util
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hcarec.errors import ModelError
from hcarec.ops import compiled
from hcarec.ops.rank.corrections import Corrections
from hcarec.topk import Queries, Ragged, Ranking, pack, pair_scores, rank

LIBM = ctypes.CDLL(ctypes.util.find_library("m"))
LIBM.fmaf.restype, LIBM.fmaf.argtypes = ctypes.c_float, [ctypes.c_float] * 3
FUSED = np.frompyfunc(LIBM.fmaf, 3, 1)


def products_of(H: np.ndarray, X: np.ndarray) -> np.ndarray:
    """Return all products (users, items) by the C library's fmaf, a chain in the order 0..d-1."""
    total = np.zeros((len(H), len(X)))
    for h, x in zip(H.T, X.T, strict=True):
        total = FUSED(h[:, None].astype(float), x.astype(float), total)
    return total.astype(np.float32)


def ragged(rows: list[list[int]]) -> Ragged:
    offsets = np.cumsum([0] + [len(row) for row in rows])
    return np.array([item for row in rows for item in row], np.int32), offsets


def corrections_of(rows: list[dict[int, float]]) -> Corrections:
    values = [row[item] for row in rows for item in sorted(row)]
    return Corrections(*ragged([sorted(row) for row in rows]), np.array(values, np.float32))


def corrected(products: np.ndarray, rows: list[dict[int, float]]) -> np.ndarray:
    table = products.copy()
    for user, row in enumerate(rows):
        for item, value in row.items():
            table[user, item] = table[user, item] + np.float32(value)
    return table


class Case(NamedTuple):
    """Users, items and everything that a ranking may be asked for."""

    H: np.ndarray
    X: np.ndarray
    ties: np.ndarray
    k: int
    rows: list[dict[int, float]]
    hidden: list[list[int]]
    allowed: np.ndarray
    test: list[list[int]]
    train: list[list[int]]

    def rank(self, **how: Any) -> Ranking:
        given = {"hidden": ragged(self.hidden), "allowed": self.allowed}
        given["corrections"] = corrections_of(self.rows)
        return rank(self.H, self.X, self.ties, self.k, **{**given, **how})

    def top(self, table: np.ndarray) -> tuple[list[list[int]], bytes]:
        """Return the items and the bits of the scores of everyone's best k by sorting."""
        items, scores = [], np.full((len(self.H), self.k), -np.inf, np.float32)
        for user, row in enumerate(table):
            barred = set(self.hidden[user]) | set(np.flatnonzero(~self.allowed).tolist())
            order = [item for item in np.lexsort((self.ties, -row)).tolist() if item not in barred]
            shown = order[: self.k]
            scores[user, : len(shown)] = row[shown]
            items.append(shown + [-1] * (self.k - len(shown)))
        return items, scores.tobytes()


@st.composite
def cases(draw: st.DrawFn) -> Case:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n_users, d = draw(st.integers(1, 9)), draw(st.integers(1, 4))
    n_items = draw(st.sampled_from([1, 16, 513, 600, 1100]))
    k = draw(st.sampled_from([1, 3, 20, n_items, n_items + 2]))
    if draw(st.booleans(), label="whole numbers, many of whose products are equal"):
        H, X = (rng.integers(-2, 3, (n, d)).astype(np.float32) for n in (n_users, n_items))
        values = rng.integers(-3, 4, (n_users, n_items)).astype(np.float32)
    else:
        H, X = (rng.standard_normal((n, d)).astype(np.float32) for n in (n_users, n_items))
        values = rng.standard_normal((n_users, n_items)).astype(np.float32)
    values *= draw(st.sampled_from([1, 1e-7, 100]))
    share = draw(st.sampled_from([0.005, 0.1, 0.9]), label="share of items that are corrected")
    sign = draw(st.sampled_from([None, 1, -1]))
    if sign is not None:
        values = sign * np.abs(values)
    rows = []
    for user in range(n_users):
        mine = rng.random(n_items) < rng.choice([0, 1, share, share, share])
        rows.append({item: float(values[user, item]) for item in np.flatnonzero(mine).tolist()})

    def lists(most: int) -> list[list[int]]:
        counts = rng.integers(0, most, n_users)
        found = [rng.integers(0, n_items, n).tolist() for n in counts]
        # Half of the time among the corrected ones, which are few otherwise.
        return [
            rng.choice(list(row), len(one)).tolist() if row and rng.random() < 0.5 else one
            for one, row in zip(found, rows, strict=True)
        ]

    allowed = rng.random(n_items) < draw(st.sampled_from([0.02, 0.5, 1.0]))
    test = [sorted(set(one)) for one in lists(12)]
    ties = rng.permutation(n_items).astype(np.int32)
    return Case(H, X, ties, k, rows, lists(30), allowed, test, lists(30))


@settings(max_examples=80)
@given(cases())
def test_ranks_and_counts_are_those_of_the_corrected_table(case: Case) -> None:
    table = corrected(products_of(case.H, case.X), case.rows)
    test, train = ragged(case.test), ragged(case.train)
    found = case.rank(test=test, exclude=train, threads=2)
    assert (found.items.tolist(), found.scores.tobytes()) == case.top(table)
    pairs = [(user, item) for user, items in enumerate(case.test) for item in items]
    mine = np.array([table[pair] for pair in pairs], np.float32)
    assert found.test_scores is not None and found.test_scores.tobytes() == mine.tobytes()
    assert found.below_all is not None and found.below is not None
    for at, (user, item) in enumerate(pairs):
        assert found.below_all[at] == (table[user] < table[user, item]).sum()
        negatives = np.setdiff1d(np.arange(len(case.X)), case.train[user] + case.test[user])
        assert found.below[at] == (table[user, negatives] < table[user, item]).sum()
        assert found.n_negatives is not None and found.n_negatives[user] == len(negatives)


@settings(max_examples=80)
@given(cases())
def test_a_screened_catalogue_gives_the_same_top(case: Case) -> None:
    packed = pack(case.X)
    assert (packed.codes is not None) == (len(case.X) > 512)
    found = case.rank(packed=packed, threads=2)
    assert (found.items.tolist(), found.scores.tobytes()) == case.top(
        corrected(products_of(case.H, case.X), case.rows)
    )


@settings(max_examples=30)
@given(cases())
def test_pairs_have_the_scores_of_the_table(case: Case) -> None:
    table = corrected(products_of(case.H, case.X), case.rows)
    given = {"corrections": corrections_of(case.rows), "threads": 2}
    # Any order, and an item more than once.
    wanted = [items[::-1] + items for items in case.train]
    expected = [table[user, items] for user, items in enumerate(wanted)]
    scores = pair_scores(case.H, case.X, *ragged(wanted), **given)
    assert scores.tobytes() == np.concatenate(expected).tobytes()


def bits(ranking: Ranking) -> list[bytes | None]:
    return [None if part is None else part.tobytes() for part in ranking]


@settings(max_examples=25)
@given(cases())
def test_no_corrections_and_empty_ones_are_the_same(case: Case) -> None:
    empty = corrections_of([{} for _ in case.rows])
    for how in ({"test": ragged(case.test), "exclude": ragged(case.train)}, {}):
        for packed in (None, pack(case.X)):
            given: dict[str, Any] = {**how, "packed": packed, "threads": 1}
            without = case.rank(corrections=None, **given)
            assert bits(case.rank(corrections=empty, **given)) == bits(without)
    pairs = ragged(case.test)
    assert (
        pair_scores(case.H, case.X, *pairs, corrections=empty).tobytes()
        == pair_scores(case.H, case.X, *pairs).tobytes()
    )


def many_users(n_users: int) -> tuple[Queries, np.ndarray, np.ndarray, list[list[int]]]:
    rng = np.random.default_rng(11)
    H = rng.standard_normal((n_users, 5)).astype(np.float32)
    X = rng.standard_normal((1_500, 5)).astype(np.float32)
    chosen = [rng.permutation(1_500)[: rng.integers(0, 200)].tolist() for _ in range(n_users)]
    rows = [dict(zip(items, rng.normal(0, 2, len(items)), strict=True)) for items in chosen]
    test = [rng.permutation(1_500)[:5].tolist() for _ in range(n_users)]
    return Queries(H, corrections_of(rows)), X, rng.permutation(1_500).astype(np.int32), test


@pytest.mark.parametrize("with_test", [True, False])
def test_batches_and_threads_change_no_bit(with_test: bool) -> None:
    queries, X, ties, test = many_users(401)
    packed = pack(X)

    def found(rows: np.ndarray | slice, threads: int) -> list[np.ndarray]:
        some = queries.take(rows)
        wanted = ragged([test[row] for row in np.arange(queries.n)[rows]]) if with_test else None
        given: dict[str, Any] = {"test": wanted, "packed": packed, "threads": threads}
        ranking = rank(some.vectors, X, ties, 20, corrections=some.corrections, **given)
        return [part for part in ranking if part is not None]

    whole = found(slice(None), 1)
    for threads in (2, 3, 8):
        for one, other in zip(whole, found(slice(None), threads), strict=True):
            assert one.tobytes() == other.tobytes()
    for size in (1, 2, 5, 7, 64, 400):
        starts = range(0, 40 if size < 7 else queries.n, size)
        parts = [found(slice(start, start + size), 2) for start in starts]
        for one, *others in zip(whole, *parts, strict=True):
            together = np.concatenate(others)
            assert together.tobytes() == one[: len(together)].tobytes()
    order = np.random.default_rng(3).permutation(401)
    for one, other in zip(whole[:2], found(order, 2)[:2], strict=True):
        assert one[order].tobytes() == other.tobytes()


@settings(max_examples=30)
@given(cases(), st.lists(st.integers(0, 8), max_size=12))
def test_taking_users_takes_their_corrections(case: Case, wanted: list[int]) -> None:
    rows = np.array([row % len(case.H) for row in wanted], np.int64)
    whole = corrections_of(case.rows)
    expected = corrections_of([case.rows[row] for row in rows])
    some = Queries(case.H, whole).take(rows)
    assert some.n == len(rows) and some.vectors.tolist() == case.H[rows].tolist()
    assert some.corrections is not None
    some.corrections.check(len(rows), len(case.X))
    assert [part.tolist() for part in some.corrections] == [part.tolist() for part in expected]
    half = whole.take(slice(len(case.H) // 2, None))
    expected = corrections_of(case.rows[len(case.H) // 2 :])
    assert [part.tolist() for part in half] == [part.tolist() for part in expected]
    assert Queries(case.H).take(rows).corrections is None


def test_equal_corrected_scores_are_ordered_by_the_ties() -> None:
    """Lift every third item to the score of the others: only the ties are left to decide."""
    X = np.ones((900, 2), np.float32)
    X[::3] = 0
    ties = np.random.default_rng(1).permutation(900).astype(np.int32)
    lift = corrections_of([dict.fromkeys(range(0, 900, 3), 2.0)] * 3)
    order = np.argsort(ties)
    hidden = ragged([[], [int(order[0])], []])
    for packed in (None, pack(X)):
        given: dict[str, Any] = {"hidden": hidden, "corrections": lift, "packed": packed}
        found = rank(np.ones((3, 2)), X, ties, 50, **given)
        assert found.items[0].tolist() == found.items[2].tolist() == order[:50].tolist()
        assert found.items[1].tolist() == order[1:51].tolist()


def test_a_score_that_overflows_is_infinite() -> None:
    X, greatest = np.ones((600, 1), np.float32), float(np.finfo(np.float32).max)
    X[3], X[5] = 1e36, -1e36
    given: dict[str, Any] = {"corrections": corrections_of([{3: greatest, 5: -greatest}])}
    for how in ({"packed": pack(X)}, {"test": ragged([[3, 5]])}):
        found = rank(np.full((1, 1), 10), X, np.arange(600), 601, **given, **how)
        assert found.items[0, [0, 599, 600]].tolist() == [3, 5, -1]
        assert found.scores[0, [0, 599]].tolist() == [np.inf, -np.inf]
    assert found.below_all is not None and found.below_all.tolist() == [599, 0]


@pytest.mark.parametrize("hide", [True, False])
def test_a_corrected_product_that_is_no_number_is_refused(hide: bool) -> None:
    X, ties = np.ones((600, 1), np.float32), np.arange(600, dtype=np.int32)
    X[599] = np.nan
    rows: list[dict[int, float]] = [{1: 9.0}, {599: 1.0, 2: 9.0}]
    given: dict[str, Any] = {"corrections": corrections_of(rows), "threads": 1}
    if hide:
        given["hidden"] = ragged([[], [599]])
    H = np.array([[1], [1]])
    with pytest.raises(ModelError, match="user row 0 "):
        rank(H, X, ties, 2, packed=pack(X), **given)
    X[599] = np.inf
    with pytest.raises(ModelError, match="user row 1 "):  # inf * 0
        rank(np.array([[1], [0]]), X, ties, 2, packed=pack(X), **given)


VALID = corrections_of([{0: 1.0, 4: -1.0}, {}, {2: 0.5}])
BROKEN = {
    "fewer users": VALID.take(slice(0, 2)),
    "items of another type": VALID._replace(items=VALID.items.astype(np.int64)),
    "values of another type": VALID._replace(values=VALID.values.astype(np.float64)),
    "fewer values": VALID._replace(values=VALID.values[:2]),
    "apart in memory": VALID._replace(values=np.ones(6, np.float32)[::2]),
    "offsets that do not begin at 0": VALID._replace(offsets=np.array([1, 2, 2, 3])),
    "offsets that end early": VALID._replace(offsets=np.array([0, 2, 2, 2])),
    "offsets that fall": VALID._replace(offsets=np.array([0, 4, 2, 3])),
    "an unknown item": VALID._replace(items=np.array([0, 5, 2], np.int32)),
    "a negative item": VALID._replace(items=np.array([-1, 4, 2], np.int32)),
    "an item twice": VALID._replace(items=np.array([4, 4, 2], np.int32)),
    "items that descend": VALID._replace(items=np.array([4, 0, 2], np.int32)),
    "an infinite value": VALID._replace(values=np.array([0, np.inf, 0], np.float32)),
    "a value that is no number": VALID._replace(values=np.array([0, 0, np.nan], np.float32)),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_corrections_reach_no_kernel(name: str) -> None:
    H, X = np.ones((3, 1)), np.ones((5, 1))
    VALID.check(3, 5)
    with pytest.raises(AssertionError):
        BROKEN[name].check(3, 5)
    with pytest.raises(AssertionError):
        rank(H, X, np.arange(5), 2, corrections=BROKEN[name])
    with pytest.raises(AssertionError):
        pair_scores(H, X, *ragged([[0], [1], [2]]), corrections=BROKEN[name])


def test_kernels_of_sub_packages_are_compiled_anew_when_sources_change() -> None:
    names = {path.relative_to(path.parents[1]).as_posix() for path in compiled._FILES}
    assert {"ops/score.py", "rank/kernels.py"} <= names
