"""Ranking on a device: ranks and counts are what sorting the whole table gives, and the CPU's."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from hcarec.errors import ModelError  # noqa: E402 - torch may be missing
from hcarec.ops.rank import torch as on_device  # noqa: E402

NO_CARD = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU here")
DEVICES = ["cpu", pytest.param("cuda", marks=NO_CARD)]
SIZES = [(1, 1, 1), (1, 127, 2), (9, 128, 3), (5, 129, 1), (33, 600, 4), (12, 1100, 20)]
KS = [1, 3, 20, 128, 1200]
Ragged = tuple[np.ndarray, np.ndarray]


class Case(NamedTuple):
    """Users, items and everything that a ranking may be asked for."""

    H: np.ndarray
    X: np.ndarray
    tie_rank: np.ndarray
    hidden: Ragged
    test: Ragged
    exclude: Ragged
    corrections: tuple[np.ndarray, np.ndarray, np.ndarray]

    @property
    def table(self) -> np.ndarray:
        """Return all scores; whole numbers, of which the products are exact."""
        scores = (self.H.astype(np.float64) @ self.X.T).astype(np.float32)
        items, offsets, values = self.corrections
        scores[users_of(offsets), items] += values
        return scores


def users_of(offsets: np.ndarray) -> np.ndarray:
    return np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))


def make(n_users: int, n_items: int, d: int, seed: int = 0) -> Case:
    """Draw a case of small whole numbers, many of whose scores are equal."""
    rng = np.random.default_rng([seed, n_users, n_items, d])
    H, X = (rng.integers(-2, 3, (n, d)).astype(np.float32) for n in (n_users, n_items))

    def ragged(most: int, distinct: bool = False) -> Ragged:
        rows = [rng.integers(0, n_items, n) for n in rng.integers(0, most, n_users)]
        rows = [np.unique(row) for row in rows] if distinct else rows
        offsets = np.cumsum([0, *(len(row) for row in rows)])
        return np.concatenate(rows).astype(np.int32), offsets

    corrected = ragged(30, distinct=True)
    values = rng.integers(-3, 4, len(corrected[0])).astype(np.float32)
    ties = rng.permutation(n_items).astype(np.int32)
    test = ragged(15, distinct=True)
    return Case(H, X, ties, ragged(40), test, ragged(40), (*corrected, values))


def find(case: Case, k: int, device: str, **how: Any) -> Any:
    """Rank on a device and return arrays."""

    def on(arrays: Any) -> Any:
        return tuple(torch.from_numpy(array).to(device) for array in arrays)

    named = {"hidden": case.hidden, "test": case.test, "exclude": case.exclude}
    asked = {name: on(ragged) for name, ragged in named.items()}
    asked["corrections"] = on_device.Corrections(*on(case.corrections))
    found = on_device.rank(*on((case.H, case.X, case.tie_rank)), k, **{**asked, **how})
    return found._make(array.cpu().numpy() for array in found)


def best(case: Case, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return items and scores of everyone's best k, by sorting."""
    items = np.full((len(case.H), k), -1)
    scores = np.full((len(case.H), k), -np.inf, np.float32)
    for user, row in enumerate(case.table):
        barred = set(case.hidden[0][case.hidden[1][user] : case.hidden[1][user + 1]].tolist())
        order = np.lexsort((case.tie_rank, -row)).tolist()
        shown = [item for item in order if item not in barred][:k]
        items[user, : len(shown)], scores[user, : len(shown)] = shown, row[shown]
    return items, scores


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("k", KS)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_the_best_are_those_of_the_sorted_table(size: Any, k: int, device: str) -> None:
    case = make(*size)
    found, (items, scores) = find(case, k, device), best(case, k)
    assert found.items.dtype == np.int32 and found.scores.dtype == np.float32
    np.testing.assert_array_equal(found.items, items)
    np.testing.assert_array_equal(found.scores, scores)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_counts_are_those_of_the_table(size: Any, device: str) -> None:
    case, n_items = make(*size), size[1]
    found, table = find(case, 3, device), case.table
    users, items = users_of(case.test[1]), case.test[0]
    np.testing.assert_array_equal(found.test_scores, table[users, items])
    negative = np.ones(table.shape, bool)
    for one in (case.test, case.exclude):
        negative[users_of(one[1]), one[0]] = False
    mine = table[users, items]
    np.testing.assert_array_equal(
        found.below, [(table[u] < t)[negative[u]].sum() for u, t in zip(users, mine, strict=True)]
    )
    np.testing.assert_array_equal(found.n_negatives, negative.sum(1))
    assert found.n_negatives.shape == (size[0],) and (found.n_negatives <= n_items).all()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("at_once", [1, 1300, 5000])
