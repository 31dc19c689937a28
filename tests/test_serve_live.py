"""The parts of the live core: rows, the policy for events, waiting, starting from a data set."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcarec import HCAGRU, Sequences
from hcarec.errors import InputError
from hcarec.ids import Ids
from hcarec.serve.codec import Codec, Rows
from hcarec.serve.inbox import Inbox
from hcarec.serve.live import Known, Live, Lookup
from hcarec.serve.messages import NewEvent, Overloaded
from hcarec.serve.options import ServiceOptions
from hcarec.serve.policy import EARLIEST, SECOND, Stamped, plan, stamp
from hcarec.serve.seeding import histories, microseconds, seed
from hcarec.serve.serving import Serving
from hcarec.serve.stores.interface import Event
from hcarec.serve.stores.sqlite import SqliteStore
from hcarec.serve.upkeep import Upkeep
from live_models import data, models, quick_folder

ITEMS = [f"i{n:02}" for n in range(1, 51)]
NOW = 1_700_000_000 * SECOND


@cache
def serving(name: str, half: bool = False) -> Serving:
    return Serving(models()[name], f"{name:>12}", half)


# -- rows --------------------------------------------------------------------------------------------------------------


@given(d=st.integers(1, 9), w_x=st.integers(1, 4), w_h=st.integers(1, 4), n=st.integers(0, 4), seed=st.integers(0, 99))
def test_rows_go_there_and_back(d: int, w_x: int, w_h: int, n: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    model = HCAGRU(preset="paper", d=d, window_x=w_x, window_h=w_h).fit(data(), epochs=0)
    codec, states = Codec(model), model.start(n)
    for name in ("h", "hidden", "interest"):
        states[name] = draw.standard_normal(states[name].shape)
    states["items"] = draw.integers(-1, 7, states["items"].shape)
    rows = Rows(states, draw.integers(0, 2**40, n))
    encoded = codec.encode(rows)
    assert [len(row) for row in encoded] == [codec.size] * n
    assert all(codec.checked(row) is row for row in encoded)
    back = codec.decode([None, *encoded])
    np.testing.assert_array_equal(back.states[1:], rows.states)
    np.testing.assert_array_equal(back.counts[1:], rows.counts)
    assert back.states[:1] == model.start() and back.counts[0] == 0


def test_a_row_is_small() -> None:
    model = HCAGRU(preset="paper", d=64).fit(data(), epochs=0)
    assert Codec(model).size < 3 * 1024
    assert Codec(model, half=True).size < 1024


@pytest.mark.parametrize(
    "spoil", [lambda row: row[:-1], lambda row: row + b"\0", lambda row: b"\xff" * len(row), lambda row: row[:8] + b"\x32\0\0\0" + row[12:]]
)
def test_a_row_that_cannot_be_right_is_not_used(spoil: Any) -> None:
    own = serving("hca-gru")
    row = own.advance([None], [np.array([1, 2, 3], np.int32)])[0]
    assert own.from_store(row) == row
    assert own.from_store(spoil(row)) is None
    assert own.from_store(None) is None


def test_states_are_kept_apart_by_all_that_they_depend_on() -> None:
    model = models()["hca-gru"]
    renamed = HCAGRU(preset="paper", d=6, window_x=3, window_h=2).fit(data(), epochs=0)
    renamed.item_ids = Ids.of([f"other {item}" for item in model.item_ids.texts()])
    wider = HCAGRU(preset="paper", d=6, window_x=3, window_h=3).fit(data(), epochs=0)
    made = [Serving(model, "a"), Serving(model, "b"), Serving(model, "a", True), Serving(renamed, "a"), Serving(wider, "a")]
    assert len({each.key for each in made}) == len(made)
    assert Serving(model, "a").key == made[0].key


def test_half_states_are_near() -> None:
    whole, half = serving("hca-gru"), serving("hca-gru", True)
    assert whole.key != half.key
    row = half.advance([None], [np.array([1, 2, 3], np.int32)])[0]
    stored = half.to_store([row])[0]
    back = half.from_store(stored)
    assert back is not None and len(stored) < 0.7 * len(row) and back != row
    exact, near = (half.codec.decode([each]) for each in (row, back))
    np.testing.assert_allclose(near.states["interest"], exact.states["interest"], atol=1e-3)
    np.testing.assert_array_equal(near.states["items"], exact.states["items"])
    assert near.counts.tolist() == [3]


@given(lengths=st.lists(st.integers(0, 9), min_size=1, max_size=5), cuts=st.lists(st.integers(0, 9), min_size=5, max_size=5), seed=st.integers(0, 99))
@pytest.mark.parametrize("name", ["hca-gru", "other", "gru", "markov", "item-knn", "sasrec", "counting"])
def test_many_users_step_as_each_alone_in_any_pieces(name: str, lengths: list[int], cuts: list[int], seed: int) -> None:
    own, model = serving(name), models()[name]
    logs = [np.random.default_rng(seed + n).integers(0, 50, length).astype(np.int32) for n, length in enumerate(lengths)]
    rows = own.advance([None] * len(logs), [log[:cut] for log, cut in zip(logs, cuts, strict=False)])
    rests = [log[cut:] for log, cut in zip(logs, cuts, strict=False)]
    queries, rows = own.queries(rows, rests), own.advance(rows, rests)
    for n, (log, row) in enumerate(zip(logs, rows, strict=True)):
        state = model.start()
        model.advance(state, log, np.array([0, len(log)]))
        np.testing.assert_array_equal(own.codec.decode([row]).states, state)
        whole, mine = model.encode(log, np.array([0, len(log)])), queries.take(np.array([n]))
        np.testing.assert_array_equal(mine.vectors, whole.vectors)
        for part, right in zip(mine.corrections or (), whole.corrections or (), strict=True):
            np.testing.assert_array_equal(part, right)


def test_a_long_log_is_replayed_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    own, log = serving("hca-gru"), np.arange(40, dtype=np.int32)
    whole = own.advance([None, None], [log, log[:7]])
    monkeypatch.setattr("hcarec.serve.serving.REPLAYED_AT_ONCE", 6)
    pieces = own.advance([None, None], [log, log[:7]])
    assert whole == pieces


# -- the policy --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("time", "stored", "corrected"),
    [
        (None, NOW, False),
        (NOW - 5, NOW - 5, False),
        (NOW + 60 * SECOND, NOW + 60 * SECOND, False),
        (NOW + 60 * SECOND + 1, NOW, True),
        (EARLIEST, EARLIEST, False),
        (EARLIEST - 1, NOW, True),
        (10**30, NOW, True),
    ],
)
def test_a_time_that_cannot_be_is_corrected(time: int | None, stored: int, corrected: bool) -> None:
    assert stamp(NewEvent("u", "i", time), NOW, 60) == Stamped("u", "i", stored, None, corrected)


@pytest.mark.parametrize("event", [NewEvent("", "i"), NewEvent("u", "x" * 513), NewEvent("u", "i", None, ""), NewEvent("\ud800", "i")])
def test_bad_ids_are_refused(event: NewEvent) -> None:
    with pytest.raises(InputError):
        stamp(event, NOW, 60)


def test_a_plan_says_what_is_done_with_each_event() -> None:
    events = [
        Stamped("u", item, time, event_id, False) for item, time, event_id in [("a", 5, "1"), ("a", 6, "1"), ("?", 9, None), ("b", 9, "2"), ("b", 8, None)]
    ]
    found = plan(events, 5, {"0"}, lambda item: "ab".find(item))
    assert [taken.status for taken in found.taken] == ["applied", "duplicate", "unknown_item", "applied", "late"]
    assert (found.step, found.replay, found.last_time, len(found.add)) == ([0, 1], True, 9, 4)


# -- waiting -----------------------------------------------------------------------------------------------------------


def test_an_inbox_is_bounded_in_number_and_in_time() -> None:
    inbox: Inbox[int] = Inbox("jobs", 10, max_wait_s=1.0)
    inbox.put(1, 99)  # nothing waits: anything goes
    with pytest.raises(Overloaded):
        inbox.put(2)
    assert inbox.gather(5, 0, 0) == [1] and inbox.waiting == 0
    for job in range(10):
        inbox.put(job)
    with pytest.raises(Overloaded):
        inbox.put(10)
    assert inbox.gather(4, 0, 0) == [0, 1, 2, 3] and inbox.waiting == 6
    inbox.done(1, 0.5)
    with pytest.raises(Overloaded) as refused:  # six at half a second each
        inbox.put(10)
    assert refused.value.retry_after == pytest.approx(3.0)
    inbox.close()
    assert inbox.gather(99, 9, 9) == [4, 5, 6, 7, 8, 9]
    assert inbox.gather(99, 9, 9) == []
    with pytest.raises(Overloaded):
        inbox.put(1)


def test_one_slow_batch_refuses_nobody_and_several_do() -> None:
    inbox: Inbox[int] = Inbox("jobs", 1000, max_wait_s=0.1)
    for _ in range(9):
        inbox.done(1, 0.001)
    inbox.done(1, 5.0)
    for job in range(50):
        inbox.put(job)
    for _ in range(4):
        inbox.done(1, 5.0)
    with pytest.raises(Overloaded):
        inbox.put(50)


# -- a data set, retention ---------------------------------------------------------------------------------------------


def test_a_data_set_is_imported_once_and_in_its_order(tmp_path: Path) -> None:
    made = data()
    made.save(tmp_path / "data")
    with quick_folder() as folder:
        store = SqliteStore(folder / "s.db")
        assert seed(store, tmp_path / "data") == made.n_events
        assert seed(store, tmp_path / "data") == 0
        live = Live(store, serving("hca-gru"), ServiceOptions())
        users = list(made.user_ids.texts())
        for n, known in enumerate(live.look_up([Lookup(user, True) for user in users])):
            assert isinstance(known, Known) and known.person.items is not None
            assert known.person.items.tolist() == made[n].tolist()
        upkeep = Upkeep(Live(store, serving("other"), ServiceOptions()))
        assert len(store.without_state(serving("other").key).users) == made.n_users
        while upkeep.step(0):
            pass
        assert store.without_state(serving("other").key).users == []
        store.close()


def test_times_become_microseconds() -> None:
    assert microseconds(np.array([1, 2]), "s").tolist() == [1_000_000, 2_000_000]
    assert microseconds(np.array([1, 2]), "us").tolist() == [1, 2]
    assert microseconds(np.array([1999, 2000]), "ns").tolist() == [1, 2]
    assert microseconds(np.array([1.5, 2.0]), "ms").tolist() == [1500, 2000]
    plain = Sequences(np.array([1, 0], np.int32), np.array([0, 0, 2]), Ids.of(["a", "b"]), Ids.of(["x", "y"]))
    assert [(user, [(event.time, event.item) for event in events]) for user, events in histories(plain)] == [("a", []), ("b", [(0, "y"), (1, "x")])]


def test_a_current_state_outlives_retention_and_a_restart() -> None:
    options = ServiceOptions(retain_last=2)
    items = ITEMS[:6]
    with quick_folder() as folder:
        for n in (0, 2, 4):  # each round: two events, retention, a crash
            store = SqliteStore(folder / "s.db")
            live = Live(store, serving("hca-gru"), options)
            live.take([Stamped("u", items[n + more], NOW + n + more, None, False) for more in (0, 1)])
            upkeep = Upkeep(live)
            while upkeep.step(0):
                pass
            assert [event.item for event in store.history("u").events] == items[n : n + 2]
            store.close()
        store = SqliteStore(folder / "s.db")
        known = Live(store, serving("hca-gru"), options).look_up([Lookup("u")])[0]
        assert isinstance(known, Known)
        right = serving("hca-gru").advance([None], [serving("hca-gru").known(items)])[0]
        assert known.person.row == right  # it has seen all six, of which two are kept
        store.close()


def test_retention_of_long_logs_is_done_a_few_users_at_a_time() -> None:
    with quick_folder() as folder:
        store = SqliteStore(folder / "s.db")
        store.seed("print", [(f"u{n:02}", [Event(NOW + k, ITEMS[k % 30]) for k in range(1500)]) for n in range(12)])
        live = Live(store, serving("hca-gru"), ServiceOptions(retain_last=10))
        upkeep = Upkeep(live)
        changes, most, steps, read = store._db.total_changes, 0, 0, []
        history = store.history
        store.history = lambda user, *more: read.append(user) or history(user, *more)  # type: ignore[method-assign, func-returns-value]
        while upkeep.step(0):
            most, changes = max(most, store._db.total_changes - changes), store._db.total_changes
            assert len(read) <= 3
            read.clear()
            steps += 1
        assert most < 2 * 4096 and steps > 4
        store.history = history  # type: ignore[method-assign]
        assert store.figures().events == 12 * 10 and store.without_state(serving("hca-gru").key).users == []
        right = serving("hca-gru").advance([None], [serving("hca-gru").known([ITEMS[k % 30] for k in range(1500)])])[0]
        for n in range(12):  # the states have seen what is gone
            known = live.look_up([Lookup(f"u{n:02}")])[0]
            assert isinstance(known, Known) and known.person.row == right
        store.close()
