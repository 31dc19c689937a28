"""One user with a very long history, asked for all the time: what is kept is bounded, answers stay right, and nobody else waits for it."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hcarec.recommendation import recommend
from hcarec.serve import aside
from hcarec.serve.aside import Aside
from hcarec.serve.long_history import LongHistories, Waits
from hcarec.serve.messages import Overloaded
from hcarec.serve.stores.interface import PAGE_EVENTS, Event, History
from live_models import models, saved
from load_clients import Connection
from service_process import Process, Starter
from soak_counts import counting

BEGIN = 1_600_000_000
ITEMS = [f"i{n:02d}" for n in range(1, 30)]
ROUNDS, MEASURED_S, WARM_S = 8, 3.0, 0.5
"""Turns in which others are measured alone and meanwhile, and the seconds of each: what else goes on at the machine is in both."""
GOAL = 3.0
"""How many times as long the slowest hundredth of requests may take meanwhile."""

# One process sends one kind of request for the long user as fast as it is answered, until it is ended; then it says how many.
ATTACK = """
import http.client, itertools, json, os, signal, sys
address, method, path, body = sys.argv[1:5]
connection = http.client.HTTPConnection(address, timeout=60)
number = 0
def end(*_):
    print(number, flush=True)
    os._exit(0)
signal.signal(signal.SIGTERM, end)
for number in itertools.count():
    sent = json.loads(body) if body else None
    if path == "/v1/events":
        late = {"user": "long", "item": "i05", "time": 1600000000 + number % 1000 + 0.5}
        connection.request("POST", path, json.dumps(late), {"Content-Type": "application/json"})
        connection.getresponse().read()
        method, sent, at = "POST", {"user": "long", "hide_seen": True}, "/v1/recommend"
    else:
        at = path
    connection.request(method, at, None if sent is None else json.dumps(sent), {"Content-Type": "application/json"})
    connection.getresponse().read()
