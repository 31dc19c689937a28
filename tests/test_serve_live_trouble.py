"""The service when its store fails, hangs, is full or damaged, and when too much comes in."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hcarec.recommendation import recommend
from hcarec.serve.service import Ask, NewEvent, Overloaded
from hcarec.serve.stores.errors import StoreDamaged, StoreFull, StoreUnreachable
from hcarec.serve.stores.sqlite import SqliteStore
from live_models import Shared, models, quick_folder, run, running, until
from store_servers import DURABLE, Server


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with quick_folder() as path:
        yield path


@pytest.fixture
def store(folder: Path, request: pytest.FixtureRequest) -> str:
    return str(folder / f"{abs(hash(request.node.name))}.db")


class Failing(SqliteStore):
    """A store that raises `error` or waits for `gate` whenever it is used, once told so."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.error: Exception | None = None
        self.gate = threading.Event()
        self.gate.set()

    def _trouble(self) -> None:
        self.gate.wait(20)
        if self.error is not None:
            raise self.error

    def load(self, *given: Any) -> Any:
        self._trouble()
        return super().load(*given)

    def commit(self, *given: Any) -> Any:
        self._trouble()
        return super().commit(*given)

    def retract(self, *given: Any) -> Any:
        self._trouble()
        return super().retract(*given)


def failing(path: str, shared: bool) -> tuple[Failing, Callable[[], Any]]:
    """Return a store, and what opens it: a function to be called in the thread that will own it."""
    made: list[Any] = []

    class Now:
        def __getattr__(self, name: str) -> Any:
            return getattr(made[0], name)

        def __setattr__(self, name: str, value: Any) -> None:
            setattr(made[0], name, value)

    def begin() -> Any:
        made.append(Failing(path))
        return Shared(made[0]) if shared else made[0]

    return Now(), begin  # type: ignore[return-value]


@pytest.mark.parametrize("error", [StoreUnreachable("gone"), StoreFull("full")])
def test_a_removal_that_fails_leaves_answers_right(error: Exception, folder: Path, store: str) -> None:
    at, begin = failing(f"{store}-{type(error).__name__}", False)

    async def work() -> None:
        async with running(folder, begin, retry_s=0.1) as service:
            await service.take([NewEvent("u", "i01", None, "1"), NewEvent("u", "i02", None, "2")])
            at.error = error
            with pytest.raises(type(error)):
                await service.retract("u", "2")
            at.error = None
            await until(lambda: service.ready() is None)
            assert (await service.recommend(Ask("u"))).items == recommend(models()["hca-gru"], ["i01", "i02"], 20)
            assert [await service.retract("u", "2"), await service.retract("u", "2")] == [1, 0]
            assert (await service.recommend(Ask("u"))).items == recommend(models()["hca-gru"], ["i01"], 20)

    run(work())


@pytest.mark.parametrize("shared", [False, True])
def test_a_store_that_is_cut_off_costs_a_bounded_wait_and_comes_back(shared: bool, folder: Path, store: str) -> None:
    at, begin = failing(store, shared)

    async def work() -> None:
        async with running(folder, begin, retry_s=0.1) as service:
            await service.take([NewEvent("u", "i01"), NewEvent("v", "i03")])
            first = await service.recommend(Ask("v"))
            at.error = StoreUnreachable("gone")
            with pytest.raises(StoreUnreachable):
                await service.take([NewEvent("u", "i02")])
            assert service.ready() is not None
            answer = await service.recommend(Ask("u"))
            assert (answer.basis, answer.degraded) == ("popular", True)  # whether the event was stored is not known
            answer = await service.recommend(Ask("v"))
            # Nobody else writes to a file: what is in memory is right. On a shared store it may be old, and is not used.
            assert (answer.basis, answer.degraded) == (("popular", True) if shared else ("personal", False))
            assert shared or answer.items == first.items
            answer = await service.recommend(Ask("other", visit=["i05"]))
            assert (answer.basis, answer.degraded) == ("visit", True)
            at.error = None
            await until(lambda: service.ready() is None)
            await service.take([NewEvent("u", "i02")])
            answer = await service.recommend(Ask("u"))
            assert answer.items == recommend(models()["hca-gru"], ["i01", "i02"], 20) and not answer.degraded

    run(work())


