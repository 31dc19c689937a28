"""What one caller may ask for: sizes, rates, waiting; each limit is here, with its default, once."""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass, fields

from hcarec.errors import ConfigError
from hcarec.serve.kinds import MOST, check_kinds

MOST_CALLERS = 20_000
"""Callers whose rate is remembered; beyond that the one seen longest ago is forgotten, so that memory stays bounded."""


@dataclass(frozen=True)
class Limits:
    """Limits of the HTTP side; those on the contents of a request are in `hcarec.serve.schemas`."""

    body_bytes: int = 1 << 20
    """Bytes of a request's body."""
    header_bytes: int = 16 << 10
    """Bytes of a request's line, headers and trailers together."""
    rate: float = 5000.0
    """Requests a second of one key, or of one address without keys; 0 is no limit. A second's worth may come at once."""
    in_flight: int = 256
    """Requests worked on at once at most; more are answered 503."""
    slow_ms: float = 12.0
    """While half of the requests other than events take longer than this, the time until they are read included, fewer are worked on at once, down to 12:
    the rest is answered 503 at once."""
    slow_events_ms: float = 10.0
    """The same for events, which on a quick disk take far less time than this as long as there is any: a list can be done without, an event that nobody
    sends again is lost."""
    connections: int = 2048
    """Connections at once, or fewer where the limit of open files asks for that; more are answered 503 and closed."""
    connections_per_address: int = 512
    """Connections at once of one address; more are answered 503 and closed. A proxy is one address."""
    receive_seconds: float = 10.0
    """Time to send the headers, and again to send the body."""
    send_seconds: float = 20.0
    """Time to take the answer."""
    idle_seconds: int = 30
    """Time that a connection may stay open without a request."""
    drain_seconds: int = 30
    """Time in which the server stops, whatever hangs; running requests have most of it to end."""

    def __post_init__(self) -> None:
        check_kinds(self)
        for field in fields(self):
            value, may_be_zero = getattr(self, field.name), field.name == "rate"
            if not 0 <= value <= MOST or (value == 0 and not may_be_zero):
                zero = "0 for no limit, or " if may_be_zero else ""
                raise ConfigError(f"the limit {field.name} is {value}: give {zero}a number above 0 and at most {MOST:,}")


class Rates:
    """A bucket of tokens for every caller: a request takes one, and they come back at a steady rate."""

    def __init__(self, rate: float) -> None:
        self._rate, self._most = rate, max(rate, 1.0)
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, caller: str, now: float | None = None) -> float:
        """Take a token of a caller: return 0, or the seconds until there is one."""
        if not self._rate:
            return 0.0
        now = time.monotonic() if now is None else now
        left, at = self._buckets.get(caller, (self._most, now))
        left = min(self._most, left + (now - at) * self._rate)
        granted = left >= 1.0
        self._buckets[caller] = (left - 1.0 if granted else left, now)
        self._buckets.move_to_end(caller)
        if len(self._buckets) > MOST_CALLERS:
            self._buckets.popitem(last=False)
        return 0.0 if granted else (1.0 - left) / self._rate
