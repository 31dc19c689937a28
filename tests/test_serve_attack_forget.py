"""Users who are forgotten, with short logs and a very long one, while others send events: nothing of them is left, and nobody waits for it."""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hcarec.serve.stores.interface import Event
from hcarec.serve.stores.sqlite import SqliteStore
from live_models import saved
from load_clients import Connection
from service_process import Process, Starter
from soak_counts import counting

BEGIN = 1_600_000_000
FINGERPRINT = "made here"
ALONE_S = 15.0
GOAL_MS = 100
"""The longest that an event may wait."""


def stuff(path: Path, users: int, events: int, long: int) -> None:
    """Write a store with users of some events each, which take about 500 bytes apiece, and one user with very many."""
    draw = random.Random(1)

    def histories() -> Iterator[tuple[str, list[Event]]]:
        yield "long", [Event((BEGIN + n) * 10**6, f"secret-{n}", f"long-{n}") for n in range(long)]
        for user in range(users):
            first = BEGIN + draw.randrange(10**6)
            yield f"user {user}", [Event((first + n) * 10**6, f"item-{user}-" + "x" * 180, f"id-{user}-{n}-" + "y" * 160) for n in range(events)]

    with contextlib.closing(SqliteStore(path)) as store:
        store.seed(FINGERPRINT, histories())


def started(starter: Starter, folder: Path, *more: str | int) -> tuple[Process, str]:
    process = starter.start(saved(folder, "hca-gru"), "--store", folder / "store.sqlite", "--rate", 0, *more)
    address = process.address()
    assert address is not None, process.errors
    return process, address


def traces(connection: Connection) -> bool:
    """Ask whether anything is left of forgotten users."""
    connection._http.request("GET", "/metrics")
    text = connection._http.getresponse().read().decode()
    return next(line for line in text.splitlines() if line.startswith("hcarec_traces ")).split()[1] != "0.0"


def held(folder: Path, *words: str) -> list[str]:
    """Return those words that the files of the store hold."""
    names = [str(each) for each in folder.glob("store.sqlite*")]
    return [word for word in words if not subprocess.run(["grep", "-qF", "-e", word, *names]).returncode]


class Sender(threading.Thread):
    """Sends events of other users, one after the other, and keeps what each of them waited for, in milliseconds."""

    def __init__(self, address: str, users: int) -> None:
        super().__init__(daemon=True)
        self._connection, self._users = Connection(address), users
        self._dice = random.Random(2)
        self.stopping = threading.Event()
        self.took: list[float] = []
        self.refused: list[Any] = []
        self.not_ready: list[Any] = []

    def run(self) -> None:
        while not self.stopping.is_set():
            user = f"user {self._dice.randrange(self._users // 2)}"  # the other half is forgotten
            begin = time.perf_counter()
            status, said = self._connection.ask("POST", "/v1/events", {"user": user, "item": "i05"})
            self.took.append(1000 * (time.perf_counter() - begin))
            if status != 200:
                self.refused.append(said)
            if len(self.took) % 50 == 0:
                status, said = self._connection.ask("GET", "/readyz")
                if status != 200:
                    self.not_ready.append(said)
            time.sleep(0.001)

    def __enter__(self) -> Sender:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self.join()
        self._connection.close()


def forget_some(address: str, users: int, number: int) -> int:
    """Forget the long user and some others, until nothing is left of them; return how many events went."""
    gone = 0
    with Connection(address) as connection:
        for user in ["long", *(f"user {users - 1 - n}" for n in range(number))]:
            status, said = connection.ask("DELETE", f"/v1/users/{user.replace(' ', '%20')}")
            assert status == 200, said
            gone += said["forgotten"]
            assert connection.ask("GET", f"/v1/users/{user.replace(' ', '%20')}")[0] == 404
        time.sleep(1.5)  # figures are about a second old
        while traces(connection):
            time.sleep(0.25)
    return gone


def test_what_is_forgotten_in_pieces_is_gone_while_others_send_events(tmp_path: Path, starter: Starter) -> None:
    stuff(tmp_path / "store.sqlite", 100, 5, 4_000)
    _, address = started(starter, tmp_path, "--set", "history_limit=9000")
    assert held(tmp_path, "secret-3500", "item-99-", "item-1-") == ["secret-3500", "item-99-", "item-1-"]
    with Sender(address, 100) as sender:
        assert forget_some(address, 100, 3) == 4_000 + 3 * 5
    assert sender.took and not sender.refused and not sender.not_ready
    assert held(tmp_path, "secret-3500", "long-3500", "item-99-", "item-98-", "item-97-", "item-1-") == ["item-1-"]


def test_what_was_being_forgotten_goes_after_a_kill(tmp_path: Path, starter: Starter) -> None:
    stuff(tmp_path / "store.sqlite", 10, 5, 4_000)
    process, address = started(starter, tmp_path, "--set", "history_limit=9000")
    with Connection(address) as connection:
        assert connection.ask("DELETE", "/v1/users/long")[0] == 200
    process.kill()
    assert held(tmp_path, "secret-3999")
    _, address = started(starter, tmp_path, "--set", "history_limit=9000")
    with Connection(address) as connection:
        assert connection.ask("GET", "/v1/users/long")[0] == 404
        while traces(connection):
            time.sleep(0.1)
    assert not held(tmp_path, "secret-3999", "long-3999")


@pytest.mark.soak
@pytest.mark.alone
def test_no_event_waits_for_somebody_who_is_forgotten(tmp_path: Path, starter: Starter) -> None:
    users = 110_000
    with counting("forget", True) as counts:
        stuff(tmp_path / "store.sqlite", users, 12, 1_500_000)
        counts["MB"] = (tmp_path / "store.sqlite").stat().st_size // 10**6
        _, address = started(starter, tmp_path, "--set", "history_limit=2000000")
        with Sender(address, users) as alone:
            time.sleep(ALONE_S)
        begin = time.monotonic()
        with Sender(address, users) as meanwhile:
            counts["events forgotten"] = forget_some(address, users, 20)
        counts["seconds until nothing was left"] = round(time.monotonic() - begin)
        counts["users forgotten"] = 21
        counts["events of others"] = len(alone.took) + len(meanwhile.took)
        for name, sender in (("alone", alone), ("meanwhile", meanwhile)):
            counts[f"p99 {name}, us"] = round(1000 * float(np.percentile(sender.took, 99)))
            counts[f"longest wait {name}, ms"] = round(max(sender.took))
        print(json.dumps(counts))
        assert not alone.refused and not meanwhile.refused and not meanwhile.not_ready
        assert not held(tmp_path, "secret-", "long-", *(f"item-{users - 1 - n}-" for n in range(20)))
        assert counts["longest wait meanwhile, ms"] <= GOAL_MS
