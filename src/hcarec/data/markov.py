"""A Markov recommender, and with it the question whether order matters in a log at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hcarec.data.transitions import count_steps
from hcarec.sequences import Sequences

EVENTS = 1_000_000
"""Events looked at by `order_matters`; of a larger log a sample of whole users."""
SHUFFLES = 5
"""Shuffled orders to compare with: enough for a spread."""
LAGS = 5
"""How many events back the deciding one is looked for; the widest window of the paper."""
K = 20
"""Length of the list in which the held-out item must be to count as a hit."""


@dataclass(frozen=True)
class Markov:
    """Ranks what followed the last item most often, then everything else by popularity.

    Equal counts stand in the order of popularity, equal popularity in that of the index. Items are named by their
    `rank` (n_items,) in popularity inside: row l of the table is `keys[rows[l] : rows[l + 1]]`, ascending, each key
    being l * n_items + successor; `counts` and the `place` of the successor in the row's list stand beside.
    """

    rank: np.ndarray
    by_rank: np.ndarray
    rows: np.ndarray
    keys: np.ndarray
    counts: np.ndarray
    place: np.ndarray

    @classmethod
    def fit(cls, items: np.ndarray, offsets: np.ndarray, n_items: int, lag: int = 1) -> Markov:
        """Count every step of every user from an item to the next, or to the one `lag` events on."""
        by_rank = np.argsort(-np.bincount(items, minlength=n_items), kind="stable")
        rank = np.empty(n_items, np.int64)
        rank[by_rank] = np.arange(n_items)
        keys, counts = count_steps(rank[items], offsets, n_items, lag)
        rows = np.searchsorted(keys, np.arange(n_items + 1) * n_items)
        row = keys // n_items
        best_first = np.lexsort((keys, -counts, row))  # inside a row keys ascend with popularity
        place = np.empty(len(keys), np.int64)
        place[best_first] = np.arange(len(keys)) - rows[row[best_first]]
        return cls(rank, by_rank, rows, keys, counts, place)

    def ranks(self, last: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Return where in the whole list each target stands after the item `last`, from 1; all (n,)."""
        n_items = len(self.rank)
        row, wanted = self.rank[last], self.rank[target]
        key = row * n_items + wanted
        found = np.searchsorted(self.keys, key)
        followed = np.zeros(len(key), bool)
        inside = found < len(self.keys)
        followed[inside] = self.keys[found[inside]] == key[inside]
        start = self.rows[row]
        # One that never followed stands behind all the row's successors and those more popular that are not among them.
        behind = wanted + (self.rows[row + 1] - start) - (found - start)
        behind[followed] = self.place[found[followed]]
        ranks: np.ndarray = behind + 1
        return ranks

    def recommend(self, last: int, k: int) -> np.ndarray:
        """Return the best k items after `last`, (k,)."""
        n_items = len(self.rank)
        start, end = self.rows[self.rank[last]], self.rows[self.rank[last] + 1]
        successors = (self.keys[start:end] % n_items)[np.argsort(self.place[start:end])]
        popular = np.arange(min(n_items, k + len(successors)))
        best = np.concatenate([successors, popular[~np.isin(popular, successors)]])[:k]
        return np.take(self.by_rank, best)


