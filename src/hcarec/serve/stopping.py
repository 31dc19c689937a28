"""Stop within a time, whatever hangs."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

REQUESTS, SERVICE, ALL = 0.7, 0.9, 0.97
"""Shares of the time to stop after which requests under way are let go, the service is, and the process ends itself."""
FORCED = 1
"""The exit code of a process that had to end itself."""


class ForcedExit:
    """Ends the process in less than `seconds` after `begin`, unless it has ended by then; `last`, once it is set, is called just before.

    The thread that does so is there from the start: a signal handler had better start none.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.last: Callable[[], None] = lambda: None
        self._begun: float | None = None
        self._asked, self._over = threading.Event(), threading.Event()
        self._before = set(threading.enumerate())
        threading.Thread(target=self._watch, name="hcarec-stop", daemon=True).start()

    def begin(self) -> None:
        """Let the time run; it runs once."""
        if self._begun is None:
            self._begun = time.monotonic()
            self._asked.set()

    def disarm(self) -> None:
        """Let the process go on, unless a thread that was begun since is still there and would be waited for."""
        left = [thread for thread in threading.enumerate() if thread not in self._before and not thread.daemon]
        if not left:
            self._over.set()
            self._asked.set()

    def left(self) -> float:
        """Return the seconds that the service has to close."""
        since = 0.0 if self._begun is None else time.monotonic() - self._begun
        return max(0.0, SERVICE * self._seconds - since)

    def _watch(self) -> None:
        self._asked.wait()
        since = 0.0 if self._begun is None else time.monotonic() - self._begun
        if not self._over.wait(max(0.0, ALL * self._seconds - since)):
            self._end()

    def _end(self) -> None:
        try:
            self.last()
        finally:
            os._exit(FORCED)  # threads that hang would be waited for otherwise
