from __future__ import annotations

import ctypes
import ctypes.util
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hcarec.errors import ModelError
from hcarec.ids import Ids
from hcarec.metrics import evaluate_ranking
from hcarec.ops.rank.corrections import Corrections
from hcarec.ties import tie_rank
from hcarec.topk import pack, pair_scores, rank, rank_variants


def ragged(rows: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    offsets = np.cumsum([0] + [len(row) for row in rows])
    return np.array([item for row in rows for item in row], np.int32), offsets


def whole_numbers(rng: np.random.Generator, *shape: int, high: int = 3) -> np.ndarray:
    """Small whole numbers: their products are exact in any order, and equal scores abound."""
    return rng.integers(-high, high + 1, shape).astype(np.float32)


def by_sorting(scores: np.ndarray, ties: np.ndarray, k: int, barred: set[int]) -> list[int]:
    order = [item for item in np.lexsort((ties, -scores)).tolist() if item not in barred]
    return (order + [-1] * k)[:k]


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_equals_sorting_the_whole_row(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    n_users, d = data.draw(st.integers(1, 15)), data.draw(st.integers(1, 9))
    n_items, k = data.draw(st.sampled_from([1, 2, 15, 16, 17, 511, 512, 513, 1300])), data.draw(st.integers(1, 40))
    H, X = whole_numbers(rng, n_users, d), whole_numbers(rng, n_items, d)
    ties = rng.permutation(n_items).astype(np.int32)
    hidden = [rng.integers(0, n_items, rng.integers(0, 30)).tolist() for _ in range(n_users)]
    train = [rng.integers(0, n_items, rng.integers(0, 30)).tolist() for _ in range(n_users)]
    test = [rng.permutation(n_items)[: rng.integers(0, 12)].tolist() for _ in range(n_users)]
    allowed = rng.random(n_items) < data.draw(st.sampled_from([0.01, 0.5, 1.0]))
    found = rank(H, X, ties, k, hidden=ragged(hidden), allowed=allowed, test=ragged(test), exclude=ragged(train), threads=2)
    scores = H @ X.T
    at = 0
    for user in range(n_users):
        expected = by_sorting(scores[user], ties, k, set(hidden[user]) | set(np.flatnonzero(~allowed).tolist()))
        assert found.items[user].tolist() == expected
        shown = [item for item in expected if item >= 0]
        assert found.scores[user].tolist() == scores[user, shown].tolist() + [-np.inf] * (k - len(shown))
        negatives = np.setdiff1d(np.arange(n_items), train[user] + test[user])
        assert found.n_negatives is not None and found.n_negatives[user] == len(negatives)
        for item in test[user]:
            mine = scores[user, item]
            assert (found.test_scores[at], found.below_all[at]) == (mine, (scores[user] < mine).sum())
            assert found.below[at] == (scores[user, negatives] < mine).sum()
            at += 1


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_variants_of_corrections_are_ranked_as_if_each_were_alone(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    n_users, d = data.draw(st.integers(0, 15)), data.draw(st.integers(1, 5))
    n_items, k = data.draw(st.sampled_from([1, 2, 17, 600])), data.draw(st.integers(1, 30))
    H, X = whole_numbers(rng, n_users, d), whole_numbers(rng, n_items, d)
    ties = rng.permutation(n_items).astype(np.int32)
    hidden = ragged([rng.integers(0, n_items, rng.integers(0, 30)).tolist() for _ in range(n_users)]) if data.draw(st.booleans()) else None
    items, offsets = ragged([np.unique(rng.integers(0, n_items, rng.integers(0, 60))).tolist() for _ in range(n_users)])
    variants = [Corrections(items, offsets, whole_numbers(rng, len(items), high=high)) for high in (0, 1, 20)]
    tops = list(rank_variants(H, X, ties, k, variants, hidden=hidden))
    for top, corrections in zip(tops, variants, strict=True):
        np.testing.assert_array_equal(top, rank(H, X, ties, k, hidden=hidden, corrections=corrections).items)


def fused_chain(h: np.ndarray, x: np.ndarray) -> float:
    """The definition of a score, by the C library's fmaf."""
    libm = ctypes.CDLL(ctypes.util.find_library("m"))
    libm.fmaf.restype, libm.fmaf.argtypes = ctypes.c_float, [ctypes.c_float] * 3
    total = 0.0
    for a, b in zip(h.tolist(), x.tolist(), strict=True):
        total = libm.fmaf(a, b, total)
    return total


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32), st.integers(1, 70), st.integers(1, 1200), st.integers(1, 30))
def test_a_score_has_the_same_bits_whatever_stands_beside_it(seed: int, d: int, n_items: int, n_users: int) -> None:
    rng = np.random.default_rng(seed)
    H = rng.standard_normal((n_users, d)).astype(np.float32)
    X = rng.standard_normal((n_items, d)).astype(np.float32)
    ties = rng.permutation(n_items).astype(np.int32)
    every = rank(H, X, ties, n_items, threads=2)
    table = np.empty((n_users, n_items), np.float32)
    np.put_along_axis(table, every.items.astype(np.int64), every.scores, axis=1)
    # One user alone, one thread, the catalogue in another order and cut short: the very same bits.
    user, order = int(rng.integers(n_users)), rng.permutation(n_items)[: max(1, n_items // 2)]
    alone = rank(H[user : user + 1], X[order], np.arange(len(order), dtype=np.int32), len(order), threads=1)
    again = np.empty(len(order), np.float32)
    again[alone.items[0]] = alone.scores[0]
    assert again.tobytes() == table[user, order].tobytes()
    pairs = pair_scores(H, X, *ragged([list(range(n_items))] * n_users), threads=2)
    assert pairs.tobytes() == table.tobytes()
    item = int(rng.integers(n_items))
    assert fused_chain(H[user], X[item]) == table[user, item]


def drawn_vectors(data: st.DataObject, rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Vectors of every kind that a bound might trip over."""
    kind = data.draw(st.sampled_from(["normal", "whole", "signs", "equal", "cluster", "tailed", "one axis"]))
    vectors = rng.standard_normal((n, d))
    if kind == "whole":
        vectors = rng.integers(-2, 3, (n, d)).astype(float)
    elif kind == "signs":
        vectors = np.sign(vectors)
    elif kind == "equal":
        vectors[:] = vectors[0]
    elif kind == "cluster":
        vectors = vectors[:1] + 1e-3 * vectors
    elif kind == "tailed":
        vectors *= np.exp(3 * rng.standard_normal((n, 1)))
    elif kind == "one axis":
        vectors[:, 1:] = 0
    vectors[rng.random(n) < data.draw(st.sampled_from([0, 0.1, 1]), label="share of zero vectors")] = 0
    # Products down to where float32 has few bits left or none, and up to where it nearly overflows or does.
    scaled: np.ndarray = (vectors * data.draw(st.sampled_from([1, 1, 1e-38, 1e-22, 1e-19, 1e17, 1e18, 1e19]))).astype(np.float32)
    return scaled


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_ruling_items_out_changes_no_bit(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    n_users, d = data.draw(st.integers(1, 14)), data.draw(st.sampled_from([1, 2, 7, 20, 33, 256]))
    n_items = data.draw(st.sampled_from([513, 1_024, 1_500, 4_000]))
    k = data.draw(st.sampled_from([1, 3, 20, 200, n_items - 1, n_items, n_items + 2]))
    H, X = drawn_vectors(data, rng, n_users, d), drawn_vectors(data, rng, n_items, d)
    ties = rng.permutation(n_items).astype(np.int32)
    packed, nothing = pack(X), ragged([[]] * n_users)
    assert packed.codes is not None
    hidden = ragged([rng.integers(0, n_items, rng.integers(0, 60)).tolist() for _ in range(n_users)]) if data.draw(st.booleans()) else None
    allowed = rng.random(n_items) < 0.3 if data.draw(st.booleans()) else None

    def found(**how: Any) -> tuple[bytes, bytes] | str:
        try:
            ranking = rank(H, X, ties, k, hidden=hidden, allowed=allowed, packed=packed, **how)
        except ModelError as error:
            return str(error)
        return ranking.items.tobytes(), ranking.scores.tobytes()

    assert found(threads=1) == found(threads=2) == found(test=nothing)  # where test items are asked for, all scores are computed


@settings(deadline=None, max_examples=50)
@given(st.data())
def test_an_item_that_just_reaches_the_top_is_never_ruled_out(data: st.DataObject) -> None:
    from hcarec.ops import screen

    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    n_users, n_items, d = 4, 520, data.draw(st.sampled_from([1, 2, 3, 20, 65]))
    H, X = drawn_vectors(data, rng, n_users, d), drawn_vectors(data, rng, n_items, d)
    assume(np.linalg.norm(H.astype(float), axis=1).max() * np.linalg.norm(X.astype(float), axis=1).max() < 1e37)
    codes, bounds, reach = screen.encode(X)
    users, starts, user_bounds = screen._encode_users(H, 0, n_users, reach)
    q = codes.reshape(-1, codes.shape[1], 32, 2).transpose(0, 2, 1, 3).reshape(-1, 2 * codes.shape[1])[:n_items].astype(int) - 64
    p = users.transpose(0, 2, 1).reshape(-1, codes.shape[1])[:n_users].copy().view(np.int8).reshape(n_users, -1, 4)[:, :, :2].reshape(n_users, -1).astype(int)
    assert starts.ravel()[:n_users].tolist() == (-64 * p.sum(1)).astype(np.int16).tolist()
    sums = p @ q.T
    assert np.abs(sums).max() <= 32_000
    scores = pair_scores(H, X, *ragged([list(range(n_items))] * n_users)).reshape(n_users, n_items)
    for user in range(n_users):
        for item in range(n_items):
            assert sums[user, item] > screen._limit(user_bounds, user, bounds, item // 512, d, scores[user, item])


def test_the_last_item_may_be_the_best() -> None:
    rng = np.random.default_rng(7)
    X = np.column_stack([-rng.uniform(0.1, 0.9, 1_000), rng.uniform(2, 3, 1_000)])
    X[400] = 1, 0  # the shortest, so that it is looked at last
    packed = pack(X)
    assert packed.order[-1] == 400
    assert rank(np.array([[1.0, 0.0]]), X, np.arange(1_000), 1, packed=packed).items.tolist() == [[400]]


def test_most_items_are_ruled_out_without_a_score() -> None:
    rng = np.random.default_rng(6)
    H, X = rng.standard_normal((12, 20)).astype(np.float32), rng.standard_normal((20_000, 20)).astype(np.float32)
    ties, packed = np.arange(20_000, dtype=np.int32), pack(X)
    expected = rank(H, X, ties, 5, packed=packed)
    # Whoever scores a poisoned item ranks it first; the last strips hold few that come near anyone's best five.
    scores, poisoned = H @ X[packed.order].T, packed.panels.copy()
    far = np.flatnonzero((scores < 0.8 * expected.scores[:, -1:]).all(0) & (np.arange(20_000) >= 10_000))
    assert len(far) > 9_000
    poisoned[far // 16, :, far % 16] = 1e6 * H[0]
    assert rank(H, X, ties, 5, packed=packed._replace(panels=poisoned)).items.tolist() == expected.items.tolist()
    assert rank(H, X, ties, 5, packed=packed._replace(panels=poisoned), test=ragged([[]] * 12)).items[0, 0] in packed.order[far]


@pytest.mark.parametrize("multiply", ["_pairs_by_avx2", "_pairs_by_shifts"])
def test_the_screen_is_the_same_on_every_processor(multiply: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import numba

    from hcarec.ops import screen_tile

    if multiply == "_pairs_by_shifts":
        monkeypatch.setattr(screen_tile, "_pairs_by_avx2", screen_tile._pairs_by_shifts)
    tile, rng = screen_tile.screen_tile, np.random.default_rng(3)
    run = numba.njit(lambda *given: tile(*given))
    p, q = rng.integers(-127, 128, (6, 10)), rng.integers(-63, 64, (32, 10))
    p, q = np.sign(p) * (np.abs(p) // 3), np.where(rng.random(q.shape) < 0.3, 63, q)  # their sums fit 16 bits, as those of `screen`
    users = np.zeros((1, 5, 6, 4), np.int8)
    users[0] = p.reshape(6, 5, 2).transpose(1, 0, 2)[:, :, [0, 1, 0, 1]]
    items = (q.reshape(32, 5, 2).transpose(1, 0, 2) + 64).astype(np.uint8).reshape(1, 5, 64)
    limits, masks = rng.integers(-3_000, 3_000, (1, 6)).astype(np.int16), np.zeros((6, 2), np.uint32)
    run(users.view(np.int32)[..., 0], (-64 * p.sum(1)).astype(np.int16)[None], limits, 0, items, 0, masks, 1)
    expected = ((p @ q.T > limits.T) << np.arange(32)).sum(1)
    assert masks.T.tolist() == [[0] * 6, expected.tolist()]


def test_threads_and_packing_change_nothing() -> None:
    rng = np.random.default_rng(5)
    H, X = rng.standard_normal((401, 7)).astype(np.float32), rng.standard_normal((2_100, 7)).astype(np.float32)
    ties = rng.permutation(2_100).astype(np.int32)
    test = ragged([rng.permutation(2_100)[:5].tolist() for _ in range(401)])
    one = rank(H, X, ties, 20, test=test, threads=1)
    for threads in (2, 3, 8):
        other = rank(H, X, ties, 20, test=test, packed=pack(X), threads=threads)
        assert all(a.tobytes() == b.tobytes() for a, b in zip(one, other, strict=True))


def test_all_scores_equal_gives_the_order_of_the_ties() -> None:
    ties = np.random.default_rng(1).permutation(3_000).astype(np.int32)
    found = rank(np.ones((4, 3)), np.ones((3_000, 3)), ties, 50, hidden=ragged([[], [], [int(np.argmin(ties))], []]))
    order = np.argsort(ties)
    for user in (0, 1, 3):
        assert found.items[user].tolist() == order[:50].tolist()
    assert found.items[2].tolist() == order[1:51].tolist()


def test_a_constant_scorer_gets_what_chance_gives() -> None:
    """Over many catalogues Recall@20 of constant scores is 20 / n_items, wherever the test items lie."""
    rng = np.random.default_rng(2)
    n_items, n_users, hits = 400, 30, {"low": 0.0, "high": 0.0}
    catalogues = 300
    for number in range(catalogues):
        table = Ids.of(f"{number}-{item}" for item in range(n_items))
        found = rank(np.zeros((n_users, 2)), np.ones((n_items, 2)), tie_rank(table.blob, table.offsets), 20, threads=1)
        for name, first in (("low", 0), ("high", n_items // 2)):
            test = ragged([(first + rng.permutation(n_items // 2)[:3]).tolist() for _ in range(n_users)])
            hits[name] += evaluate_ranking(found.items, *test, n_items)[0]["recall@20"] / catalogues
    for name in hits:
        # Users share the list of a catalogue: about 10 of its 20 lie in either half, give or take 2.2.
        assert hits[name] == pytest.approx(20 / n_items, abs=5 * 2.2 / (n_items / 2) / catalogues**0.5)


def test_infinities_are_ranked_and_nan_is_refused() -> None:
    X = np.arange(600, dtype=np.float32)[:, None]
    ties = np.arange(600, dtype=np.int32)
    X[7], X[300] = np.inf, -np.inf
    assert rank(np.ones((1, 1)), X, ties, 600, packed=pack(X)).items[0, [0, -1]].tolist() == [7, 300]
    H = np.ones((20, 1))
    H[[13, 17]] = np.nan
    with pytest.raises(ModelError, match="user row 13 "):
        rank(H, X, ties, 5, threads=2)
    X[599] = np.nan  # the last item, below everyone's top-k if it were a number
    with pytest.raises(ModelError, match="user row 0 "):
        rank(np.ones((3, 1)), X, ties, 5)
    X[599] = 0
    with pytest.raises(ModelError, match="user row 2 "):  # inf * 0, though neither vector holds a NaN
        rank(np.array([[1], [1], [np.inf]]), X, ties, 5)
    large = np.full((600, 2), 1e30, np.float32)
    large[599] = -large[599]
    packed = pack(large)
    assert packed.codes is not None
    assert rank(np.full((2, 2), 1e30), large, ties, 600, packed=packed).scores[0, [0, -1]].tolist() == [np.inf, -np.inf]
    with pytest.raises(ModelError, match="user row 1 "):  # finite vectors, but inf - inf
        rank(np.array([[1, -1], [np.nan, 1]]), large, ties, 5, packed=packed)
    with pytest.raises(ModelError, match="user row 0 "):
        rank(np.array([[1, np.inf]]), np.zeros((600, 2)), ties, 5, packed=pack(np.zeros((600, 2))))


def test_no_users_and_fewer_items_than_k() -> None:
    X, ties = np.ones((3, 2)), np.array([2, 0, 1], np.int32)
    assert rank(np.ones((0, 2)), X, ties, 4).items.shape == (0, 4)
    assert rank(np.ones((1, 2)), X, ties, 4).items.tolist() == [[1, 2, 0, -1]]
    nothing = rank(np.ones((1, 2)), X, ties, 2, allowed=np.zeros(3, bool))
    assert nothing.items.tolist() == [[-1, -1]] and np.isneginf(nothing.scores).all()
