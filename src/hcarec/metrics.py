"""The metrics, as pure functions of arrays.

Recall is pooled (hits of all users over test items of all users), AP is divided by the number of test items, NDCG has
binary gains, AUC counts strictly higher scores. `docs` and the paper give them in percent; here all are fractions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

KS = (5, 10, 15, 20)

Columns = dict[str, np.ndarray]


def evaluate_ranking(
    top: np.ndarray,
    test_items: np.ndarray,
    test_offsets: np.ndarray,
    n_items: int,
    *,
    ks: Sequence[int] = KS,
    test_scores: np.ndarray | None = None,
    negative_scores: np.ndarray | None = None,
    below: np.ndarray | None = None,
    n_negatives: np.ndarray | None = None,
    item_events: np.ndarray | None = None,
) -> tuple[dict[str, float], Columns]:
    """Return all metrics, and their parts per user for paired tests.

    `top` (users, >= max(ks)) item indices, best first, padded with -1; `test_items` the distinct test items of each
    user, cut by `test_offsets` (users + 1,). For `auc`: `test_scores` and `negative_scores` (test items,), the latter
    NaN where a user has no negative. For `auc_exact`: `below` (test items,), how many of the user's `n_negatives`
    (users,) score strictly lower. For `popularity@k`: `item_events` (n_items,), how often
    each item trains. Users without test items count in no mean and are NaN in the columns.
    """
    n_test = np.diff(test_offsets)
    hits = hit_matrix(top, test_items, test_offsets, n_items)
    columns: Columns = {"n_test": n_test}
    metrics: dict[str, float] = {}
    for k in ks:
        assert 1 <= k <= top.shape[1], f"k = {k} of a top-{top.shape[1]}"
        at_k = hits[:, :k]
        columns |= (mine := _user_columns(at_k, n_test, k))
        metrics[f"recall@{k}"] = _ratio(at_k.sum(), n_test.sum())
        metrics[f"map@{k}"] = _mean(mine[f"ap@{k}"])
        metrics[f"ndcg@{k}"] = _mean(mine[f"ndcg@{k}"])
        metrics[f"user_recall@{k}"] = _mean(np.where(n_test > 0, at_k.sum(1) / np.maximum(n_test, 1), np.nan))
        metrics[f"mrr@{k}"] = _mean(mine[f"rr@{k}"])
        metrics[f"hit@{k}"] = _mean(np.where(n_test > 0, at_k.any(1), np.nan))
        metrics[f"coverage@{k}"] = coverage(top[:, :k], n_items)
        if item_events is not None:
            metrics[f"popularity@{k}"] = popularity(top[:, :k], item_events)
    if test_scores is not None and negative_scores is not None:
        won = np.where(np.isnan(negative_scores), np.nan, test_scores > negative_scores)
        metrics["auc"], columns["auc"] = _mean(won), _mean_by_user(won, test_offsets)
        metrics["auc_skipped_users"] = int(((n_test > 0) & np.isnan(columns["auc"])).sum())
    if below is not None and n_negatives is not None:
        negatives = np.repeat(n_negatives, n_test)
        share = np.where(negatives > 0, below / np.maximum(negatives, 1), np.nan)
        metrics["auc_exact"], columns["auc_exact"] = _mean(share), _mean_by_user(share, test_offsets)
    return metrics, columns


def hit_matrix(top: np.ndarray, test_items: np.ndarray, test_offsets: np.ndarray, n_items: int) -> np.ndarray:
    """Say of every place in `top` (users, k) whether it holds a test item of that user, (users, k) bool."""
    n_users = len(test_offsets) - 1
    assert len(top) == n_users
    users = np.repeat(np.arange(n_users), np.diff(test_offsets))
    wanted = np.sort(users * n_items + np.asarray(test_items, np.int64))
    assert (np.diff(wanted) > 0).all(), "the test items of a user must be distinct"
    if not len(wanted):
        return np.zeros(top.shape, np.bool_)
    found = np.arange(n_users)[:, None] * n_items + np.asarray(top, np.int64)
    places = np.minimum(np.searchsorted(wanted, found), len(wanted) - 1)
    hits: np.ndarray = (wanted[places] == found) & (np.asarray(top) >= 0)
    return hits


def coverage(top: np.ndarray, n_items: int) -> float:
    """Return the share of the catalogue that appears in anyone's list."""
    shown = np.zeros(n_items, np.bool_)
    shown[top[top >= 0]] = True
    return _ratio(shown.sum(), n_items)


def popularity(top: np.ndarray, item_events: np.ndarray) -> float:
    """Return the mean over users of the mean share of all events that the items of their list have; a list of random items gets 1 / n_items."""
    listed = top >= 0
    shares = np.where(listed, item_events[np.maximum(top, 0)], 0) / max(int(item_events.sum()), 1)
    return _mean(np.where(listed.any(1), shares.sum(1) / np.maximum(listed.sum(1), 1), np.nan))


def _user_columns(hits: np.ndarray, n_test: np.ndarray, k: int) -> Columns:
    """Return hits, average precision, NDCG and reciprocal rank at k of every user."""
    ranks = np.arange(1, k + 1)
    gains = 1.0 / np.log2(ranks + 1)
    ideal = np.concatenate([[np.nan], np.cumsum(gains)])[np.minimum(n_test, k)]
    precision = np.where(hits, hits.cumsum(1) / ranks, 0.0)
    average = precision.sum(1) / np.where(n_test > 0, n_test, np.nan)
    first = np.where(hits.any(1), 1.0 / (hits.argmax(1) + 1), 0.0)
    return {
        f"hits@{k}": hits.sum(1),
        f"ap@{k}": average,
        f"ndcg@{k}": (hits * gains).sum(1) / ideal,
        f"rr@{k}": np.where(n_test > 0, first, np.nan),
    }


def _mean_by_user(values: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return each user's mean over the values that are numbers, NaN where there are none."""
    n_users = len(offsets) - 1
    users = np.repeat(np.arange(n_users), np.diff(offsets))
    numbers = ~np.isnan(values)
    count = np.bincount(users[numbers], minlength=n_users)
    total = np.bincount(users[numbers], weights=values[numbers], minlength=n_users)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _mean(values: np.ndarray) -> float:
    """Return the mean of the values that are numbers, NaN where there are none."""
    numbers = values[~np.isnan(values)]
    return float(numbers.mean()) if len(numbers) else float("nan")


def _ratio(part: float, whole: float) -> float:
    return float(part / whole) if whole else float("nan")
