"""The serving engine of SASRec: its values by the specification, the same bits however cut."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sas_cases import N_ITEMS, network_of, random_theta

from hcarec.ops import reference
from hcarec.ops.network import engine as shared
from hcarec.ops.rank.corrections import Corrections
from hcarec.ops.sas import numba as engine
from hcarec.ops.sas.parameters import Network

ALL: dict[str, Any] = {
    "item_norm": True,
    "output_norm": True,
    "scores": "cosine",
    "copy_window": 6,
    "ffn": 3,
    "blocks": 3,
}
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "one-head": {"heads": 1},
    "heads-of-one": {"heads": 6},
    "odd": {"d": 15, "heads": 3},
    "whole-vectors": {"d": 16, "heads": 2},
    "one-block": {"blocks": 1},
    "one-event": {"length": 1},
    "long": {"length": 40},
    **{name: {name: value} for name, value in ALL.items() if name not in ("ffn", "blocks")},
    "all": ALL,
    "all-64": {**ALL, "d": 64, "heads": 4},
}
LENGTHS = [3, 0, 1, 50, 13, 2, 14, 12, 0]
Found = tuple[np.ndarray, Corrections | None]


@pytest.fixture(params=OPTIONS)
def network(request: pytest.FixtureRequest) -> Network:
    return network_of(**OPTIONS[request.param])


def packed_of(network: Network, seed: int = 1) -> engine.Packed:
    return engine.pack(random_theta(network, seed, np.float32), network)


def ragged(lengths: list[int], seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    items = np.random.default_rng(seed).integers(0, N_ITEMS, sum(lengths)).astype(np.int32)
    return items, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def user(found: Found, i: int) -> tuple[np.ndarray, dict[int, float]]:
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


def check_values(network: Network, lengths: list[int], seed: int) -> None:
    theta = random_theta(network, seed, np.float32)
    own = {name: torch.from_numpy(value).double() for name, value in theta.items()}
    packed, (items, offsets) = engine.pack(theta, network), ragged(lengths, seed)
    found = engine.encode(packed, items, offsets, 1)
    assert found[0].dtype == np.float32 and found[0].shape == (len(lengths), network.d)
    if found[1] is not None:
        found[1].check(len(lengths), N_ITEMS)
    for i in range(len(lengths)):
        query, corrections = user(found, i)
        history = torch.from_numpy(items[offsets[i] : offsets[i + 1]]).long()
        if not len(history):
            assert not query.any() and not corrections
            continue
        o = reference.sas_last(own, network, history)
        read = history[-network.length :]
        outputs = torch.cat([o.new_zeros(len(read) - 1, network.d), o[None]])
        right = reference.score_all(own, network, read, outputs)[-1].numpy()
        scores = packed.items.ranked.astype(float) @ query
        for item, value in corrections.items():
            scores[item] += value
        np.testing.assert_allclose(scores, right, atol=2e-4)
        if network.scores == "dot":
            np.testing.assert_allclose(query, o.numpy(), atol=2e-5)


def test_the_specification_agrees(network: Network) -> None:
    check_values(network, LENGTHS, 5)


@settings(max_examples=40, deadline=None)
@given(
    heads=st.integers(1, 3),
    size=st.integers(1, 9),
    options=st.fixed_dictionaries(
        {
            "length": st.integers(7, 9),
            "blocks": st.integers(1, 3),
            "ffn": st.integers(1, 4),
            "item_norm": st.booleans(),
            "output_norm": st.booleans(),
            "scores": st.sampled_from(["dot", "cosine"]),
            "copy_window": st.integers(0, 7),
        }
    ),
    lengths=st.lists(st.integers(0, 12), max_size=4),
    seed=st.integers(0, 99),
)
def test_options_work_together(
    heads: int, size: int, options: Any, lengths: list[int], seed: int
) -> None:
    d = heads * size
    if d >= 4:  # LN of a few numbers is all rounding
        check_values(network_of(d=d, heads=heads, **options), lengths, seed)


def test_step_by_step_equals_the_whole_pass_bit_for_bit(network: Network) -> None:
    packed, (items, _) = packed_of(network), ragged([60])
    states = engine.start(network)
    for n in range(1, len(items) + 1):
        engine.advance(packed, states, items[n - 1 : n], np.array([0, 1]))
        whole = engine.encode(packed, items[:n], np.array([0, n]), 1)
        assert same(engine.queries(packed, states), whole), n
    assert states["events"][0] == network.length


@settings(max_examples=30, deadline=None)
@given(name=st.sampled_from(sorted(OPTIONS)), cuts=st.lists(st.integers(0, 20), max_size=5))
def test_any_cut_gives_the_same_state(name: str, cuts: list[int]) -> None:
    network = network_of(**OPTIONS[name])
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
    monkeypatch.setattr(shared, "USERS", 2)
    assert same(engine.encode(packed, items, offsets, 3), whole)
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


def test_a_state_is_the_last_items_and_the_output() -> None:
    network = network_of(length=3)
    packed, states = packed_of(network), engine.start(network)
    assert states.dtype.names == ("events", "items", "o")
    engine.advance(packed, states, np.array([5]), np.array([0, 1]))
    assert states["events"].tolist() == [1] and states["items"].tolist() == [[-1, -1, 5]]
    engine.advance(packed, states, np.array([6, 7, 8]), np.array([0, 3]))
    assert states["events"].tolist() == [3] and states["items"].tolist() == [[6, 7, 8]]
    np.testing.assert_array_equal(engine.queries(packed, states)[0], states["o"])


def test_damaged_states_are_not_usable(network: Network) -> None:
    packed, (items, offsets) = packed_of(network), ragged(LENGTHS)
    states = engine.start(network, len(LENGTHS))
    engine.advance(packed, states, items, offsets)
    assert engine.usable(network, states, N_ITEMS).all()
    spoils: list[tuple[str, Any]] = [("o", np.nan), ("events", -1), ("events", 1000)]
    spoils += [("items", -2), ("items", -1), ("items", N_ITEMS)]
    for name, value in spoils:
        bad = states.copy()
        bad[name].reshape(9, -1)[3, -1] = value
        assert engine.usable(network, bad, N_ITEMS).tolist() == [i != 3 for i in range(9)], name


def test_the_engine_needs_no_torch() -> None:
    code = "import sys, hcarec.ops.sas.numba; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
