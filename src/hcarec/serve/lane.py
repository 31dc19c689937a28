"""The short way of events to a store in a process of its own: from the loop straight to that process and back, with no thread in between.

A thread would have to wait for the interpreter again and again while the loop reads requests: under load that is most of the time of an event.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

from hcarec.serve.inbox import Inbox
from hcarec.serve.live import LONGEST_TAIL, Live, Sent
from hcarec.serve.messages import Overloaded
from hcarec.serve.options import ServiceOptions
from hcarec.serve.policy import Stamped
from hcarec.serve.stores.apart import ApartStore, result
from hcarec.serve.stores.errors import StoreDamaged, StoreError
from hcarec.serve.stores.line import ALIVE, ALIVE_EVERY_S, Line, Message, pack

logger = logging.getLogger("hcarec.serve")
GROUP_SHARED = 16
"""So many events cost about as much as one."""
LARGEST = 1 << 16
"""Bytes of a message that the other process is sure to take at once; larger groups go by way of the thread, as do those with so many events of one user
that a state would have to be moved here and now."""


class Waiting(Protocol):
    """Who waits for a value or an exception: a future, or what does the same for less."""

    def done(self) -> bool: ...

    def set_result(self, found: Any, /) -> None: ...

    def set_exception(self, error: Any, /) -> None: ...


class Take(NamedTuple):
    """Events of one caller; not begun after `deadline`."""

    events: Sequence[Stamped]
    answer: Waiting
    deadline: float


Result = tuple[Waiting, Any]
"""Who waits, and the value or the exception that it is to get."""


def settle(results: Sequence[Result]) -> None:
    """Give all what they wait for."""
    for answer, found in results:
        if answer.done():  # given up meanwhile
            continue
        try:
            if isinstance(found, BaseException):
                answer.set_exception(found)
            else:
                answer.set_result(found)
        except Exception:  # which must not keep the others waiting
            logger.exception("an answer could not be given")


def split(results: Sequence[Any], takes: Sequence[Take]) -> list[Any]:
    """Return for every caller the results of its events, or the first error among them."""
    given = iter(results)
    answers: list[Any] = []
    for job in takes:
        own = [next(given) for _ in job.events]
        answers.append(next((found for found in own if isinstance(found, StoreError)), own))
    return answers


class Turn:
    """Whose turn it is to use the live core and its store: the loop's, for one group of events, or the thread's, which goes first."""

    def __init__(self) -> None:
        self._lock, self._wanted = threading.Lock(), False

    def begin(self) -> bool:
        """Take the turn for the loop if it is free and the thread does not wait for it; say whether it was taken."""
        return not self._wanted and self._lock.acquire(blocking=False)

    def end(self) -> None:
        """Give it back."""
        self._lock.release()

    @contextmanager
    def of_thread(self) -> Iterator[None]:
        """Wait for the turn, and have it for a while."""
        self._wanted = True
        with self._lock:
            self._wanted = False
            yield


class Lane:
    """Sends one group of events at a time; those that come meanwhile are the next group. All of it runs in the loop, but `inbox` is read by the thread as well.

    `leave` hands events to the thread, which can do more with them; `told` is told of every group that is over, with its error if there was one.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, live: Live, options: ServiceOptions, leave: Callable[[Take], None], told: Callable[[StoreError | None], None]
    ) -> None:
        assert isinstance(live.store, ApartStore)
        self._loop, self._live, self._store, self._options, self._leave, self._told = loop, live, live.store, options, leave, told
        self.inbox: Inbox[Take] = Inbox("events", options.max_waiting_events, options.max_wait_s, GROUP_SHARED)
        self.turn = Turn()
        self._line: Line | None = None
        self._of: object = None
        self._takes: list[Take] = []
        self._group: Sent | None = None
        self._began = self._heard = 0.0
        self._soon = self._closed = self._watching = False

    @property
    def busy(self) -> bool:
        """Whether events are under way or wait."""
        return bool(self._takes or self.inbox.waiting)

    @property
    def waiting_since(self) -> float | None:
        """When the group under way was sent; any thread may ask."""
        return self._began if self._takes else None

    @property
    def heard_at(self) -> float:
        """When the other process last said something about it."""
        return self._heard

    def put(self, take: Take) -> None:
        """Take events in: with all others that come in this turn of the loop, as soon as the group before is done."""
        self.inbox.put(take, len(take.events))
        if not self._takes and not self._soon:
            self._soon = True
            self._loop.call_soon(self.go_on)

    def go_on(self) -> None:
        """Send the next group, unless one is under way or the thread has its turn, which lets this go on afterwards."""
        self._soon = False
        while not self._takes and self.inbox.waiting and not self._closed and self.turn.begin():
            answers: list[Result] = []
            try:
                self._began = self._heard = time.monotonic()
                self._takes = [take for take in self.inbox.gather(self._options.max_group, 0, 0) if take.deadline > self._began]
                if self._takes and self._sent():
                    return
            except Exception as error:
                answers = self._all(error)
            self._end()
            settle(answers)

    def _sent(self) -> bool:
        """Send a group, leave it to the thread, or say that there is nobody to send it to; return whether it was sent."""
        self._group = group = self._live.group([event for take in self._takes for event in take.events])
        packed = pack("take", (group.group,))
        if self._store.lost or len(packed) > LARGEST or max(map(len, group.users.values())) > LONGEST_TAIL:
            self._leave_all()
            return False
        try:
            line = self._attached()
        except OSError:  # no descriptor left, say: the thread needs none
            self._leave_all()
            return False
        try:
            line.send_packed(packed)
        except OSError:
            settle(self._all(self._lost()))
            return False
        if not self._watching:
            self._watching = True
            self._loop.call_later(ALIVE_EVERY_S, self._watch)
        return True

    def _watch(self) -> None:
        """Give up on a process that has been silent for too long; one timer looks after all groups."""
        if self._takes and time.monotonic() - self._heard > self._store.silence_s:
            self._over(self._all(self._lost()))
        self._watching = bool(self._takes)
        if self._watching:
            self._loop.call_later(ALIVE_EVERY_S, self._watch)

    def _attached(self) -> Line:
        """Return the line to the process that runs now."""
        if self._line is None or self._of is not self._store.events:
            self._detach()
            of = self._store.events
            line = self._store.for_events()
            try:
                self._loop.add_reader(line.fileno(), self._readable)
            except BaseException:
                line.close()
                raise
            self._line, self._of = line, of
        return self._line

    def _readable(self) -> None:
        """Read the answer to the group under way."""
        assert self._line is not None
        try:
            # A word that the process is alive may have come together with the answer, of which the socket will not tell again.
            while (message := self._line.received()) is not None and message.kind == ALIVE:
                self._heard = time.monotonic()
        except Exception:  # it has ended; or what it says makes no sense, and it is of no use either
            answers = self._all(self._lost())
            if self._takes:
                self._over(answers)
            return
        self._heard = time.monotonic()
        if message is not None and self._takes:
            self._over(self._answers(message))

    def _answers(self, message: Message) -> list[Result]:
        assert self._group is not None
        try:
            found = split(self._live.follow(self._group, result("take", message)), self._takes)
        except StoreDamaged:  # nothing was written; the row of one user must not stop the others: the thread finds out which it is
            self._leave_all()
            return []
        except Exception as error:
            self._live.drop(self._group)
            if isinstance(error, StoreError):
                self._told(error)
            return self._all(error)
        self._told(None)
        return list(zip((take.answer for take in self._takes), found, strict=True))

    def _all(self, error: Exception) -> list[Result]:
        return [(take.answer, error) for take in self._takes]

    def _lost(self) -> StoreError:
        """Hang up on a process that has ended, and return the error that says so: whether anything was written is not known."""
        self._detach()
        error = self._store.lose(self._of)
        if self._takes:
            assert self._group is not None
            self._live.drop(self._group)
            self._told(error)
        return error

    def _leave_all(self) -> None:
        """Leave events to the thread, of which nothing was written."""
        for take in self._takes:
            try:
                self._leave(take)
            except Overloaded as error:
                settle([(take.answer, error)])

    def _over(self, answers: Sequence[Result]) -> None:
        self.inbox.done(sum(len(take.events) for take in self._takes), time.monotonic() - self._began)
        self._end()
        self.go_on()  # before the answers are written: the other process need not wait for that
        settle(answers)

    def _end(self) -> None:
        self._takes, self._group = [], None
        self.turn.end()

    def _detach(self) -> None:
        if self._line is not None:
            self._loop.remove_reader(self._line.fileno())
            self._line.close()
            self._line = None

    async def close(self, end: float) -> None:
        """Wait for what was accepted, until a time, and let go of the store."""
        while self.busy and time.monotonic() < end:
            self.go_on()
            await asyncio.sleep(0.005)
        self._closed = True
        if self._takes:
            self._over(self._all(self._lost()))
        self._detach()
