"""Work on its way into a thread: bounded, and gathered for a moment so that it can be done together."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Generic, TypeVar

from hcarec.serve.messages import Overloaded

T = TypeVar("T")
LEAST_RETRY_S = 0.1
REMEMBERED = 9
"""Batches by which the next ones are judged, by their median: one that waited for the disk says nothing about those after it."""


class Inbox(Generic[T]):
    """Jobs that wait for a thread, each with a weight.

    A job is refused when more than `limit` would wait, or when those waiting will take longer than `max_wait_s` by what the
    last batches took. Up to `shared` units of weight are done in about the time of one, so a short batch says little about a long one.
    """

    def __init__(self, what: str, limit: int, max_wait_s: float = float("inf"), shared: int = 1) -> None:
        self._what, self._limit, self._max_wait_s, self._shared = what, limit, max_wait_s, shared
        self._jobs: deque[tuple[float, int, T]] = deque()
        self._changed = threading.Condition()
        self._last: deque[float] = deque(maxlen=REMEMBERED)
        self._seconds_each = 0.0
        self._most = limit
        self.waiting = 0
        self.refused = 0
        self.closed = False

    def put(self, job: T, weight: int = 1) -> None:
        """Add a job, or raise `Overloaded`; one that is larger than the limit is accepted when nothing waits."""
        with self._changed:
            if self.closed:
                raise Overloaded("the service is stopping: try again shortly", 1.0)
            wait = self.waiting * self._seconds_each
            if self._jobs and (self.waiting + weight > self._limit or wait > self._max_wait_s):
                self.refused += 1
                raise Overloaded(f"too much is waiting ({self.waiting} {self._what}): try again shortly", max(LEAST_RETRY_S, wait))
            self._jobs.append((time.monotonic(), weight, job))
            self.waiting += weight
            if len(self._jobs) == 1 or self.waiting >= self._most:  # in between it would be woken for nothing
                self._changed.notify()

    def gather(self, most: int, gather_s: float, timeout: float) -> list[T]:
        """Wait up to `timeout` for a job, then until it has waited `gather_s` or `most` units wait; return these, oldest first."""
        with self._changed:
            self._most = most
            if not self._jobs and not self.closed:
                self._changed.wait_for(lambda: self._jobs or self.closed, timeout)
            if not self._jobs:
                return []
            end = self._jobs[0][0] + gather_s
            while not self.closed and self.waiting < most and (left := end - time.monotonic()) > 0:
                self._changed.wait(left)
            jobs: list[T] = []
            weight = 0
            while self._jobs and (not jobs or weight + self._jobs[0][1] <= most):
                _, own, job = self._jobs.popleft()
                jobs.append(job)
                weight += own
            self.waiting -= weight
            return jobs

    def done(self, weight: int, seconds: float) -> None:
        """Learn how long a batch took."""
        self._last.append(seconds / max(weight, self._shared))
        self._seconds_each = sorted(self._last)[(len(self._last) - 1) // 2]  # `statistics` takes longer than the rest of this

    def close(self) -> None:
        """Refuse new jobs; those waiting are still given out."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()
