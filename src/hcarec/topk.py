"""Exact top-k and exact ranks over the whole catalogue: what evaluation and recommendation both stand on."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from hcarec.errors import ModelError
from hcarec.ops.rank.corrections import Corrections
from hcarec.ties import in_order

Ragged = tuple[np.ndarray, np.ndarray]
"""Items of all users one after another, and the offsets (n_users + 1,) at which each user's begin."""

_CHUNK = 192  # users that share one trip through the catalogue; more gain little and balance the threads worse

WORTH_SCREENING = 256
"""Users for whom a catalogue is screened that has to be encoded first."""
_LAST_TIE = np.iinfo(np.int32).max  # of no item: behind all others
_SURELY_FINITE = 1e37  # no sum of products overflows float32 where the product of the lengths is below


class Ranking(NamedTuple):
    """What `rank` finds.

    `items` (users, k) int32, best first, -1 where there are fewer than k; `scores` (users, k) float32, -inf there.
    Where test items are given, one value for each of them: `test_scores` float32; `below_all` int64, the number of
    catalogue items that score strictly lower; `below` int64, the same among the user's negatives alone; and
    `n_negatives` (users,) int64, the items that are neither excluded nor test items.
    """

    items: np.ndarray
    scores: np.ndarray
    test_scores: np.ndarray | None = None
    below_all: np.ndarray | None = None
    below: np.ndarray | None = None
    n_negatives: np.ndarray | None = None


class Queries(NamedTuple):
    """What histories are ranked by: vectors (n, d) float32, and corrections of some items' scores."""

    vectors: np.ndarray
    corrections: Corrections | None = None

    @property
    def n(self) -> int:
        """Return the number of histories."""
        return len(self.vectors)

    def take(self, rows: np.ndarray | slice) -> Queries:
        """Return the queries of some histories, `rows` (m,) int or a slice, in that order."""
        return Queries(self.vectors[rows], None if self.corrections is None else self.corrections.take(rows))


class Catalogue(NamedTuple):
    """The item vectors in the layout of the kernels.

    `panels` hold them in the order `order` (items,) int32; where the items can be screened, it is that of descending
    length, and `codes`, `bounds` and `reach` are what `hcarec.ops.screen` needs. `greatest` is the greatest length.
    """

    panels: np.ndarray
    order: np.ndarray
    codes: np.ndarray | None = None
    bounds: np.ndarray | None = None
    reach: float = 0.0
    greatest: float = np.inf


def pack(X: np.ndarray, screened: bool = True) -> Catalogue:
    """Return the item vectors (items, d) in the layout of the kernels, to be kept by whoever ranks again and again.

    `screened` adds what rules out most items quickly, for rankings without test items.
    """
    from hcarec.ops import score, screen

    X = np.ascontiguousarray(X, np.float32)
    lengths = _lengths(X)
    if not (screened and len(X) > score.STRIP and X.shape[1] <= screen.LARGEST_D and np.isfinite(lengths).all()):
        return Catalogue(score.pack(X), np.arange(len(X), dtype=np.int32))
    order = np.argsort(-lengths, kind="stable").astype(np.int32)
    X = X[order]
    codes, bounds, reach = screen.encode(X)
    return Catalogue(score.pack(X), order, codes, bounds, reach, float(lengths[order[0]]))


def _lengths(vectors: np.ndarray) -> np.ndarray:
    squares: np.ndarray = np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64)
    return np.sqrt(squares)


