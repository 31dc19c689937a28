"""The serving engine against plain loops and against the specification."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import brute_network as brute
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from hcarec.ops import cpu, reference
from hcarec.ops.hca import attention as attention_module
from hcarec.ops.hca import numba as engine
from hcarec.ops.hca.attention import attention
from hcarec.ops.hca.gelu import gelu
from hcarec.ops.hca.parameters import Network, initialize
from hcarec.ops.rank.corrections import Corrections
from hcarec.ops.simd import load, pointer, store

N_ITEMS = 13
ALL: dict[str, Any] = {
    "fusion": "residual",
    "padding": "masked",
    "attention_x": "dot",
    "attention_h": "dot",
    "blocks": 2,
    "ffn": 3,
    "item_norm": True,
    "output_norm": True,
    "scores": "cosine",
    "copy_window": 6,
}
OPTIONS: dict[str, dict[str, Any]] = {
    "paper": {},
    "gru": {"w_x": 1, "w_h": 1},
    "x-only": {"w_h": 1, "padding": "masked"},
    "h-only": {"w_x": 1, "fusion": "residual"},
    **{name: {name: value} for name, value in ALL.items() if name != "ffn"},
    "block": {"blocks": 1},
    "wide": {"w_x": 40, "w_h": 70, "padding": "masked", "blocks": 2},
    "wide-zero": {"w_x": 70, "w_h": 40, "attention_h": "dot"},
    "layers-of-gru": {"blocks": 3, "ffn": 1, "w_x": 1, "w_h": 1},
    "copy-one": {"copy_window": 1, "w_x": 4},
    "all": ALL,
    "all-odd": {**ALL, "d": 7},
    "all-64": {**ALL, "d": 64},
}
LENGTHS = [3, 0, 1, 90, 33, 2, 5, 32, 0]


@pytest.fixture(params=OPTIONS)
def network(request: pytest.FixtureRequest) -> Network:
    return Network(**{"d": 10, "w_x": 3, "w_h": 4, **OPTIONS[request.param]})


def ragged(lengths: list[int], seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    items = np.random.default_rng(seed).integers(0, N_ITEMS, sum(lengths)).astype(np.int32)
    return items, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def packed_of(network: Network, seed: int = 1) -> engine.Packed:
    return engine.pack(brute.draw(network, N_ITEMS, seed), network)


def user(
    found: tuple[np.ndarray, Corrections | None], i: int
) -> tuple[np.ndarray, dict[int, float]]:
    """Return the query and the corrections of one user."""
    vectors, corrections = found
    if corrections is None:
        return vectors[i], {}
    items, _, values = corrections.take(np.array([i]))
    return vectors[i], dict(zip(items.tolist(), values.tolist(), strict=True))


def same(a: tuple[np.ndarray, Any], b: tuple[np.ndarray, Any]) -> bool:
    """Say whether two lots of queries have the same bits."""
    pairs = zip(a[1] or (), b[1] or (), strict=True)
    return a[0].tobytes() == b[0].tobytes() and all(x.tobytes() == y.tobytes() for x, y in pairs)


# -- values ----------------------------------------------------------------------------------------


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
        scores = packed.ranked.astype(float) @ query
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
    scores = engine.pack(theta, network).ranked.astype(float) @ query
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
    np.testing.assert_allclose(packed.Z, Z, atol=1e-6)
    np.testing.assert_allclose(
        packed.ranked, Z / np.linalg.norm(Z, axis=1, keepdims=True), atol=1e-6
    )
    plain = Network(d=10, w_x=1, w_h=1)
    assert engine.pack(theta, plain).Z is engine.pack(theta, plain).ranked


def test_a_vector_of_length_zero_has_no_direction() -> None:
    network = Network(d=4, w_x=1, w_h=1, scores="cosine")
    theta = brute.draw(network, N_ITEMS, 4)
    theta["X"][3] = 0
    assert not engine.pack(theta, network).ranked[3].any()


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


# -- one event at a time ---------------------------------------------------------------------------


def test_step_by_step_equals_the_whole_pass_bit_for_bit(network: Network) -> None:
    packed, (items, _) = packed_of(network), ragged([100])
    states = engine.start(network)
    for n in range(1, len(items) + 1):
        engine.advance(packed, states, items[n - 1 : n], np.array([0, 1]))
        whole = engine.encode(packed, items[:n], np.array([0, n]), 1)
        assert same(engine.queries(packed, states), whole), n
    assert states["events"][0] == max(network.w_x, network.w_h, network.copy_window)


@settings(max_examples=30, deadline=None)
@given(name=st.sampled_from(sorted(OPTIONS)), cuts=st.lists(st.integers(0, 45), max_size=5))
def test_any_cut_gives_the_same_state(name: str, cuts: list[int]) -> None:
    network = Network(**{"d": 10, "w_x": 3, "w_h": 4, **OPTIONS[name]})
    packed, n = packed_of(network), sum(cuts) + 1
    items, offsets = ragged([n])
    states, whole = engine.start(network), engine.start(network)
    for begin, end in zip(np.cumsum([0, *cuts]), [*np.cumsum(cuts), n], strict=True):
        engine.advance(packed, states, items[begin:end], np.array([0, end - begin]))
    engine.advance(packed, whole, items, offsets)
    assert states.tobytes() == whole.tobytes()


def test_bits_depend_neither_on_the_batch_nor_on_the_threads(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed, (items, offsets) = packed_of(network), ragged(LENGTHS)
    whole = engine.encode(packed, items, offsets, 1)
    for i in range(len(LENGTHS)):
        alone = items[offsets[i] : offsets[i + 1]]
        found = user(engine.encode(packed, alone, np.array([0, len(alone)]), 1), 0)
        assert found[0].tobytes() == user(whole, i)[0].tobytes()
        assert found[1] == user(whole, i)[1]
    monkeypatch.setattr(engine, "USERS", 2)
    assert same(engine.encode(packed, items, offsets, 3), whole)
    monkeypatch.setattr(engine, "EVENTS", 7)
    states = engine.start(network, len(LENGTHS))
    engine.advance(packed, states, items, offsets, threads=2)
    assert same(engine.queries(packed, states), whole)


def test_work_space_is_never_read_before_it_is_written(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed, (items, offsets) = packed_of(network), ragged(LENGTHS)
    whole = engine.encode(packed, items, offsets, 1)

    def poisoned(shape: Any, dtype: Any = np.float64) -> np.ndarray:
        return np.full(shape, np.nan if np.dtype(dtype).kind == "f" else 2**30, dtype)

    monkeypatch.setattr(np, "empty", poisoned)
    assert same(engine.encode(packed_of(network), items, offsets, 1), whole)


def test_states_that_do_not_lie_together_move_in_place() -> None:
    network = Network(d=10, w_x=3, w_h=4, copy_window=3)
    packed, (items, offsets) = packed_of(network), ragged([4, 5])
    some, all_ = engine.start(network, 2), engine.start(network, 4)
    engine.advance(packed, some, items, offsets)
    engine.advance(packed, all_[::2], items, offsets)
    assert all_[::2].tobytes() == some.tobytes()
    assert all_[1::2].tobytes() == engine.start(network, 2).tobytes()
    assert same(engine.queries(packed, all_[::2]), engine.queries(packed, some))


def test_no_events_leave_a_state_alone_and_an_unknown_item_too(network: Network) -> None:
    packed, (items, offsets) = packed_of(network), ragged([4, 5])
    states = engine.start(network, 2)
    engine.advance(packed, states, items, offsets)
    before = states.tobytes()
    engine.advance(packed, states, items[:0], np.zeros(3, np.int64))
    assert states.tobytes() == before
    for bad in (-1, N_ITEMS):
        with pytest.raises(AssertionError):
            engine.advance(packed, states, np.array([1, bad]), np.array([0, 1, 2]))
    assert states.tobytes() == before


def test_a_state_is_read_by_its_fields() -> None:
    network = Network(d=4, w_x=3, w_h=4, blocks=2, copy_window=2)
    packed, states = packed_of(network), engine.start(network)
    assert states.dtype == engine.state_dtype(network)
    engine.advance(packed, states, np.array([5]), np.array([0, 1]))
    assert states["events"].tolist() == [1] and states["items"].tolist() == [[-1, 5]]
    for name in ("hidden", "2.hidden", "2.inputs"):
        assert not states[name][0, :-1].any() and states[name][0, -1].all()
    engine.advance(packed, states, np.array([6, 7, 8]), np.array([0, 3]))
    assert states["items"].tolist() == [[7, 8]]
    assert states["hidden"].all() and states["2.inputs"].all()
    np.testing.assert_array_equal(engine.queries(packed, states)[0], states["o"])


def test_damaged_states_are_not_usable(network: Network) -> None:
    packed, (items, offsets) = packed_of(network), ragged(LENGTHS)
    states = engine.start(network, len(LENGTHS))
    engine.advance(packed, states, items, offsets)
    assert engine.usable(network, states, N_ITEMS).all()
    floats = [name for name in states.dtype.names or () if states[name].dtype.kind == "f"]
    for name in floats:
        if states[name].size:
            bad = states.copy()
            bad[name][3].reshape(-1)[-1] = np.nan
            assert engine.usable(network, bad, N_ITEMS).tolist() == [i != 3 for i in range(9)]
    for events in (-1, 1000):
        bad = states.copy()
        bad["events"][0] = events
        assert not engine.usable(network, bad, N_ITEMS)[0]
    if states["items"].size:
        for item in (-2, -1, N_ITEMS):
            bad = states.copy()
            bad["items"][3, -1] = item
            assert engine.usable(network, bad, N_ITEMS).tolist() == [i != 3 for i in range(9)]


# -- attention -------------------------------------------------------------------------------------


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
    monkeypatch.setattr(attention_module, "EXACT", 5)
    check_weights(network, 40, last, atol=1e-4)


def test_the_engine_needs_no_torch() -> None:
    code = (
        "import sys, hcarec.ops.hca.numba, hcarec.ops.hca.attention; print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
