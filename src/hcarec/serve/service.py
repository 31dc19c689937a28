"""The live service: take events, recommend, explain, swap the model, while all of it goes on.

Two threads do the work, one that owns the store and one that ranks; this class is what an event loop sees of them. Nothing here blocks the loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from hcarec.catalogs import Overlap, overlap
from hcarec.errors import InputError
from hcarec.explanation import Explanation
from hcarec.explanation import explain as explain_history
from hcarec.models.base import Recommendation
from hcarec.sequences import Sequences
from hcarec.serve import asking
from hcarec.serve.aside import Aside
from hcarec.serve.attention import Attention, attention
from hcarec.serve.beside import Beside, replayed
from hcarec.serve.deadlines import Deadline
from hcarec.serve.directory import Listed, find_users
from hcarec.serve.figures import figures
from hcarec.serve.lane import Take, settle
from hcarec.serve.live import Known, Live, LongHistory, Lookup
from hcarec.serve.long_history import LongHistories, Waits
from hcarec.serve.messages import Answer, Ask, Basis, ModelCard, ModelInfo, NewEvent, Overloaded, Status, Taken
from hcarec.serve.options import ServiceOptions
from hcarec.serve.people import NOBODY
from hcarec.serve.policy import stamp
from hcarec.serve.search import Found, Item, describe
from hcarec.serve.seeding import fill, seed
from hcarec.serve.serving import Serving
from hcarec.serve.stores import open_store
from hcarec.serve.stores.errors import StoreError, StoreUnreachable
from hcarec.serve.stores.interface import Figures, History, Store
from hcarec.serve.stores.records import encode
from hcarec.serve.workers import Call, Claim, Find, Kind, Rank, RankThread, StoreThread

__all__ = ["Answer", "Ask", "Basis", "History", "ModelInfo", "NewEvent", "Overloaded", "Service", "ServiceOptions", "Status", "Taken"]

T = TypeVar("T")
NO_ANSWER = "the store cannot be reached; it is tried again all the time: send this again in a few seconds"
LOOK_EVERY_S = 0.25
"""How often it is looked whether the store still answers, while something long waits for it."""
ABANDONED_S = 1.0
"""How long the thread of the store may take to notice that the store was given up."""
logger = logging.getLogger("hcarec.serve")


class Service:
    """A running service; `open` makes one, `close` ends it."""

    def __init__(self, live: Live, store: StoreThread, ranker: RankThread, options: ServiceOptions, beside: Beside) -> None:
        self._live, self._store, self._ranker, self._options, self._beside = live, store, ranker, options, beside
        self._aside, self._searching, self._loading = Aside("explain"), Aside("search"), Aside("load")
        waits = Waits(options.state_wait_s, options.take_wait_s)
        self._long = LongHistories(self._page, lambda work: self._call("reads", work), self._aside, options.history_limit, waits)
        self._warm: Serving | None = None
        self.fit: Overlap | None = None
        """How many of the data's items, or of those of the model before, the model being served knows."""
        self._work = Work()
        self._backups: set[Path] = set()
        self._swapping = asyncio.Lock()
        self._taking, self._finding = (Deadline(seconds, _too_late(seconds)) for seconds in (options.take_wait_s, options.state_wait_s))
        self._taken: Counter[str] = Counter()
        self._recommended: Counter[str] = Counter()
        self._degraded = 0

    @classmethod
    async def open(
        cls,
        model: Path,
        store: str | Callable[[], Store],
        *,
        data: Path | None = None,
        restore: Path | None = None,
        options: ServiceOptions | None = None,
        beside: Sequence[Path] = (),
        allow_mismatch: bool = False,
    ) -> Service:
        """Load a model, open a store (by its address, or by a function called in the thread that will own it), import the data set.

        A store that is empty is first filled from the backup `restore`. `beside` are the folders of further models, which answer when they are named.
        A model that knows less than half of the data's items is refused with `DataError`, unless `allow_mismatch`.
        """
        options = options or ServiceOptions()
        loop = asyncio.get_running_loop()
        serving = await asyncio.to_thread(Serving.load, Path(model), options.half_states)
        others = await asyncio.to_thread(Beside.load, beside, serving)
        fit = None if data is None else await asyncio.to_thread(lambda: overlap(serving.model, Sequences.open(data)))
        if fit is not None:
            fit.check(f"'{data}'", allow_mismatch)

        def begin() -> Live:
            at = store() if callable(store) else _open(store, options)
            try:
                if restore is not None:
                    fill(at, Path(restore))
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
        service = cls(live, thread, ranker, options, others)
        service.fit = fit
        return service

    # -- events --------------------------------------------------------------------------------------------------

    async def take(self, events: Sequence[NewEvent]) -> list[Taken]:
        """Take events in; when this returns they are durable, and every later recommendation sees them."""
        if not events:
            return []
        answer = self._future()
        self.begin_take(events, lambda found: settle([(answer, found)]))
        taken: list[Taken] = await answer
        return taken

    def begin_take(self, events: Sequence[NewEvent], answer: Callable[[list[Taken] | Exception], None]) -> None:
        """Begin to take some events in; `answer` is called in the loop with what `take` returns, or with the error."""
        now = time.time_ns() // 1000
        stamped = [stamp(event, now, self._options.max_skew_s) for event in events]
        with self._work:
            self._refuse_if_down()
            taking = Taking(self._work, self._taken, answer)
            self._store.take(Take(stamped, taking, time.monotonic() + self._options.take_wait_s))
            self._work.under_way += 1  # until it is over
        self._taking.add(taking)

    # -- recommending --------------------------------------------------------------------------------------------

    async def recommend(self, ask: Ask) -> Answer:
        """Recommend; a user's own events are in the answer as soon as `take` has returned."""
        begin = time.perf_counter()
        asking.check(ask)
        with self._work:
            known, degraded = await self._known(ask)
            asked = asking.understand(ask, known)
            state = time.perf_counter()
            answer = self._future()
            self._ranker.inbox.put(Rank(asked.wish, answer, state))
            items, scores, variety, queue, rank = await answer
        found = known.serving.model.named(items, scores, asked.basis)
        self._recommended[asked.basis] += 1
        seconds = {"state": state - begin, "queue": queue, "rank": rank, "total": time.perf_counter() - begin}
        return Answer(found, asked.basis, known.serving.name, asked.skipped, seconds, degraded, variety, asked.hide_seen)

    async def _known(self, ask: Ask) -> tuple[Known, bool]:
        """Return what is known of the user of an ask, and whether the store could not be asked for it in time."""
        serving = self._beside.pick(ask.model, self._live.serving)
        if ask.user is None:
            return Known(serving, NOBODY), False
        served, with_log = serving is self._live.serving, asking.hides_seen(ask, serving)
        if served and (known := self._live.at_hand(ask.user, with_log)) is not None:
            return known, False
        try:
            if served:
                return await self._find(Lookup(ask.user, with_log)), False
            log = await self.history(ask.user, None)
            return await self._aside.run(lambda: replayed(serving, log)), False
        except (StoreError, Overloaded):  # a slow store has too much waiting before it with two or three asks
            self._degraded += 1
            return (self._live.at_hand(ask.user, False) if served else None) or Known(serving, NOBODY), True

    async def _find(self, lookup: Lookup) -> Known:
        self._refuse_if_down()
        answer = self._future()
        self._store.inbox.put(Find(lookup, answer, time.monotonic() + self._options.state_wait_s))
        try:
            found: Known = await self._finding.add(answer)
        except LongHistory:
            return await self._long.find(lookup.user, self._live.people)
        return found

    async def explain(self, ask: Ask, item: str | None = None) -> Explanation:
        """Explain why an item (by default the best one) is recommended after what is known of a user, a history or a visit."""
        asking.check(ask)
        with self._work:
            serving = self._beside.pick(ask.model, self._live.serving)
            past = [one for one, _ in await self._past(ask)]
            if item is not None:
                serving.index(item)
            return await self._aside.run(lambda: explain_history(serving.model, past, item))

    async def attention(self, ask: Ask, last: int = 30) -> Attention:
        """Return the attention at each of the last steps of what is known of a user, a history or a visit."""
        asking.check(ask)
        with self._work:
            serving = self._beside.pick(ask.model, self._live.serving)
            past = await self._past(ask)
            return await self._aside.run(lambda: attention(serving, past, last))

    async def _past(self, ask: Ask) -> list[tuple[str, int | None]]:
        """Return all items of an ask, oldest first, with their times where they are known."""
        log = (await self.history(ask.user, self._options.explain_events)).events if ask.user is not None else ()
        return [*((event.item, event.time) for event in log), *((item, None) for item in (*(ask.history or ()), *ask.visit))]

    # -- items ---------------------------------------------------------------------------------------------------

    async def similar(self, item: str, k: int = 20) -> list[Recommendation]:
        """Return the items whose vectors point in the most similar direction."""
        with self._work:
            serving = self._live.serving
            return await self._searching.run(lambda: serving.similar(item, k))

    async def search(self, text: str, limit: int = 20) -> Found:
        """Find items by words of their names, or by id."""
        with self._work:
            serving = self._live.serving
            return await self._searching.run(lambda: serving.names.search(text, limit))

    def item(self, item: str) -> Item:
        """Return what is known of an item."""
        serving = self._live.serving
        return describe(serving.model, serving.index(item))

    def warm(self) -> None:
        """Make ready, in the background, what people ask for first who come to the page."""
        serving = self._live.serving
        if self._warm is not serving and not self._work.over:
            self._warm = serving
            self._searching.begin(lambda: serving.names.search("", 1))
            self._aside.begin(lambda: explain_history(serving.model, [serving.model.item_ids.text(0)]))

    def outside(self, item: str) -> str | int:
        """Return the id of an item in the type that it had in the log, where the model knows it."""
        ids = self._live.serving.model.item_ids
        return ids[index] if (index := ids.find(item)) >= 0 else item

    # -- users ---------------------------------------------------------------------------------------------------

    async def history(self, user: str, limit: int | None = 100) -> History:
        """Return the last events of a user (None: all that are kept), oldest first; version 0 and none for a user without a log."""
        encode("user", user)
        return (await self._long.read(user, limit)).history

    async def _page(self, user: str, limit: int, before: tuple[int, int] | None) -> History:
        return await self._call("reads", lambda live: live.page(user, limit, before))

    async def users(self, beginning: str = "", limit: int = 20) -> list[Listed]:
        """Return users whose ids begin with a text."""
        if beginning:
            encode("user", beginning)
        return await self._call("reads", lambda live: find_users(live.store, beginning, limit))

    async def retract(self, user: str, event_id: str) -> int:
        """Remove one event of a user durably; return how many went. Every later answer is as if it had never been there."""
        encode("user", user)
        encode("event", event_id)
        return await self._call("changes", lambda live: live.retract(user, event_id))

    async def forget(self, user: str) -> int:
        """Remove a user wholly and durably; return how many events went."""
        encode("user", user)

        def remove(live: Live) -> int:
            removed = live.forget(user)
            upkeep = self._store.upkeep
            if removed and upkeep is not None:
                upkeep.figures = upkeep.figures._replace(traces=True)  # so that it begins to remove what is left
            return removed

        return await self._call("long", remove)

    # -- the model and the store ---------------------------------------------------------------------------------

    async def swap(self, model: Path, *, allow_mismatch: bool = False) -> ModelInfo:
        """Let another model answer, once it is loaded, checked and warm; a bad one is refused with `ModelError` and the old one goes on.

        So is one that knows less than half of the items of the old one (`DataError`), unless `allow_mismatch`.
        """
        async with self._swapping:
            with self._work:
                serving = await self._loading.run(lambda: Serving.load(Path(model), self._options.half_states))
                before = self._live.serving.model
                fit = await self._loading.run(lambda: overlap(serving.model, before))
                fit.check("the items of the model being served", allow_mismatch, "allow_mismatch")

                def switch(live: Live) -> None:
                    live.switch(serving)
                    assert self._store.upkeep is not None
                    self._store.upkeep.renew()

                await self._call("switches", switch)
                self.fit = fit
                return serving.info

    async def backup(self, target: Path) -> None:
        """Write a copy of the store to a file, which must not be there; events and asks go on meanwhile."""
        if target in self._backups or target.exists():
            raise InputError(f"there is a backup '{target.name}' already, or it is being written: give another name")
        self._backups.add(target)
        try:
            await self._call("long", lambda live: live.store.backup(target, self._store.go_on))
        finally:
            self._backups.discard(target)

    async def restore(self, source: Path) -> Figures:
        """Put a backup in the place of all that the store holds, whole or not at all; return the size of the store then.

        A backup that cannot be used is refused with `InputError`. Who only reads goes on meanwhile, with what was there before; all others wait.
        """

        def replace(live: Live) -> Figures:
            upkeep = self._store.upkeep
            assert upkeep is not None
            try:
                upkeep.figures = live.restore(source, self._store.look_on)
            except InputError:  # nothing has changed
                raise
            except BaseException:
                upkeep.restart()
                raise
            upkeep.restart()
            return upkeep.figures

        return await self._call("long", replace)

    @property
    def model(self) -> ModelInfo:
        """The model that answers now."""
        return self._live.serving.info

    def models(self) -> list[ModelCard]:
        """Describe the models that can be named, the one that answers by default first."""
        return self._beside.cards(self._live.serving)

    @property
    def durability(self) -> str:
        """Say in a sentence what an acknowledgement rests on."""
        own = "an event is acknowledged when it is on disk (SQLite, synchronous writes)"
        return str(getattr(self._live.store, "durability", own))

    def ready(self) -> str | None:
        """Return None if the service can do everything, else why not."""
        if self._work.over:
            return "the service is stopping"
        if not (self._store.is_alive() and self._ranker.is_alive()):
            return "a thread of the service has ended: restart it"
        if self._store.unreachable:
            return "the store does not answer"
        return "the store may lose what it acknowledges, so nothing is written: see the log" if self._store.trouble else None

    def figures(self) -> dict[str, Any]:
        """Return counts and sizes; those of the store are about a second old."""
        done = {"taken": dict(self._taken), "recommended": dict(self._recommended), "degraded": self._degraded}
        return figures(self._live, self._store, self._ranker) | done

    async def close(self, seconds: float = 60.0) -> None:
        """Stop within so many seconds: refuse what is new, finish what was accepted, save the states, let go of the store."""
        end = time.monotonic() + seconds
        self._work.over = True
        while self._work.under_way and time.monotonic() < end:
            await asyncio.sleep(0.005)
        if self._store.lane is not None:
            await self._store.lane.close(end)
        for thread in (self._ranker, self._store):
            thread.inbox.close()
            await asyncio.to_thread(thread.join, max(0.0, end - time.monotonic()))
        if self._store.is_alive():
            logger.warning("the store did not answer for %g s: the service stops without it; nothing that was acknowledged is lost", seconds)
            self.abandon()
            await asyncio.to_thread(self._store.join, ABANDONED_S)
        await self._long.close()
        for aside in (self._aside, self._searching, self._loading):
            await asyncio.to_thread(aside.close)

    def abandon(self) -> None:
        """Let go of a store that does not answer; any thread may ask for that."""
        self._store.abandon()

    # -- how it waits --------------------------------------------------------------------------------------------

    def _future(self) -> asyncio.Future[Any]:
        return asyncio.get_running_loop().create_future()

    async def _call(self, kind: Kind, work: Callable[[Live], T]) -> T:
        with self._work:
            self._refuse_if_down()
            answer, claim = self._future(), Claim()
            self._store.inbox.put(Call(work, answer, kind, claim))
            try:
                if kind in ("reads", "changes"):
                    return await self._taking.add(answer)
                while not (await asyncio.wait([answer], timeout=LOOK_EVERY_S))[0]:  # it may take long, but not because the store hangs
                    if self._store.silent and (claim.cancel() or kind != "switches"):
                        raise StoreUnreachable(NO_ANSWER)
                found: T = answer.result()
                return found
            finally:  # what has not begun when its caller has been answered is not carried out later
                claim.cancel()

    def _refuse_if_down(self) -> None:
        if self._store.unreachable:
            raise StoreUnreachable(NO_ANSWER)


