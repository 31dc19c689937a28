"""The values of the serving engine against plain loops and against the specification."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import brute_network as brute
import numpy as np
import pytest
import torch
from engine_cases import LENGTHS, N_ITEMS, OPTIONS, network_of, ragged, user
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from hcarec.ops import cpu, reference
from hcarec.ops.hca import numba as engine
from hcarec.ops.hca.gelu import gelu
from hcarec.ops.hca.parameters import Network, initialize
from hcarec.ops.simd import load, pointer, store


@pytest.fixture(params=OPTIONS)
def network(request: pytest.FixtureRequest) -> Network:
    return network_of(request.param)


def check_values(network: Network, lengths: list[int], seed: int) -> None:
    theta = brute.draw(network, N_ITEMS, seed)
    packed, (items, offsets) = engine.pack(theta, network), ragged(lengths, seed)
    found = engine.encode(packed, items, offsets, 1)
    assert found[0].dtype == np.float32 and found[0].shape == (len(lengths), network.d)
    if found[1] is not None:
        found[1].check(len(lengths), N_ITEMS)
    for i in range(len(lengths)):
        query, corrections = user(found, i)
        history = items[offsets[i] : offsets[i + 1]].tolist()
        if not history:
            assert not query.any() and not corrections
            continue
        right = brute.run(theta, network, history)
        assert corrections.keys() == right.corrections.keys()
        scores = packed.items.ranked.astype(float) @ query
        for item, value in corrections.items():
            scores[item] += value
            assert value == pytest.approx(right.corrections[item], abs=3e-5)
        np.testing.assert_allclose(scores, right.scores, atol=2e-4)
        if network.scores == "dot":
            np.testing.assert_allclose(query, right.o, atol=2e-5)


def test_every_option_does_what_its_equation_says(network: Network) -> None:
    check_values(network, LENGTHS, 5)


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.fixed_dictionaries(
        {"d": st.integers(1, 19), "w_x": st.integers(1, 5), "w_h": st.integers(1, 5)}
    ),
    options=st.fixed_dictionaries(
        {
            "fusion": st.sampled_from(["paper", "residual"]),
            "padding": st.sampled_from(["zero", "masked"]),
            "attention_x": st.sampled_from(["additive", "dot"]),
            "attention_h": st.sampled_from(["additive", "dot"]),
            "blocks": st.integers(0, 2),
            "ffn": st.integers(1, 4),
            "item_norm": st.booleans(),
            "output_norm": st.booleans(),
            "scores": st.sampled_from(["dot", "cosine"]),
            "copy_window": st.integers(0, 7),
            "last_items": st.sampled_from([0, 5]),
        }
    ),
    lengths=st.lists(st.integers(0, 9), max_size=4),
    seed=st.integers(0, 99),
)
def test_options_work_together(sizes: Any, options: Any, lengths: list[int], seed: int) -> None:
    if sizes["d"] < 3:  # LN of one or two numbers is all rounding
        options |= {"blocks": 0, "item_norm": False, "output_norm": False}
    check_values(Network(**sizes, **options), lengths, seed)


def test_the_specification_agrees(network: Network) -> None:
    theta, (items, offsets) = brute.draw(network, N_ITEMS, 2), ragged([9], 2)
    query, corrections = user(engine.encode(engine.pack(theta, network), items, offsets, 1), 0)
    own = {name: torch.from_numpy(value).double() for name, value in theta.items()}
    history = torch.from_numpy(items).long()
    o = reference.network_outputs(own, network, history)
    scores = engine.pack(theta, network).items.ranked.astype(float) @ query
    for item, value in corrections.items():
        scores[item] += value
    right = reference.score_all(own, network, history, o)[-1].numpy()
    np.testing.assert_allclose(scores, right, atol=2e-4)


@pytest.mark.parametrize(("w_x", "w_h"), [(1, 1), (3, 1), (1, 4), (5, 5)])
def test_the_papers_network_is_that_of_the_papers_engine(w_x: int, w_h: int) -> None:
    network = Network(d=20, w_x=w_x, w_h=w_h)
    theta, (items, offsets) = initialize(network, N_ITEMS, 3), ragged(LENGTHS)
    found, corrections = engine.encode(engine.pack(theta, network), items, offsets, 1)
    assert corrections is None
    np.testing.assert_allclose(found, cpu.encode(theta, items, offsets, w_x, w_h), atol=1e-6)


def test_item_vectors_are_those_of_the_equations() -> None:
    network = Network(d=10, w_x=1, w_h=1, item_norm=True, scores="cosine")
    theta = brute.draw(network, N_ITEMS, 4)
    packed, Z = engine.pack(theta, network), brute.item_vectors(theta, network)
    np.testing.assert_allclose(packed.items.Z, Z, atol=1e-6)
    np.testing.assert_allclose(
        packed.items.ranked, Z / np.linalg.norm(Z, axis=1, keepdims=True), atol=1e-6
    )
    plain = Network(d=10, w_x=1, w_h=1)
    assert engine.pack(theta, plain).items.Z is engine.pack(theta, plain).items.ranked


def test_a_vector_of_length_zero_has_no_direction() -> None:
    network = Network(d=4, w_x=1, w_h=1, scores="cosine")
    theta = brute.draw(network, N_ITEMS, 4)
    theta["X"][3] = 0
    assert not engine.pack(theta, network).items.ranked[3].any()


def test_gelu_is_exact() -> None:
    @njit
    def apply(values: Any) -> None:
        v = pointer(values)
        for k in range(0, len(values), 8):
            store(v, k, gelu(load(v, k)))

    x = np.concatenate([np.linspace(-12, 12, 80_000), [-1e30, -100, -6, 0, 6, 100, 1e30, np.nan]])
    found = x.astype(np.float32)
    exact = np.array([v * 0.5 * (1 + math.erf(v / math.sqrt(2))) for v in found.tolist()])
    apply(found)
    np.testing.assert_allclose(found, exact, atol=1e-6, rtol=1e-6)


def test_the_copy_term_counts_an_item_once_however_often_it_stands_there() -> None:
    network = Network(d=6, w_x=2, w_h=2, copy_window=5)
    theta = brute.draw(network, N_ITEMS, 6)
    theta["copy_bias"][:] = [40, -3, 2, -90, 0]  # softplus from almost nothing to large
    history = [9, 9, 4, 1, 4, 4, 1]  # the first two are beyond the window
    found = engine.encode(engine.pack(theta, network), np.array(history), np.array([0, 7]), 1)
    _, corrections = user(found, 0)
    assert list(corrections) == [1, 4]
    right = brute.run(theta, network, history).corrections
    assert corrections == pytest.approx(right, rel=1e-5)


def test_the_engine_needs_no_torch() -> None:
    code = (
        "import sys, hcarec.ops.hca.numba, hcarec.ops.hca.attention; print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
