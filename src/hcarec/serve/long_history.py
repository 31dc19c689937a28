"""Long histories, read in short steps and replayed beside everything else, so that nobody but their own users waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from hcarec.serve.aside import Aside
from hcarec.serve.live import Known, Live
from hcarec.serve.messages import Overloaded
from hcarec.serve.people import People, Person
from hcarec.serve.serving import Serving
from hcarec.serve.stores.errors import StoreUnreachable
from hcarec.serve.stores.interface import PAGE_EVENTS, Event, History

PAUSE_S = 0.002
"""Rest between two pages, so that long logs take about half of the store's time at most."""
ROUNDS = 3
"""How often a history is read that changes while it is read."""

Page = Callable[[str, int, tuple[int, int] | None], Awaitable[History]]
"""Reads some events of a user, the last ones or those before a place."""
OnStore = Callable[[Callable[[Live], Known | None]], Awaitable[Known | None]]
"""Does something in the thread of the store."""


class Pages(NamedTuple):
    """The last events of a user, oldest first, the version when the first of them were read, and whether it was the same all the time."""

    history: History
    steady: bool


def replayed(serving: Serving, version: int, events: list[Event]) -> Person:
    """Return a user after some events, the state made by replaying them; of a model with states the log only says what was seen."""
    log = serving.known([event.item for event in events])
    last_time = max((event.time for event in events), default=None)
    if not serving.stateful:
        return Person(version, last_time, None, log, log_events=len(log))
    return Person(version, last_time, serving.advance([None], [log])[0], np.unique(log), log_events=len(log))


class Waits(NamedTuple):
    """Seconds that callers wait at most: for the state of a user, and for a history to be read, others before it included."""

    state_s: float
    read_s: float


class LongHistories:
    """Reads long logs, one at a time, and makes their users known: each once, however many ask for it."""

    def __init__(self, page: Page, on_store: OnStore, executor: Aside, limit: int, waits: Waits) -> None:
        self._page, self._on_store, self._executor, self._limit, self._waits = page, on_store, executor, limit, waits
        self._turn = asyncio.Lock()
        self._finding: dict[str, asyncio.Task[Known]] = {}

    async def read(self, user: str, limit: int | None = None) -> Pages:
        """Read the last events of a user, all that are kept or at most so many; only a log of one page does not wait for others.

        Fails with `Overloaded` where that takes too long.
        """
        limit = self._limit if limit is None else min(limit, self._limit)
        found = await self._page(user, min(limit, PAGE_EVENTS), None)
        if len(found.events) < PAGE_EVENTS or limit == PAGE_EVENTS:
            return Pages(found, True)
        try:
            async with asyncio.timeout(self._waits.read_s), self._turn:
                return await self._read_rest(user, found, limit - PAGE_EVENTS)
        except TimeoutError:
            raise Overloaded("too many long histories are being read: try again shortly", self._waits.read_s) from None

    async def _read_rest(self, user: str, found: History, left: int) -> Pages:
        pages, steady, last = [found.events], True, found
        while left > 0 and len(last.events) == PAGE_EVENTS:
            await asyncio.sleep(PAUSE_S)
            first = last.events[0]
            last = await self._page(user, min(left, PAGE_EVENTS), (first.time, first.arrival))
            if not last.version:  # forgotten meanwhile
                return Pages(History(0, []), False)
            steady = steady and last.version == found.version
            pages.append(last.events)
            left -= len(last.events)
        return Pages(History(found.version, [event for events in reversed(pages) for event in events]), steady)

    async def find(self, user: str, people: People) -> Known:
        """Return what is known of a user, or fail with `StoreUnreachable` where that takes too long; it is at hand later."""
        task = self._finding.get(user)
        if task is None:
            task = self._finding[user] = asyncio.create_task(self._find(user, people))
            task.add_done_callback(lambda done: self._over(user, done))
        try:
            return await asyncio.wait_for(asyncio.shield(task), self._waits.state_s)
        except TimeoutError:
            raise StoreUnreachable("the history of this user is long, and still being read") from None

    def _over(self, user: str, task: asyncio.Task[Known]) -> None:
        del self._finding[user]
        if not task.cancelled():
            task.exception()  # those who wait are told; where nobody does, nobody need hear of it

    async def _find(self, user: str, people: People) -> Known:
        for _ in range(ROUNDS):
            (version, events), steady = await self.read(user)
            if not steady:
                continue
            person = await self._executor.run(partial(replayed, people.serving, version, events))
            known = await self._on_store(partial(Live.keep, user=user, people=people, read=person))
            if known is not None:
                return known
        raise StoreUnreachable("the history of this user changes all the time")

    async def close(self) -> None:
        """Give up what is being read."""
        tasks = list(self._finding.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
