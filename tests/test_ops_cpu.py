"""The CPU engine against the reference: values, every gradient, training, encoding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hcarec.ops import cpu, negatives, parameters, reference, streams

TOLERANCE = {np.float64: 1e-10, np.float32: 1e-4}
SGD = {"learning_rate": 0.05, "lam": 0.01}


@pytest.fixture(autouse=True)
def poison(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fill work space that is not initialised with NaN, so that reading it cannot go unseen."""
    for dtype in TOLERANCE:
        cpu.warm(dtype)  # a kernel that calls np.empty cannot be compiled once it is replaced
    empty, empty_like = np.empty, np.empty_like

    def poisoned(array: np.ndarray) -> np.ndarray:
        if array.dtype.kind == "f":
            array.fill(np.nan)
        return array

    monkeypatch.setattr(np, "empty", lambda *a, **k: poisoned(empty(*a, **k)))
    monkeypatch.setattr(np, "empty_like", lambda *a, **k: poisoned(empty_like(*a, **k)))


def network(n_items: int, d: int, w_x: int, w_h: int, dtype: Any = np.float64, seed: int = 3) -> parameters.Theta:
    return parameters.initialise(parameters.shapes(n_items, d, w_x, w_h), seed, dtype)


def tensors(theta: parameters.Theta, learn: bool = False) -> dict[str, torch.Tensor]:
    return {name: torch.tensor(value, dtype=torch.float64, requires_grad=learn) for name, value in theta.items()}


def ragged(lengths: list[int], n_items: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return np.random.default_rng(seed).integers(0, n_items, offsets[-1]).astype(np.int32), offsets


def check_gradients(n: int, d: int, w_x: int, w_h: int, dtype: Any, seed: int, scale: float = 1.0) -> None:
    rng = np.random.default_rng(seed)
    items, drawn = rng.integers(0, 40, n), rng.integers(0, 40, n - 1)
    theta = {name: value * dtype(scale) for name, value in network(40, d, w_x, w_h, dtype, seed).items()}
    loss, penalty, gradients = cpu.user_gradients(theta, items, drawn, w_x, w_h, 0.01)
    expected = tensors(theta, learn=True)
    expected_loss = reference.bpr_loss(expected, torch.tensor(items), torch.tensor(drawn), w_x, w_h)
    expected_penalty = reference.l2(expected, torch.tensor(items[1:]), torch.tensor(drawn), 0.01)
    (expected_loss + expected_penalty).backward()
    tolerance = TOLERANCE[dtype]
    assert loss == pytest.approx(expected_loss.item(), rel=tolerance)
    assert penalty == pytest.approx(expected_penalty.item(), rel=tolerance)
    assert set(gradients) == set(theta)
    for name, tensor in expected.items():
        truth = tensor.grad.numpy()
        assert gradients[name].dtype == dtype and gradients[name].shape == truth.shape
        np.testing.assert_allclose(gradients[name], truth, rtol=0, atol=tolerance * np.abs(truth).max(), err_msg=name)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("w_x", range(1, 7))
@pytest.mark.parametrize("w_h", range(1, 7))
def test_values_and_gradients_over_all_widths(w_x: int, w_h: int, dtype: Any) -> None:
    check_gradients(9, 5, w_x, w_h, dtype, seed=w_x * 10 + w_h)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("d", [1, 2, 3, 7, 8, 13, 16, 20, 24, 31, 33, 40, 50, 64, 65])
def test_values_and_gradients_over_sizes(d: int, dtype: Any) -> None:
    check_gradients(12, d, 5, 4, dtype, seed=d)


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(2, 60),
    d=st.integers(1, 35),
    w_x=st.integers(1, 6),
    w_h=st.integers(1, 6),
    dtype=st.sampled_from([np.float64, np.float32]),
    seed=st.integers(0, 1000),
    scale=st.sampled_from([0.2, 1.0, 3.0]),
)
def test_values_and_gradients_anywhere(n: int, d: int, w_x: int, w_h: int, dtype: Any, seed: int, scale: float) -> None:
    check_gradients(n, d, w_x, w_h, dtype, seed, scale)


