"""A disk that fills up under the whole service: events are refused, answers go on, and with room all goes on by itself."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from client_log import ClientLog, Sent
from hcarec.artefact import model_hash
from hcarec.recommendation import recommend
from live_models import models, saved
from load_clients import Connection, Shopper
from service_process import Process, Starter
from soak_counts import counting

ITEMS = [f"i{n:02}" for n in range(1, 13)]
RECOVERY_S = 5.0
MOST_LEFT, SURELY_FULL = 500, 5
"""Single events that may still fit into what the store holds of a full disk, and refusals in a row after which none does."""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"cannot mount a small file system here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(ballast: Path, leave: int) -> None:
    """Leave no more room than this."""
    disk = os.statvfs(ballast.parent)
    with contextlib.suppress(OSError), open(ballast, "ab") as file:  # the service may be quicker
        file.write(bytes(max(0, disk.f_bavail * disk.f_frsize - leave)))


class Full:
    """A service on a small disk."""

    def __init__(self, starter: Starter, folder: Path, disk: Path, counts: Counter[str]) -> None:
        self.starter, self.model, self.disk, self.counts = starter, saved(folder, "hca-gru"), disk, counts
        self.by_hash = {model_hash(self.model)[:12]: models()["hca-gru"]}
        self.log = ClientLog()

    def start(self) -> tuple[Process, str]:
        process = self.starter.start(self.model, "--store", self.disk / "store.sqlite", "--backups", self.disk, "--rate", 0)
        address = process.address()
        assert address is not None, process.errors
        return process, address

    def until_refused(self, address: str, dice: random.Random) -> None:
        """Send events until none is taken any more."""
        users = [f"u{dice.randrange(40)}" for _ in range(8)]
        shoppers = [Shopper(address, self.log, [f"own {dice.random()}", *users], ITEMS, self.by_hash, dice.randrange(1 << 30)) for _ in range(2)]
        for shopper in shoppers:
            shopper.start()
        end = time.monotonic() + 60
        while sum(shopper.refused for shopper in shoppers) < 20:
            assert time.monotonic() < end
            time.sleep(0.005)
        for shopper in shoppers:
            shopper.finish()
            self.counts["events refused"] += shopper.refused

    def verify(self, address: str) -> None:
        """Read everything back, and ask for everybody."""
        connection = Connection(address)
        for user in self.log.sent:
            kept = connection.kept(user)
            self.log.check(user, kept, self.counts)
            status, said = connection.ask("POST", "/v1/recommend", {"user": user})
            assert status == 200 and not said["degraded"], said
            right = recommend(models()["hca-gru"], [event["item"] for event in kept], 20)
            assert [(one["item"], one["score"]) for one in said["items"]] == [(one.item, one.score) for one in right], user
            self.counts["answers while full"] += 1
        connection.close()

    def use_up(self, address: str) -> None:
        """Send single events until none is taken: a refused group may have left room in the journal in which a smaller one fits."""
        connection, refused = Connection(address), 0
        for _ in range(MOST_LEFT):
            event = Sent("u0", "i01", event_id=f"use up {time.monotonic_ns()}")
            self.log.sending([event])
            assert os.statvfs(self.disk).f_bavail == 0  # so what is taken goes into blocks that the store had before
            status, said = connection.ask("POST", "/v1/events", event.json())
            if status == 200:
                self.log.answered([event], said["events"])
            self.counts["events taken without a free block"] += status == 200
            refused = refused + 1 if status == 503 else 0
            if refused == SURELY_FULL:
                return connection.close()
        raise AssertionError(f"{MOST_LEFT} events without a free block, and still not full")

    def while_full(self, address: str) -> None:
        """Ask for everything that writes, and for what only reads."""
        self.use_up(address)
        self.verify(address)
        connection = Connection(address)
        for request in (
            ("POST", "/v1/events", {"user": "u0", "item": "i01", "event_id": "while full"}),
            ("POST", "/v1/events", [{"user": f"new {n}", "item": "i01"} for n in range(500)]),
            ("POST", "/admin/backup", {"name": "copy.sqlite"}),
        ):
            status, said = connection.ask(*request)
            assert (status, said.get("error", {}).get("code")) == (503, "store_unavailable"), (request, said)
        assert not list(self.disk.glob("*copy.sqlite*"))
        assert connection.ask("GET", "/healthz")[0] == 200
        connection.close()

    def recover(self, address: str) -> None:
        """See that events are taken again within the time that is promised."""
        connection, end = Connection(address), time.monotonic() + RECOVERY_S
        while (answer := connection.ask("POST", "/v1/events", {"user": f"late {time.monotonic()}", "item": "i01"}))[0] != 200:
            assert time.monotonic() < end, answer
            time.sleep(0.02)
        connection.close()


@pytest.mark.parametrize("rounds", [pytest.param(1, id="some"), pytest.param(40, id="many", marks=pytest.mark.soak)])
def test_a_full_disk_stops_events_only_and_only_while_it_is_full(tmp_path: Path, starter: Starter, small_disk: Path, rounds: int) -> None:
    dice, ballast = random.Random(rounds), small_disk / "ballast"
    with counting("disk", rounds > 10) as counts:
        full = Full(starter, tmp_path, small_disk, counts)
        process, address = full.start()
        for number in range(rounds):
            fill(ballast, dice.choice([0, 5_000, 50_000, 300_000]))
            full.until_refused(address, dice)
            fill(ballast, 0)
            full.while_full(address)
            if number % 4 == 0:  # killed and started without room
                process.kill()
                fill(ballast, 0)
                process, address = full.start()
                full.verify(address)
                counts["kills and starts while full"] += 1
            ballast.unlink()
            full.recover(address)
            assert "Traceback" not in process.errors
            counts["times full"] += 1
        process.kill()
        process, address = full.start()
        full.verify(address)
        counts["events acknowledged"] = sum(event.acknowledged for events in full.log.sent.values() for event in events)
