"""The live service: take events, recommend, explain, swap the model, while all of it goes on.

Two threads do the work, one that owns the store and one that ranks; this class is what an event loop sees of them. Nothing here blocks the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from hcarec.explanation import Explanation
from hcarec.explanation import explain as explain_history
from hcarec.models.base import Recommendation
from hcarec.serve import asking
from hcarec.serve.figures import figures
from hcarec.serve.live import Known, Live, Lookup
from hcarec.serve.messages import Answer, Ask, Basis, ModelInfo, NewEvent, Overloaded, Status, Taken
from hcarec.serve.options import ServiceOptions
from hcarec.serve.people import NOBODY
from hcarec.serve.policy import stamp
from hcarec.serve.seeding import seed
from hcarec.serve.serving import Serving
from hcarec.serve.stores import open_store
from hcarec.serve.stores.errors import StoreError, StoreUnreachable
from hcarec.serve.stores.interface import History, Store
from hcarec.serve.stores.records import encode
from hcarec.serve.workers import Call, Find, Rank, RankThread, StoreThread, Take

__all__ = ["Answer", "Ask", "Basis", "History", "ModelInfo", "NewEvent", "Overloaded", "Service", "ServiceOptions", "Status", "Taken"]

T = TypeVar("T")
MOST_ASIDE = 32
"""Explanations, similar items and model swaps that may wait for the thread they share."""


class Service:
    """A running service; `open` makes one, `close` ends it."""

    def __init__(self, live: Live, store: StoreThread, ranker: RankThread, options: ServiceOptions) -> None:
        self._live, self._store, self._ranker, self._options = live, store, ranker, options
        self._aside = ThreadPoolExecutor(1, "hcarec-aside")
        self._n_aside = self._at_work = 0
        self._closing = False
        self._swapping = asyncio.Lock()
        self._taken: Counter[str] = Counter()
        self._recommended: Counter[str] = Counter()
        self._degraded = 0

    @classmethod
    async def open(cls, model: Path, store: str | Callable[[], Store], *, data: Path | None = None, options: ServiceOptions | None = None) -> Service:
        """Load a model, open a store (by its address, or by a function called in the thread that will own it), import the data set."""
        options = options or ServiceOptions()
        loop = asyncio.get_running_loop()
        serving = await asyncio.to_thread(Serving.load, Path(model), options.half_states)

        def begin() -> Live:
            at = store() if callable(store) else open_store(store, options.verify_store, timeout=options.store_timeout_s, accept_less=options.accept_less)
            try:
                if data is not None:
                    seed(at, Path(data))
            except BaseException:
                at.close()
                raise
            return Live(at, serving, options)

        thread, ranker = StoreThread(loop, begin, options), RankThread(loop, options)
        thread.start()
        live = await thread.opened
        ranker.start()
        return cls(live, thread, ranker, options)

    # -- events --------------------------------------------------------------------------------------------------

    async def take(self, events: Sequence[NewEvent]) -> list[Taken]:
        """Take events in; when this returns they are durable, and every later recommendation sees them."""
        now = time.time_ns() // 1000
        stamped = [stamp(event, now, self._options.max_skew_s) for event in events]
        if not stamped:
            return []
        async with self._working():
            answer = self._future()
            self._refuse_if_down()
            self._store.inbox.put(Take(stamped, answer, time.monotonic() + self._options.take_wait_s), len(stamped))
            taken: list[Taken] = await self._in_time(answer, self._options.take_wait_s)
        self._taken.update(one.status for one in taken)
        return taken

    # -- recommending --------------------------------------------------------------------------------------------

    async def recommend(self, ask: Ask) -> Answer:
        """Recommend; a user's own events are in the answer as soon as `take` has returned."""
        begin = time.perf_counter()
        asking.check(ask)
        async with self._working():
            known, degraded = await self._known(ask)
            asked = asking.understand(ask, known)
            state = time.perf_counter()
            answer = self._future()
            self._ranker.inbox.put(Rank(asked.wish, answer, state))
            items, scores, queue, rank = await answer
        found = known.serving.model.named(items, scores, asked.basis)
        self._recommended[asked.basis] += 1
        seconds = {"state": state - begin, "queue": queue, "rank": rank, "total": time.perf_counter() - begin}
        return Answer(found, asked.basis, known.serving.name, asked.skipped, seconds, degraded)

    async def _known(self, ask: Ask) -> tuple[Known, bool]:
        """Return what is known of the user of an ask, and whether the store could not be asked for it in time."""
        nobody = Known(self._live.serving, NOBODY)
        if ask.user is None:
            return nobody, False
        if (known := self._live.at_hand(ask.user, ask.hide_seen)) is not None:
            return known, False
        try:
            return await self._find(Lookup(ask.user, ask.hide_seen)), False
        except StoreError:
            self._degraded += 1
            return self._live.at_hand(ask.user, False) or nobody, True

    async def _find(self, lookup: Lookup) -> Known:
        self._refuse_if_down()
        answer = self._future()
        self._store.inbox.put(Find(lookup, answer, time.monotonic() + self._options.state_wait_s))
        found: Known = await self._in_time(answer, self._options.state_wait_s)
        return found

    async def explain(self, ask: Ask, item: str | None = None) -> Explanation:
        """Explain why an item (by default the best one) is recommended after what is known of a user, a history or a visit."""
        asking.check(ask)
        async with self._working():
            past: list[str] = list(ask.history or ())
            if ask.user is not None:
                past = [event.item for event in (await self.history(ask.user, None)).events]
            serving = self._live.serving
            if item is not None:
                serving.index(item)
            return await self._beside(lambda: explain_history(serving.model, [*past, *ask.visit], item))

    async def similar(self, item: str, k: int = 20) -> list[Recommendation]:
        """Return the items whose vectors point in the most similar direction."""
        async with self._working():
            serving = self._live.serving
            return await self._beside(lambda: serving.similar(item, k))

    # -- users ---------------------------------------------------------------------------------------------------

    async def history(self, user: str, limit: int | None = 100) -> History:
        """Return the last events of a user, oldest first; version 0 and none for a user without a log."""
        encode("user", user)
        return await self._call(lambda live: live.history(user, limit))

    async def forget(self, user: str) -> int:
        """Remove a user wholly and durably; return how many events went."""
        encode("user", user)
        return await self._call(lambda live: live.forget(user), brief=False)

    # -- the model and the store ---------------------------------------------------------------------------------

    async def swap(self, model: Path) -> ModelInfo:
        """Let another model answer, once it is loaded, checked and warm; a bad one is refused with `ModelError` and the old one goes on."""
        async with self._swapping, self._working():
            serving = await self._beside(lambda: Serving.load(Path(model), self._options.half_states))

            def switch(live: Live) -> None:
                live.switch(serving)
                assert self._store.upkeep is not None
                self._store.upkeep.renew()

            await self._call(switch, brief=False)
            return serving.info

    async def backup(self, target: Path) -> None:
        """Write a copy of the store to a file; events and asks go on meanwhile."""
        await self._call(lambda live: live.store.backup(target, self._store.go_on), brief=False)

    @property
    def model(self) -> ModelInfo:
        """The model that answers now."""
        return self._live.serving.info

    @property
    def durability(self) -> str:
        """Say in a sentence what an acknowledgement rests on."""
        own = "an event is acknowledged when it is on disk (SQLite, synchronous writes)"
        return str(getattr(self._live.store, "durability", own))

    def ready(self) -> str | None:
        """Return None if the service can do everything, else why not."""
        if self._closing:
            return "the service is stopping"
        if not (self._store.is_alive() and self._ranker.is_alive()):
            return "a thread of the service has ended: restart it"
        return "the store does not answer" if self._store.down else None

    def figures(self) -> dict[str, Any]:
        """Return counts and sizes; those of the store are about a second old."""
        done = {"taken": dict(self._taken), "recommended": dict(self._recommended), "degraded": self._degraded}
        return figures(self._live, self._store, self._ranker) | done

    async def close(self) -> None:
        """Stop: refuse what is new, finish what was accepted, save the states, let go of the store."""
        self._closing = True
        while self._at_work:
            await asyncio.sleep(0.005)
        for thread in (self._store, self._ranker):
            thread.inbox.close()
            await asyncio.to_thread(thread.join)
        self._aside.shutdown()

    # -- how it waits --------------------------------------------------------------------------------------------

    def _future(self) -> asyncio.Future[Any]:
        return asyncio.get_running_loop().create_future()

    @contextlib.asynccontextmanager
    async def _working(self) -> AsyncIterator[None]:
        """Count what is going on, so that `close` can wait for it."""
        if self._closing:
            raise Overloaded("the service is stopping: try again shortly", 1.0)
        self._at_work += 1
        try:
            yield
        finally:
            self._at_work -= 1

    async def _call(self, work: Callable[[Live], T], brief: bool = True) -> T:
        async with self._working():
            self._refuse_if_down()
            answer = self._future()
            self._store.inbox.put(Call(work, answer, brief))
            return await self._in_time(answer, self._options.take_wait_s) if brief else await answer

    async def _beside(self, work: Callable[[], T]) -> T:
        """Run something long in a thread of its own kind, so that neither the store nor the ranking waits for it."""
        if self._n_aside >= MOST_ASIDE:
            raise Overloaded(f"too much is waiting ({self._n_aside} explanations and the like): try again shortly", 1.0)
        self._n_aside += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._aside, work)
        finally:
            self._n_aside -= 1

    async def _in_time(self, answer: asyncio.Future[Any], seconds: float) -> Any:
        try:
            return await asyncio.wait_for(answer, seconds)
        except TimeoutError:
            raise StoreUnreachable(
                f"the store did not answer within {seconds:g} s; whether an event was stored is not known: send it again with the same event_id"
            ) from None

    def _refuse_if_down(self) -> None:
        if self._store.down:
            raise StoreUnreachable("the store cannot be reached; it is tried again all the time: send this again in a few seconds")
