"""The two threads of a service: one owns the store, one ranks. Both do together what has come in at about the same time."""

from __future__ import annotations

import asyncio
import bisect
import contextlib
import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, Literal, NamedTuple

from hcarec.serve.inbox import Inbox
from hcarec.serve.lane import GROUP_SHARED, Lane, Result, Take, settle, split
from hcarec.serve.live import Live, Lookup
from hcarec.serve.options import ServiceOptions
from hcarec.serve.ranking import Ranked, Wish, rank_all
from hcarec.serve.stores.apart import ApartStore
from hcarec.serve.stores.errors import StoreError, StoreUnreachable
from hcarec.serve.upkeep import Upkeep

RANK_SHARED = 6
"""So many asks cost about as much as one."""
IDLE_S, ASIDE_S, MOST_ASIDE_S = 0.25, 0.005, 1.0
"""How long the thread of the store sleeps when there is nothing to do, or something that can wait for events to be over; and for how long it waits so."""
logger = logging.getLogger("hcarec.serve")


class Find(NamedTuple):
    """A user wanted by an ask; not begun after `deadline`."""

    lookup: Lookup
    answer: asyncio.Future[Any]
    deadline: float


Kind = Literal["reads", "changes", "switches", "long"]
Claim = Future[None]
"""Who has a job: the thread, which begins it, or its caller, who gives up on it by `cancel`; never both."""


class Call(NamedTuple):
    """Anything else to be done with the live core.

    It only `reads`, it `changes` something, it `switches` to another model without the store, or it is `long`, and does not interrupt a backup.
    """

    work: Callable[[Live], Any]
    answer: asyncio.Future[Any]
    kind: Kind
    claim: Claim


class Rank(NamedTuple):
    """A wish to be ranked; the answer comes with the seconds it waited and took."""

    wish: Wish
    answer: asyncio.Future[Any]
    arrived: float


Job = Take | Find | Call


def weight(job: Job) -> int:
    """Return how much a job counts among those that wait."""
    return len(job.events) if isinstance(job, Take) else 1


def only_reads(job: Job) -> bool:
    """Say whether a job changes nothing."""
    return isinstance(job, Find) or (isinstance(job, Call) and job.kind == "reads")


def deliver(loop: asyncio.AbstractEventLoop, results: Sequence[Result]) -> None:
    """Hand results to those who wait for them, all in one turn of the loop."""
    loop.call_soon_threadsafe(settle, results)


