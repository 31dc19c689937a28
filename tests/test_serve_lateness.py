"""How late the loop is: seen when it is held up, forgotten when nobody asks, and part of the time by which requests are let in."""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import Callable
from typing import Any

import pytest

from hcarec.serve.admission import Admission
from hcarec.serve.lateness import IDLE_LOOKS, LOOK_EVERY_S, Lateness
from hcarec.serve.logs import Log
from hcarec.serve.metrics import Metrics
from hcarec.serve.shedding import LET_IN, Gate, Shedding
from hcarec.serve.status import Recent


class Loop:
    """A loop whose clock is moved by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.timers = 100.0, list[tuple[float, Callable[..., None], tuple[Any, ...]]]()
        monkeypatch.setattr(asyncio, "get_running_loop", lambda: self)

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[..., None], *arguments: Any) -> None:
        self.timers.append((self.now + delay, callback, arguments))

    def turn(self, late: float = 0.0) -> None:
        """Come to the next timer, late by so much."""
        due, callback, arguments = self.timers.pop(0)
        self.now = due + late
        callback(*arguments)


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    return Loop(monkeypatch)


def test_it_is_what_the_last_look_was_late_by(loop: Loop) -> None:
    late = Lateness()
    assert late.ask() == 0.0
    for seconds in (0.03, 0.2, 0.0):
        loop.turn(seconds)
        assert late.ask() == pytest.approx(seconds)
    assert len(loop.timers) == 1, "one timer for all who ask"


def test_it_looks_only_while_somebody_asks(loop: Loop) -> None:
    late = Lateness()
    for _ in range(2):
        late.ask()
        for _ in range(IDLE_LOOKS):
            loop.turn(0.5)
        assert (late.seconds, loop.timers) == (0.0, [])
    late.ask()
    for _ in range(3 * IDLE_LOOKS):
        loop.turn()
        late.ask()
    assert len(loop.timers) == 1


def test_a_loop_that_is_held_up_is_seen() -> None:
    async def held_up() -> float:
        late = Lateness()
        late.ask()
        time.sleep(0.05)
        await asyncio.sleep(0)
        while not late.ask():
            await asyncio.sleep(LOOK_EVERY_S / 4)
        return late.seconds

    assert asyncio.run(held_up()) >= 0.05 - LOOK_EVERY_S - 0.001


def test_a_request_has_begun_when_it_came_not_when_it_was_read(loop: Loop) -> None:
    late, admission, log = Lateness(), Admission(2, slow_s=1.0), Log("errors", io.BytesIO())
    metrics = Metrics(dict, {"events": admission}, late)
    gate = Gate("POST", "/v1/events", admission, late, metrics, Recent(), log)
    shedding = Shedding({("POST", "/v1/events"): gate})
    scopes: list[dict[str, Any]] = [{"method": "POST", "raw_path": b"/v1/events"} for _ in range(3)]
    assert shedding(scopes[0]) is None
    loop.turn(40.0)
    assert shedding(scopes[1]) is None
    assert scopes[1][LET_IN] < scopes[0][LET_IN] - 30, "it was read later, but had waited for longer"
    assert b"hcarec_requests_unread_seconds 40.0" in metrics.text()
    refused = shedding(scopes[2])
    assert refused is not None and refused.status == 503 and LET_IN not in scopes[2]
    log.close()
