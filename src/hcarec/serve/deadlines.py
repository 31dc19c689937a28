"""End waits that last too long; one timer looks after all of them, since a timer for each costs more than most answers do."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from hcarec.serve.lane import Waiting, settle

LOOK_EVERY_S = 0.02
W = TypeVar("W", bound=Waiting)


class Deadline:
    """Gives everyone who has no answer `seconds` after being added the exception of `error`."""

    def __init__(self, seconds: float, error: Callable[[], Exception]) -> None:
        self._seconds, self._error = seconds, error
        self._waiting: deque[tuple[float, Waiting]] = deque()
        self._looking = False

    def add(self, one: W) -> W:
        """Watch one who waits in the running loop; return it."""
        loop = asyncio.get_running_loop()
        self._waiting.append((loop.time() + self._seconds, one))
        if not self._looking:
            self._looking = True
            loop.call_later(LOOK_EVERY_S, self._look, loop)
        return one

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        waiting, now = self._waiting, loop.time()
        while waiting and (waiting[0][1].done() or waiting[0][0] <= now):
            settle([(waiting.popleft()[1], self._error())])
        self._looking = bool(waiting)
        if self._looking:
            loop.call_later(LOOK_EVERY_S, self._look, loop)