def rank(
    H: np.ndarray,
    X: np.ndarray,
    tie_rank: np.ndarray,
    k: int,
    *,
    hidden: Ragged | None = None,
    allowed: np.ndarray | None = None,
    test: Ragged | None = None,
    exclude: Ragged | None = None,
    corrections: Corrections | None = None,
    packed: Catalogue | None = None,
    by_tie: np.ndarray | None = None,
    threads: int | None = None,
) -> Ranking:
    """Rank all items for every user by the product of their vectors, corrected for some items, in one pass and exactly.

    `H` (users, d), `X` (items, d); `tie_rank` (items,) orders equal scores, see `hcarec.ties`. `hidden` items of a
    user and items outside `allowed` (items,) bool are kept out of the top-k; they change nothing else. `test` asks for
    the position of the user's test items, `exclude` names the items (training ones) that are no negatives beside
    them; `corrections` are added to the products of some items wherever a score counts; `packed` is `pack(X)` and
    `by_tie` is `ties.in_order(tie_rank)` where they are at hand. A score does not depend on who else is ranked or by
    how many threads.
    """
    from hcarec.ops import score, screen

    H, X = _vectors(H, X)
    tie_rank = np.ascontiguousarray(tie_rank, np.int32)
    n_users, n_items = len(H), len(X)
    assert k >= 1 and tie_rank.shape == (n_items,)
    if packed is None:
        packed = pack(X, screened=test is None and n_users >= WORTH_SCREENING)
    mask = np.zeros(0, np.bool_) if allowed is None else np.ascontiguousarray(allowed, np.bool_)
    assert len(mask) in (0, n_items)
    corrections = _checked(corrections, n_users, n_items)
    not_offered = _sorted_within(_ragged(hidden, n_users, n_items))
    test_items, test_offsets = _ragged(test, n_users, n_items)
    test_scores = _pair_scores(H, X, (test_items, test_offsets), corrections, threads)
    below = np.zeros(len(test_items), np.int64)
    scores = np.full((n_users, k), -np.inf, np.float32)
    ties = np.full((n_users, k), _LAST_TIE, np.int32)
    if corrections is not None:
        products = _pair_scores(H, X, corrections[:2], None, threads)
        not_offered = _offer_corrected(corrections, products, tie_rank, mask, not_offered, scores, ties, threads)

    # Only where all scores are needed, or some might not be finite, every one is computed.
    screened = test is None and packed.codes is not None and float(_lengths(H).max(initial=0)) * packed.greatest < _SURELY_FINITE

    def kernel(start: int, end: int) -> int:
        if screened:
            screen.rank_screened(H, *packed[:5], tie_rank, mask, *not_offered, start, end, scores, ties)
            return -1
        return int(
            score.rank_users(
                H, packed.panels, packed.order, tie_rank, mask, *not_offered, test_scores, test_offsets,
                start, end, scores, ties, below,
            )
        )  # fmt: skip

    bad = [user for user in _over_users(kernel, n_users, threads) if user is not None and user >= 0]
    if bad:
        raise ModelError(f"the scores of user row {min(bad)} are not numbers (NaN): the model has diverged, train it again with a lower learning rate")
    by_tie = in_order(tie_rank) if by_tie is None else by_tie
    items, there = np.full(ties.shape, -1, np.int32), ties < n_items
    items[there] = by_tie[ties[there]]
    if test is None:
        return Ranking(items, scores)
    below_all = below.copy()
    known, known_offsets = _distinct_within((test_items, test_offsets), _ragged(exclude, n_users, n_items))
    _over_users(lambda start, end: score.without_known(H, X, test_scores, test_offsets, known, known_offsets, start, end, below), n_users, threads)
    if corrections is not None:
        _recount(corrections, products, (test_scores, test_offsets), (known, known_offsets), below_all, below, threads)
    return Ranking(items, scores, test_scores, below_all, below, n_items - np.diff(known_offsets))


def rank_variants(
    H: np.ndarray,
    X: np.ndarray,
    tie_rank: np.ndarray,
    k: int,
    variants: Iterable[Corrections],
    *,
    hidden: Ragged | None = None,
    packed: Catalogue | None = None,
    by_tie: np.ndarray | None = None,
    threads: int | None = None,
) -> Iterator[np.ndarray]:
    """Yield the top-k items (users, k) that `rank` finds under each of several corrections, in one pass through the catalogue.

    All variants correct the same items and differ in their values.
    """
    from hcarec.ops.rank import kernels

    H, X = _vectors(H, X)
    tie_rank, no_mask = np.ascontiguousarray(tie_rank, np.int32), np.zeros(0, np.bool_)
    n_users, n_items = len(H), len(X)
    by_tie = in_order(tie_rank) if by_tie is None else by_tie
    not_shown = _sorted_within(_ragged(hidden, n_users, n_items))
    others: tuple[np.ndarray, np.ndarray] | None = None
    for corrections in variants:
        corrections.check(n_users, n_items)
        if others is None:
            items = corrections[:2]
            products = _pair_scores(H, X, items, None, threads)
            plain = rank(H, X, tie_rank, k, hidden=_distinct_within(items, not_shown), packed=packed, by_tie=by_tie, threads=threads)
            others = plain.scores, np.where(plain.items >= 0, tie_rank[plain.items], _LAST_TIE)
        scores, ties = np.full((n_users, k), -np.inf, np.float32), np.full((n_users, k), _LAST_TIE, np.int32)
        kernels.offer_corrected(*corrections, products, tie_rank, no_mask, *not_shown, 0, n_users, scores, ties)
        scores, ties = np.concatenate([others[0], scores], axis=1), np.concatenate([others[1], ties], axis=1)
        best = np.take_along_axis(ties, np.lexsort((ties, -scores))[:, :k], axis=1)
        yield np.where(best < n_items, by_tie[np.minimum(best, n_items - 1)], -1)


def warm() -> None:
    """Compile what ranking needs, or load it compiled."""
    one, X = (np.zeros(1, np.int32), np.array([0, 1])), np.ones((1_000, 1))
    corrections = Corrections(*one, np.zeros(1, np.float32))
    rank(X[:1], X, np.arange(1_000), 1, hidden=one, test=one, exclude=one, corrections=corrections, threads=1)
    rank(X[:1], X, np.arange(1_000), 1, packed=pack(X), threads=1)