@pytest.mark.parametrize(("d", "w_x", "w_h"), [(7, 1, 1), (7, 3, 1), (7, 1, 4), (7, 2, 3), (32, 2, 2)])
def test_training_equals_sgd_on_the_reference(d: int, w_x: int, w_h: int) -> None:
    items, offsets = ragged([7, 1, 12, 0, 2, 30], 25)
    theta = network(25, d, w_x, w_h)
    expected = tensors(theta, learn=True)
    loss = penalty = 0.0
    for epoch in range(2):
        order = streams.epoch_order(6, 5, epoch)
        result = cpu.train_users(theta, items, offsets, order, seed=5, epoch=epoch, w_x=w_x, w_h=w_h, **SGD)
        loss = penalty = 0.0
        for user in order:
            own = items[offsets[user] : offsets[user + 1]]
            if len(own) < 2:
                continue
            drawn = torch.tensor(negatives.draw_user(own, user, 25, 5, epoch)).long()
            own = torch.tensor(own).long()
            user_loss = reference.bpr_loss(expected, own, drawn, w_x, w_h)
            user_penalty = reference.l2(expected, own[1:], drawn, SGD["lam"])
            values = list(expected.values())
            for value, gradient in zip(values, torch.autograd.grad(user_loss + user_penalty, values), strict=True):
                value.data -= SGD["learning_rate"] * gradient
            loss, penalty = loss + user_loss.item(), penalty + user_penalty.item()
        assert result.loss == pytest.approx(loss) and result.l2 == pytest.approx(penalty)
        assert result[2:] == (6 + 11 + 1 + 29, 0, -1, -1)
    for name, value in expected.items():
        np.testing.assert_allclose(theta[name], value.detach().numpy(), atol=1e-10, err_msg=name)


def test_an_epoch_in_pieces_equals_the_epoch_bit_for_bit() -> None:
    items, offsets = ragged(list(range(2, 32)), 50)
    whole, pieces = network(50, 20, 3, 3, np.float32), network(50, 20, 3, 3, np.float32)
    order = streams.epoch_order(30, 1, 4)
    options = {"seed": 1, "epoch": 4, "w_x": 3, "w_h": 3, **SGD}
    cpu.train_users(whole, items, offsets, order, **options)
    for begin, end in ((0, 1), (1, 9), (9, 9), (9, 30)):
        cpu.train_users(pieces, items, offsets, order[begin:end], **options)
    for name, value in whole.items():
        np.testing.assert_array_equal(value, pieces[name])


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_a_bad_loss_stops_before_its_update(broken: float) -> None:
    items = np.array([0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 1, 2], np.int32)
    offsets = np.array([0, 4, 8, 12])
    theta = network(60, 6, 2, 2, np.float32)
    theta["X"][6] = broken  # user 1 meets it as the positive of its second step
    before = {name: value.copy() for name, value in theta.items()}
    options = {"seed": 1, "epoch": 0, "w_x": 2, "w_h": 2, **SGD}
    result = cpu.train_users(theta, items, offsets, np.array([2, 1, 0]), **options)
    assert (result.bad_position, result.bad_step) == (1, 2)
    assert result.steps == 3 and np.isfinite(result.loss)
    cpu.train_users(before, items, offsets, np.array([2]), **options)
    for name, value in before.items():
        np.testing.assert_array_equal(value, theta[name])


def test_a_loss_above_the_bound_stops_at_its_step() -> None:
    items, offsets = ragged([9], 30)
    theta = network(30, 6, 2, 2)
    drawn = torch.tensor(negatives.draw_user(items, 0, 30, 1, 0)).long()
    losses = []
    for n in range(2, 10):
        losses.append(reference.bpr_loss(tensors(theta), torch.tensor(items[:n]).long(), drawn[: n - 1], 2, 2).item())
    steps = np.diff([0.0, *losses])
    worst = int(steps.argmax())
    options = {"seed": 1, "epoch": 0, "w_x": 2, "w_h": 2, **SGD}
    before = theta["X"].copy()
    result = cpu.train_users(theta, items, offsets, np.array([0]), bound=steps[worst] - 1e-9, **options)
    assert (result.bad_position, result.bad_step, result.steps) == (0, worst + 1, 0)
    np.testing.assert_array_equal(theta["X"], before)
    result = cpu.train_users(theta, items, offsets, np.array([0]), bound=steps[worst] + 1e-9, **options)
    assert result.bad_position == -1 and result.steps == 8


