"""Sampled softmax: values and all gradients against the dense reference in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from loss_cases import CORRECTED, check, make
from loss_cases import expect as expect_whole

from hcarec.ops import reference
from hcarec.ops.loss.sampled import sampled_softmax

# Positions, items, d, and how many different items are drawn.
SIZES = [(1, 1, 1, 1), (1, 2, 1, 2), (2, 9, 7, 3), (13, 31, 17, 31), (70, 388, 33, 50)]


def draw(n_items: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return n different items, ascending, and the log of the chance of each to be drawn."""
    rng = np.random.default_rng([n_items, n])
    chances = rng.uniform(0.01, 1, n).astype(np.float32)
    return np.sort(rng.permutation(n_items)[:n]), np.log(chances)


def expect(task: tuple[Any, ...], drawn: np.ndarray, log_chances: np.ndarray) -> list[Any]:
    """Return loss, dH, dZ and dvalues of the reference in float64."""
    H, Z, targets, corrections = task
    leaves = [torch.from_numpy(rows.astype(np.float64)).requires_grad_() for rows in (H, Z)]
    s = leaves[0] @ leaves[1].T
    if corrections is not None:
        leaves.append(torch.from_numpy(corrections.values).double().requires_grad_())
        rows = np.repeat(np.arange(len(H)), np.diff(corrections.offsets))
        places = torch.from_numpy(rows), torch.from_numpy(corrections.items).long()
        s = s.index_put(places, leaves[2], accumulate=True)
    chances = torch.ones(len(Z), dtype=torch.float64)
    chances[torch.from_numpy(drawn)] = torch.from_numpy(log_chances).double().exp()
    loss = reference.sampled_softmax(s, torch.from_numpy(targets), torch.from_numpy(drawn), chances)
    loss.backward()
    return [loss.item(), *(leaf.grad.numpy() for leaf in leaves)]  # type: ignore[union-attr]


def solve(task: tuple[Any, ...], drawn: np.ndarray, log_chances: np.ndarray) -> list[Any]:
    H, Z, targets, corrections = task
    leaves = [torch.from_numpy(rows).clone().requires_grad_() for rows in (H, Z)]
    ragged = None
    if corrections is not None:
        leaves.append(torch.from_numpy(corrections.values).clone().requires_grad_())
        items, offsets = map(torch.from_numpy, corrections[:2])
        ragged = items, offsets, leaves[2]
    loss = sampled_softmax(
        leaves[0], leaves[1], *map(torch.from_numpy, (targets, drawn, log_chances)), ragged
    )
    loss.backward()  # type: ignore[no-untyped-call]
    return [loss.item(), *(leaf.grad.numpy() for leaf in leaves)]  # type: ignore[union-attr]


@pytest.mark.parametrize("corrected", CORRECTED)
@pytest.mark.parametrize("size", SIZES)
def test_agrees_with_the_reference(size: tuple[int, int, int, int], corrected: str) -> None:
    *sizes, n = size
    task, drawn = make(*sizes, corrected), draw(sizes[1], n)
    check(solve(task, *drawn), expect(task, *drawn), 2e-6)


@pytest.mark.parametrize("corrected", CORRECTED)
def test_large_scores_neither_overflow_nor_vanish(corrected: str) -> None:
    H, Z, *rest = make(60, 200, 20, corrected)
    H *= np.float32(80) / np.abs(H @ Z.T).max(1, keepdims=True)
    task, drawn = (H, Z, *rest), draw(200, 40)
    check(solve(task, *drawn), expect(task, *drawn), 1e-5)


def test_a_target_that_alone_was_drawn_leaves_nothing_to_learn() -> None:
    H, Z, _, _ = make(3, 5, 4, "none")
    task = H, Z, np.full(3, 2), None
    loss, *gradients = solve(task, np.array([2]), np.log(np.array([0.5], np.float32)))
    assert loss == 0
    assert not any(gradient.any() for gradient in gradients)


def test_all_items_with_certainty_are_cross_entropy() -> None:
    task, certain = make(20, 30, 8, "some"), np.zeros(30, np.float32)
    check(solve(task, np.arange(30), certain), expect_whole(*task), 2e-6)
