"""The specification of the options against the paper's equations, NumPy, and itself by steps."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from hcarec.ops import reference
from hcarec.ops.hca.parameters import Network, shapes

ITEMS = torch.tensor([3, 1, 8, 8, 0, 3, 2, 7])
EVERYTHING: dict[str, Any] = {
    "fusion": "residual",
    "padding": "masked",
    "attention_x": "dot",
    "attention_h": "dot",
    "blocks": 2,
    "item_norm": True,
    "output_norm": True,
}


def random_theta(network: Network, seed: int = 0) -> dict[str, Tensor]:
    rng = np.random.default_rng(seed)
    named = shapes(network, 9).items()
    return {name: torch.tensor(rng.uniform(-0.7, 0.7, shape)) for name, shape in named}


@pytest.mark.parametrize(("w_x", "w_h"), [(1, 1), (3, 1), (1, 4), (5, 2), (12, 12)])
def test_no_option_is_the_papers_network(w_x: int, w_h: int) -> None:
    network = Network(d=5, w_x=w_x, w_h=w_h)
    theta = random_theta(network)
    h_o, _ = reference.interest(theta, reference.hidden(theta, ITEMS, w_x)[0], w_h)
    o = reference.network_outputs(theta, network, ITEMS)
    torch.testing.assert_close(o, h_o, rtol=0, atol=0)
    scores = reference.score_all(theta, network, ITEMS, o)
    torch.testing.assert_close(scores, h_o @ theta["X"].T, rtol=0, atol=0)


@pytest.mark.parametrize("options", [{}, {"padding": "masked"}, {"blocks": 1}, EVERYTHING])
@pytest.mark.parametrize(("w_x", "w_h"), [(1, 1), (3, 1), (1, 4), (5, 2), (12, 12)])
def test_step_by_step_equals_whole_pass(options: dict[str, Any], w_x: int, w_h: int) -> None:
    network = Network(d=5, w_x=w_x, w_h=w_h, **options)
    theta = random_theta(network)
    whole = reference.network_outputs(theta, network, ITEMS)
    states = reference.network_start(theta, network)
    for t, item in enumerate(ITEMS.tolist()):
        states, o = reference.network_step(theta, network, states, item)
        torch.testing.assert_close(o, whole[t])
        for _, inputs, hidden in states:
            assert len(inputs) == min(t + 1, w_x - 1) and len(hidden) == min(t + 1, w_h - 1)


def test_masked_rows_have_no_weight() -> None:
    rows = torch.randn(3, 4, dtype=torch.float64)
    for form in ("additive", "dot"):
        network = Network(d=4, w_x=3, w_h=1, padding="masked", attention_x=form)
        theta = random_theta(network)
        rows_c, a = reference.attend_level(theta, network, "x", rows)
        assert a[0].tolist() == [0, 0, 1] and a[1, 0] == 0 and (a[2] > 0).all()
        torch.testing.assert_close(rows_c[0], rows[0])


def test_dot_product_attention() -> None:
    network = Network(d=4, w_x=1, w_h=3, attention_h="dot")
    theta = random_theta(network)
    rows = torch.randn(4, 4, dtype=torch.float64)
    Q, K, values = theta["Q_h"].numpy(), theta["K_h"].numpy(), rows.numpy()
    _, a = reference.attend_level(theta, network, "h", rows)
    for t in range(4):
        window = [values[s] if s >= 0 else np.zeros(4) for s in range(t - 2, t + 1)]
        e = np.array([(Q @ values[t]) @ (K @ row) / 2 for row in window])
        np.testing.assert_allclose(a[t], np.exp(e) / np.exp(e).sum(), atol=1e-12)


def test_block() -> None:
    network = Network(d=4, w_x=1, w_h=1, blocks=1, ffn=2)
    theta = random_theta(network)
    x, h_o = np.random.default_rng(1).normal(size=(2, 4))
    own = {name: value.numpy() for name, value in theta.items()}

    def norm(v: np.ndarray, N: np.ndarray) -> np.ndarray:
        return N[0] * (v - v.mean()) / np.sqrt(v.var() + 1e-5) + N[1]

    y = norm(x + h_o, own["norm_1"])
    inner = own["A_1"] @ y + own["a_1"]
    inner = np.array([v * (1 + math.erf(v / math.sqrt(2))) / 2 for v in inner])
    y = norm(y + own["A_2"] @ inner + own["a_2"], own["norm_2"])
    computed = reference.block(theta, network, torch.tensor(x), torch.tensor(h_o))
    np.testing.assert_allclose(computed, y, atol=1e-12)


def test_scores_with_cosine_and_copy_term() -> None:
    network = Network(d=4, w_x=1, w_h=1, scores="cosine", copy_window=4, item_norm=True)
    theta = random_theta(network)
    o = torch.randn(len(ITEMS), 4, dtype=torch.float64)
    scores = reference.score_all(theta, network, ITEMS, o)
    own = {name: value.numpy() for name, value in theta.items()}
    Z = torch.nn.functional.layer_norm(theta["X"], (4,), *theta["norm_item"], 1e-5).numpy()
    for t, query in enumerate(o.numpy()):
        for item in range(9):
            cosine = query @ Z[item] / np.linalg.norm(query) / np.linalg.norm(Z[item])
            total = 0.0
            for distance in range(min(4, t + 1)):
                if ITEMS[t - distance] == item:
                    e = Z[item] @ (own["copy_Q"] @ query) + own["copy_bias"][distance]
                    total += math.log(1 + math.exp(e))
            copied = own["copy_scale"][0] * math.log(1 + math.exp(own["copy_rate"][0]) * total)
            expected = math.exp(own["temperature"][0]) * cosine + copied
            assert scores[t, item].item() == pytest.approx(expected, abs=1e-12)


def test_a_zero_vector_has_cosine_zero() -> None:
    vectors = torch.zeros(2, 3, requires_grad=True)
    reference.unit(vectors).sum().backward()
    assert not reference.unit(vectors).any()
    assert torch.isfinite(vectors.grad).all()  # type: ignore[arg-type]
