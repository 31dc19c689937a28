"""The reference network: golden values, gradients, and what the paper says of its parts."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from hcarec.ops import parameters, reference

GOLDEN = json.loads((Path(__file__).parent / "golden" / "network.json").read_text())
WIDTHS = [(1, 1), (4, 1), (1, 3), (3, 5)]


def network(n_items: int, d: int, w_x: int, w_h: int, seed: int = 3) -> dict[str, torch.Tensor]:
    theta = parameters.initialise(parameters.shapes(n_items, d, w_x, w_h), seed, np.float64)
    return {name: torch.from_numpy(value) for name, value in theta.items()}


def golden_id(case: dict) -> str:
    return f"x{case['w_x']}-h{case['w_h']}"


@pytest.mark.parametrize("case", GOLDEN, ids=golden_id)
def test_golden_values(case: dict) -> None:
    theta = {name: torch.tensor(value, dtype=torch.float64) for name, value in case["theta"].items()}
    items, negatives = torch.tensor(case["items"]), torch.tensor(case["negatives"])
    h, a_x = reference.hidden(theta, items, case["w_x"])
    h_o, a_h = reference.interest(theta, h, case["w_h"])
    for value, name in ((h, "h"), (h_o, "h_o"), (a_x, "a_x"), (a_h, "a_h")):
        if value is None:
            assert case[name] == []
        else:
            np.testing.assert_allclose(value.numpy(), case[name], atol=1e-13)
    loss = reference.bpr_loss(theta, items, negatives, case["w_x"], case["w_h"])
    penalty = reference.l2(theta, items[1:], negatives, case["lam"])
    assert loss.item() == pytest.approx(case["loss"], abs=1e-12)
    assert penalty.item() == pytest.approx(case["l2"], abs=1e-12)


@pytest.mark.parametrize("case", GOLDEN, ids=golden_id)
def test_golden_gradients(case: dict) -> None:
    theta = {name: torch.tensor(value, dtype=torch.float64, requires_grad=True) for name, value in case["theta"].items()}
    items, negatives = torch.tensor(case["items"]), torch.tensor(case["negatives"])
    loss = reference.bpr_loss(theta, items, negatives, case["w_x"], case["w_h"])
    (loss + reference.l2(theta, items[1:], negatives, case["lam"])).backward()
    for name, value in theta.items():
        np.testing.assert_allclose(value.grad.numpy(), case["gradients"][name], atol=1e-12, err_msg=name)


@pytest.mark.parametrize(("w_x", "w_h"), WIDTHS)
def test_gradcheck(w_x: int, w_h: int) -> None:
    theta = network(6, 3, w_x, w_h)
    names = list(theta)
    items, negatives = torch.tensor([1, 4, 1, 0, 5]), torch.tensor([2, 2, 3, 0])

    def loss(*values: torch.Tensor) -> torch.Tensor:
        given = dict(zip(names, values, strict=True))
        return reference.bpr_loss(given, items, negatives, w_x, w_h) + reference.l2(given, items[1:], negatives, 0.1)

    assert torch.autograd.gradcheck(loss, [theta[name].clone().requires_grad_() for name in names])


def test_zero_vectors_keep_their_share() -> None:
    theta = network(6, 4, 5, 1)
    x = theta["X"][torch.tensor([2, 3])]
    x_c, a = reference.attend(x, theta["Q_x"], theta["r_x"], 5)
    score = torch.tanh(x @ theta["Q_x"].T) @ theta["r_x"]
    share = torch.exp(score[0]) / (4 + torch.exp(score[0]))
    torch.testing.assert_close(a[0], torch.stack([(1 - share) / 4] * 4 + [share]))
    torch.testing.assert_close(x_c[0], share * x[0])
    torch.testing.assert_close(a.sum(1), torch.ones(2, dtype=torch.float64))


@pytest.mark.parametrize(("w_x", "w_h"), WIDTHS)
def test_step_by_step_equals_whole_pass(w_x: int, w_h: int) -> None:
    theta = network(9, 5, w_x, w_h)
    items = torch.tensor([3, 1, 8, 8, 0, 4, 2, 7])
    h, _ = reference.hidden(theta, items, w_x)
    h_o, _ = reference.interest(theta, h, w_h)
    state = reference.start(theta, w_x, w_h)
    for t, item in enumerate(items.tolist()):
        state, interest = reference.step(theta, state, item, w_x, w_h)
        torch.testing.assert_close(state.h, h[t])
        torch.testing.assert_close(interest, h_o[t])
    assert state.items.tolist() == items[len(items) - w_x + 1 :].tolist()
    torch.testing.assert_close(state.hidden, h[len(h) - w_h + 1 :])


def test_both_levels_off_is_a_plain_gru() -> None:
    theta = network(9, 4, 1, 1)
    U, W, b, X = (theta[name].numpy() for name in "UWbX")
    items, h = [3, 1, 8, 8, 0], np.zeros(4)
    for item in items:
        g = U @ X[item] + b
        z, r = (1 / (1 + np.exp(-(g[i] + W[i] @ h))) for i in range(2))
        h = (1 - z) * h + z * np.tanh(g[2] + W[2] @ (r * h))
    states, a_x = reference.hidden(theta, torch.tensor(items), 1)
    interests, a_h = reference.interest(theta, states, 1)
    np.testing.assert_allclose(interests[-1].numpy(), h, atol=1e-14)
    assert a_x is None and a_h is None


def test_reset_gate_acts_before_the_matrix() -> None:
    theta = network(3, 2, 1, 1)
    theta["W"][2] = torch.tensor([[0.0, 3.0], [0.0, 0.0]], dtype=torch.float64)
    theta["b"][1] = torch.tensor([50.0, -50.0])  # r = (1, 0): what W_c reads of h is closed, what it writes to is open
    h, x = torch.tensor([0.4, 0.9], dtype=torch.float64), theta["X"][1]
    closed = reference.cell(theta, h, x, None)
    theta["W"][2] = 0
    torch.testing.assert_close(closed, reference.cell(theta, h, x, None))


def test_ragged_batch_equals_single() -> None:
    theta = network(9, 4, 3, 2)
    items, offsets = torch.tensor([3, 1, 8, 8, 0, 4]), torch.tensor([0, 2, 2, 6])
    together = reference.encode(theta, items, offsets, 3, 2)
    alone = reference.encode(theta, items[2:], torch.tensor([0, 4]), 3, 2)
    torch.testing.assert_close(together[2], alone[0], rtol=0, atol=0)
    assert not together[1].any()


def test_penalty_counts_occurrences() -> None:
    theta = network(5, 2, 1, 1)
    dense = sum((theta[name] ** 2).sum() for name in "UWb")
    rows = (theta["X"] ** 2).sum(1)
    expected = 0.5 / 2 * (dense + 2 * rows[1] + rows[3] + 3 * rows[4])
    actual = reference.l2(theta, torch.tensor([1, 1, 3]), torch.tensor([4, 4, 4]), 0.5)
    torch.testing.assert_close(actual, expected)