def test_a_user_with_the_whole_catalogue_gives_no_step() -> None:
    items, offsets = np.array([0, 1, 2, 1, 0, 2], np.int32), np.array([0, 4, 6])
    theta = network(3, 5, 1, 1)
    result = cpu.train_users(theta, items, offsets, np.array([0, 1]), seed=1, epoch=0, w_x=1, w_h=1, **SGD)
    assert result.without_negative == 1 and result.steps == 1


def test_an_item_outside_the_catalogue_is_caught() -> None:
    theta = network(3, 5, 1, 1)
    with pytest.raises(AssertionError, match="outside the catalogue"):
        cpu.train_users(theta, np.array([0, 3]), np.array([0, 2]), np.array([0]), seed=1, epoch=0, w_x=1, w_h=1, **SGD)
    with pytest.raises(AssertionError, match="outside the catalogue"):
        cpu.encode(theta, np.array([0, -1]), np.array([0, 2]), 1, 1)
    with pytest.raises(AssertionError, match="outside items"):
        cpu.encode(theta, np.array([0, 1]), np.array([0, 3]), 1, 1)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("w_x", "w_h"), [(1, 1), (4, 1), (1, 3), (3, 5), (6, 6)])
def test_encoding_equals_the_reference(w_x: int, w_h: int, dtype: Any) -> None:
    items, offsets = ragged([3, 0, 17, 1, 60], 30)
    theta = network(30, 13, w_x, w_h, dtype)
    expected = reference.encode(tensors(theta), torch.tensor(items), torch.tensor(offsets), w_x, w_h)
    interest = cpu.encode(theta, items, offsets, w_x, w_h)
    assert interest.dtype == dtype
    np.testing.assert_allclose(interest, expected, atol=1e-12 if dtype == np.float64 else 5e-6)


def test_encoding_does_not_depend_on_company_order_or_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "CHUNK", 3)
    items, offsets = ragged([3, 8, 17, 1, 60, 2, 2, 9], 30)
    theta = network(30, 20, 3, 5, np.float32)
    together = cpu.encode(theta, items, offsets, 3, 5, threads=2)
    users = np.random.default_rng(1).permutation(8)
    parts = [items[offsets[user] : offsets[user + 1]] for user in users]
    moved = cpu.encode(theta, np.concatenate(parts), np.cumsum([0, *map(len, parts)]), 3, 5)
    np.testing.assert_array_equal(moved, together[users])
    for user, part in zip(users, parts, strict=True):
        np.testing.assert_array_equal(cpu.encode(theta, part, np.array([0, len(part)]), 3, 5)[0], together[user])


@pytest.mark.parametrize(("w_x", "w_h"), [(1, 1), (4, 1), (1, 3), (3, 5), (6, 2)])
def test_step_by_step_equals_whole_pass(w_x: int, w_h: int) -> None:
    items, _ = ragged([11], 30)
    theta = network(30, 20, w_x, w_h, np.float32)
    packed = cpu.pack(theta, w_x, w_h)
    state = parameters.State(*(part[0] for part in cpu.start(1, 20, w_x, w_h)))
    for t, item in enumerate(items):
        before = [part.copy() for part in state]
        following, interest = cpu.step(packed, state, item, w_x, w_h)
        states, interests = cpu.encode_states(theta, items, np.array([0, t + 1]), w_x, w_h)
        np.testing.assert_array_equal(interest, interests[0])
        for stepped, whole in zip(following, states, strict=True):
            np.testing.assert_array_equal(stepped, whole[0])
        for kept, part in zip(before, state, strict=True):
            np.testing.assert_array_equal(kept, part)  # the state given is not changed
        state = following


def test_read_only_data_will_do() -> None:
    items, offsets = ragged([5, 6], 30)
    theta = network(30, 5, 2, 2, np.float32)
    for array in (items, offsets):
        array.flags.writeable = False
    cpu.train_users(theta, items, offsets, np.arange(2), seed=1, epoch=0, w_x=2, w_h=2, **SGD)
    theta["X"].flags.writeable = False
    assert cpu.encode(theta, items, offsets, 2, 2).shape == (2, 5)


def test_item_scores() -> None:
    theta = network(30, 5, 3, 1)
    rows = tensors(theta)["X"]
    scores = torch.tanh(rows @ tensors(theta)["Q_x"].T) @ tensors(theta)["r_x"]
    np.testing.assert_allclose(cpu.item_scores_x(theta), scores, atol=1e-14)
