"""The specification of SASRec against plain NumPy loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sas_cases import network_of, random_theta

from hcarec.ops import reference
from hcarec.ops.sas.parameters import Network, initialize, shapes

ITEMS = [3, 1, 8, 8, 0, 3, 2, 7]


def norm(v: np.ndarray, N: np.ndarray) -> np.ndarray:
    return N[0] * (v - v.mean()) / np.sqrt(v.var() + 1e-5) + N[1]


def gelu(v: np.ndarray) -> np.ndarray:
    return np.array([x * (1 + math.erf(x / math.sqrt(2))) / 2 for x in v])


def brute(theta: dict[str, np.ndarray], network: Network, items: list[int]) -> np.ndarray:
    """Return the output after the last event, a head and a step at a time."""
    read = items[-network.length :]
    X = theta["X"]
    if network.item_norm:
        X = np.array([norm(row, theta["norm_item"]) for row in X])
    xs = [X[item] + theta["P"][place] for place, item in enumerate(read)]
    size = network.d // network.heads
    for layer in range(1, network.blocks + 1):
        before = "" if layer == 1 else f"{layer}."
        own = {name: theta[before + name] for name in ("Q", "K", "V", "O", "A_1", "a_1")}
        own |= {name: theta[before + name] for name in ("A_2", "a_2", "norm_1", "norm_2")}
        us = [norm(x, own["norm_1"]) for x in xs]
        after = []
        for t, x in enumerate(xs):
            found = np.zeros(network.d)
            for head in range(network.heads):
                part = slice(head * size, (head + 1) * size)
                query = own["Q"][part] @ us[t]
                e = [query @ (own["K"][part] @ us[j]) / math.sqrt(size) for j in range(t + 1)]
                a = np.exp(e) / np.exp(e).sum()
                found[part] = sum(a[j] * (own["V"][part] @ us[j]) for j in range(t + 1))
            y = x + own["O"] @ found
            inner = gelu(own["A_1"] @ norm(y, own["norm_2"]) + own["a_1"])
            after.append(y + own["A_2"] @ inner + own["a_2"])
        xs = after
    return norm(xs[-1], theta["norm_out"]) if network.output_norm else xs[-1]


@pytest.mark.parametrize("length", [13, 8, 5, 1])
@pytest.mark.parametrize(("d", "heads"), [(6, 1), (6, 2), (6, 6), (7, 1)])
def test_the_last_output(length: int, d: int, heads: int) -> None:
    """Of a history that is shorter than, as long as, or longer than what is read."""
    network = network_of(d=d, heads=heads, length=length, item_norm=True, output_norm=d == 6)
    theta = random_theta(network)
    own = {name: torch.tensor(value) for name, value in theta.items()}
    for n in range(1, len(ITEMS) + 1):
        found = reference.sas_last(own, network, torch.tensor(ITEMS[:n]))
        np.testing.assert_allclose(found, brute(theta, network, ITEMS[:n]), atol=1e-12)


def test_an_output_is_that_of_the_prefix() -> None:
    """What is trained at a step is what is served after as many events."""
    network = network_of()
    own = {name: torch.tensor(value) for name, value in random_theta(network).items()}
    whole = reference.sas_outputs(own, network, torch.tensor(ITEMS))
    for n in range(1, len(ITEMS) + 1):
        torch.testing.assert_close(
            whole[n - 1], reference.sas_last(own, network, torch.tensor(ITEMS[:n]))
        )


def test_names_and_shapes() -> None:
    network = network_of(d=6, ffn=2, length=9, blocks=2, copy_window=3, scores="cosine")
    layer: dict[str, tuple[int, ...]] = {
        **dict.fromkeys("QKVO", (6, 6)), "norm_1": (2, 6), "norm_2": (2, 6),
        "A_1": (12, 6), "a_1": (12,), "A_2": (6, 12), "a_2": (6,),
    }  # fmt: skip
    assert shapes(network, 5) == {
        "X": (5, 6), "P": (9, 6), **layer, **{f"2.{name}": shape for name, shape in layer.items()},
        "temperature": (1,), "copy_Q": (6, 6), "copy_bias": (3,),
        "copy_scale": (1,), "copy_rate": (1,),
    }  # fmt: skip


def test_scaled_blocks_start_as_the_identity() -> None:
    network = network_of(d=8, initial="scaled", output_norm=True)
    theta = initialize(network, 9, 1)
    own = {name: torch.from_numpy(value) for name, value in theta.items()}
    found = reference.sas_outputs(own, network, torch.tensor(ITEMS))
    expected = reference.layer_norm(own["X"][ITEMS], own["norm_out"])
    torch.testing.assert_close(found, expected)
    assert all(theta[name].any() for name in ("X", "Q", "K", "V", "A_1", "2.Q"))
    plain = initialize(network_of(d=8), 9, 1)
    assert all(value.any() for value in plain.values())
