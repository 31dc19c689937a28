"""A thread for what takes longer, so that neither the store nor the ranking waits for it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from hcarec.serve.messages import Overloaded

T = TypeVar("T")
MOST_WAITING = 32
LONGEST_REST_S = 0.25
LOWER = 10
"""By how much the priority of such a thread is lower: where cores are few, the requests that are short go first."""


def _lower_priority() -> None:
    if sys.platform.startswith("linux"):  # where a thread has a priority of its own
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LOWER)


class Aside:
    """One thread of low priority, and a bounded number of those who wait for it.

    It rests before a job for as long as the one before it took: however much is asked, it has half of the time at most. Whoever asks
    now and then never waits for that.
    """

    def __init__(self, name: str) -> None:
        self._pool = ThreadPoolExecutor(1, f"hcarec-{name}", _lower_priority)
        self._waiting = 0
        self._rest_until = 0.0

    def _rested(self, work: Callable[[], T]) -> T:
        begin = max(time.monotonic(), self._rest_until)
        time.sleep(max(0.0, begin - time.monotonic()))
        try:
            return work()
        finally:
            end = time.monotonic()
            self._rest_until = end + min(end - begin, LONGEST_REST_S)

    async def run(self, work: Callable[[], T]) -> T:
        """Do something there and return what comes of it; refuse where too much waits already."""
        if self._waiting >= MOST_WAITING:
            raise Overloaded(f"too much is waiting ({self._waiting} explanations, searches and the like): try again shortly", 1.0)
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, self._rested, work)
        finally:
            self._waiting -= 1

    def begin(self, work: Callable[[], Any]) -> None:
        """Do something there that nobody waits for; if it fails, so will whoever needs it, and say why."""
        self._pool.submit(self._rested, work)

    def close(self) -> None:
        """Finish what was begun."""
        self._pool.shutdown(cancel_futures=True)
