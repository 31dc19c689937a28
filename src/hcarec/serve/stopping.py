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
    """Ends the process in less than `seconds` after `begin`, unless it has ended by then; `last` is called just before."""

    def __init__(self, seconds: float, last: Callable[[], None]) -> None:
        self._seconds, self._last = seconds, last
        self._begun: float | None = None

    def begin(self) -> None:
        """Let the time run; it runs once."""
        if self._begun is None:
            self._begun = time.monotonic()
            timer = threading.Timer(ALL * self._seconds, self._end)
            timer.daemon = True
            timer.start()

    def left(self) -> float:
        """Return the seconds that the service has to close."""
        since = 0.0 if self._begun is None else time.monotonic() - self._begun
        return max(0.0, SERVICE * self._seconds - since)

    def _end(self) -> None:
        try:
            self._last()
        finally:
            os._exit(FORCED)  # threads that hang would be waited for otherwise
