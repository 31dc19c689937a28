"""A store that is cut off, slow or half-open behind the whole service: a bounded wait, answers that say what they rest on, and recovery by itself."""

from __future__ import annotations

import itertools
import random
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from client_log import ClientLog, Sent
from hcarec.recommendation import recommend
from http_server import Running
from live_models import models, quick_folder, saved
from load_clients import Connection
from service_process import Starter
from soak_counts import counting
from store_proxy import WAYS, Proxy
from store_servers import DURABLE, Server

ITEMS = [f"i{n:02}" for n in range(1, 13)]
USERS = ["a", "b", "c"]
RECOVERY_S = 5.0
PATIENCE_S = 30.0
"""More than any answer may take, on however slow a machine."""
QUICK = {"store_timeout_s": 0.3, "take_wait_s": 1.0, "retry_s": 0.1}


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with quick_folder() as folder:  # a disk that other programs keep busy is no part of this
        server = Server(folder, *DURABLE)
        try:
            with Proxy(server.socket) as made:
                yield made
        finally:
            server.stop()


class Cut:
    """A service whose way to its store is cut now and then."""

    def __init__(self, proxy: Proxy, address: str, counts: Counter[str]) -> None:
        self.proxy, self.address, self.counts = proxy, address, counts
        self.log, self.numbers = ClientLog(), itertools.count()
        self.longest = 0.0

    def send(self, dice: random.Random, user: str | None = None) -> int:
        """Send an event, new or in doubt; return the status."""
        old = self.log.take_doubtful() if dice.random() < 0.3 else None
        event = old or Sent(user or dice.choice(USERS), dice.choice(ITEMS), None, f"e{next(self.numbers)}" if dice.random() < 0.8 else None)
        self.log.sending([event], again=old is not None)
        with Connection(self.address, PATIENCE_S) as connection:
            status, said = connection.ask("POST", "/v1/events", event.json())
        if status == 200:
            self.log.answered([event], said["events"])
        else:
            assert status == 503 and said["error"]["code"] in ("store_unavailable", "overloaded"), said
            self.log.failed([event])
        return status

    def ask(self, dice: random.Random) -> dict[str, Any]:
        """Ask for a user, with a visit or without; the answer rests on the user or says that it rests on less."""
        visit = [dice.choice(ITEMS)] if dice.random() < 0.5 else []
        with Connection(self.address, PATIENCE_S) as connection:
            begin = time.monotonic()
            status, said = connection.ask("POST", "/v1/recommend", {"user": dice.choice(USERS), "visit": visit, "k": 3})
            self.longest = max(self.longest, time.monotonic() - begin)
        assert status == 200 and len(said["items"]) == 3, said
        assert said["basis"] == ("visit" if visit else "popular") if said["degraded"] else said["basis"] == "personal", said
        if said["degraded"]:
            right = recommend(models()["hca-gru"], visit, 3)
            assert [(one["item"], one["score"]) for one in said["items"]] == [(one.item, one.score) for one in right]
        self.counts["answers that said so" if said["degraded"] else "answers from the store"] += 1
        return said

    def use(self, seed: int, seconds: float) -> None:
        """Send and ask from several clients at once for a while."""
        end = time.monotonic() + seconds

        def client(number: int) -> None:
            dice = random.Random(seed + number)
            while time.monotonic() < end:
                self.counts["events taken" if self.send(dice) == 200 else "events refused"] += 1
                self.ask(dice)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(client, range(4)))

    def recovered(self) -> float:
        """Wait until all is as before, within the time that is promised; return how long it took from when the store answered."""
        while not self.proxy.answers():
            time.sleep(0.01)
        begin, dice = time.monotonic(), random.Random(0)
        with Connection(self.address, PATIENCE_S) as connection:
            while connection.ask("GET", "/readyz")[0] != 200 or self.send(dice) != 200 or self.ask(dice)["degraded"]:
                assert time.monotonic() < begin + RECOVERY_S, "it did not recover in time"
                time.sleep(0.02)
        return time.monotonic() - begin

    def verify(self) -> None:
        """Compare everything with what clients know and with a replay."""
        with Connection(self.address, PATIENCE_S) as connection:
            for user in USERS:
                kept = connection.kept(user)
                self.log.check(user, kept, self.counts)
                status, said = connection.ask("POST", "/v1/recommend", {"user": user})
                assert status == 200 and not said["degraded"], said
                right = recommend(models()["hca-gru"], [event["item"] for event in kept], 20)
                assert [(one["item"], one["score"]) for one in said["items"]] == [(one.item, one.score) for one in right]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("times", [pytest.param(1, id="some"), pytest.param(8, id="many", marks=pytest.mark.soak)])
def test_a_store_out_of_reach_costs_a_bounded_wait_and_comes_back(tmp_path: Path, proxy: Proxy, way: str, times: int) -> None:
    soak = times > 1
    options = {} if soak or way == "slow" else QUICK
    with counting(f"store.{way}", soak) as counts, Running(saved(tmp_path, "hca-gru"), proxy.url, **options) as running:  # type: ignore[arg-type]
        cut, dice = Cut(proxy, running.url, counts), random.Random(times)
        for user in USERS:
            assert cut.send(dice, user) == 200
        for _ in range(times):
            proxy.disturb(way)
            cut.use(dice.randrange(1 << 30), dice.uniform(1, 8) if soak else 0.7)
            proxy.mend()
            seconds = cut.recovered()
            counts["longest recovery, ms"] = max(counts["longest recovery, ms"], round(1000 * seconds))
            cut.verify()
            counts["times cut"] += 1
        counts["longest wait for an answer, ms"] = round(1000 * cut.longest)
        assert counts["answers that said so"], "the store was never out of reach"
        counts["events acknowledged"] = sum(event.acknowledged for events in cut.log.sent.values() for event in events)


def test_a_file_that_another_process_uses_is_said_in_a_line(tmp_path: Path, starter: Starter) -> None:
    given = saved(tmp_path, "hca-gru"), "--store", tmp_path / "store.sqlite"
    process = starter.start(*given)
    address = process.address()
    assert address is not None
    with Connection(address) as connection:
        assert connection.ask("POST", "/v1/events", {"user": "a", "item": "i01"})[0] == 200
        with closing(sqlite3.connect(tmp_path / "store.sqlite", timeout=0)) as other, pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("SELECT * FROM events").fetchall()
        second = starter.start(*given)
        assert second.address() is None and second.wait() == 2
        assert second.errors.count("\n") == 1 and "in use by another process" in second.errors
        assert connection.ask("POST", "/v1/events", {"user": "a", "item": "i02"})[0] == 200
    process.kill()
    for hold in ("BEGIN", "BEGIN IMMEDIATE"):
        with closing(sqlite3.connect(tmp_path / "store.sqlite", isolation_level=None)) as other:
            other.execute(hold)
            other.execute("SELECT * FROM events").fetchall()
            third = starter.start(*given)
            assert third.address() is None and third.wait() == 2
            assert third.errors.count("\n") == 1 and "in use by another process" in third.errors
    last = starter.start(*given)
    address = last.address()
    assert address is not None, last.errors
    with Connection(address) as connection:
        assert [event["item"] for event in connection.kept("a")] == ["i01", "i02"]
