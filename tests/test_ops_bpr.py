"""BPR matrix factorisation against the reference, and folding in a bare history."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hcarec.ops import bpr, negatives, parameters, reference, streams


def factors(n_users: int, n_items: int, d: int, dtype: Any = np.float64, seed: int = 3) -> parameters.Theta:
    return parameters.initialise({"P": (n_users, d), "X": (n_items, d)}, seed, dtype)


def tensors(theta: parameters.Theta) -> dict[str, torch.Tensor]:
    return {name: torch.tensor(value, dtype=torch.float64, requires_grad=True) for name, value in theta.items()}


@settings(max_examples=60, deadline=None)
@given(n=st.integers(1, 40), d=st.integers(1, 40), seed=st.integers(0, 1000), single=st.booleans())
def test_values_and_gradients(n: int, d: int, seed: int, single: bool) -> None:
    dtype, tolerance = (np.float32, 1e-4) if single else (np.float64, 1e-10)
    rng = np.random.default_rng(seed)
    items, drawn = rng.integers(0, 20, n), rng.integers(0, 20, n)
    theta = factors(3, 20, d, dtype, seed)
    loss, penalty, gradients = bpr.user_gradients(theta, 1, items, drawn, 0.01)
    expected = tensors(theta)
    expected_loss = reference.mf_loss(expected, 1, torch.tensor(items), torch.tensor(drawn))
    expected_penalty = reference.mf_l2(expected, 1, torch.tensor(items), torch.tensor(drawn), 0.01)
    (expected_loss + expected_penalty).backward()
    assert loss == pytest.approx(expected_loss.item(), rel=tolerance)
    assert penalty == pytest.approx(expected_penalty.item(), rel=tolerance)
    for name, tensor in expected.items():
        truth = tensor.grad.numpy()
        np.testing.assert_allclose(gradients[name], truth, rtol=0, atol=tolerance * np.abs(truth).max(), err_msg=name)


def test_training_equals_sgd_on_the_reference() -> None:
    items = np.random.default_rng(0).integers(0, 9, 30).astype(np.int32)
    offsets = np.array([0, 12, 12, 13, 30])
    theta = factors(4, 12, 7)
    expected = tensors(theta)
    for epoch in range(2):
        order = streams.epoch_order(4, 5, epoch)
        result = bpr.train_users(theta, items, offsets, order, seed=5, epoch=epoch, learning_rate=0.05, lam=0.01)
        total = 0.0
        for user in order:
            own = items[offsets[user] : offsets[user + 1]]
            if len(own) == 0:
                continue
            drawn = torch.tensor(negatives.draw_user(own, user, 12, 5, epoch, len(own))).long()
            own = torch.tensor(own).long()
            loss = reference.mf_loss(expected, user, own, drawn)
            penalty = reference.mf_l2(expected, user, own, drawn, 0.01)
            values = list(expected.values())
            for value, gradient in zip(values, torch.autograd.grad(loss + penalty, values), strict=True):
                value.data -= 0.05 * gradient
            total += loss.item()
        assert result.loss == pytest.approx(total) and result[2:] == (30, 0, -1, -1)
    for name, value in expected.items():
        np.testing.assert_allclose(theta[name], value.detach().numpy(), atol=1e-12)


def test_a_bad_loss_stops_before_its_update() -> None:
    items, offsets = np.array([0, 1, 2, 3], np.int32), np.array([0, 2, 4])
    theta = factors(2, 50, 5, np.float32)
    theta["X"][3] = np.nan
    result = bpr.train_users(theta, items, offsets, np.array([0, 1]), seed=1, epoch=0, learning_rate=0.05, lam=0.01)
    assert (result.bad_position, result.bad_step, result.steps) == (1, 2, 2)
    assert np.isfinite(theta["P"]).all() and np.isnan(theta["X"]).sum() == 5


def test_fold_in_is_deterministic_and_optimal() -> None:
    X = factors(1, 60, 6, np.float32)["X"]
    items = np.array([3, 9, 9, 20])
    u = bpr.fold_in(X, items, lam=0.1)
    np.testing.assert_array_equal(u, bpr.fold_in(X, items, lam=0.1))
    assert (X[items] @ u).mean() > np.delete(X @ u, items).mean() + 0.1
    drawn = negatives.draw_user(items, 0, 60, 0, 0, 80)
    pairs = torch.tensor(np.repeat(X[items], 20, axis=0) - X[drawn], dtype=torch.float64)
    free = torch.tensor(u, dtype=torch.float64, requires_grad=True)
    objective = -torch.nn.functional.logsigmoid(pairs @ free).sum() / 20 + 0.05 * free.square().sum()
    (gradient,) = torch.autograd.grad(objective, free)
    assert gradient.abs().max() < 1e-5


def test_fold_in_without_anything_to_learn_from() -> None:
    X = factors(1, 4, 6, np.float32)["X"]
    assert not bpr.fold_in(X, np.array([], np.int64), lam=0.1).any()
    assert not bpr.fold_in(X, np.array([0, 1, 2, 3]), lam=0.1).any()
