"""One random negative for every test item: what the paper's AUC compares it with."""

from __future__ import annotations

import numpy as np

_STEP = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def sample_negatives(
    exclude: tuple[np.ndarray, np.ndarray],
    counts: np.ndarray,
    n_items: int,
    seed: int,
    users: np.ndarray | None = None,
) -> np.ndarray:
    """Draw items that the user does not have, uniformly and independently.

    `exclude` is ragged, (items, offsets (n + 1,)): all training and test items of each user, repeats allowed; `counts`
    (n,) says how many draws each user gets. The result (sum(counts),) int32 holds -1 for a user who has the whole
    catalogue. A draw depends on `seed`, the user's number in `users` (by default 0..n-1) and its position alone, so
    that evaluating some of the users, or all of them again, compares with the same items.
    """
    counts = np.asarray(counts, np.int64)
    n = len(counts)
    numbers = np.arange(n) if users is None else np.asarray(users)
    rows, items = _distinct(*exclude, n_items)
    n_excluded = np.bincount(rows, minlength=n)
    first = np.cumsum(n_excluded) - n_excluded
    # Of a user's excluded items e_0 < e_1 < .., e_i - i others lie before e_i. So the r-th item outside (from 0) is
    # r + the number of those with e_i - i <= r; a search among all users at once finds that number.
    others_before = items - (np.arange(len(items)) - first[rows])
    stride = n_items + 1
    draw_rows = np.repeat(np.arange(n), counts)
    outside = (n_items - n_excluded)[draw_rows]
    result = np.full(len(draw_rows), -1, np.int32)
    possible = np.flatnonzero(outside > 0)
    draw_rows = draw_rows[possible]
    positions = possible - (np.cumsum(counts) - counts)[draw_rows]
    chosen = _uniform_below(outside[possible], seed, numbers[draw_rows], positions)
    passed = np.searchsorted(rows * stride + others_before, draw_rows * stride + chosen, side="right")
    result[possible] = chosen + passed - first[draw_rows]
    return result


def _distinct(items: np.ndarray, offsets: np.ndarray, n_items: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (row, item) of every distinct pair, in that order."""
    rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    pairs = np.sort(rows * n_items + np.asarray(items, np.int64))
    pairs = pairs[np.diff(pairs, prepend=-1) > 0]  # np.unique takes a hundred times as long
    return pairs // n_items, pairs % n_items


def _uniform_below(bounds: np.ndarray, seed: int, users: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Return integers in [0, bound), each from its own counter; the few beyond the last whole multiple are redrawn."""
    bound = bounds.astype(np.uint64)
    stream = _mix(np.full(len(bounds), seed & _MASK, np.uint64))
    stream = _mix(stream + users.astype(np.uint64) * np.uint64(_STEP))
    stream = _mix(stream + positions.astype(np.uint64) * np.uint64(_STEP))
    last_whole = np.uint64(_MASK) - (np.uint64(_MASK) % bound + np.uint64(1)) % bound
    drawn = _mix(stream)
    while (again := drawn > last_whole).any():
        stream[again] += np.uint64(_STEP)
        drawn[again] = _mix(stream[again])
    return (drawn % bound).astype(np.int64)


def _mix(values: np.ndarray) -> np.ndarray:
    """Return splitmix64's output for each state."""
    values = values + np.uint64(_STEP)
    values = (values ^ values >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ values >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    mixed: np.ndarray = values ^ values >> np.uint64(31)
    return mixed