def test_it_does_not_matter_how_many_scores_are_held(at_once: int, device: str) -> None:
    case = make(33, 600, 4)
    whole, pieces = find(case, 20, device), find(case, 20, device, at_once=at_once)
    for one, other in zip(whole, pieces, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("device", DEVICES)
def test_pairs_have_the_scores_of_the_table(device: str) -> None:
    case = make(33, 600, 4)
    items, offsets = case.exclude
    pairs = torch.from_numpy(items).to(device), torch.from_numpy(offsets).to(device)
    found = find(case, 20, device, pairs=pairs, test=None, at_once=2000)
    np.testing.assert_array_equal(found.pair_scores, case.table[users_of(offsets), items])
    assert len(found.test_scores) == len(found.below) == 0


@pytest.mark.parametrize("device", DEVICES)
def test_no_users_and_nothing_asked(device: str) -> None:
    H, X, ties = torch.zeros(0, 3), torch.ones(40, 3), torch.arange(40)
    found = on_device.rank(H.to(device), X.to(device), ties.to(device), 5)
    assert found.items.shape == found.scores.shape == (0, 5)
    found = on_device.rank(X.to(device), X.to(device), ties.to(device), 5)
    assert found.items.tolist() == [[0, 1, 2, 3, 4]] * 40


@pytest.mark.parametrize("device", DEVICES)
def test_zero_and_minus_zero_are_equal(device: str) -> None:
    H = torch.ones(1, 1, device=device)
    X = torch.tensor([[-0.0], [0.0], [-0.0], [-1.0]], device=device)
    ties = torch.tensor([2, 1, 0, 3], device=device)
    assert on_device.rank(H, X, ties, 4).items.tolist() == [[2, 1, 0, 3]]


@pytest.mark.parametrize("device", DEVICES)
def test_scores_that_are_no_numbers_are_an_error(device: str) -> None:
    H = torch.ones(7, 2, device=device)
    H[4, 0] = torch.nan
    X, ties = torch.ones(300, 2, device=device), torch.arange(300, device=device)
    with pytest.raises(ModelError, match="user row 4 are not numbers"):
        on_device.rank(H, X, ties, 3, at_once=900)


def test_the_precision_of_products_is_set_back() -> None:
    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    try:
        matmul.fp32_precision = "tf32"
        with on_device.ieee_products():
            assert matmul.fp32_precision == "ieee"
        assert matmul.fp32_precision == "tf32"
    finally:
        matmul.fp32_precision = before


@NO_CARD
@pytest.mark.parametrize("d", [20, 64, 256])
def test_a_card_ranks_by_float32_products(d: int) -> None:
    """Not by TF32, whatever is set: its scores would be a thousand times further off."""
    torch.manual_seed(d)
    H, X = torch.randn(50, d, device="cuda"), torch.randn(3000, d, device="cuda")
    exact = H.double() @ X.double().t()
    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    try:
        matmul.fp32_precision = "tf32"
        found = on_device.rank(H, X, torch.arange(3000, device="cuda"), 100)
    finally:
        matmul.fp32_precision = before
    error = (found.scores - exact.gather(1, found.items.long())).norm() / found.scores.norm()
    assert error < 1e-6


@pytest.mark.parametrize("k", KS)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_it_is_the_ranking_of_the_cpu(size: Any, k: int) -> None:
    pytest.importorskip("numba")
    from hcarec import topk
    from hcarec.ops.rank.corrections import Corrections

    case = make(*size, seed=1)
    theirs = topk.rank(
        case.H, case.X, case.tie_rank, k, hidden=case.hidden, test=case.test,
        exclude=case.exclude, corrections=Corrections(*case.corrections),
    )  # fmt: skip
    mine = find(case, k, "cpu")
    for name in ("items", "scores", "test_scores", "below", "n_negatives"):
        one, other = getattr(mine, name), getattr(theirs, name)
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other, err_msg=name)
