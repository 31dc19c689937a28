"""Events on the short way from the loop to the process that writes the store, and what happens when that ends, is slow or finds something wrong."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from hcarec.recommendation import recommend
from hcarec.serve.lane import LARGEST, Lane, Turn
from hcarec.serve.policy import Stamped
from hcarec.serve.service import Ask, NewEvent, Service
from hcarec.serve.stores.apart import ApartStore
from hcarec.serve.stores.errors import StoreDamaged, StoreFull, StoreUnreachable
from hcarec.serve.stores.interface import Change, Event
from hcarec.serve.stores.line import ALIVE, Line
from hcarec.serve.stores.sqlite import SqliteStore
from hcarec.serve.taking import NOBODY, Group, Moved, Taker
from live_models import models, quick_folder, run, running, until


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with quick_folder() as path:
        yield path


def writer(service: Service) -> int:
    return service._live.store._process.pid  # type: ignore[attr-defined]


def by_thread(service: Service) -> list[int]:
    """Return a list to which the size of every group is added that the thread takes in itself."""
    sizes: list[int] = []
    take = service._live.take

    def counted(events: Sequence[Stamped]) -> Any:
        sizes.append(len(events))
        return take(events)

    service._live.take = counted  # type: ignore[method-assign]
    return sizes


# -- the way there and back ------------------------------------------------------------------------------------------


def test_events_go_without_the_thread_and_are_in_the_next_answer(folder: Path, tmp_path: Path) -> None:
    async def shopper(service: Service, user: str) -> None:
        past: list[str] = []
        for n in range(12):
            past.append(f"i{(7 * n + len(user)) % 12 + 1:02}")
            assert [one.status for one in await service.take([NewEvent(user, past[-1])])] == ["applied"]
            answer = await service.recommend(Ask(user, hide_seen=n % 2 == 1))
            assert answer.items == recommend(models()["hca-gru"], past, 20, hide_seen=n % 2 == 1)

    async def work() -> None:
        async with running(folder, str(tmp_path / "s.db"), store_apart=True) as service:
            sizes = by_thread(service)
            await asyncio.gather(*(shopper(service, "u" * n) for n in range(1, 30)))
            assert sum(sizes) < 29 * 12 / 2  # those that came while the thread looked up a log go along with it

    run(work())


@pytest.mark.parametrize("name", ["gru", "bpr"])
def test_duplicates_late_and_unknown_ones_are_told_apart(name: str, folder: Path, tmp_path: Path) -> None:
    async def work() -> None:
        async with running(folder, str(tmp_path / "s.db"), name, store_apart=True) as service:
            sizes = by_thread(service)
            now = time.time_ns() // 1000
            sent = [NewEvent("u", "i01", now, "1"), NewEvent("u", "i02", now - 5, "2"), NewEvent("u", "i02", None, "1"), NewEvent("v", "?", None, "1")]
            assert [one.status for one in await service.take(sent)] == ["applied", "late", "duplicate", "unknown_item"]
            assert [one.status for one in await service.take([*sent, NewEvent("u", "i03")])] == ["duplicate"] * 4 + ["applied"]
            assert (await service.recommend(Ask("u"))).items == recommend(models()[name], ["i02", "i01", "i03"], 20)
            assert await service.forget("u") == 3
            assert [one.status for one in await service.take(sent[:1])] == ["applied"]
            assert (await service.recommend(Ask("u"))).items == recommend(models()[name], ["i01"], 20)
            assert not sizes

    run(work())


def test_a_user_not_in_memory_is_brought_along(folder: Path, tmp_path: Path) -> None:
    async def work() -> None:
        past: dict[str, list[str]] = {f"u{n}": [] for n in range(5)}
        for _ in range(2):
            async with running(folder, str(tmp_path / "s.db"), store_apart=True, cached_users=1) as service:
                for n in range(15):
                    user = f"u{n % 5}"
                    past[user].append(f"i{n % 12 + 1:02}")
                    await service.take([NewEvent(user, past[user][-1])])
                replays = service.figures()["replays"]
                for user, items in past.items():
                    assert (await service.recommend(Ask(user))).items == recommend(models()["hca-gru"], items, 20)
                assert service.figures()["replays"] == replays  # states went along with the events

    run(work())


def test_what_is_too_large_for_one_message_goes_by_the_thread(folder: Path, tmp_path: Path) -> None:
    async def work() -> None:
        async with running(folder, str(tmp_path / "s.db"), store_apart=True) as service:
            sizes = by_thread(service)
            large = [NewEvent(f"{n:0>500}", "i01", None, f"{n:0>500}") for n in range(LARGEST // 1000 + 1)]
            assert {one.status for one in await service.take(large)} == {"applied"} and sizes == [len(large)]
            assert {one.status for one in await service.take(large)} == {"duplicate"}

    run(work())


def test_events_go_on_during_a_backup(folder: Path, tmp_path: Path) -> None:
    async def work() -> None:
        async with running(folder, str(tmp_path / "s.db"), store_apart=True) as service:
            await service.take([NewEvent(f"u{n}", "i01") for n in range(400)])
            backups, taken = [asyncio.create_task(service.backup(tmp_path / f"{n}.db")) for n in range(3)], 0
            while not all(backup.done() for backup in backups):
                await service.take([NewEvent("u1", "i02")])
                taken += 1
            await asyncio.gather(*backups)
            assert taken and len((await service.history("u1", None)).events) == 1 + taken

    run(work())


def test_closing_waits_for_events(folder: Path, tmp_path: Path) -> None:
    async def work() -> None:
        async with running(folder, str(tmp_path / "s.db"), store_apart=True) as service:
            takes = [asyncio.create_task(service.take([NewEvent(f"u{n}", "i01")])) for n in range(50)]
            await asyncio.sleep(0)
        assert [task.result()[0].status for task in takes] == ["applied"] * 50

    run(work())


# -- trouble ---------------------------------------------------------------------------------------------------------


def test_a_writer_that_ended_unnoticed_costs_nothing(folder: Path, tmp_path: Path) -> None:
    async def work() -> None:
        async with running(folder, str(tmp_path / "s.db"), store_apart=True) as service:
            await service.take([NewEvent("u", "i01")])
            os.kill(before := writer(service), signal.SIGKILL)
            await until(lambda: service._live.store.lost)  # type: ignore[attr-defined]
            assert [one.status for one in await service.take([NewEvent("u", "i02")])] == ["applied"]
            await until(lambda: writer(service) != before)
            sizes = by_thread(service)
            assert [one.status for one in await service.take([NewEvent("u", "i03")])] == ["applied"] and not sizes
            assert (await service.recommend(Ask("u"))).items == recommend(models()["hca-gru"], ["i01", "i02", "i03"], 20)

    run(work())


def test_a_writer_that_ends_with_events_under_way_says_so(folder: Path, tmp_path: Path) -> None:
    async def work() -> None:
        async with running(folder, str(tmp_path / "s.db"), store_apart=True, retry_s=0.05) as service:
            await service.take([NewEvent("u", "i01")])
            os.kill(pid := writer(service), signal.SIGSTOP)
            under_way = [asyncio.create_task(service.take([NewEvent("u", f"i0{n}", None, str(n))])) for n in (2, 3)]
            await asyncio.sleep(0.1)
            os.kill(pid, signal.SIGKILL)
            for task in under_way:
                with pytest.raises(StoreUnreachable, match="has ended"):
                    await task
            await until(lambda: service.ready() is None)
            assert [one.status for one in await service.take([NewEvent("u", f"i0{n}", None, str(n)) for n in (2, 3)])] == ["applied"] * 2
            assert (await service.recommend(Ask("u"))).items == recommend(models()["hca-gru"], ["i01", "i02", "i03"], 20)

    run(work())


def test_a_writer_that_hangs_is_not_waited_for(folder: Path, tmp_path: Path) -> None:
    async def work() -> None:
        async with running(folder, str(tmp_path / "s.db"), store_apart=True, take_wait_s=0.2) as service:
            await service.take([NewEvent("u", "i01")])
            os.kill(writer(service), signal.SIGSTOP)
            for number in "12":
                with pytest.raises(StoreUnreachable, match="not known"):
                    await service.take([NewEvent("u", "i02", None, number)])
            assert (await service.recommend(Ask("u"))).items == recommend(models()["hca-gru"], ["i01"], 20)
            os.kill(writer(service), signal.SIGCONT)
            assert [one.status for one in await service.take([NewEvent("u", "i02", None, "1")])] == ["duplicate"]
            assert [one.status for one in await service.take([NewEvent("u", "i02", None, "2")])] == ["applied"]  # was not begun any more

    run(work())


def test_a_damaged_user_stops_nobody_else(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    store = SqliteStore(path)
    store.commit([Change(user, 0, [Event(1, "i01", "1")], "m", None) for user in "ab"])
    store._db.execute("UPDATE users SET version = version + 9 WHERE name = ?", (b"a",))
    store.close()

    async def work() -> None:
        async with running(folder, str(path), store_apart=True) as service:
            takes = [asyncio.create_task(service.take([NewEvent(user, "i02")])) for user in "abc"]
            await asyncio.wait(takes)
            assert isinstance(takes[0].exception(), StoreDamaged)
            assert [task.result()[0].status for task in takes[1:]] == ["applied"] * 2

    run(work())


def test_an_answer_that_makes_no_sense_ends_the_process_and_not_the_service(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        async with running(folder, str(tmp_path / "s.db"), store_apart=True, retry_s=0.05) as service:
            await service.take([NewEvent("u", "i01")])
            before, received = writer(service), Line.received
            monkeypatch.setattr(Line, "received", lambda self: received(self) if self._end.getblocking() else b"\xc1"[9])
            with pytest.raises(StoreUnreachable):
                await service.take([NewEvent("u", "i02", None, "2")])
            monkeypatch.undo()
            await until(lambda: service.ready() is None and writer(service) != before)
            await service.take([NewEvent("u", "i02", None, "2")])
            assert (await service.recommend(Ask("u"))).items == recommend(models()["hca-gru"], ["i01", "i02"], 20)

    run(work())


def test_memory_is_right_while_the_process_is_started_again(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = ApartStore._start

    def slowly(self: ApartStore) -> None:
        time.sleep(0.5)
        start(self)

    async def work() -> None:
        async with running(folder, str(tmp_path / "s.db"), store_apart=True) as service:
            await service.take([NewEvent("u", "i01")])
            monkeypatch.setattr(ApartStore, "_start", slowly)
            os.kill(writer(service), signal.SIGKILL)
            await until(lambda: service._live.store.lost)  # type: ignore[attr-defined]
            event = asyncio.create_task(service.take([NewEvent("u", "i02")]))
            await asyncio.sleep(0.1)
            answer = await service.recommend(Ask("u"))
            assert not event.done() and not answer.degraded and answer.items == recommend(models()["hca-gru"], ["i01"], 20)
            assert (await event)[0].status == "applied"

    run(work())


def test_a_user_that_was_forgotten_is_nowhere_in_memory(folder: Path, tmp_path: Path) -> None:
    async def work() -> None:
        async with running(folder, str(tmp_path / "s.db"), store_apart=True) as service:
            await service.take([NewEvent("u", "i01")])
            await service.forget("u")
            assert service._store.lane is not None and service._store.lane._group is None
            assert not len(service._live.people) and not service._live.unsaved

    run(work())
    store = SqliteStore(tmp_path / "t.db")
    taker = Taker(store)
    taker.take(group(("u", "x", None)))
    assert taker.forget("u", False) == 1 and not taker._remembered
    store.close()


def test_an_event_given_up_while_closing_harms_nothing(folder: Path, tmp_path: Path) -> None:
    async def work() -> None:
        async with running(folder, str(tmp_path / "s.db"), store_apart=True) as service:
            lane = service._store.lane
            assert lane is not None
            await service.take([NewEvent(f"u{n}", "i01") for n in range(300)])
            with lane.turn.of_thread():
                given_up = asyncio.create_task(service.take([NewEvent("u", "i01")]))
                await asyncio.sleep(0.05)
                given_up.cancel()
                await asyncio.sleep(0)
        assert not lane.busy and not service._live.unsaved

    run(work())


def test_the_upkeep_goes_on_while_events_never_end(folder: Path, tmp_path: Path) -> None:
    async def work() -> None:
        async with running(folder, str(tmp_path / "s.db"), store_apart=True) as service:
            end = asyncio.Event()

            async def shopper(user: str) -> None:
                while not end.is_set():
                    await service.take([NewEvent(user, "i01")])

            shoppers = [asyncio.create_task(shopper(f"u{n}")) for n in range(8)]
            try:
                await until(lambda: service.figures()["users"] == 8, 10.0)
            finally:
                end.set()
                await asyncio.gather(*shoppers)

    run(work())


# -- taking turns ----------------------------------------------------------------------------------------------------


def test_the_thread_goes_first() -> None:
    turn, got = Turn(), threading.Event()
    assert turn.begin() and not turn.begin()

    def thread() -> None:
        with turn.of_thread():
            got.set()

    waiting = threading.Thread(target=thread)
    waiting.start()
    while not turn._wanted:
        time.sleep(0.001)
    assert not got.is_set()
    turn.end()
    assert got.wait(5)
    waiting.join()
    assert turn.begin()
    turn.end()


# -- taking in beside the store --------------------------------------------------------------------------------------


def group(*events: tuple[str, str, str | None]) -> Group:
    return Group([Stamped(user, item, 10 + n, event_id, False) for n, (user, item, event_id) in enumerate(events)], [], [], "m")


def statuses(moved: Sequence[Moved]) -> list[list[str]]:
    return [list(one.statuses) for one in moved]


def test_what_is_remembered_may_be_old(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.db")
    taker = Taker(store)
    assert statuses(taker.take(group(("u", "x", "1"), ("v", "x", "1")))) == [["applied"], ["applied"]]
    version = store.history("u").version
    assert store.commit([Change("u", version, [Event(99, "y", "2")], "m", None)]) != [None]
    moved = taker.take(group(("u", "z", "2"), ("v", "z", "2"), ("u", "z", "3")))
    assert statuses(moved) == [["duplicate", "late"], ["applied"]]
    assert moved[0].before.version > version and moved[0].last_time == 99
    store.forget("v")
    assert statuses(taker.take(group(("v", "x", "1")))) == [["applied"]]
    store.close()


def test_an_error_means_that_nothing_was_written_or_names_whom_it_struck(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SqliteStore(tmp_path / "s.db")
    taker = Taker(store)
    taker.take(group(("u", "x", "1")))
    commit, left = store.commit, [0]

    def failing(changes: Any) -> Any:
        if not left[0]:
            raise StoreFull("no room left")
        left[0] -= 1
        return commit(changes)

    monkeypatch.setattr(store, "commit", failing)
    with pytest.raises(StoreFull):
        taker.take(group(("u", "y", "2"), ("v", "y", "2")))
    assert [len(store.history(user).events) for user in "uv"] == [1, 0]
    left[0] = 1
    taker._remembered["u"] = NOBODY  # which is old: the user is refused, and taken again by itself
    first, second = taker.take(group(("u", "y", "2"), ("v", "y", "2")))
    assert first.failed == ("StoreFull", "no room left") and second.failed is None
    assert [len(store.history(user).events) for user in "uv"] == [1, 1]
    left[0] = 9
    assert statuses(taker.take(group(("u", "y", "2"), ("v", "y", "2")))) == [["applied"], ["duplicate"]]
    store.close()


def test_events_leave_nothing_behind_for_the_garbage_collector(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    taker = Taker(store)
    gc.collect()
    gc.disable()
    try:
        for n in range(20):
            events = [Stamped("tidy", "x", n, f"e{n}", False), Stamped("tidy", "x", n, "e0", False)]
            assert taker.take(Group(events, [], [], "m"))[0].statuses[-1] == "duplicate"
        assert gc.collect() == 0
    finally:
        gc.enable()
        store.close()


def test_an_answer_that_comes_with_a_sign_of_life_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    mine, other = socket.socketpair()
    mine.setblocking(False)
    lane, read = object.__new__(Lane), []
    lane._line, lane._takes = Line(mine), [None]  # type: ignore[list-item]
    monkeypatch.setattr(Lane, "_answers", lambda self, message: [message.kind])
    monkeypatch.setattr(Lane, "_over", lambda self, answers: read.extend(answers))
    writer = Line(other)
    with mine, other:
        writer.send(ALIVE)
        lane._readable()
        assert read == []
        writer.send(ALIVE)
        writer.send(ALIVE)
        writer.send("result", 1)
        lane._readable()  # once: the socket has nothing more to tell
        assert read == ["result"]
