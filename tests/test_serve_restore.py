"""A backup restored while the service runs, and at its start: no answer mixes what was there with what is there now."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from hcarec.errors import ConfigError, InputError
from hcarec.recommendation import recommend
from hcarec.serve.lane import Take
from hcarec.serve.messages import Overloaded
from hcarec.serve.options import ServiceOptions
from hcarec.serve.policy import Stamped
from hcarec.serve.service import Ask, NewEvent, Service
from hcarec.serve.stores.errors import StoreError, StoreUnreachable
from hcarec.serve.stores.interface import Event
from hcarec.serve.stores.sqlite import SqliteStore
from hcarec.serve.upkeep import Upkeep
from hcarec.serve.workers import StoreThread
from http_server import Running, problem
from live_models import models, quick_folder, run, running, saved, until
from short_way import until as wait_until
from store_servers import DURABLE, Server

ITEMS = [f"i{n:02}" for n in range(1, 51)]
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with quick_folder() as path:
        yield path


@pytest.fixture(params=["in one process", "apart"])
def options(request: pytest.FixtureRequest) -> dict[str, Any]:
    return {"store_apart": request.param == "apart", "take_wait_s": 30.0, "state_wait_s": 30.0}


def right(log: list[str]) -> Any:
    """Return what is recommended after a log."""
    return recommend(models()["hca-gru"], log, 10)


async def log(service: Service, user: str) -> list[str]:
    return [event.item for event in (await service.history(user, None)).events]


async def send(service: Service, user: str, *items: str) -> None:
    await service.take([NewEvent(user, item) for item in items])


# -- the service -------------------------------------------------------------------------------------------------------


class Shopper:
    """Sends events and asks, one after the other, while a backup is restored."""

    def __init__(self, service: Service, number: int, before: list[str], backup: list[str]) -> None:
        self.service, self.user, self.before, self.backup = service, f"user {number}", before, backup
        self.draw, self.sent, self.answers, self.restored_at = random.Random(number), list[str](), list[tuple[int, Any]](), 0

    async def shop(self, restored: asyncio.Event) -> None:
        after = 0
        while after < 5:
            item = self.draw.choice(ITEMS)
            try:
                await send(self.service, self.user, item)
                self.sent.append(item)
                self.answers.append((len(self.sent), (await self.service.recommend(Ask(self.user, k=10))).items))
            except Overloaded:
                await asyncio.sleep(0.01)
                continue
            if restored.is_set():
                after += 1
            else:
                self.restored_at = len(self.sent)

    async def check(self) -> None:
        """See that every answer was of the old log up to some moment, and of the backup and all that came later from then on."""
        found = await log(self.service, self.user)
        kept = len(found) - len(self.backup)
        first = len(self.sent) - kept
        assert found == self.backup + self.sent[first:] and first <= self.restored_at + 1
        new_seen = False
        for n, items in self.answers:
            new = right(self.backup + self.sent[first:n])
            new_seen = new_seen or n > first or items != right(self.before + self.sent[:n])
            assert items == new if new_seen else True, (self.user, n, first)


def test_no_answer_mixes_the_old_and_the_new(folder: Path, tmp_path: Path, options: dict[str, Any]) -> None:
    async def work() -> None:
        async with running(folder, str(tmp_path / "store.db"), **options) as service:
            draw = random.Random(1)
            shoppers = [Shopper(service, n, [], draw.choices(ITEMS, k=3 + n % 4)) for n in range(8)]
            for one in shoppers:
                await send(service, one.user, *one.backup)
            await send(service, "only in the backup", *ITEMS[:3])
            await service.backup(tmp_path / "backup.db")
            for one in shoppers:
                later = draw.choices(ITEMS, k=4)
                await send(service, one.user, *later)
                one.before = one.backup + later
            await send(service, "only in between", *ITEMS[:3])
            restored = asyncio.Event()
            busy = [asyncio.create_task(one.shop(restored)) for one in shoppers]
            await until(lambda: all(len(one.answers) > 3 for one in shoppers))
            assert (await service.restore(tmp_path / "backup.db"))[:2] == (9, sum(len(one.backup) for one in shoppers) + 3)
            restored.set()
            await asyncio.gather(*busy)
            for one in shoppers:
                await one.check()
            assert await log(service, "only in between") == [] and await log(service, "only in the backup") == ITEMS[:3]
            assert (await service.recommend(Ask("only in between"))).basis == "popular"
            expected = {one.user: await log(service, one.user) for one in shoppers}
        async with running(folder, str(tmp_path / "store.db"), **options) as service:
            for user, past in expected.items():
                assert await log(service, user) == past
                assert (await service.recommend(Ask(user, k=10))).items == right(past)

    run(work())


def test_users_are_looked_up_and_events_wait_while_a_backup_is_checked(
    folder: Path, tmp_path: Path, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    look_on, began, answered = StoreThread.look_on, threading.Event(), threading.Event()

    def slowly(self: StoreThread, *at: int) -> None:
        began.set()
        end = time.monotonic() + 5
        while not answered.is_set() and time.monotonic() < end:
            look_on(self, *at)

    monkeypatch.setattr(StoreThread, "look_on", slowly)

    async def work() -> None:
        async with running(folder, str(tmp_path / "store.db"), cached_users=1, **options) as service:
            await send(service, "a", "i01", "i02")
            await service.backup(tmp_path / "backup.db")
            await send(service, "a", "i03")
            await send(service, "b", "i04")  # so that a is not in memory
            restore = asyncio.create_task(service.restore(tmp_path / "backup.db"))
            await until(began.is_set)
            event = asyncio.create_task(send(service, "a", "i05"))
            removed, forgotten = asyncio.create_task(service.retract("b", "none")), asyncio.create_task(service.forget("b"))
            assert (await service.recommend(Ask("a", k=10))).items == right(["i01", "i02", "i03"])
            assert await log(service, "a") == ["i01", "i02", "i03"]  # to read is not to change
            assert not any(one.done() for one in (restore, event, removed, forgotten))
            answered.set()
            await restore
            await event
            assert (await removed, await forgotten) == (0, 0)  # of which the backup knows nothing
            assert await log(service, "a") == ["i01", "i02", "i05"]
            assert (await service.recommend(Ask("a", k=10))).items == right(["i01", "i02", "i05"])

    run(work())


def test_who_waits_for_the_end_of_a_restore_is_bounded_in_number_and_in_time() -> None:
    async def work() -> None:
        loop = asyncio.get_running_loop()
        thread = StoreThread(loop, lambda: pytest.fail("not started"), ServiceOptions(max_waiting_events=20, max_group=8))
        takes = [Take([Stamped("u", "i01", 1, None, False)] * 7, loop.create_future(), float("inf")) for _ in range(5)]
        for take in takes:
            thread.inbox.put(take, 7)
            thread.look_on()
        assert (thread.waiting, thread.inbox.waiting) == (35, 14)  # as many as there is room for are put off, the rest stays where it is refused
        takes[1].answer.set_result(None)
        thread.look_on()
        assert (thread.waiting, thread.inbox.waiting) == (28, 14)
        thread.look_on()
        assert (thread.waiting, thread.inbox.waiting) == (28, 7)
        assert [thread._next_put_off() for _ in range(4)] == [[takes[0]], [takes[2]], [takes[3]], []]  # no more at once than at other times

    run(work())


def test_a_refused_backup_changes_nothing(folder: Path, tmp_path: Path, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    restarts: list[Upkeep] = []
    monkeypatch.setattr(Upkeep, "restart", restarts.append)

    async def work() -> None:
        async with running(folder, str(tmp_path / "store.db"), **options) as service:
            await send(service, "a", "i01", "i02")
            (tmp_path / "bad.db").write_bytes(b"bad" * 5000)
            for bad in ("none.db", "bad.db"):
                with pytest.raises(InputError, match="backup"):
                    await service.restore(tmp_path / bad)
            assert service.figures()["users_in_memory"] == 1 and service.figures()["store_failures"] == 0
            assert restarts == []
            assert (await service.recommend(Ask("a", k=10))).items == right(["i01", "i02"])

    run(work())


def test_states_are_made_for_a_backup_that_has_none_of_this_model(folder: Path, tmp_path: Path, options: dict[str, Any]) -> None:
    with closing(SqliteStore(tmp_path / "other.db")) as other:
        other.seed("data", [(f"user {n}", [Event(time, ITEMS[n]) for time in range(5)]) for n in range(40)])
        other.backup(tmp_path / "backup.db")

    async def work() -> None:
        async with running(folder, str(tmp_path / "store.db"), **options) as service:
            await until(lambda: not service.figures()["rebuilding"])
            assert (await service.restore(tmp_path / "backup.db")).users == 40
            assert service.figures()["users"] == 40
            await until(lambda: not service.figures()["rebuilding"])
            await until(lambda: sum(service.figures()["states"].values()) == 40)

    run(work())


def test_a_writer_that_dies_while_a_backup_is_restored_is_started_again(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        async with running(folder, str(tmp_path / "store.db"), store_apart=True, retry_s=0.05) as service:
            await send(service, "a", "i01", "i02")
            await service.backup(tmp_path / "backup.db")
            await send(service, "a", "i03")
            store: Any = service._live.store
            with monkeypatch.context() as patch:
                patch.setattr(StoreThread, "look_on", lambda self, *_: os.kill(store._process.pid, signal.SIGKILL))
                with pytest.raises(StoreUnreachable):
                    await service.restore(tmp_path / "backup.db")
            await until(lambda: service.ready() is None)
            assert service.figures()["users_in_memory"] == 0  # whether it was done is not known
            assert (await service.recommend(Ask("a", k=10))).items == right(["i01", "i02", "i03"])
            await service.restore(tmp_path / "backup.db")
            assert (await service.recommend(Ask("a", k=10))).items == right(["i01", "i02"])

    run(work())


def test_redis_is_restored_at_the_start_alone(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "redis").mkdir()
    server = Server(tmp_path / "redis", *DURABLE)

    async def work() -> None:
        async with running(folder, str(tmp_path / "store.db")) as service:
            for n in range(30):
                await send(service, f"user {n}", *ITEMS[n : n + 4])
            await service.backup(tmp_path / "backup.db")
        service = await Service.open(saved(folder, "hca-gru"), server.url, restore=tmp_path / "backup.db")
        assert (await service.recommend(Ask("user 7", k=10))).items == right(ITEMS[7:11])
        with pytest.raises(InputError, match="start one with --restore"):
            await service.restore(tmp_path / "backup.db")
        assert await log(service, "user 7") == ITEMS[7:11]
        await service.close()
        with pytest.raises(ConfigError, match=r"is not \(users: 30\)"):
            await Service.open(saved(folder, "hca-gru"), server.url, restore=tmp_path / "backup.db")
        server.client().flushdb()
        with closing(SqliteStore(tmp_path / "half.db")) as half, monkeypatch.context() as patch:
            patch.setattr("hcarec.serve.stores.sqlite_upkeep.SEED_EVENTS", 1)
            with pytest.raises(ZeroDivisionError):
                half.seed("data", ((f"user {n}", [Event(1, ITEMS[n])]) if n < 5 else 1 // 0 for n in range(6)))
            half.backup(tmp_path / "half-backup.db")
        with pytest.raises(StoreError, match="import of histories is not finished"):
            await Service.open(saved(folder, "hca-gru"), server.url, restore=tmp_path / "half-backup.db")
        await (await Service.open(saved(folder, "hca-gru"), server.url)).close()  # nothing was written, so nothing stands in the way
        with monkeypatch.context() as patch:
            patch.setattr("hcarec.serve.stores.copying.USERS", 10)
            patch.setattr("hcarec.serve.stores.redis.RedisStore.put_states", _interrupted)
            with pytest.raises(KeyboardInterrupt):
                await Service.open(saved(folder, "hca-gru"), server.url, restore=tmp_path / "backup.db")
        for restore in (None, tmp_path / "backup.db"):
            with pytest.raises(StoreError, match="interrupted"):
                await Service.open(saved(folder, "hca-gru"), server.url, restore=restore)

    try:
        run(work())
    finally:
        server.stop()


def _interrupted(*_: Any) -> None:
    raise KeyboardInterrupt


async def _unreachable(*_: Any) -> None:
    raise StoreUnreachable("the process that writes has ended")


# -- over HTTP ---------------------------------------------------------------------------------------------------------


def test_a_backup_is_restored_by_name(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backups = tmp_path / "backups"
    backups.mkdir()
    with Running(saved(folder, "hca-gru"), backups / "store.sqlite", backups=backups) as server, server.client() as client:

        def events() -> list[str]:
            return [one["item"] for one in client.get("/v1/users/a").json()["events"]]

        def sent(*items: str) -> None:
            assert client.post("/v1/events", json=[{"user": "a", "item": item, "event_id": item} for item in items]).status_code == 200

        sent("i01", "i02")
        client.post("/admin/backup", json={"name": "monday.sqlite"})
        sent("i03", "i04")
        (backups / "bad.sqlite").write_bytes((backups / "monday.sqlite").read_bytes()[:9000])
        (backups / "text.sqlite").write_bytes(b"text" * 2000)
        for name in ("none.sqlite", "bad.sqlite", "text.sqlite", "store.sqlite"):
            refused = client.post("/admin/restore", json={"name": name})
            assert problem(refused) == (422, "refused") and str(tmp_path) not in refused.text and name in refused.text
        for name in ("../monday.sqlite", "/etc/passwd", "..", ".", "", ".hidden", "a/b", "a\0b"):
            assert client.post("/admin/restore", json={"name": name}).status_code == 400
        assert events() == ["i01", "i02", "i03", "i04"]
        assert client.post("/admin/restore", json={"name": "monday.sqlite"}).json() == {"name": "monday.sqlite", "users": 1, "events": 2}
        assert events() == ["i01", "i02"]
        found = client.post("/v1/recommend", json={"user": "a", "k": 10}).json()["items"]
        assert [(one["item"], one["score"]) for one in found] == [(one.item, one.score) for one in right(["i01", "i02"])]
        again = client.post("/v1/events", json=[{"user": "a", "item": item, "event_id": item} for item in ("i02", "i03")]).json()["events"]
        assert [one["status"] for one in again] == ["duplicate", "applied"]
        status = client.get("/v1/status").json()
        assert (status["users"], status["errors"]) == (1, 0)
        with monkeypatch.context() as patch:
            patch.setattr(Service, "restore", _unreachable)
            refused = client.post("/admin/restore", json={"name": "monday.sqlite"})
            assert problem(refused) == (503, "store_unavailable") and "not known whether the backup was restored" in refused.text
        wait_until(lambda: {"backup refused", "backup restored", "restore not known"} <= {line["what"] for line in server.lines()})
    with Running(saved(folder, "hca-gru"), tmp_path / "other.sqlite") as server, server.client() as client:
        assert "--backups FOLDER" in client.post("/admin/restore", json={"name": "monday.sqlite"}).text


# -- at the start ------------------------------------------------------------------------------------------------------


def test_a_store_is_filled_from_a_backup_at_the_start(folder: Path, tmp_path: Path) -> None:
    async def work() -> None:
        model = saved(folder, "hca-gru")
        async with running(folder, str(tmp_path / "old.db")) as service:
            await send(service, "a", "i01", "i02")
            await service.backup(tmp_path / "backup.db")
        service = await Service.open(model, str(tmp_path / "new.db"), restore=tmp_path / "backup.db")
        assert (await service.recommend(Ask("a", k=10))).items == right(["i01", "i02"])
        await service.close()
        with pytest.raises(ConfigError, match=r"is not \(users: 1\)"):
            await Service.open(model, str(tmp_path / "new.db"), restore=tmp_path / "backup.db")
        with pytest.raises(InputError, match="there is no backup"):
            await Service.open(model, str(tmp_path / "newer.db"), restore=tmp_path / "none.db")
        async with running(folder, str(tmp_path / "new.db")) as service:
            assert await log(service, "a") == ["i01", "i02"]

    run(work())


def test_a_store_that_is_not_empty_is_refused_in_one_line(command: Command, folder: Path, tmp_path: Path) -> None:
    async def work() -> None:
        async with running(folder, str(tmp_path / "store.db")) as service:
            await send(service, "a", "i01")
            await service.backup(tmp_path / "backup.db")

    run(work())
    for store, backup, words in (("store.db", "backup.db", "is not (users: 1): start without --restore"), ("new.db", "none.db", "there is no backup")):
        code, out, err = command("serve", saved(folder, "hca-gru"), "--store", tmp_path / store, "--restore", tmp_path / backup, "--port", 0)
        assert (code, out) == (2, "") and words in err and err.count("\n") == 1, err
