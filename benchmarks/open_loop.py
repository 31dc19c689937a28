"""Send requests to a service at times that are fixed beforehand, whether it keeps up or not, and say how long each took.

A plan comes as JSON on standard input, the outcome goes as JSON to standard output; `benchmarks/serve.py` starts this as a process
of its own, so that measuring and serving share nothing but the machine. Arrivals of requests are Poisson. A latency counts from the moment a request was
due, not from when it was sent: a service (or a generator) that falls behind shows. Kinds of request: `event` is one event, or
`together` of them; `pair` is an event and, once that is acknowledged, the top k for the same user: its latency is that of both together.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

PERCENTILES = (50, 90, 99, 99.9, 100)
TICK_S = 0.001
"""Least time between two looks at what is due; what is late by it counts as latency."""
GIVE_UP_S = 30.0
"""How long answers are waited for after the last request was due."""


class Plan(NamedTuple):
    """What to send: `rate` a second for `seconds`, of which the first `warm` do not count; users and items are drawn by popularity."""

    port: int
    kind: str
    rate: float
    seconds: float
    warm: float
    users: int
    items: list[str]
    connections: int = 256
    k: int = 20
    seed: int = 0
    together: int = 1
    """Events in one request."""


class Connection(asyncio.Protocol):
    """One connection, which carries one request at a time."""

    def __init__(self) -> None:
        self._received = b""
        self.answered: Callable[[int], None] | None = None
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        answered, self.answered = self.answered, None
        if answered is not None:
            answered(0)

    def data_received(self, data: bytes) -> None:
        self._received = received = self._received + data
        head = received.find(b"\r\n\r\n")
        if head < 0:
            return
        at = received.find(b"content-length: ") + 16
        if len(received) < head + 4 + int(received[at : received.find(b"\r\n", at)]):
            return
        self._received = b""
        answered, self.answered = self.answered, None
        if answered is not None:
            answered(int(received[9:12]))


class Generator:
    """Sends what is planned and notes what comes back; times in seconds, one entry per request: due, event answered, all answered, status."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self._loop = plan, asyncio.get_running_loop()
        rng = np.random.default_rng(plan.seed)
        self.due = np.cumsum(rng.exponential(1 / plan.rate, int(plan.rate * plan.seconds)))
        n = len(self.due)
        self._users = popular(rng, plan.users, n)
        self._run = f"{plan.seed}-{time.time_ns()}"
        # Made beforehand: the generator takes its time from the same machine.
        self._events = self._made_events(rng)
        self.lag = np.zeros(n)
        self.event_s, self.all_s, self.status = np.full(n, np.nan), np.full(n, np.nan), np.zeros(n, np.int16)
        self._idle: deque[Connection] = deque()
        self._queue: deque[tuple[bytes, Callable[[int], None], bool]] = deque()
        self._next = self._open = self._resent = self._connections = self._opening = 0
        self._done = asyncio.Event()

    def _made_events(self, rng: np.random.Generator) -> list[bytes]:
        n, together = len(self.due), self.plan.together
        users = self._users if together == 1 else popular(rng, self.plan.users, n * together)
        items = popular(rng, len(self.plan.items), n * together)
        names = [json.dumps(item) for item in self.plan.items]
        made = [f'{{"user":"u{user}","item":{names[item]},"event_id":"{self._run}-{at}"}}' for at, (user, item) in enumerate(zip(users, items, strict=True))]
        if together > 1:
            made = [f'{{"events":[{",".join(made[at : at + together])}]}}' for at in range(0, len(made), together)]
        return [_request(b"/v1/events", body.encode()) for body in made]

    async def go(self) -> None:
        """Send everything, wait for the answers."""
        self._begin = self._loop.time() + 0.1
        self._loop.call_at(self._begin + self.due[0], self._send_due)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._done.wait(), self.due[-1] + GIVE_UP_S)

    def _send_due(self) -> None:
        now = self._loop.time() - self._begin
        n = len(self.due)
        while self._next < n and self.due[self._next] <= now:
            self.lag[self._next] = now - self.due[self._next]
            self._open += 1
            self._send_event(self._next)
            self._next += 1
        if self._next < n:
            # The loop's clock counts milliseconds: asked for less, it would only spin, on a core that the service needs.
            self._loop.call_later(max(TICK_S, self.due[self._next] - now), self._send_due)

    def _send_event(self, n: int) -> None:
        self._send(self._events[n], lambda status: self._event_answered(n, status))

    def _event_answered(self, n: int, status: int) -> None:
        self.event_s[n] = self._loop.time() - self._begin - self.due[n]
        if self.plan.kind == "event" or status != 200:
            return self._finish(n, status)
        body = b'{"user":"u%d","k":%d}' % (self._users[n], self.plan.k)
        self._send(_request(b"/v1/recommend", body), lambda status: self._finish(n, status))

    def _finish(self, n: int, status: int) -> None:
        self.all_s[n] = self._loop.time() - self._begin - self.due[n]
        self.status[n] = status
        self._open -= 1
        if self._open == 0 and self._next == len(self.due):
            self._done.set()

    def _send(self, request: bytes, answered: Callable[[int], None]) -> None:
        self._queue.append((request, answered, True))
        self._pump()

    def _pump(self) -> None:
        while self._queue and self._idle:
            connection = self._idle.popleft()
            if connection.transport.is_closing():
                self._connections -= 1
            else:
                self._use(connection, *self._queue.popleft())
        # As many as are needed: those that stay idle are closed by the service, all at one moment.
        while self._opening < len(self._queue) and self._connections < self.plan.connections:
            self._opening += 1
            self._connections += 1
            self._loop.create_task(self._connect())

    async def _connect(self) -> None:
        try:
            _, connection = await self._loop.create_connection(Connection, "127.0.0.1", self.plan.port)
        except OSError:
            await asyncio.sleep(0.05)
            self._connections -= 1
        else:
            self._idle.appendleft(connection)
        self._opening -= 1
        self._pump()

    def _use(self, connection: Connection, request: bytes, answered: Callable[[int], None], first: bool) -> None:
        connection.answered = lambda status: self._back(connection, status, request, answered, first)
        connection.transport.write(request)

    def _back(self, connection: Connection, status: int, request: bytes, answered: Callable[[int], None], first: bool) -> None:
        if connection.transport.is_closing():
            self._connections -= 1
        else:
            self._idle.appendleft(connection)  # the one used last is the one most surely open
        if status == 0 and first:  # closed as idle at the very moment: as any client does, sent again, once
            self._resent += 1
            self._queue.appendleft((request, answered, False))
        else:
            answered(status)
        self._pump()

    def _last_answer(self, good: np.ndarray) -> float:
        """Return when the last answer came, which is later than planned where requests piled up."""
        return max(self.plan.seconds, float((self.due + self.all_s)[good].max(initial=0.0)))

    def outcome(self) -> dict[str, Any]:
        """Return counts and latencies in milliseconds, of what was due after the warming up."""
        counts = self.due >= self.plan.warm
        good = counts & (self.status == 200)
        return {
            "requests": int(counts.sum()),
            "statuses": {str(status): n for status, n in sorted(Counter(self.status[counts].tolist()).items())},
            "answered_per_second": float(good.sum() / (self._last_answer(good) - self.plan.warm)),
            "latency_ms": percentiles(self.all_s[good]),
            "event_ms": percentiles(self.event_s[good]),
            "refusal_ms": percentiles(self.all_s[counts & (self.status >= 400)]),
            "generator_lag_ms": percentiles(self.lag[counts]),
            "resent": self._resent,
        }


def _request(path: bytes, body: bytes) -> bytes:
    head = b"POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return head % (path, len(body)) + body


def popular(rng: np.random.Generator, n: int, size: int) -> np.ndarray:
    """Draw from n by Zipf's law."""
    cumulated = np.cumsum(np.arange(1, n + 1) ** -0.8)
    return np.searchsorted(cumulated, rng.random(size) * cumulated[-1])


def percentiles(seconds: np.ndarray) -> dict[str, float] | None:
    return {f"p{p:g}": round(1000 * float(np.percentile(seconds, p)), 3) for p in PERCENTILES} if len(seconds) else None


async def main() -> None:
    """Carry out the plan on standard input."""
    generator = Generator(Plan(**json.load(sys.stdin)))
    await generator.go()
    json.dump(generator.outcome(), sys.stdout)


if __name__ == "__main__":
    try:
        import uvloop
    except ImportError:
        asyncio.run(main())
    else:
        uvloop.run(main())