def test_a_store_that_hangs_is_not_waited_for(folder: Path, store: str) -> None:
    at, begin = failing(store, True)

    async def work() -> None:
        async with running(folder, begin, state_wait_s=0.05, take_wait_s=0.1) as service:
            await service.take([NewEvent("u", "i01")])
            at.gate.clear()
            answer = await service.recommend(Ask("u", visit=["i05"]))
            assert (answer.basis, answer.degraded) == ("visit", True)
            with pytest.raises(StoreUnreachable):
                await service.take([NewEvent("u", "i02")])
            at.gate.set()
            await service.history("u")  # behind all that waited
            assert (await service.recommend(Ask("u"))).basis == "personal"

    run(work())


def test_a_server_that_freezes_is_not_waited_for_and_comes_back(folder: Path, tmp_path: Path) -> None:
    server = Server(tmp_path, *DURABLE)

    async def work() -> None:
        async with running(folder, server.url, store_timeout_s=0.3, retry_s=0.1) as service:
            await service.take([NewEvent("u", "i01", None, "1")])
            server.freeze(True)
            answer = await service.recommend(Ask("u", visit=["i05"]))
            assert (answer.basis, answer.degraded) == ("visit", True)
            with pytest.raises(StoreUnreachable):
                await service.take([NewEvent("u", "i02", None, "2")])
            server.freeze(False)
            await until(lambda: service.ready() is None)
            await service.take([NewEvent("u", "i02", None, "2")])  # whether it was stored the first time or not
            assert (await service.recommend(Ask("u"))).items == recommend(models()["hca-gru"], ["i01", "i02"], 20)

    try:
        run(work())
    finally:
        server.freeze(False)
        server.stop()


def test_a_full_store_refuses_events_and_answers_on(folder: Path, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        async with running(folder, store) as service:
            await service.take([NewEvent("u", "i01"), NewEvent("v", "i02")])
            with monkeypatch.context() as full:

                def refuse(*_: Any) -> Any:
                    raise StoreFull("no room")

                full.setattr(SqliteStore, "commit", refuse)
                with pytest.raises(StoreFull):
                    await service.take([NewEvent("u", "i09")])
                assert service.ready() is None
                assert (await service.recommend(Ask("u"))).items == recommend(models()["hca-gru"], ["i01"], 20)
            await service.take([NewEvent("u", "i09")])
            assert (await service.recommend(Ask("u"))).items == recommend(models()["hca-gru"], ["i01", "i09"], 20)

    run(work())


def test_a_damaged_user_stops_nobody_else(folder: Path, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = SqliteStore.load

    def load(self: SqliteStore, wanted: Any, model: str) -> Any:
        if any(user == "damaged" for user, _ in wanted):
            raise StoreDamaged("this is not what was written")
        return plain(self, wanted, model)

    monkeypatch.setattr(SqliteStore, "load", load)

    async def work() -> None:
        async with running(folder, store, gather_ms=50) as service:
            done = await asyncio.gather(*(service.take([NewEvent(user, "i01", None, "1")]) for user in ("a", "damaged", "b")), return_exceptions=True)
            assert isinstance(done[1], StoreDamaged)
            assert [one[0].status for one in (done[0], done[2]) if isinstance(one, list)] == ["applied", "applied"]
            answers = await asyncio.gather(*(service.recommend(Ask(user)) for user in ("a", "damaged", "b", "new")))
            assert [(answer.basis, answer.degraded) for answer in answers] == [("personal", False), ("popular", True), ("personal", False), ("popular", False)]

    run(work())


def test_too_much_is_refused_and_the_rest_is_served(folder: Path, store: str) -> None:
    at, begin = failing(store, True)

    async def work() -> None:
        async with running(folder, begin, max_waiting_events=10, max_group=5) as service:
            at.gate.clear()
            waiting = [asyncio.create_task(service.take([NewEvent(f"u{n}", "i01")])) for n in range(40)]
            await until(lambda: sum(task.done() for task in waiting) >= 25)
            at.gate.set()
            done = await asyncio.gather(*waiting, return_exceptions=True)
            refused = [one for one in done if isinstance(one, Overloaded)]
            assert 25 <= len(refused) < 40 and all(one.retry_after > 0 for one in refused)
            assert service.figures()["refused"] == len(refused)
            for n, one in enumerate(done):
                assert len((await service.history(f"u{n}")).events) == isinstance(one, list)

    run(work())