class StoreThread(threading.Thread):
    """The thread that owns the store. `down` says that the store cannot be reached; it is tried again by itself.

    Where the store is in a process of its own, events go there by the `lane`, and this thread does everything else, between two groups of them.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, begin: Callable[[], Live], options: ServiceOptions) -> None:
        super().__init__(name="hcarec-store", daemon=True)
        self._loop, self._begin, self._options = loop, begin, options
        self.inbox: Inbox[Job] = Inbox("events", options.max_waiting_events, options.max_wait_s, GROUP_SHARED)
        self.opened: asyncio.Future[Live] = loop.create_future()
        self.down = False
        self.failures = 0
        self.upkeep: Upkeep | None = None
        self.lane: Lane | None = None
        self._put_off: list[Job] = []
        self._last_job = time.monotonic()

    def run(self) -> None:
        """Serve until the inbox is closed and empty; then let go of the store."""
        try:
            self._live = live = self._begin()
            self.upkeep = Upkeep(live)
        except BaseException as error:
            return deliver(self._loop, [(self.opened, error)])
        if isinstance(live.store, ApartStore) and not self._options.retains:  # which writes states along with events
            self.lane = Lane(self._loop, live, self._options, lambda take: self.inbox.put(take, len(take.events)), self._group_over)
        deliver(self._loop, [(self.opened, live)])
        try:
            self._serve_all(self.upkeep)
        finally:
            self._end()

    def take(self, take: Take) -> None:
        """Take events in, by the lane or by the thread; to be called by the loop."""
        if self.lane is not None:
            self.lane.put(take)
        else:
            self.inbox.put(take, len(take.events))

    @property
    def waited_s(self) -> float:
        """Seconds for which an answer of the store has been awaited; 0 where none is."""
        return max((time.monotonic() - since for since, _ in self._awaited()), default=0.0)

    @property
    def silent(self) -> bool:
        """Whether the store has not even said for a while that it is working on what is awaited."""
        return self.down or any(time.monotonic() - heard_at > self._options.store_timeout_s for _, heard_at in self._awaited())

    def _awaited(self) -> list[tuple[float, float]]:
        """Return when each answer of a store in a process of its own, that is awaited, was asked for, and when something was last heard about it."""
        store = self._live.store if self.opened.done() else None
        sides = [side for side in (store, self.lane) if isinstance(side, (ApartStore, Lane))]
        return [(since, side.heard_at) for side in sides if (since := side.waiting_since) is not None]

    @property
    def unreachable(self) -> bool:
        """Whether the store is cut off, or has not answered for so long that it may be."""
        return self.down or self.waited_s > self._options.store_timeout_s

    @property
    def trouble(self) -> str | None:
        """Why the store does not write, though it answers."""
        return getattr(self._live.store, "trouble", None) if self.opened.done() else None

    def abandon(self) -> None:
        """Let go of a store that does not answer: what waits for it fails."""
        if self.opened.done() and isinstance(self._live.store, ApartStore):
            self._live.store.abandon()

    @property
    def waiting(self) -> int:
        """Events that wait."""
        return self.inbox.waiting + sum(map(weight, self._put_off)) + (self.lane.inbox.waiting if self.lane is not None else 0)

    @property
    def refused(self) -> int:
        """Jobs that were refused because too many waited."""
        return self.inbox.refused + (self.lane.inbox.refused if self.lane is not None else 0)

    def _group_over(self, error: StoreError | None) -> None:
        """Note that the lane has done a group."""
        self._last_job = time.monotonic()
        if error is None:
            self.down = False
        else:
            self._failed(error)

    def _serve_all(self, upkeep: Upkeep) -> None:
        options, busy = self._options, False
        timeout, last = IDLE_S, time.monotonic()
        while True:
            jobs = self._next_put_off() or self.inbox.gather(options.max_group, options.gather_ms / 1000, timeout)
            if not jobs and self.inbox.closed:
                return
            if not jobs and self.lane is not None and self.lane.busy and not self.down and not upkeep.pressing and time.monotonic() < last + MOST_ASIDE_S:
                timeout = ASIDE_S if busy else IDLE_S
                continue
            with self._turn():
                busy, last = self._piece(jobs, busy and timeout == 0, upkeep), time.monotonic()
            timeout = 0.0 if busy else options.retry_s if self.down else IDLE_S

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """Have the store for oneself, between two groups of the lane."""
        if self.lane is None:
            yield
            return
        with self.lane.turn.of_thread():
            yield
        if self.lane.inbox.waiting:
            self._loop.call_soon_threadsafe(self.lane.go_on)

    def _from_lane(self) -> list[Take]:
        """Return what waits in the lane, for the thread to do."""
        return [] if self.lane is None else self.lane.inbox.gather(self._options.max_group, 0, 0)

    def _next_put_off(self) -> list[Job]:
        """Return of what was put off as much as is done together, oldest first."""
        jobs, so_far = self._put_off, list(itertools.accumulate(map(weight, self._put_off)))
        n = max(1, bisect.bisect_right(so_far, self._options.max_group))
        self._put_off = jobs[n:]
        return jobs[:n]

    def _piece(self, jobs: list[Job], at_once: bool, upkeep: Upkeep) -> bool:
        """Do jobs, then a piece of the upkeep, `at_once` after the one before; say whether there may be more of that."""
        if jobs or at_once:  # a thread that comes back at once goes first: what waits in the lane would not have its turn
            jobs = [*jobs, *self._from_lane()]
        if jobs:
            self._serve(jobs)
            self._last_job = time.monotonic()
        try:
            if self.down:
                self._live.look_up([Lookup("a user to try the store with", True)])
                self.down = False
            elif self.inbox.waiting:
                upkeep.urgent()
            else:
                return upkeep.step(time.monotonic() - self._last_job)
        except StoreError as error:
            self._failed(error)
            return False
        except Exception:
            logger.exception("the upkeep of the store failed")
            return False
        return bool(jobs) or upkeep.pressing

    def _serve(self, jobs: Sequence[Job], brief: bool = False) -> None:
        """Do jobs: events first, as one group, then lookups, also together, then the rest."""
        begin = time.monotonic()
        takes = [job for job in jobs if isinstance(job, Take) and job.deadline > begin]
        finds = [job for job in jobs if isinstance(job, Find) and job.deadline > begin]
        if takes:
            self._answer(takes, lambda live: split(live.take([event for job in takes for event in job.events]), takes))
        if finds:
            self._answer(finds, lambda live: live.look_up([job.lookup for job in finds]))
        self.inbox.done(sum(len(job.events) for job in takes) + len(finds), time.monotonic() - begin)
        for job in jobs:
            if isinstance(job, Call):
                if brief and job.kind == "long":
                    self._put_off.append(job)
                elif job.claim.set_running_or_notify_cancel():
                    self._answer([job], lambda live, job=job: [job.work(live)])  # type: ignore[misc]

    def _answer(self, jobs: Sequence[Job], work: Callable[[Live], list[Any]]) -> None:
        results: list[Any]
        try:
            results = work(self._live)
            self.down = False
        except BaseException as error:
            if isinstance(error, StoreError):
                self._failed(error)
            results = [error] * len(jobs)
        deliver(self._loop, list(zip((job.answer for job in jobs), results, strict=True)))

    def _failed(self, error: StoreError) -> None:
        self.failures += 1
        if isinstance(error, StoreUnreachable):
            if not self.down:
                logger.warning("the store cannot be reached: %s", error)
            self.down = True

    def go_on(self, *_: int) -> None:
        """Serve what waits, between two steps of a long call."""
        jobs = self.inbox.gather(self._options.max_group, 0, 0)
        self._serve([*jobs, *self._from_lane()], brief=True)

    def look_on(self, *_: int) -> None:
        """Serve those who only read, between two steps of a call that is about to change everything; the others wait for its end, if they have the patience."""
        room = self._options.max_waiting_events - sum(map(weight, self._put_off))
        jobs = self.inbox.gather(min(room, self._options.max_group), 0, 0) if room > 0 else []
        self._put_off = [job for job in (*self._put_off, *jobs) if not only_reads(job) and not job.answer.done()]
        self._serve([job for job in jobs if only_reads(job)])

    def _end(self) -> None:
        try:
            with self._turn():
                while self._live.save():
                    pass
                self._live.store.settle()
        except StoreError as error:  # states are only short cuts: nothing that was acknowledged is lost
            logger.warning("the last states could not be saved: %s", error)
        finally:
            self._live.store.close()


class RankThread(threading.Thread):
    """The thread that ranks, a batch at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, options: ServiceOptions) -> None:
        super().__init__(name="hcarec-rank", daemon=True)
        self._loop, self._options = loop, options
        self.inbox: Inbox[Rank] = Inbox("recommendations", options.max_waiting_asks, options.max_wait_s, RANK_SHARED)
        self.batches = self.ranked = 0

    def run(self) -> None:
        """Rank until the inbox is closed and empty."""
        options = self._options
        while True:
            jobs = self.inbox.gather(options.max_batch, options.gather_ms / 1000, IDLE_S)
            if jobs:
                self._rank(jobs)
            elif self.inbox.closed:
                return

    def _rank(self, jobs: Sequence[Rank]) -> None:
        begin = time.perf_counter()
        results: Sequence[Ranked | BaseException]
        try:
            results = rank_all([job.wish for job in jobs], self._options.threads)
        except BaseException as error:
            results = [error] * len(jobs)
        seconds = time.perf_counter() - begin
        self.inbox.done(len(jobs), seconds)
        self.batches += 1
        self.ranked += len(jobs)
        answers = [result if isinstance(result, BaseException) else (*result, begin - job.arrived, seconds) for job, result in zip(jobs, results, strict=True)]
        deliver(self._loop, list(zip((job.answer for job in jobs), answers, strict=True)))
