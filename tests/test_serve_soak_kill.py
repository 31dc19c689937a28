"""`kill -9` of the whole service under load: nothing acknowledged is lost, nothing counts twice, and answers are those of a plain replay."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from client_log import ClientLog
from hcarec.artefact import model_hash
from hcarec.recommendation import recommend
from hcarec.serve.stores.sqlite import SqliteStore
from live_models import models, saved
from load_clients import GONE, Connection, Shopper
from service_process import Process, Starter
from soak_counts import counting

MODELS = ["hca-gru", "other", "bpr"]
ITEMS = [*(f"i{n:02}" for n in range(12)), "unknown", "é/\n?"]
USERS_AT_ONCE, SHOPPERS, ARRIVED = 12, 3, 5
KINDS = {"load": 10, "start": 2, "backup": 2, "forget": 2, "retract": 2, "swap": 2, "stop": 2, "store": 2}
"""What is going on when the service is killed, and how often; `store`: only the process that writes the store is killed, then the rest."""
RECOVERY_S = 5.0


class Kills:
    """A store that outlives many services, and what clients know of it."""

    def __init__(self, starter: Starter, folder: Path, dice: random.Random, counts: Counter[str]) -> None:
        self.starter, self.folder, self.dice, self.counts = starter, folder, dice, counts
        self.store, self.backups = folder / "store.sqlite", folder / "backups"
        self.backups.mkdir()
        self.by_hash = {model_hash(saved(folder, name))[:12]: models()[name] for name in MODELS}
        self.log = ClientLog()
        self.leaving: dict[str, set[int]] = {}
        self.left: dict[str, set[int]] = {}
        self.backed_up: dict[str, tuple[bool, set[str]]] = {}
        self.start_s = 0.5

    def start(self, command: bool = False) -> tuple[Process, str]:
        """Start a service by any of the models."""
        name = self.dice.choice(MODELS)
        process = self.starter.start(self.folder / name, "--store", self.store, "--backups", self.backups, "--rate", 0, command=command)
        return process, name

    def round(self, number: int, kind: str, command: bool) -> None:
        """Start, check what is there, use it, and kill it in the middle of something."""
        begin = time.monotonic()
        process, name = self.start(command)
        if kind == "start":
            time.sleep(self.dice.uniform(0, self.start_s))
            self.counts["cut short: start"] += "Ctrl-C" not in process.said
            process.kill()
            return
        address = process.address()
        assert address is not None, process.errors
        self.start_s = time.monotonic() - begin if not command else self.start_s
        self.verify(address, name, self.log.touched)
        self.log.touched = set()
        users = [f"ü/{number + n}\n" for n in range(USERS_AT_ONCE)]
        seeds = [self.dice.randrange(1 << 30) for _ in range(SHOPPERS)]
        shoppers = [Shopper(address, self.log, [f"own {number} {seed}", *users], ITEMS, self.by_hash, seed) for seed in seeds]
        for shopper in shoppers:
            shopper.start()
        time.sleep(self.dice.uniform(0.02, 0.4 if kind == "load" else 0.1))
        beside = self.beside(kind, number, address)
        if kind == "stop":
            process.signal(signal.SIGTERM)
        time.sleep(self.dice.uniform(0, 0.01 if kind in ("forget", "retract") else 0.06))
        if kind == "store":
            self.kill_store(process, address)
        if self.dice.random() < 0.5:
            process.kill_helpers()
        process.kill()
        for thread in (*shoppers, *beside):
            thread.join(60)
        for shopper in shoppers:
            shopper.finish()
        assert "Traceback" not in process.errors, process.errors
        self.counts["requests"] += sum(shopper.requests for shopper in shoppers)
        self.counts["answers compared under load"] += sum(shopper.answers_compared for shopper in shoppers)
        if kind == "stop":
            self.counts["cut short: stop"] += process.code != 0

    def kill_store(self, process: Process, address: str) -> None:
        """Kill only the process that writes the store, and see the service go on by itself."""
        process.kill_helpers()
        end = time.monotonic() + RECOVERY_S
        with Connection(address) as connection:
            while connection.ask("POST", "/v1/events", {"user": "leaving-after the store", "item": "i01"})[0] != 200:
                assert time.monotonic() < end, "it did not come back"
                time.sleep(0.05)

    # -- what is done besides ------------------------------------------------------------------------------------

    def beside(self, kind: str, number: int, address: str) -> list[threading.Thread]:
        """Begin something in a thread of its own, and return when it is about to be asked for."""
        work = {"backup": self.backup, "forget": self.forget, "retract": self.retract, "swap": self.swap}.get(kind)
        if work is None:
            return []
        asking = threading.Event()
        thread = threading.Thread(target=work, args=(number, Connection(address), asking), daemon=True)
        thread.start()
        assert asking.wait(60)
        return [thread]

    def asked(self, kind: str, connection: Connection, *request: Any) -> bool:
        """Ask for something; say whether the answer came before the service died."""
        status: int | None = None
        with contextlib.suppress(*GONE):
            status, said = connection.ask(*request)
            assert status == 200, said
        connection.close()
        self.counts[f"cut short: {kind}"] += status is None
        return status is not None

    def backup(self, number: int, connection: Connection, asking: threading.Event) -> None:
        ids = {event.event_id for events in list(self.log.sent.values()) for event in list(events) if event.event_id and event.acknowledged}
        name = f"{number}.sqlite"
        asking.set()
        done = self.asked("backup", connection, "POST", "/admin/backup", {"name": name})
        self.backed_up[name] = done, {one for one in ids if one is not None}

    def forget(self, number: int, connection: Connection, asking: threading.Event) -> None:
        user = self.arrive(number, connection, left=0)
        asking.set()
        if self.asked("forget", connection, "DELETE", f"/v1/users/{user}"):
            self.leaving[user] = {0}

    def retract(self, number: int, connection: Connection, asking: threading.Event) -> None:
        user = self.arrive(number, connection, left=ARRIVED - 1)
        asking.set()
        if self.asked("retract", connection, "DELETE", f"/v1/users/{user}/events/2"):
            self.leaving[user] = {ARRIVED - 1}

    def arrive(self, number: int, connection: Connection, left: int) -> str:
        """Send events of a user who is about to leave, with some events or with `left`, and nothing in between."""
        user = f"leaving-{number}"
        status, said = connection.ask("POST", "/v1/events", [{"user": user, "item": ITEMS[n + 1], "event_id": str(n)} for n in range(ARRIVED)])
        assert status == 200, said
        self.leaving[user] = {left, ARRIVED}
        return user

    def swap(self, number: int, connection: Connection, asking: threading.Event) -> None:
        asking.set()
        self.asked("swap", connection, "POST", "/admin/model", {"name": MODELS[number % len(MODELS)]})

    # -- what must then be so ------------------------------------------------------------------------------------

    def verify(self, address: str, name: str, users: set[str]) -> None:
        """Compare what the service has and answers with what clients know and the model's replay gives."""
        with Connection(address) as connection:
            for user in sorted(users):
                kept = connection.kept(user)
                self.log.check(user, kept, self.counts)
                self.counts["events compared"] += len(kept)
                self.compare(connection, name, user, kept)
            for user, possible in self.leaving.items():
                kept = connection.kept(user)
                assert len(kept) in possible, user
                self.compare(connection, name, user, kept)
                self.left[user] = {len(kept)}
        self.leaving = {}
        for backup, (whole, ids) in self.backed_up.items():
            assert (self.backups / backup).exists() or not whole
            if (self.backups / backup).exists():
                self.check_backup(self.backups / backup, ids)
        self.backed_up.clear()

    def compare(self, connection: Connection, name: str, user: str, kept: list[dict[str, Any]]) -> None:
        """Compare recommendations with those of a replay."""
        for hide_seen in (False, True):
            status, said = connection.ask("POST", "/v1/recommend", {"user": user, "k": 20, "hide_seen": hide_seen})
            assert status == 200 and not said["degraded"], said
            right = recommend(models()[name], [event["item"] for event in kept], 20, hide_seen=hide_seen)
            assert [(one["item"], one["score"]) for one in said["items"]] == [(one.item, one.score) for one in right], user
        self.counts["users compared"] += 1

    def check_backup(self, path: Path, ids: set[str]) -> None:
        with contextlib.closing(SqliteStore(path)) as copy:
            copy.check()
            held = {event.event_id for user in copy.users(limit=100_000).users for event in copy.history(user).events}
        assert ids <= held
        for file in path.parent.glob(path.name + "*"):
            file.unlink()
        self.counts["backups compared"] += 1

    def finish(self) -> None:
        """Compare everything once more, over HTTP and then inside the file."""
        self.leaving = self.left | self.leaving
        halves = list(self.backups.glob(".*"))
        for half in halves:
            os.utime(half, (0, 0))
            wait_for_end(int(half.name.rpartition(".partial-")[2].partition("-")[0]))
        process, name = self.start()
        address = process.address()
        assert address is not None, process.errors
        assert not list(self.backups.glob(".*"))
        self.counts["halves of backups removed"] = len(halves)
        self.verify(address, name, set(self.log.sent))
        process.signal(signal.SIGTERM)
        assert process.wait() == 0
        events = [event for events in self.log.sent.values() for event in events]
        self.counts["events sent"], self.counts["events acknowledged"] = len(events), sum(event.acknowledged for event in events)
        self.counts["users"] = len(self.log.sent)
        with contextlib.closing(SqliteStore(self.store)) as store:
            checked = store.check()
            assert {user for user in store.users(limit=1_000_000).users if not user.startswith("leaving-")} <= set(self.log.sent)
        assert checked.damaged_states == 0
        self.counts["events kept"] = checked.events


def wait_for_end(pid: int) -> None:
    """Wait until a killed process is buried, which is the business of a process that we know nothing of."""
    end = time.monotonic() + 60
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.parametrize("kills", [pytest.param(8, id="some"), pytest.param(220, id="many", marks=pytest.mark.soak)])
def test_no_acknowledged_event_is_lost_or_counted_twice(tmp_path: Path, starter: Starter, kills: int) -> None:
    dice = random.Random(kills)
    with counting("kill", kills > 100) as counts:
        rounds = Kills(starter, tmp_path, dice, counts)
        kinds = list(KINDS) if kills < 10 else dice.choices(list(KINDS), list(KINDS.values()), k=kills)
        for number, kind in enumerate(kinds):
            rounds.round(number, kind, command=kills > 100 and number % 10 == 0)
            counts["kills"] += 1
            counts[f"kills during {kind}"] += 1
        rounds.finish()
        assert counts["events acknowledged"] > 10 * kills
