"""The attention weights of the last layer against plain loops."""

from __future__ import annotations

import brute_network as brute
import numpy as np
import pytest
from engine_cases import N_ITEMS, OPTIONS, network_of, ragged

from hcarec.ops.hca import attention as module
from hcarec.ops.hca.attention import attention
from hcarec.ops.hca.parameters import Network


@pytest.fixture(params=OPTIONS)
def network(request: pytest.FixtureRequest) -> Network:
    return network_of(request.param)


def check_weights(network: Network, n: int, last: int, **tolerance: float) -> None:
    theta, (items, _) = brute.draw(network, N_ITEMS, 7), ragged([n], 7)
    right = brute.run(theta, network, items.tolist())
    found = attention(theta, network, items, last)
    for mine, theirs, w in zip(
        found, (right.a_x, right.a_h), (network.w_x, network.w_h), strict=True
    ):
        assert (mine is None) == (w == 1)
        if mine is not None:
            assert mine.shape == (min(n, last), w)
            np.testing.assert_allclose(mine, theirs[-last:], **tolerance)
            if network.padding == "masked" and n < w:
                assert (mine[-1, : w - n] == 0).all()


@pytest.mark.parametrize(("n", "last"), [(1, 1), (2, 9), (12, 5), (12, 12)])
def test_weights_are_those_of_the_last_layer(network: Network, n: int, last: int) -> None:
    check_weights(network, n, last, rtol=1e-9)


@pytest.mark.parametrize("last", [1, 6, 20, 40])
def test_a_long_history_is_begun_by_the_engine(
    network: Network, last: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "EXACT", 5)
    check_weights(network, 40, last, atol=1e-4)