def _open(address: str, options: ServiceOptions) -> Store:
    return open_store(
        address,
        options.verify_store,
        timeout=options.store_timeout_s,
        accept_less=options.accept_less,
        apart=options.store_apart,
        history_limit=options.history_limit,
    )


class Work:
    """Counts what is going on, so that `close` can wait for it; nothing more begins once it is `over`."""

    def __init__(self) -> None:
        self.under_way, self.over = 0, False

    def __enter__(self) -> None:
        if self.over:
            raise Overloaded("the service is stopping: try again shortly", 1.0)
        self.under_way += 1

    def __exit__(self, *_: object) -> None:
        self.under_way -= 1


class Taking:
    """Events on their way; in the place of a future, which would let another turn of the loop pass before anybody hears of it."""

    __slots__ = ("_answer", "_over", "_taken", "_work")

    def __init__(self, work: Work, taken: Counter[str], answer: Callable[[list[Taken] | Exception], None]) -> None:
        self._work, self._taken, self._answer, self._over = work, taken, answer, False

    def done(self) -> bool:
        """Say whether there is an answer."""
        return self._over

    def set_result(self, taken: list[Taken]) -> None:
        """Tell what was done with each event."""
        for one in taken:
            self._taken[one.status] += 1
        self._end(taken)

    def set_exception(self, error: Exception) -> None:
        """Tell that it failed."""
        self._end(error)

    def _end(self, found: list[Taken] | Exception) -> None:
        self._over = True
        self._work.under_way -= 1
        self._answer(found)


def _too_late(seconds: float) -> Callable[[], Exception]:
    message = f"the store did not answer within {seconds:g} s; whether an event was stored is not known: send it again with the same event_id"
    return lambda: StoreUnreachable(message)
