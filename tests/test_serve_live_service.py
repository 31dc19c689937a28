"""The service as an event loop sees it: concurrency, parity, swapping models, two servers, ending."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hcarec.errors import ConfigError, DataError, InputError, ModelError
from hcarec.explanation import explain
from hcarec.recommendation import recommend
from hcarec.serve.service import Ask, NewEvent, Overloaded, Service
from hcarec.serve.stores.errors import StoreError
from hcarec.serve.stores.interface import Progress
from hcarec.serve.stores.sqlite import SqliteStore
from hcarec.serve.workers import StoreThread
from live_models import data, models, quick_folder, run, running, saved, until
from store_servers import DURABLE, Server

ITEMS = [f"i{n:02}" for n in range(1, 51)]


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with quick_folder() as path:
        yield path


@pytest.fixture
def store(folder: Path, request: pytest.FixtureRequest) -> str:
    return str(folder / f"{abs(hash(request.node.name))}.db")


# -- what it answers ---------------------------------------------------------------------------------------------------


def test_a_user_s_events_are_in_the_next_answer_whoever_else_is_there(folder: Path, store: str) -> None:
    async def shopper(service: Service, name: str) -> None:
        draw, past = random.Random(name), list[str]()
        for n in range(12):
            item = draw.choice(ITEMS)
            taken = await service.take([NewEvent(name, item, None, str(n))])
            assert [one.status for one in taken] == ["applied"]
            past.append(item)
            hide, k = draw.random() < 0.5, draw.choice([1, 5, 20])
            answer = await service.recommend(Ask(name, k=k, hide_seen=hide))
            assert answer.items == recommend(models()["hca-gru"], past, k, hide_seen=hide)
            assert (answer.basis, answer.degraded) == ("personal", False)

    async def work() -> None:
        async with running(folder, store, cached_users=5) as service:
            await asyncio.gather(*(shopper(service, f"user {n}") for n in range(12)))
            figures = service.figures()
            assert figures["taken"] == {"applied": 144} and figures["recommended"] == {"personal": 144}
            assert figures["batches"] < figures["ranked"]

    run(work())


@pytest.mark.parametrize("name", ["hca-gru", "gru", "bpr", "pop", "random"])
def test_all_ways_to_ask_agree_with_python(name: str, folder: Path, store: str) -> None:
    model, past, visit = models()[name], ["i03", "unknown", "i07", "i03"], ["i11", "?", "?"]

    async def work() -> None:
        async with running(folder, store, name) as service:
            await service.take([NewEvent("u", item) for item in past])
            for hide in (False, True):
                rules = {"hide_seen": hide, "deny": ["i20", "i21"]}
                for ask, history in (
                    (Ask("u"), past),
                    (Ask(history=past), past),
                    (Ask("u", visit=visit), past + visit),
                    (Ask(visit=visit), visit),
                    (Ask(), []),
                ):
                    answer = await service.recommend(ask._replace(k=9, **rules))
                    right = recommend(model, history, 9, hide_seen=hide, deny=rules["deny"])
                    assert [one[:2] for one in answer.items] == [one[:2] for one in right]
                    assert answer.model == service.model.model and len(answer.model) == 12
                    assert answer.skipped == list(dict.fromkeys(item for item in [*(ask.history or ()), *ask.visit] if item not in ITEMS))
            bases = [(await service.recommend(ask)).basis for ask in (Ask("u"), Ask("new", visit=["i01"]), Ask("new"), Ask(history=["?"]))]
            own = model.basis
            assert bases == (["personal", "visit", "popular", "popular"] if own == "personal" else [own, own, "popular", "popular"])

    run(work())


def test_explaining_and_similar_items_are_those_of_python(folder: Path, store: str) -> None:
    async def work() -> None:
        async with running(folder, store) as service:
            await service.take([NewEvent("u", item) for item in ("i03", "i07", "?")])
            assert await service.explain(Ask("u", visit=["i09"])) == explain(models()["hca-gru"], ["i03", "i07", "?", "i09"])
            assert (await service.explain(Ask(history=["i03"]), "i05")).recommended.item == "i05"
            assert await service.similar("i03", 4) == models()["hca-gru"].similar_items("i03", 4)
            for wrong in (service.explain(Ask(history=["i03"]), "?"), service.similar("?", 4)):
                with pytest.raises(DataError):
                    await wrong
            with pytest.raises(ConfigError):
                await service.explain(Ask("nobody"))

    run(work())


def test_a_bad_event_harms_no_other(folder: Path, store: str) -> None:
    async def work() -> None:
        async with running(folder, store) as service:
            wrong, right = await asyncio.gather(service.take([NewEvent("u", "")]), service.take([NewEvent("u", "i01")]), return_exceptions=True)
            assert isinstance(wrong, InputError)
            assert isinstance(right, list) and right[0].status == "applied"
            assert await service.take([]) == []

    run(work())


def test_a_user_is_forgotten_at_once_and_without_a_trace(folder: Path, store: str) -> None:
    async def work() -> None:
        async with running(folder, store) as service:
            await service.take([NewEvent("somebody in particular", "i01", None, "1"), NewEvent("u", "i02")])
            assert await service.forget("somebody in particular") == 1
            assert (await service.history("somebody in particular")).events == []
            assert (await service.recommend(Ask("somebody in particular"))).basis == "popular"
            assert (await service.take([NewEvent("u", "i01", None, "1")]))[0].status == "applied"
            await until(lambda: not service.figures()["traces"], 20)
            assert not [file for file in folder.glob(Path(store).name + "*") if b"somebody in particular" in file.read_bytes()]

    run(work())


# -- the model is swapped ----------------------------------------------------------------------------------------------


def test_a_swap_does_not_wait_for_a_backup(folder: Path, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    swapped = threading.Event()
    backup = SqliteStore.backup

    def slow(self: SqliteStore, target: Path, progress: Progress | None = None) -> None:
        assert progress is not None
        end = time.monotonic() + 60
        while not swapped.is_set() and time.monotonic() < end:
            progress(0, 1)
            time.sleep(0.005)
        backup(self, target, progress)

    monkeypatch.setattr(SqliteStore, "backup", slow)

    async def work() -> None:
        async with running(folder, store) as service:
            saving = asyncio.create_task(service.backup(Path(f"{store}-copy")))
            await asyncio.sleep(0.05)
            await service.swap(saved(folder, "other"), allow_mismatch=True)
            assert not saving.done()
            swapped.set()
            await saving

    run(work())


def test_nothing_short_waits_for_a_long_explanation(folder: Path, store: str) -> None:
    over = threading.Event()

    async def work() -> None:
        async with running(folder, store) as service:
            await service.take([NewEvent("u", "i01")])
            long = asyncio.create_task(service._aside.run(over.wait))
            await asyncio.sleep(0.05)
            try:
                assert await service.similar("i01", 3) and (await service.search("i0")).items
                assert (await service.recommend(Ask("u", k=3))).items
                await service.swap(saved(folder, "other"), allow_mismatch=True)
                assert not long.done()
            finally:
                over.set()
            await long

    run(work())


def test_a_swap_under_load_mixes_nothing(folder: Path, store: str) -> None:
    names = ["hca-gru", "other", "bpr", "gru"]

    async def work() -> None:
        async with running(folder, store) as service:
            await service.take([NewEvent(f"u{n % 5}", ITEMS[n]) for n in range(30)])
            pasts = {f"u{n}": [event.item for event in (await service.history(f"u{n}")).events] for n in range(5)}
            hashes, ended = {service.model.model: "hca-gru"}, False
            answers: list[tuple[str, Any]] = []

            async def shopper(user: str) -> None:
                while not ended:
                    answers.append((user, await service.recommend(Ask(user, k=5))))

            shoppers = [asyncio.create_task(shopper(user)) for user in pasts]
            for name in names[1:]:
                hashes[(await service.swap(saved(folder, name))).model] = name
                with pytest.raises(ModelError):
                    await service.swap(folder)
                before = len(answers)
                await until(lambda before=before: len(answers) > before + 20)  # type: ignore[misc]
            ended = True
            await asyncio.gather(*shoppers)
            assert {answer.model for _, answer in answers} == set(hashes)
            right = {(name, user): recommend(models()[name], past, 5) for name in names for user, past in pasts.items()}
            for user, answer in answers:
                assert answer.items == right[hashes[answer.model], user]

    run(work())


def test_two_servers_on_one_store_equal_one_after_the_other(folder: Path, tmp_path: Path) -> None:
    server = Server(tmp_path, *DURABLE)

    async def shopper(service: Service, name: str) -> None:
        for n in range(10):
            await service.take([NewEvent("u", ITEMS[n], None, f"{name} {n}"), NewEvent("u", ITEMS[n + 10], None, f"both {n}")])
            await service.recommend(Ask("u"))

    async def work() -> None:
        async with running(folder, server.url) as one, running(folder, server.url) as two:
            await asyncio.gather(shopper(one, "one"), shopper(two, "two"))
            events = (await one.history("u")).events
            assert len(events) == 30 == len({event.event_id for event in events})
            right = recommend(models()["hca-gru"], [event.item for event in events], 20)
            for service in (one, two):
                answer = await service.recommend(Ask("u"))
                assert answer.items == right and not answer.degraded
            await one.forget("u")
            assert (await two.recommend(Ask("u"))).basis == "popular"

    try:
        run(work())
    finally:
        server.stop()


# -- the end ---------------------------------------------------------------------------------------------


def test_closing_finishes_what_was_accepted(folder: Path, store: str) -> None:
    async def work() -> None:
        service = await Service.open(saved(folder, "hca-gru"), store)
        takes = [asyncio.create_task(service.take([NewEvent(f"u{n}", "i01")])) for n in range(50)]
        asks = [asyncio.create_task(service.recommend(Ask(f"u{n}"))) for n in range(50)]
        await asyncio.sleep(0)
        await service.close()
        assert all(task.done() for task in takes + asks)
        assert [task.result()[0].status for task in takes] == ["applied"] * 50
        assert [len(task.result().items) for task in asks] == [20] * 50
        with pytest.raises(Overloaded):
            await service.take([NewEvent("u", "i01")])
        assert service.ready() is not None

    run(work())
    again = SqliteStore(store)
    assert again.figures()[:2] == (50, 50) and sum(again.figures().states.values()) == 50
    again.close()


def test_it_starts_from_a_data_set_and_goes_on_after_a_restart(folder: Path, store: str) -> None:
    made = data()
    made.save(folder / "data")
    user = made.user_ids.text(3)
    past = [made.item_ids.text(item) for item in made[3]]

    async def work() -> None:
        for extra in ([], ["i05"], ["i05", "i05"]):
            service = await Service.open(saved(folder, "hca-gru"), store, data=folder / "data")
            assert (await service.recommend(Ask(user))).items == recommend(models()["hca-gru"], past + extra, 20)
            await service.take([NewEvent(user, "i05")])
            await service.close()
        with pytest.raises(ModelError):
            await Service.open(folder / "none", store)
        with pytest.raises(DataError):
            await Service.open(saved(folder, "hca-gru"), store, data=folder / "none")
        with pytest.raises(StoreError):
            await Service.open(saved(folder, "hca-gru"), str(folder / "none" / "s.db"))

    run(work())


def test_a_backup_is_made_while_events_come_in(folder: Path, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hcarec.serve.stores.sqlite_backup.BACKUP_PAGES", 1)
    go_on, served = StoreThread.go_on, list[int]()

    def slowly(self: StoreThread, *at: int) -> None:
        end = time.monotonic() + 5
        while not any(served) and not self.inbox.waiting and time.monotonic() < end:
            time.sleep(0.001)
        before = len(commits)
        go_on(self, *at)
        served.append(len(commits) - before)

    commits, commit = list[int](), SqliteStore.commit

    def counted(self: SqliteStore, changes: Any) -> Any:
        commits.append(len(changes))
        return commit(self, changes)

    monkeypatch.setattr(SqliteStore, "commit", counted)
    monkeypatch.setattr(StoreThread, "go_on", slowly)

    async def work() -> None:
        async with running(folder, store) as service:
            await service.take([NewEvent(f"u{n}", "i01") for n in range(300)])
            backup = asyncio.create_task(service.backup(folder / "backup.db"))
            while not backup.done():
                await service.take([NewEvent("u1", "i02")])
                assert (await service.recommend(Ask("u2"))).basis == "personal"
            await backup
            assert any(served)  # between two steps of the backup

    run(work())
    copy = SqliteStore(folder / "backup.db")
    assert copy.figures().users == 300
    copy.check()
    copy.close()
