"""What every store does: one suite over SQLite, in this process and apart, and a real Redis or Valkey server."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hcarec.errors import InputError
from hcarec.serve.stores import open_store
from hcarec.serve.stores.apart import ApartStore
from hcarec.serve.stores.copying import copy
from hcarec.serve.stores.errors import StoreError
from hcarec.serve.stores.interface import Change, Event, Loaded, Page, Rebuilt, Store, Wanted
from store_servers import DURABLE, Server

M = "model-a"
Opener = Callable[[], Store]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("redis"), *DURABLE)
    yield server
    server.stop()


@pytest.fixture(params=["sqlite", "apart", "redis"])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    """Return what opens one and the same store, new with the test."""
    if request.param != "redis":
        return lambda: open_store(str(tmp_path / "store.db"), apart=request.param == "apart")
    server = request.getfixturevalue("server")
    prefix = f"{tmp_path}:"
    return lambda: open_store(server.url, prefix=prefix)


@pytest.fixture
def store(opener: Opener) -> Iterator[Store]:
    store = opener()
    yield store
    store.close()


def add(store: Store, user: str, *events: Event, model: str = M, state: bytes | None = b"state") -> int:
    version = store.load([Wanted(user)], model)[0].version
    new = store.commit([Change(user, version, events, model, state)])[0]
    assert new is not None and new > version
    return new


def log(store: Store, user: str) -> list[tuple[int, str, str | None]]:
    return [event[:3] for event in store.history(user).events]


# -- updates -----------------------------------------------------------------------------------------------------


def test_a_user_without_a_log_is_at_version_0(store: Store) -> None:
    assert store.load([Wanted("nobody", ["e"])], M) == [Loaded(0, None, None, frozenset(), 0)]
    assert store.history("nobody") == (0, [])
    assert store.users() == Page([], None)


def test_what_was_committed_is_loaded_and_survives_reopening(opener: Opener) -> None:
    store = opener()
    a, b = store.commit([Change("a", 0, [Event(5, "x", "1"), Event(9, "y")], M, b"\0s"), Change("b", 0, [Event(7, "x")], M, None)])
    store.close()
    store = opener()
    assert store.load([Wanted("b"), Wanted("a", ["1", "2"])], M) == [Loaded(b, 7, None, frozenset(), 1), Loaded(a, 9, b"\0s", frozenset("1"), 2)]
    assert log(store, "a") == [(5, "x", "1"), (9, "y", None)]
    store.close()


def test_a_late_event_lies_in_its_place_and_equal_times_keep_their_arrival(store: Store) -> None:
    add(store, "a", Event(5, "first"), Event(9, "last"))
    add(store, "a", Event(5, "second"), Event(-3, "before 1970"), Event(7, "late"))
    events = store.history("a").events
    assert [event.item for event in events] == ["before 1970", "first", "second", "late", "last"]
    assert len({event.arrival for event in events}) == 5
    assert [event.item for event in store.history("a", 2).events] == ["late", "last"]
    assert store.history("a", 0).events == [] and len(store.history("a", 99).events) == 5
    assert store.load([Wanted("a")], M)[0].last_time == 9


def test_a_change_of_a_moved_log_is_refused_alone(store: Store) -> None:
    first = add(store, "a", Event(1, "x"))
    changes = [Change("a", 0, [Event(2, "no")], M, b"no"), Change("b", 0, [Event(2, "yes")], M, b"yes"), Change("b", 0, [Event(3, "no")], M, b"no")]
    refused, accepted, twice = store.commit(changes)
    assert refused is None and accepted and twice is None
    assert store.load([Wanted("a"), Wanted("b")], M) == [Loaded(first, 1, b"state", frozenset(), 1), Loaded(accepted, 2, b"yes", frozenset(), 1)]
    assert store.commit([Change("nobody", first, [Event(1, "x")], M, None)]) == [None]
    assert store.commit([]) == []


def test_an_event_id_is_taken_once_per_user(store: Store) -> None:
    version = add(store, "a", Event(1, "x", "id"))
    add(store, "b", Event(1, "x", "id"))
    refused, other = store.commit([Change("a", version, [Event(2, "z", "new"), Event(2, "y", "id")], M, b"s"), Change("c", 0, [Event(1, "x", "id")], M, b"s")])
    assert refused is None and other
    assert log(store, "a") == [(1, "x", "id")]
    assert store.load([Wanted("a", ["new", "id"])], M)[0].duplicates == {"id"}
    with pytest.raises(InputError, match="twice"):
        store.commit([Change("d", 0, [Event(1, "x", "id"), Event(2, "x", "id")], M, None)])


def test_a_state_counts_only_for_its_version_and_model(store: Store) -> None:
    version = add(store, "a", Event(1, "x"), state=b"")
    assert store.load([Wanted("a")], M)[0].state == b""
    assert store.load([Wanted("a")], "other")[0].state is None
    assert store.put_states([Rebuilt("a", version, "other", b"o"), Rebuilt("a", version - 1, M, b"old"), Rebuilt("nobody", 1, M, b"n")]) == [True, False, False]
    assert store.load([Wanted("a")], "other")[0].state == b"o"
    newer = add(store, "a", Event(2, "y"), state=b"s2")
    assert store.load([Wanted("a")], "other")[0].state is None
    assert store.put_states([Rebuilt("a", version, "other", b"late")]) == [False]
    assert store.put_states([Rebuilt("a", newer, M, b"again")]) == [True]
    assert store.load([Wanted("a")], M)[0].state == b"again"
    add(store, "a", Event(0, "late"), state=None)
    assert store.load([Wanted("a")], M)[0].state is None


@pytest.mark.parametrize("text", ["\0", "a\nb", "a\0", "é\u200d👩‍👩‍👧", "e\u0301", "'; DROP TABLE users --", "%s*?[]{}", "x" * 512, " ", "\ufeff"])
def test_any_text_is_an_id(store: Store, text: str) -> None:
    add(store, text, Event(1, text, text), model=text)
    add(store, text + "x" if len(text) < 512 else "x", Event(2, "other"))
    assert log(store, text) == [(1, text, text)]
    assert store.load([Wanted(text, [text, "no"])], text)[0][2:] == (b"state", {text}, 1)
    assert text in store.users().users and len(store.users().users) == 2
    assert store.forget(text) == 1 and log(store, text) == [] and store.figures().users == 1


@pytest.mark.parametrize("bad", ["", "x" * 513, "é" * 257, "\ud800"])
def test_other_ids_are_refused(store: Store, bad: str) -> None:
    for change in (Change(bad, 0, [Event(1, "x")], M, None), Change("a", 0, [Event(1, bad)], M, None), Change("a", 0, [Event(1, "x", bad)], M, None)):
        with pytest.raises(InputError):
            store.commit([Change("fine", 0, [Event(1, "x")], M, None), change])
    with pytest.raises(InputError):
        store.load([Wanted(bad)], M)
    with pytest.raises(InputError, match="64 bits"):
        store.commit([Change("a", 0, [Event(1 << 63, "x")], M, None)])
    assert store.figures().users == 0


def test_extreme_times_are_kept_in_order(store: Store) -> None:
    times = [-(1 << 63), -1, 0, 1 << 53, (1 << 53) + 1, (1 << 63) - 1]
    add(store, "a", *(Event(time, "x") for time in reversed(times)))
    assert [event.time for event in store.history("a").events] == times


# -- upkeep ------------------------------------------------------------------------------------------------------


def test_forgetting_leaves_nothing_and_no_version_comes_back(store: Store) -> None:
    old = add(store, "a", Event(1, "x", "id"), Event(2, "y"))
    add(store, "b", Event(1, "x"))
    store.put_states([Rebuilt("a", old, "other", b"o")])
    assert store.forget("a") == 2 and store.forget("a") == 0 and store.forget("nobody") == 0
    assert store.load([Wanted("a", ["id"])], M) == [Loaded(0, None, None, frozenset(), 0)]
    assert store.users().users == ["b"] and store.figures()[:2] == (1, 1)
    assert add(store, "a", Event(1, "x", "id"), state=None) > old
    assert [store.load([Wanted("a")], model)[0].state for model in (M, "other")] == [None, None]
    store.check()


def test_one_event_is_removed_and_all_states_become_old(opener: Opener) -> None:
    store = opener()
    add(store, "b", Event(7, "x", "2"))
    old = add(store, "a", Event(5, "x", "1"), Event(9, "y", "2"), Event(7, "z"))
    store.put_states([Rebuilt("a", old, "other", b"o")])
    assert store.retract("a", "2") == 1
    assert store.retract("a", "2") == 0
    loaded = store.load([Wanted("a", ["1", "2"])], M)[0]
    assert loaded.version > old
    assert loaded == Loaded(loaded.version, 9, None, frozenset("1"), 2)  # the latest time that it has ever held
    assert store.load([Wanted("a")], "other")[0].state is None
    assert store.put_states([Rebuilt("a", old, M, b"late")]) == [False]
    assert store.commit([Change("a", old, [Event(9, "y")], M, b"no")]) == [None]
    assert log(store, "a") == [(5, "x", "1"), (7, "z", None)]
    assert log(store, "b") == [(7, "x", "2")]
    assert store.figures()[:2] == (2, 3)
    store.check()
    store.close()
    store = opener()
    assert log(store, "a") == [(5, "x", "1"), (7, "z", None)]
    assert add(store, "a", Event(6, "again", "2")) > loaded.version
    assert [event.item for event in store.history("a").events] == ["x", "again", "z"]
    store.check()
    store.close()


def test_nothing_is_removed_where_there_is_nothing(store: Store) -> None:
    version = add(store, "a", Event(1, "x"), Event(2, "y", "id"))
    for user, event_id in (("nobody", "id"), ("a", "other"), ("a", "x"), ("a", "ID")):
        assert store.retract(user, event_id) == 0
    assert store.load([Wanted("a")], M)[0] == Loaded(version, 2, b"state", frozenset(), 2)
    for user, event_id in (("", "id"), ("a", ""), ("a", "x" * 513), ("\ud800", "id")):
        with pytest.raises(InputError):
            store.retract(user, event_id)


def test_a_log_of_which_nothing_is_left_goes_on(store: Store) -> None:
    old = add(store, "a", Event(5, "x", "1"))
    assert store.retract("a", "1") == 1
    loaded = store.load([Wanted("a", ["1"])], M)[0]
    assert loaded.version > old and loaded[1:] == (5, None, frozenset(), 0)
    assert store.history("a") == (loaded.version, [])
    assert store.users().users == ["a"] and store.without_state(M).users == [] and store.figures()[:2] == (1, 0)
    add(store, "a", Event(3, "y", "1"))
    assert log(store, "a") == [(3, "y", "1")]
    assert store.forget("a") == 1
    store.check()


@pytest.mark.parametrize("text", ["\0", "a\nb", "é\u200d👩‍👩‍👧", "'; DROP TABLE events --", "x" * 512])
def test_an_event_of_any_id_is_removed(store: Store, text: str) -> None:
    add(store, text, Event(1, text, text), Event(1, text, "other"))
    assert store.retract(text, text) == 1
    assert log(store, text) == [(1, text, "other")]


def test_traces_are_said_until_scrubbed(store: Store) -> None:
    add(store, "a", Event(1, "x"))
    store.forget("a", scrub=False)
    assert store.figures().traces
    store.forget("nobody")  # which waits for all that is left
    assert not store.figures().traces and store.scrub() is None


def test_users_without_a_current_state_come_page_by_page(store: Store) -> None:
    names = [f"user {n}" for n in range(25)]
    for n, name in enumerate(names):
        add(store, name, Event(1, "x"), state=b"s" if n % 3 else None)
    add(store, "user 1", Event(2, "y"), model="other")
    lacking, after, pages = [], None, 0
    while True:
        page = store.without_state(M, after, 10)
        lacking += page.users
        pages += 1
        if (after := page.after) is None:
            break
    assert pages == 3 and lacking == sorted({name for n, name in enumerate(names) if n % 3 == 0} | {"user 1"})
    assert store.users(limit=25).users == sorted(names)


def test_states_of_other_models_are_dropped(store: Store) -> None:
    for n in range(7):
        version = add(store, f"u{n}", Event(1, "x"))
        store.put_states([Rebuilt(f"u{n}", version, "old", b"o"), Rebuilt(f"u{n}", version, "older", b"o")])
    assert store.figures().states == {M: 7, "old": 7, "older": 7}
    removed = 0
    while gone := store.drop_states({M, "unknown"}, limit=3):
        removed += gone
    assert removed == 14 and store.figures().states == {M: 7}
    assert store.load([Wanted("u3")], M)[0].state == b"state" and store.load([Wanted("u3")], "old")[0].state is None


def histories(n: int) -> list[tuple[str, list[Event]]]:
    return [(f"u{i}", [Event(t, f"i{i}-{t}") for t in range(i % 4)]) for i in range(n)]


def test_seeding_happens_once_and_goes_on_where_it_stopped(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("sqlite_upkeep", "redis_upkeep"):
        monkeypatch.setattr(f"hcarec.serve.stores.{module}.SEED_EVENTS", 10)
    add(store, "u3", Event(100, "live"))

    def broken() -> Iterator[tuple[str, list[Event]]]:
        yield from histories(30)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.seed("print", broken())
    if not isinstance(store, ApartStore):  # whose transactions are not cut short by this test
        assert store.seeded() == {"print": False}
        assert 0 < store.figures().events < 61
    store.seed("print", iter(histories(40)))
    assert store.seeded() == {"print": True} and store.figures().events == 61
    assert store.seed("print", iter(histories(40))) == 0
    assert log(store, "u3") == [(0, "i3-0", None), (1, "i3-1", None), (2, "i3-2", None), (100, "live", None)]
    assert store.load([Wanted("u3")], M)[0].state is None and "u4" not in store.users().users
    with pytest.raises(StoreError, match="another data set"):
        store.seed("second", iter(histories(3)))
    assert store.seed("second", [("u1", [Event(9, "x")]), ("u1", [Event(8, "y")]), ("u2", [])], again=True) == 2
    assert [event[1] for event in log(store, "u1")] == ["i1-0", "y", "x"]
    store.check()


def test_retention_lets_events_go_and_nothing_else(store: Store) -> None:
    version = add(store, "a", *(Event(time, f"i{time}", f"e{time}") for time in range(10)))
    add(store, "b", Event(1, "x"))
    assert store.retain(last=6) == (4, None)
    assert store.retain(since=7) == (4, None)
    assert store.load([Wanted("a", ["e6", "e7"])], M)[0] == Loaded(version, 9, b"state", frozenset({"e7"}), 3)
    assert store.retain(last=6, since=7, limit=1) == (0, "a")
    assert [event.time for event in store.history("a").events] == [7, 8, 9]
    assert store.history("b").events == [] and store.load([Wanted("b")], M)[0][1:3] == (1, b"state")
    assert "b" not in store.without_state("other").users and store.figures()[:2] == (2, 3)
    store.check()
    add(store, "a", Event(3, "i3", "e3"))
    assert [event.time for event in store.history("a").events] == [3, 7, 8, 9]


def test_a_backup_made_while_writing_is_a_whole_store(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hcarec.serve.stores.sqlite_backup.BACKUP_PAGES", 8)
    assert all(store.commit([Change(f"u{n}", 0, [Event(n, "x" * 300, f"e{n}")], M, b"state") for n in range(600)]))
    store.seed("print", [("seeded", [Event(1, "x")])])
    written = itertools.count()
    store.backup(tmp_path / "copy.db", lambda done, total: add(store, f"u{next(written)}", Event(5, "during")) and None)
    assert next(written) >= (1 if isinstance(store, ApartStore) else 2)
    with_copy = open_store(str(tmp_path / "copy.db"))
    checked = with_copy.check()
    assert checked.users == 601 and 601 <= checked.events <= store.figures().events
    assert with_copy.seed("print", [("seeded", [Event(1, "x")])]) == 0
    assert with_copy.load([Wanted("u599", ["e599"])], M)[0][2:] == (b"state", {"e599"}, 1)
    assert [path.name for path in tmp_path.glob(".copy.db*")] == []
    with_copy.close()


def test_a_store_is_copied_into_an_empty_one_of_any_kind(store: Store, tmp_path: Path, server: Server) -> None:
    version = add(store, "a", Event(2, "x", "e"), Event(2, "y"), Event(1, "z"))
    store.put_states([Rebuilt("a", version, "other", b"o")])
    for address in (str(tmp_path / "new.db"), server.url):
        target = open_store(address, prefix=f"{tmp_path}-new:")
        copy(store, target)
        assert log(target, "a") == log(store, "a")
        assert [target.load([Wanted("a")], model)[0].state for model in (M, "other")] == [b"state", b"o"]
        with pytest.raises(StoreError, match="not empty"):
            copy(store, target)
        target.close()


def test_the_check_counts_and_reports(store: Store) -> None:
    store.commit([Change(f"u{n}", 0, [Event(1, "x"), Event(2, "y")], M, b"state") for n in range(450)])
    seen: list[tuple[int, int]] = []
    assert store.check(lambda done, total: seen.append((done, total))) == (450, 900, 450, 0)
    assert seen[-1] == (450, 450) and len(seen) >= 3
    assert store.figures()[:2] == (450, 900) and store.figures().bytes > 0


# -- several at once ---------------------------------------------------------------------------------------------


def test_two_servers_on_one_user_equal_one_after_the_other(server: Server, tmp_path: Path) -> None:
    """Each state is the sum over the log it was made from: a lost update would leave a wrong sum."""
    each, refused = 60, []

    def work(worker: int) -> None:
        store = open_store(server.url, prefix=f"{tmp_path}:")
        for n in range(each):
            while True:
                loaded = store.load([Wanted("shared", [f"{worker}-{n}"])], M)[0]
                assert not loaded.duplicates
                total = int(loaded.state or 0) + n
                if store.commit([Change("shared", loaded.version, [Event(n, str(n), f"{worker}-{n}")], M, str(total).encode())])[0]:
                    break
                refused.append(worker)
        store.close()

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store = open_store(server.url, prefix=f"{tmp_path}:")
    loaded = store.load([Wanted("shared")], M)[0]
    assert loaded.n_events == 3 * each and loaded.state == str(3 * sum(range(each))).encode()
    assert refused, "the workers never met: the test shows nothing"
    store.check()
    store.close()


def test_removals_and_events_of_two_servers_equal_some_order(server: Server, tmp_path: Path) -> None:
    each = 40
    first = open_store(server.url, prefix=f"{tmp_path}:")
    add(first, "shared", *(Event(n, str(n), f"old {n}") for n in range(each)))

    def remove() -> None:
        store = open_store(server.url, prefix=f"{tmp_path}:")
        assert sum(store.retract("shared", f"old {n}") for n in range(each)) == each
        store.close()

    thread = threading.Thread(target=remove)
    thread.start()
    for n in range(each):
        while first.commit([Change("shared", first.load([Wanted("shared")], M)[0].version, [Event(n, "new", f"new {n}")], M, b"s")]) == [None]:
            pass
    thread.join()
    assert [event.event_id for event in first.history("shared").events] == [f"new {n}" for n in range(each)]
    first.check()
    first.close()


def test_two_servers_seeding_at_once_import_once(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hcarec.serve.stores.redis_upkeep.SEED_EVENTS", 20)
    added = []

    def work() -> None:
        store = open_store(server.url, prefix=f"{tmp_path}:")
        added.append(store.seed("print", iter(histories(400))))
        store.close()

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store = open_store(server.url, prefix=f"{tmp_path}:")
    assert sum(added) == store.figures().events == sum(len(events) for _, events in histories(400))
    store.check()
    store.close()


def test_a_page_of_retention_ends_when_many_events_have_gone(store: Store) -> None:
    store.seed("print", [(user, [Event(n, "x") for n in range(3000)]) for user in "abc"])
    assert store.retain(last=100) == (5800, "b")
    assert store.retain(last=100, after="b") == (2900, None)
    assert store.retain(last=100) == (0, None) and store.figures().events == 300