def order_matters(sequences: Sequences, seed: int = 0, *, events: int = EVENTS, shuffles: int = SHUFFLES) -> dict[str, Any]:
    """Predict each user's last event from one before it, learned from the true order and from shuffled orders.

    The held-out events are the same in all runs; only what comes before them is shuffled, within each user. `by_lag`
    has a first-order recommender (lag 1) and the same that looks 2, 3, .. events back (at the first event where there
    are not so many): its `hit@20` and `mrr` (mean of 1 / rank), the same `shuffled` with the `spread` (standard
    deviation) over shuffles, the `gain` in hit@20 and its standard `error` over users. `best` is the lag of the
    greatest hit@20. Where events of a user share a time, `tied` shuffles among those alone: it tells how much of the
    gain hangs on an order that the times do not give. Users with fewer than 3 events are left out.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    users = _sample(sequences.lengths, events, rng)
    if not len(users):
        return {"users": 0, "of_users": sequences.n_users, "sampled": False}
    items, offsets, times = _histories(sequences, users, events)
    target = np.asarray(sequences.items)[np.asarray(sequences.offsets)[users + 1] - 1]

    def ranks(of: np.ndarray, lag: int) -> np.ndarray:
        last = of[np.maximum(offsets[1:] - lag, offsets[:-1])]
        return Markov.fit(of, offsets, sequences.n_items, lag).ranks(last, target)

    def shuffled(stretches: np.ndarray, lag: int) -> np.ndarray:
        return np.stack([ranks(_shuffle(items, stretches, rng), lag) for _ in range(shuffles)])

    by_lag = [{"lag": lag, **_compare(ranks(items, lag), shuffled(offsets, lag))} for lag in range(1, LAGS + 1)]
    best = max(range(LAGS), key=lambda index: by_lag[index][f"hit@{K}"]) + 1
    result = {
        "users": len(users),
        "of_users": sequences.n_users,
        "events": len(items) + len(users),
        "sampled": len(users) < int((sequences.lengths >= 3).sum()),
        "shuffles": shuffles,
        "by_lag": by_lag,
        "best": best,
    }
    if times is not None and len(tied := _tied_stretches(times, offsets)) - 1 < len(items):
        result["tied"] = {"lag": best, **_compare(ranks(items, best), shuffled(tied, best))}
    return result


def _sample(lengths: np.ndarray, events: int, rng: np.random.Generator) -> np.ndarray:
    """Choose users of at least 3 events, at random where all of them have more events than wanted, in order."""
    users = np.flatnonzero(lengths >= 3)
    if lengths[users].sum() <= events:
        return users
    users = users[np.argsort(rng.random(len(users)))]
    wanted = np.searchsorted(np.cumsum(lengths[users]), events)
    return np.sort(users[: max(1, wanted)])


def _histories(sequences: Sequences, users: np.ndarray, events: int) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Take what comes before each user's last event, at most the latest `events`: items, offsets and times."""
    lengths = np.minimum(sequences.lengths[users] - 1, events)
    offsets = np.zeros(len(users) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    last = np.asarray(sequences.offsets)[users + 1] - 1
    source = np.arange(offsets[-1]) + np.repeat(last - lengths - offsets[:-1], lengths)
    times = None if sequences.times is None else np.asarray(sequences.times)[source]
    return np.asarray(sequences.items)[source].astype(np.int64), offsets, times


def _shuffle(items: np.ndarray, offsets: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Shuffle items inside each stretch."""
    stretch = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    return items[np.argsort(stretch + rng.random(len(items)), kind="stable")]


def _tied_stretches(times: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return where stretches of one user and one time begin, and the end."""
    new = np.ones(len(times) + 1, bool)
    new[1:-1] = times[1:] != times[:-1]
    new[offsets] = True
    return np.flatnonzero(new)


def _compare(true: np.ndarray, shuffled: np.ndarray) -> dict[str, Any]:
    """Set the ranks of the true order (users,) against those of shuffled orders (shuffles, users)."""
    hits = (shuffled <= K).mean(axis=1)
    gains = (true <= K) - (shuffled <= K).mean(axis=0)
    return {
        **_figures(true),
        "shuffled": _figures(shuffled) | {"spread": float(hits.std(ddof=1)) if len(hits) > 1 else 0.0},
        "gain": float(gains.mean()),
        "error": float(gains.std() / len(gains) ** 0.5),
    }


def _figures(ranks: np.ndarray) -> dict[str, float]:
    return {f"hit@{K}": float((ranks <= K).mean()), "mrr": float((1 / ranks).mean())}