"""
ATTACKS = {
    "seen": ("POST", "/v1/recommend", {"user": "long", "hide_seen": True}),
    "late": ("POST", "/v1/events", {"user": "long"}),
    "attention": ("POST", "/v1/attention", {"user": "long"}),
    "explain": ("POST", "/v1/explain", {"user": "long"}),
    "history": ("GET", "/v1/users/long?limit=10000", None),
}


def fill(connection: Connection, number: int) -> list[str]:
    """Store so many events of one user; return their items."""
    draw = np.random.default_rng(1)
    items = [ITEMS[n] for n in draw.integers(0, len(ITEMS), number)]
    for first in range(0, number, 1000):
        batch = [{"user": "long", "item": item, "time": BEGIN + first + n} for n, item in enumerate(items[first : first + 1000])]
        while (answer := connection.ask("POST", "/v1/events", {"events": batch}))[0] == 503:
            time.sleep(0.05)
        assert answer[0] == 200, answer
    return items


def others(connection: Connection, seconds: float) -> tuple[list[float], int]:
    """Be other users for a while: an event, a list, one without what was seen; return the milliseconds of each, and how many were refused."""
    took, refused, number = [], 0, 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        number += 1
        user = f"other {number % 50}"
        for path, body in (
            ("/v1/events", {"user": user, "item": ITEMS[number % len(ITEMS)]}),
            ("/v1/recommend", {"user": user}),
            ("/v1/recommend", {"user": user, "hide_seen": True}),
        ):
            begin = time.perf_counter()
            status, _ = connection.ask("POST", path, body)
            took.append(1000 * (time.perf_counter() - begin))
            refused += status != 200
        time.sleep(0.002)
    return took, refused


def started(starter: Starter, folder: Path, *more: str | int) -> tuple[Process, str]:
    process = starter.start(saved(folder, "hca-gru"), "--store", folder / "store.sqlite", "--rate", 0, *more)
    address = process.address()
    assert address is not None, process.errors
    return process, address


def listed(answer: dict[str, Any]) -> list[tuple[str, float]]:
    return [(one["item"], one["score"]) for one in answer["items"]]


def test_what_is_kept_of_a_user_is_bounded_and_answers_are_of_it(tmp_path: Path, starter: Starter) -> None:
    model = models()["hca-gru"]
    _, address = started(starter, tmp_path, "--set", "history_limit=700", "--set", "state_wait_s=20")
    with Connection(address) as connection:
        items = fill(connection, 3000)
        kept = [event["item"] for event in connection.kept("long")]
        assert kept == items[-700:]
        # The state has seen everything; what is hidden is what is kept.
        assert listed(connection.ask("POST", "/v1/recommend", {"user": "long"})[1]) == [(one.item, one.score) for one in recommend(model, items, 20)]
        assert connection.ask("POST", "/v1/events", {"user": "long", "item": "i07", "time": BEGIN + 2800.5})[1]["events"][0]["status"] == "late"
        late = [*items[-700:-199], "i07", *items[-199:]][-700:]
        right = [(one.item, one.score) for one in recommend(model, late, 20)]
        assert listed(connection.ask("POST", "/v1/recommend", {"user": "long"})[1]) == right
        hidden = connection.ask("POST", "/v1/recommend", {"user": "long", "hide_seen": True})[1]
        assert hidden["degraded"] is False and not {item for item, _ in listed(hidden)} & set(late)
        connection.ask("POST", "/v1/events", {"user": "long", "item": "i03"})
        assert listed(connection.ask("POST", "/v1/recommend", {"user": "long"})[1]) == [(one.item, one.score) for one in recommend(model, [*late, "i03"], 20)]


def test_a_long_history_is_read_whole_though_in_pages(tmp_path: Path, starter: Starter) -> None:
    _, address = started(starter, tmp_path)
    with Connection(address) as connection:
        items = fill(connection, 2500)
        assert [event["item"] for event in connection.kept("long")] == items
        status, said = connection.ask("GET", "/v1/users/long?limit=1300")
        assert status == 200 and [event["item"] for event in said["events"]] == items[-1300:]
        assert connection.ask("POST", "/v1/explain", {"user": "long"})[0] == 200


def test_explanations_rest_on_a_bounded_past(tmp_path: Path, starter: Starter) -> None:
    _, address = started(starter, tmp_path, "--set", "explain_events=50")
    with Connection(address) as connection:
        items = fill(connection, 800)
        for path in ("/v1/explain", "/v1/attention"):
            of_user, of_last, of_more = (
                connection.ask("POST", path, asked) for asked in ({"user": "long"}, {"history": items[-50:]}, {"history": items[-60:]})
            )
            assert of_user[0] == of_last[0] == 200
            assert _figures(of_user[1]) == _figures(of_last[1]) != _figures(of_more[1])


def _figures(answer: dict[str, Any]) -> list[Any]:
    """Return the scores, weights and effects of an explanation, or the weights of all steps, without times."""
    return [answer.get(name) for name in ("score", "a_x", "a_h")] + [[{**one, "time": None} for one in answer.get(name, [])] for name in ("events", "steps")]


def test_what_is_held_in_memory_is_what_is_kept(tmp_path: Path, starter: Starter) -> None:
    _, address = started(starter, tmp_path, "--set", "history_limit=100", "--set", "state_wait_s=20")
    with Connection(address) as connection:
        assert connection.ask("POST", "/v1/events", {"user": "long", "item": "i40", "time": BEGIN - 1})[0] == 200
        asked = {"user": "long", "hide_seen": True, "k": 50}
        assert "i40" not in {item for item, _ in listed(connection.ask("POST", "/v1/recommend", asked)[1])}  # the log is in memory now
        for n in range(600):  # one at a time, so that all of them pass through it
            assert connection.ask("POST", "/v1/events", {"user": "long", "item": ITEMS[n % 3], "time": BEGIN + n})[0] == 200
        kept = {event["item"] for event in connection.kept("long")}
        assert kept == set(ITEMS[:3])
        shown = {item for item, _ in listed(connection.ask("POST", "/v1/recommend", asked)[1])}
        assert "i40" in shown and not shown & kept


async def _read_behind_one_that_hangs() -> None:
    asked = asyncio.Event()

    async def page(user: str, limit: int, before: tuple[int, int] | None) -> History:
        if before is not None:
            asked.set()
            await asyncio.Event().wait()
        return History(1, [Event(n, "i01", None, n) for n in range(PAGE_EVENTS)])

    executor = Aside("test")
    histories = LongHistories(page, lambda work: asyncio.sleep(0), executor, 10_000, Waits(0.05, 0.05))
    first = asyncio.create_task(histories.read("a"))
    await asked.wait()
    with pytest.raises(Overloaded, match="too many long histories"):
        await histories.read("b")
    with pytest.raises(Overloaded, match="too many long histories"):
        await first
    assert len((await histories.read("c", PAGE_EVENTS)).history.events) == PAGE_EVENTS  # one page waits for nobody
    executor.close()


def test_a_long_history_does_not_wait_for_ever_for_another() -> None:
    asyncio.run(asyncio.wait_for(_read_behind_one_that_hangs(), 60))


def test_explanations_and_replays_have_half_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now, slept = [100.0], []

    def sleep(seconds: float) -> None:
        slept.append(round(seconds, 6))
        now[0] += seconds

    def work(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(aside, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))

    async def ask() -> None:
        executor = Aside("test")
        for seconds in (0.01, 0.02, 9.0, 0.01):
            await executor.run(partial(work, seconds))
        now[0] += 1.0  # whoever comes later does not wait
        await executor.run(partial(work, 0.01))
        executor.close()

    asyncio.run(ask())
    assert slept == [0.0, 0.01, 0.02, aside.LONGEST_REST_S, 0.0]


class Attackers:
    """Processes that ask about the long user without a pause, unless they are stopped."""

    def __init__(self, address: str) -> None:
        command = [sys.executable, "-c", ATTACK, address.removeprefix("http://")]
        self._processes = [
            subprocess.Popen([*command, method, path, json.dumps(body) if body else ""], stdout=subprocess.PIPE) for method, path, body in ATTACKS.values()
        ]

    def signal(self, number: signal.Signals) -> None:
        assert all(process.poll() is None for process in self._processes)
        for process in self._processes:
            process.send_signal(number)

    def end(self) -> int:
        """End them; return how many requests they have sent."""
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        return sum(int(process.communicate()[0]) for process in self._processes)

    def __enter__(self) -> Attackers:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.wait()


@pytest.mark.soak
@pytest.mark.alone
@pytest.mark.parametrize("number", [200_000, 1_500_000])
def test_others_hardly_notice_a_user_with_a_long_history(tmp_path: Path, starter: Starter, number: int) -> None:
    with counting(f"long_history.{number}", True) as counts:
        _, address = started(starter, tmp_path)
        took: dict[str, list[float]] = {"alone": [], "meanwhile": []}
        with Connection(address) as connection:
            fill(connection, number)
            others(connection, WARM_S)
            with Attackers(address) as attackers:
                for name, turn in [("alone", signal.SIGSTOP), ("meanwhile", signal.SIGCONT)] * ROUNDS:
                    attackers.signal(turn)
                    counts["refused"] += others(connection, WARM_S)[1]
                    times, refused = others(connection, MEASURED_S)
                    took[name] += times
                    counts["refused"] += refused
                counts["requests about the long history"] = attackers.end()
        for name, times in took.items():
            for share in (50, 99):
                counts[f"p{share} {name}, us"] = round(1000 * float(np.percentile(times, share)))
        counts["requests of others"] = sum(map(len, took.values()))
        counts["events"] = number
        counts["p99 ratio, percent"] = round(100 * counts["p99 meanwhile, us"] / counts["p99 alone, us"])
        print(json.dumps(counts))
        assert counts["p99 ratio, percent"] <= 100 * GOAL
