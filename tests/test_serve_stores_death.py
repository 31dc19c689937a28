"""Sudden death of who writes an SQLite store, and a WAL that is gone or changed afterwards."""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from hcarec.serve.stores.errors import StoreDamaged
from hcarec.serve.stores.interface import Wanted
from hcarec.serve.stores.sqlite import SqliteStore
from soak_counts import counting


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


CHILD = """
import os, random, sys
from hcarec.serve.stores.interface import Change, Event, Wanted
from hcarec.serve.stores.sqlite import SqliteStore
path, round, pages = sys.argv[1], sys.argv[2], int(sys.argv[3])
store = SqliteStore(path, checkpoint_pages=pages)
random.seed(round)
os.write(1, b"ready\\n")
for n in range(100000):
    users = random.sample(range(50), 5)
    loaded = store.load([Wanted(f"u{u}") for u in users], "m")
    events = [[Event(random.randrange(100), "x", f"{round}-{n}-{u}")] for u in users]
    assert all(store.commit([Change(f"u{u}", l.version, e, "m", b"%d" % (l.n_events + 1)) for u, l, e in zip(users, loaded, events)]))
    os.write(1, "".join(f"{u} {round}-{n}-{u}\\n" for u in users).encode())
"""


def killed(path: Path, round: int, dice: random.Random, checkpoint_pages: int) -> list[tuple[str, str]]:
    """Run a writer, kill it at a random moment, and return the (user, event id) that it had acknowledged."""
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(path), str(round), str(checkpoint_pages)], stdout=subprocess.PIPE)
    assert child.stdout is not None and child.stdout.readline() == b"ready\n"
    time.sleep(dice.random() * 0.1)
    child.send_signal(signal.SIGKILL)
    out = child.stdout.read().decode()
    child.stdout.close()
    child.wait()
    lines = out[: out.rfind("\n") + 1].splitlines()
    return [(f"u{line.split()[0]}", line.split()[1]) for line in lines]


@pytest.mark.parametrize("rounds", [pytest.param(5, id="some"), pytest.param(150, id="many", marks=pytest.mark.soak)])
def test_no_acknowledged_event_is_lost_or_doubled_by_kill_9(path: Path, rounds: int) -> None:
    with counting("store_kill", rounds > 100) as counts:
        counts["kills"], counts["events acknowledged"] = rounds, after_kills(path, rounds)
        assert counts["events acknowledged"] > 10 * rounds


def after_kills(path: Path, rounds: int) -> int:
    dice = random.Random(rounds)
    acknowledged: list[tuple[str, str]] = []
    for round in range(rounds):
        acknowledged += killed(path, round, dice, dice.choice([10, 1000]))
        store = SqliteStore(path)
        store.check()
        logs = {user: [event.event_id for event in store.history(user).events] for user in store.users().users}
        for user, loaded in zip(logs, store.load([Wanted(user) for user in logs], "m"), strict=True):
            assert loaded.state == str(len(logs[user])).encode(), "state and log are of one transaction"
            assert len(logs[user]) == len(set(logs[user]))
        store.close()
        held = {(user, event_id) for user, ids in logs.items() for event_id in ids}
        assert held >= set(acknowledged)
    return len(acknowledged)


def test_a_lost_or_damaged_wal_is_said(path: Path, tmp_path: Path) -> None:
    dice = random.Random(3)
    for round in range(5):
        acknowledged = killed(path, round, dice, 100_000)
        wal = path.with_name(path.name + "-wal")
        if acknowledged and wal.stat().st_size > 20_000:
            break
        SqliteStore(path).close()
    else:
        pytest.fail("no run left a WAL behind")
    content = wal.read_bytes()
    wal.unlink()
    with pytest.raises(StoreDamaged, match="lost acknowledged"):
        SqliteStore(path, verify=False)
    outcomes: Counter[str] = Counter()
    database = path.read_bytes()
    for _ in range(10):
        path.write_bytes(database)
        changed = bytearray(content)
        changed[dice.randrange(len(changed))] ^= 1 << dice.randrange(8)
        wal.write_bytes(changed)
        try:
            with contextlib.closing(SqliteStore(path)) as store:
                for user, event_id in acknowledged:
                    assert store.load([Wanted(user, [event_id])], "m")[0].duplicates == {event_id}
                outcomes["right"] += 1
        except StoreDamaged:
            outcomes["said"] += 1
    assert outcomes["said"], outcomes
