"""Negatives and the order of users: exact, uniform, and pure functions of seed and epoch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from hcarec.ops.negatives import draw_user
from hcarec.ops.streams import epoch_order


@settings(max_examples=150, deadline=None)
@given(
    n_items=st.integers(1, 150),
    items=st.lists(st.integers(0, 149), min_size=1, max_size=200),
    user=st.integers(0, 10**9),
    seed=st.integers(-(2**63), 2**64),
    epoch=st.integers(0, 1000),
)
def test_never_an_item_of_the_user(n_items: int, items: list[int], user: int, seed: int, epoch: int) -> None:
    own = np.array(items, np.int32) % n_items
    drawn = draw_user(own, user, n_items, seed, epoch, 50)
    if len(set(own.tolist())) == n_items:
        assert drawn is None
    else:
        assert not set(drawn.tolist()) & set(own.tolist())
        assert drawn.min() >= 0 and drawn.max() < n_items
        np.testing.assert_array_equal(drawn, draw_user(own, user, n_items, seed, epoch, 50))
        np.testing.assert_array_equal(drawn[:7], draw_user(own, user, n_items, seed, epoch, 7))


@pytest.mark.parametrize("own", [[0], [3, 3, 5], [0, 1, 2, 3, 4, 5, 6], [9, 8, 7, 6, 5, 4, 3, 2]], ids=len)
def test_uniform_over_the_complement(own: list[int]) -> None:
    items, free = np.array(own, np.int32), sorted(set(range(10)) - set(own))
    counts = np.bincount(draw_user(items, 3, 10, 1, 0, 200_000), minlength=10)
    assert chisquare(counts[free]).pvalue > 1e-4


@pytest.mark.parametrize("vary", ["user", "epoch", "seed", "step"])
def test_uniform_along_every_key(vary: str) -> None:
    items, counts = np.array([2, 4], np.int32), np.zeros(6)
    for i in range(20_000):
        key = {"user": 0, "epoch": 0, "seed": 0} | ({} if vary == "step" else {vary: i})
        place = i % 50 if vary == "step" else 0
        key |= {"epoch": i // 50} if vary == "step" else {}
        counts[draw_user(items, key["user"], 6, key["seed"], key["epoch"], place + 1)[place]] += 1
    assert chisquare(counts[[0, 1, 3, 5]]).pvalue > 1e-4


def test_neighbouring_draws_are_independent() -> None:
    drawn = draw_user(np.array([5], np.int32), 0, 6, 9, 0, 100_001)
    pairs = np.bincount(drawn[:-1] * 5 + drawn[1:], minlength=25)
    assert chisquare(pairs).pvalue > 1e-4


def test_order_is_a_uniform_permutation() -> None:
    assert sorted(epoch_order(1000, 1, 2)) == list(range(1000))
    np.testing.assert_array_equal(epoch_order(1000, 1, 2), epoch_order(1000, 1, 2))
    assert not np.array_equal(epoch_order(1000, 1, 2), epoch_order(1000, 1, 3))
    assert not np.array_equal(epoch_order(1000, 1, 2), epoch_order(1000, 2, 2))
    counts = np.zeros((4, 4))
    for epoch in range(20_000):
        counts[np.arange(4), epoch_order(4, 7, epoch)] += 1
    for row in counts:
        assert chisquare(row).pvalue > 1e-4
    assert len(epoch_order(0, 1, 1)) == 0
