"""States of the serving engine: the same bits however events, users and threads are cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from engine_cases import LENGTHS, N_ITEMS, OPTIONS, network_of, packed_of, ragged, same, user
from hypothesis import given, settings
from hypothesis import strategies as st

from hcarec.ops.hca import numba as engine
from hcarec.ops.hca.parameters import Network
from hcarec.ops.network import engine as shared


@pytest.fixture(params=OPTIONS)
def network(request: pytest.FixtureRequest) -> Network:
    return network_of(request.param)


def test_step_by_step_equals_the_whole_pass_bit_for_bit(network: Network) -> None:
    packed, (items, _) = packed_of(network), ragged([100])
    states = engine.start(network)
    for n in range(1, len(items) + 1):
        engine.advance(packed, states, items[n - 1 : n], np.array([0, 1]))
        whole = engine.encode(packed, items[:n], np.array([0, n]), 1)
        assert same(engine.queries(packed, states), whole), n
    assert states["events"][0] == max(
        network.w_x, network.w_h, network.copy_window, network.last_items
    )
    kept = min(len(items), states["items"].shape[1])
    assert kept >= network.last_items
    assert states["items"][0].tolist() == items[len(items) - kept :].tolist()


@settings(max_examples=30, deadline=None)
@given(name=st.sampled_from(sorted(OPTIONS)), cuts=st.lists(st.integers(0, 45), max_size=5))
def test_any_cut_gives_the_same_state(name: str, cuts: list[int]) -> None:
    network = network_of(name)
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
