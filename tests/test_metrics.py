from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcarec.metrics import KS, evaluate_ranking
from hcarec.ops.auc_negatives import sample_negatives


def ragged(rows: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    offsets = np.cumsum([0] + [len(row) for row in rows])
    return np.array([item for row in rows for item in row], np.int32), offsets


def test_hand_computed_values() -> None:
    # User 0 has test items 1, 2, 9 and finds 1 at rank 1 and 2 at rank 3; user 1 has test item 7, at rank 4.
    top = np.array([[1, 5, 2, 6, 8], [0, 3, 4, 7, 2]])
    metrics, users = evaluate_ranking(top, *ragged([[1, 2, 9], [7]]), n_items=10, ks=(3, 5))
    assert metrics["recall@3"] == 2 / 4 and metrics["recall@5"] == 3 / 4
    assert users["ap@3"] == pytest.approx([(1 / 1 + 2 / 3) / 3, 0])
    assert metrics["map@5"] == pytest.approx(((1 / 1 + 2 / 3) / 3 + (1 / 4) / 1) / 2)
    dcg = 1 + 1 / math.log2(4)
    ideal = 1 + 1 / math.log2(3) + 1 / math.log2(4)
    assert users["ndcg@5"] == pytest.approx([dcg / ideal, 1 / math.log2(5)])
    assert metrics["user_recall@3"] == pytest.approx((2 / 3 + 0) / 2)
    assert metrics["mrr@5"] == pytest.approx((1 + 1 / 4) / 2)
    assert metrics["hit@3"] == 0.5 and metrics["hit@5"] == 1.0
    assert metrics["coverage@3"] == 6 / 10 and metrics["coverage@5"] == 9 / 10
    assert users["hits@5"].tolist() == [2, 1] and users["n_test"].tolist() == [3, 1]


def test_popularity_is_the_mean_share_of_events_of_what_is_listed() -> None:
    top = np.array([[0, 1], [2, -1], [-1, -1]])  # shares 0.5 and 0.3, then 0.2, then an empty list
    metrics, _ = evaluate_ranking(top, *ragged([[1], [2], [0]]), n_items=4, ks=(1, 2), item_events=np.array([5, 3, 2, 0]))
    assert metrics["popularity@1"] == pytest.approx((0.5 + 0.2) / 2)
    assert metrics["popularity@2"] == pytest.approx(((0.5 + 0.3) / 2 + 0.2) / 2)
    assert "popularity@2" not in evaluate_ranking(top, *ragged([[1], [2], [0]]), n_items=4, ks=(2,))[0]


def test_average_precision_is_divided_by_the_test_items_even_beyond_k() -> None:
    top = np.array([[0, 1]])
    metrics, _ = evaluate_ranking(top, *ragged([[0, 1, 2, 3]]), n_items=5, ks=(2,))
    assert metrics["map@2"] == 2 / 4
    assert metrics["ndcg@2"] == 1.0  # its ideal is over min(k, number of test items)


def test_auc_is_pooled_and_strict() -> None:
    nan = float("nan")
    scores = {
        "test_scores": np.array([2.0, 1.0, 3.0, 0.0]),
        "negative_scores": np.array([1.0, 1.0, 2.0, nan]),  # won, equal (lost), won, no negative
        "below": np.array([3, 0, 4, 0]),
        "n_negatives": np.array([6, 4, 0]),
    }
    top = np.full((3, 5), -1)
    metrics, users = evaluate_ranking(top, *ragged([[0, 1], [2], [3]]), n_items=9, ks=(5,), **scores)
    assert metrics["auc"] == pytest.approx(2 / 3)
    assert metrics["auc_exact"] == pytest.approx((3 / 6 + 0 / 6 + 4 / 4) / 3)
    assert metrics["auc_skipped_users"] == 1
    np.testing.assert_allclose(users["auc"], [0.5, 1.0, nan])
    np.testing.assert_allclose(users["auc_exact"], [0.25, 1.0, nan])


def test_padding_is_never_a_hit_and_users_without_test_items_count_in_no_mean() -> None:
    # Item 9 is the last of the catalogue: -1 in the next user's row must not be taken for it.
    top = np.array([[3, -1, -1], [9, 1, 2], [0, -1, -1], [-1, -1, -1]])
    metrics, users = evaluate_ranking(top, *ragged([[3], [], [9], [5]]), n_items=10, ks=(3,))
    for name in ("recall@3", "hit@3", "mrr@3"):
        assert metrics[name] == pytest.approx(1 / 3)
    assert np.isnan(users["ndcg@3"][1]) and users["hits@3"].tolist() == [1, 0, 0, 0]


def test_agrees_with_trec_eval() -> None:
    golden = json.loads((Path(__file__).parent / "golden" / "metrics_trec_eval.json").read_text())
    metrics, users = evaluate_ranking(np.array(golden["top"]), *ragged(golden["test"]), n_items=golden["n_items"])
    theirs = {name: np.array(values) for name, values in golden["users"].items()}
    for k in KS:
        for name in ("ap", "ndcg", "rr"):
            np.testing.assert_allclose(users[f"{name}@{k}"], theirs[f"{name}@{k}"], rtol=1e-9, err_msg=f"{name}@{k}")
        np.testing.assert_allclose(users[f"hits@{k}"] / users["n_test"], theirs[f"recall@{k}"], rtol=1e-9)
        means = {"map": "ap", "ndcg": "ndcg", "user_recall": "recall", "mrr": "rr", "hit": "hit"}
        for ours, column in means.items():
            assert metrics[f"{ours}@{k}"] == pytest.approx(theirs[f"{column}@{k}"].mean(), rel=1e-9), (ours, k)


def plain(top: list[list[int]], test: list[list[int]], k: int) -> dict[str, float]:
    """The definitions once more, one user and one rank at a time."""
    hits_of_all, ap, ndcg = 0, [], []
    for ranked, wanted in zip(top, test, strict=True):
        hits, precision, gain = 0, 0.0, 0.0
        for rank, item in enumerate(ranked[:k], start=1):
            if item in wanted:
                hits += 1
                precision += hits / rank
                gain += 1 / math.log2(rank + 1)
        hits_of_all += hits
        ap.append(precision / len(wanted))
        ndcg.append(gain / sum(1 / math.log2(rank + 1) for rank in range(1, min(k, len(wanted)) + 1)))
    n = len(top)
    return {"recall": hits_of_all / sum(map(len, test)), "map": sum(ap) / n, "ndcg": sum(ndcg) / n}


@given(st.data())
def test_agrees_with_the_definitions_written_out(data: st.DataObject) -> None:
    n_items = data.draw(st.integers(6, 30))
    n_users = data.draw(st.integers(1, 5))
    some = st.lists(st.integers(0, n_items - 1), min_size=1, max_size=n_items, unique=True)
    test = [data.draw(some) for _ in range(n_users)]
    top = [data.draw(st.permutations(range(n_items)))[:6] for _ in range(n_users)]
    metrics, _ = evaluate_ranking(np.array(top), *ragged(test), n_items=n_items, ks=(1, 4, 6))
    for k in (1, 4, 6):
        for name, value in plain(top, test, k).items():
            assert metrics[f"{name}@{k}"] == pytest.approx(value, rel=1e-12), (name, k)


@given(st.data())
def test_negatives_are_never_excluded_ones(data: st.DataObject) -> None:
    n_items = data.draw(st.integers(1, 12))
    rows = data.draw(st.lists(st.lists(st.integers(0, n_items - 1), max_size=20), min_size=1, max_size=5))
    counts = np.array([data.draw(st.integers(0, 4)) for _ in rows])
    drawn = sample_negatives(ragged(rows), counts, n_items, seed=data.draw(st.integers(0, 2**64 - 1)))
    assert len(drawn) == counts.sum()
    for row, mine in zip(rows, np.split(drawn, np.cumsum(counts)[:-1]), strict=True):
        outside = set(range(n_items)) - set(row)
        assert all(item in outside for item in mine) if outside else (mine == -1).all()


@pytest.mark.parametrize("excluded", [[], [0], [6], [2, 3, 3, 5], [0, 1, 2, 4, 5, 6]])
def test_negatives_are_uniform(excluded: list[int]) -> None:
    """Chi-squared over 7,000 users and over 7,000 positions of one user; the bound is passed once in 10^6 seeds."""
    from scipy import stats

    n = 7_000
    outside = sorted(set(range(7)) - set(excluded))
    users = sample_negatives(ragged([excluded] * n), np.ones(n, int), 7, seed=3)
    positions = sample_negatives(ragged([excluded]), np.array([n]), 7, seed=3)
    for drawn in (users, positions):
        counts = np.bincount(drawn, minlength=7)
        assert counts.sum() == counts[outside].sum()
        if len(outside) > 1:
            assert stats.chisquare(counts[outside]).pvalue > 1e-6


def test_draws_of_different_seeds_users_and_positions_are_independent() -> None:
    n = 40_000
    none = ragged([[]] * n)
    first = sample_negatives(none, np.full(n, 2), 4, seed=1).reshape(n, 2)
    second = sample_negatives(none, np.full(n, 2), 4, seed=2).reshape(n, 2)
    for a, b in ((first[:, 0], first[:, 1]), (first[:, 0], second[:, 0]), (first[:-1, 0], first[1:, 0])):
        pairs = np.bincount(a * 4 + b, minlength=16)
        expected = len(a) / 16
        assert ((pairs - expected) ** 2 / expected).sum() < 60  # chi-squared with 15 degrees: beyond this once in 10^6


def test_a_draw_depends_on_the_user_and_not_on_who_else_is_drawn_for() -> None:
    rows = [[0, 1], [5], [2, 9, 9]]
    every = np.split(sample_negatives(ragged(rows), np.array([3, 4, 2]), 11, seed=5), [3, 7])
    alone = sample_negatives(ragged([rows[2], rows[1]]), np.array([2, 3]), 11, seed=5, users=np.array([2, 1]))
    assert alone.tolist() == every[2].tolist() + every[1][:3].tolist()
