"""Let in so many requests at once that those let in are answered soon: with more than it can do, a service that refuses none is late for all."""

from __future__ import annotations

import statistics
import time

LEAST = 12
"""Requests at once that are always let in."""
JUDGED_S, JUDGED = 0.1, 16
"""The limit is set anew after so many seconds, if so many requests have ended since."""
LOWER, HIGHER = 0.9, 8
"""It falls to this share of itself, and rises by so many: quickly enough for a rush, and one slow moment of the disk hardly counts."""


class Admission:
    """Counts the requests under way, and refuses those beyond a limit.

    The limit is at most `most`. While half of the requests take longer than `slow_s` it falls, down to `LEAST`; otherwise it rises again.
    """

    def __init__(self, most: int, slow_s: float) -> None:
        self._most, self._least, self._slow_s = most, min(most, LEAST), slow_s
        self._limit = float(most)
        self._seconds: list[float] = []
        self._judged = time.monotonic()
        self.under_way = 0

    @property
    def limit(self) -> int:
        """Requests that may be under way at once."""
        return int(self._limit)

    def enter(self) -> bool:
        """Begin a request if there is room for it; say whether there was."""
        if self.under_way >= self.limit:
            return False
        self.under_way += 1
        return True

    def leave(self, seconds: float, now: float | None = None) -> None:
        """End a request that took so long."""
        self.under_way -= 1
        self._seconds.append(seconds)
        if len(self._seconds) >= JUDGED:
            now = time.monotonic() if now is None else now
            if now - self._judged >= JUDGED_S:
                self._judge()
                self._judged = now

    def _judge(self) -> None:
        slow = statistics.median_low(self._seconds) > self._slow_s
        self._limit = max(self._least, LOWER * self._limit) if slow else min(self._most, self._limit + HIGHER)
        self._seconds.clear()
