"""How the server is doing at this moment: rates and latencies of the last requests, kept in constant space."""

from __future__ import annotations

import bisect
import math
import time
from collections import deque

SHORTEST, FINENESS, N_CLASSES = 1e-5, 20.0, 320
"""Latencies fall into classes from 10 microseconds on, of which 20 make a factor of e: a percentile is right within 3%."""
REMEMBERED_S, RATE_S = 60, 10
"""Seconds that percentiles and the rate are about."""
SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


_BOUNDS = [SHORTEST * math.exp(place / FINENESS) for place in range(1, N_CLASSES)]


class Second:
    """The requests of one second, by class of latency."""

    __slots__ = ("classes", "count", "number")

    def __init__(self, number: int) -> None:
        self.number, self.count = number, 0
        self.classes: dict[int, int] = {}


class Recent:
    """The requests of the last minute."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.refused = self.errors = 0
        """Answers since the start that said "not now" (429, 503), and those that were a fault of the server."""
        self._seconds: deque[Second] = deque(maxlen=REMEMBERED_S + 1)

    def request(self, status: int, seconds: float, now: float | None = None) -> None:
        """Count a request that is over."""
        number = int(time.monotonic() if now is None else now)
        if not self._seconds or self._seconds[-1].number != number:
            self._seconds.append(Second(number))
        second = self._seconds[-1]
        place = bisect.bisect_right(_BOUNDS, seconds)
        second.count += 1
        second.classes[place] = second.classes.get(place, 0) + 1
        if status in (429, 503):
            self.refused += 1
        elif status >= 500 or not status:
            self.errors += 1

    def rate(self, now: float | None = None) -> float:
        """Return the requests a second over the last whole seconds, or since the start."""
        now = time.monotonic() if now is None else now
        span = min(float(RATE_S), max(1.0, now - self.began))
        return sum(second.count for second in self._seconds if int(now) - RATE_S <= second.number < int(now)) / span

    def latency_ms(self, now: float | None = None) -> dict[str, float | None]:
        """Return percentiles over the last minute in milliseconds, None where nothing was asked."""
        now = time.monotonic() if now is None else now
        classes = [0] * N_CLASSES
        for second in self._seconds:
            if second.number >= int(now) - REMEMBERED_S:
                for place, count in second.classes.items():
                    classes[place] += count
        return {name: _percentile(classes, share) for name, share in SHARES.items()}


def _percentile(classes: list[int], share: float) -> float | None:
    """Return the middle of the class in which a share of all lies below."""
    wanted, below = share * sum(classes), 0
    for place, count in enumerate(classes):
        below += count
        if count and below >= wanted:
            return 1000 * SHORTEST * math.exp((place + 0.5) / FINENESS)
    return None
