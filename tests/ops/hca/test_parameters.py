"""Names, shapes and first values of the network's parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hcarec.ops import parameters
from hcarec.ops.hca.parameters import Network, initialize, shapes


@pytest.mark.parametrize(("w_x", "w_h"), [(1, 1), (3, 1), (1, 4), (5, 5)])
def test_the_papers_network_has_the_papers_parameters(w_x: int, w_h: int) -> None:
    network = Network(d=5, w_x=w_x, w_h=w_h)
    expected = parameters.initialise(parameters.shapes(9, 5, w_x, w_h), 3)
    theta = initialize(network, 9, 3)
    assert list(theta) == list(expected)
    assert shapes(network, 9) == parameters.shapes(9, 5, w_x, w_h)
    for name, value in expected.items():
        assert theta[name].dtype == np.float32
        np.testing.assert_array_equal(theta[name], value)


LAYER = {"U", "V", "W", "b", "Q_x", "r_x", "Q_h", "r_h", "E", "F"}
BLOCK = {"norm_1", "norm_2", "A_1", "a_1", "A_2", "a_2"}


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"fusion": "residual"}, LAYER - {"E"}),
        ({"attention_x": "dot"}, LAYER - {"r_x"} | {"K_x"}),
        ({"attention_h": "dot"}, LAYER - {"r_h"} | {"K_h"}),
        ({"blocks": 1}, LAYER | BLOCK),
        ({"blocks": 2}, LAYER | BLOCK | {f"2.{name}" for name in LAYER | BLOCK}),
        ({"item_norm": True, "output_norm": True}, LAYER | {"norm_item", "norm_out"}),
        ({"scores": "cosine"}, LAYER | {"temperature"}),
        ({"copy_window": 7}, LAYER | {"copy_Q", "copy_bias", "copy_scale", "copy_rate"}),
        ({"padding": "masked", "input_dropout": 0.5, "initial": "scaled"}, LAYER),
    ],
)
def test_every_option_has_its_own_parameters(options: dict[str, Any], names: set[str]) -> None:
    plain = Network(d=4, w_x=3, w_h=3, initial=options.get("initial", "paper"))
    network = Network(**{**vars(plain), **options})
    theta, without = initialize(network, 6, 1), initialize(plain, 6, 1)
    assert set(theta) == names | {"X"}
    assert {name: value.shape for name, value in theta.items()} == shapes(network, 6)
    for name in set(theta) & set(without):
        np.testing.assert_array_equal(theta[name], without[name])


def test_first_values_of_what_is_not_drawn() -> None:
    options: dict[str, Any] = {"item_norm": True, "scores": "cosine", "copy_window": 3, "blocks": 1}
    for initial in ("paper", "scaled"):
        theta = initialize(Network(d=4, w_x=2, w_h=2, initial=initial, **options), 6, 1)
        for name in ("norm_item", "norm_1", "norm_2"):
            np.testing.assert_array_equal(theta[name], [[1] * 4, [0] * 4])
        assert theta["temperature"][0] == np.float32(np.log(10))
        assert theta["copy_scale"][0] == 1 and theta["copy_rate"][0] == 0
        assert not theta["copy_Q"].any() and not theta["copy_bias"].any()


def test_scaled_values() -> None:
    network = Network(d=64, w_x=2, w_h=2, fusion="residual", blocks=2, initial="scaled")
    theta = initialize(network, 1000, 1)
    assert theta["X"].std() == pytest.approx(1 / 8, rel=0.02)
    for name in ("V", "F", "b", "a_1", "a_2", "2.V", "2.F", "2.b"):
        assert not theta[name].any()
    for name, limit in {"U": (6 / 128) ** 0.5, "2.A_1": (6 / 320) ** 0.5}.items():
        largest = np.abs(theta[name]).max()
        assert 0.99 * limit < largest <= np.float32(limit)
    assert not np.array_equal(theta["U"], theta["2.U"])
