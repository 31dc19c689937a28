"""What mini-batch training minimizes: negatives, and the item vectors that a batch needs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from hcarec import synthetic, train
from hcarec.settings import MinibatchSettings
from hcarec.training import minibatch
from hcarec.training.objective import Negatives, Objective, narrow

QUICK: dict[str, Any] = {
    "model": "hca-gru", "preset": "paper", "trainer": "minibatch", "d": 8, "epochs": 1,
    "batch_size": 32, "warmup": 10, "learning_rate": 0.02, "initial": "scaled", "negatives": 7,
    "compare": False, "threads": 1,
}  # fmt: skip
OPTIONS: dict[str, Any] = {
    "blocks": 1, "padding": "masked", "fusion": "residual", "scores": "cosine", "item_norm": True,
    "copy_window": 5, "input_dropout": 0.1, "output_dropout": 0.1,
}  # fmt: skip


@pytest.mark.parametrize("sampling", ["popularity", "uniform"])
def test_the_chance_of_an_item_is_how_often_it_is_drawn(sampling: str) -> None:
    item_events = np.array([1, 2, 5, 10, 30, 100, 0, 3])
    settings = MinibatchSettings(loss="sampled-softmax", negatives=6, sampling=sampling)
    objective = Objective(settings, item_events, torch.device("cpu"), 1, None)
    torch.manual_seed(0)
    times, chances = np.zeros(8), np.zeros(8)
    for _ in range(3000):
        drawn = objective.draw()
        assert drawn is not None and (drawn.items.diff() > 0).all()
        times[drawn.items.numpy()] += 1
        chances[drawn.items.numpy()] = drawn.log_chances.exp()
    np.testing.assert_allclose(times / 3000, chances, atol=0.03)


def test_items_are_numbered_anew() -> None:
    before = torch.tensor([[7, 3, 0], [3, 9, 7]]), torch.tensor([9, 4]), torch.tensor([2, 4, 9])
    occurring, *after = narrow(*before)
    assert occurring.tolist() == [0, 2, 3, 4, 7, 9]
    for numbers, places in zip(before, after, strict=True):
        assert torch.equal(occurring[places], numbers)


@pytest.mark.parametrize("options", [{}, OPTIONS], ids=["plain", "options"])
@pytest.mark.parametrize("loss", ["sampled-softmax", "bpr-max", "bce"])
def test_a_batch_learns_from_the_rows_that_it_needs_as_from_all(
    loss: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = synthetic(users=300, items=60, mean_length=15, interest=0.9, taste=0.05, seed=4)
    narrowed = train(data, **QUICK, **options, loss=loss)
    every = torch.arange(data.n_items)
    monkeypatch.setattr(minibatch, "narrow", lambda *numbers: (every, *numbers))
    whole = train(data, **QUICK, **options, loss=loss)
    for name, values in whole.theta.items():
        np.testing.assert_allclose(narrowed.theta[name], values, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("loss", ["sampled-softmax", "bpr-max", "bce"])
def test_targets_that_are_all_the_negatives_teach_nothing(loss: str) -> None:
    H, Z = torch.randn(3, 4, requires_grad=True), torch.randn(2, 4, requires_grad=True)
    settings = MinibatchSettings(loss=loss, negatives=5)
    objective = Objective(settings, np.array([0, 9]), torch.device("cpu"), 1, None)
    negatives = Negatives(torch.ones(1, dtype=torch.int64), torch.zeros(1))
    value = objective(H, Z, torch.ones(3, dtype=torch.int64), None, negatives)
    value.backward()
    assert value.isfinite()
    assert H.grad is not None and Z.grad is not None and bool(H.grad.isfinite().all())
    assert not Z.grad[0].any() and bool(Z.grad.isfinite().all())