def pair_scores(
    H: np.ndarray, X: np.ndarray, items: np.ndarray, offsets: np.ndarray, *, corrections: Corrections | None = None, threads: int | None = None
) -> np.ndarray:
    """Return the scores of given items for each user, ragged as they are, with the very bits that `rank` sees."""
    H, X = _vectors(H, X)
    return _pair_scores(H, X, _ragged((items, offsets), len(H), len(X)), _checked(corrections, len(H), len(X)), threads)


def _pair_scores(H: np.ndarray, X: np.ndarray, pairs: Ragged, corrections: Corrections | None, threads: int | None) -> np.ndarray:
    from hcarec.ops import score

    scores = np.empty(len(pairs[0]), np.float32)
    _over_users(lambda start, end: score.score_pairs(H, X, *pairs, scores, start, end), len(H), threads)
    if corrections is not None:
        from hcarec.ops.rank import kernels

        _over_users(lambda start, end: kernels.correct_pairs(*corrections, *pairs, start, end, scores), len(H), threads)
    return scores


def _offer_corrected(
    corrections: Corrections, products: np.ndarray, tie_rank: np.ndarray, mask: np.ndarray, hidden: Ragged,
    scores: np.ndarray, ties: np.ndarray, threads: int | None,
) -> Ragged:  # fmt: skip
    """Take corrected items into the top-k; return the items that the pass must not offer, the hidden and the corrected."""
    from hcarec.ops.rank import kernels

    both = np.empty(len(hidden[0]) + len(corrections.items), np.int32)

    def work(start: int, end: int) -> None:
        kernels.offer_corrected(*corrections, products, tie_rank, mask, *hidden, start, end, scores, ties)
        kernels.merge(*corrections[:2], *hidden, start, end, both)

    _over_users(work, len(scores), threads)
    return both, hidden[1] + corrections.offsets


def _recount(
    corrections: Corrections, products: np.ndarray, test_scores: Ragged, known: Ragged, below_all: np.ndarray, below: np.ndarray, threads: int | None
) -> None:
    """Turn the counts of products below each test score into counts of scores."""
    from hcarec.ops.rank import kernels

    def work(start: int, end: int) -> None:
        kernels.recount(*corrections, products, *test_scores, *known, start, end, below_all, below)

    _over_users(work, len(corrections.offsets) - 1, threads)


def _checked(corrections: Corrections | None, n_users: int, n_items: int) -> Corrections | None:
    """Return the corrections after a check, or None where there are none at all."""
    if corrections is None:
        return None
    corrections.check(n_users, n_items)
    return corrections if len(corrections.items) else None


def _over_users(work: Callable[[int, int], int | None], n_users: int, threads: int | None) -> list[int | None]:
    """Run `work(start, end)` over all users in chunks, several threads at a time; the kernels let go of the GIL."""
    threads = threads or os.cpu_count() or 1
    # A whole number of register tiles, small enough that a short batch still keeps every thread busy.
    size = min(_CHUNK, -(-n_users // (threads * 6)) * 6) or 1
    starts = range(0, n_users, size)
    if threads == 1 or len(starts) == 1:
        return [work(start, min(start + size, n_users)) for start in starts]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(lambda start: work(start, min(start + size, n_users)), starts))


def _vectors(H: np.ndarray, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    H, X = np.ascontiguousarray(H, np.float32), np.ascontiguousarray(X, np.float32)
    assert H.ndim == X.ndim == 2 and H.shape[1] == X.shape[1] >= 1, (H.shape, X.shape)
    return H, X


def _ragged(given: Ragged | None, n_users: int, n_items: int) -> Ragged:
    if given is None:
        return np.zeros(0, np.int32), np.zeros(n_users + 1, np.int64)
    items, offsets = np.ascontiguousarray(given[0], np.int32), np.ascontiguousarray(given[1], np.int64)
    assert len(offsets) == n_users + 1 and offsets[0] == 0 and offsets[-1] == len(items)
    # The kernels do not check bounds: an index outside the catalogue would read foreign memory.
    assert not len(items) or (items.min() >= 0 and items.max() < n_items)
    return items, offsets


def _sorted_within(ragged: Ragged) -> Ragged:
    items, offsets = ragged
    users = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    return items[np.lexsort((items, users))], offsets


def _distinct_within(*parts: Ragged) -> Ragged:
    """Join ragged arrays user by user, each item of a user once, in order."""
    n_users = len(parts[0][1]) - 1
    items = np.concatenate([items for items, _ in parts])
    users = np.concatenate([np.repeat(np.arange(n_users), np.diff(offsets)) for _, offsets in parts])
    order = np.lexsort((items, users))
    items, users = items[order], users[order]
    first = np.ones(len(items), np.bool_)
    first[1:] = (items[1:] != items[:-1]) | (users[1:] != users[:-1])
    offsets = np.zeros(n_users + 1, np.int64)
    np.cumsum(np.bincount(users[first], minlength=n_users), out=offsets[1:])
    return items[first], offsets
