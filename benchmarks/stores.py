"""Time the stores of the service: updates in groups, the import, opening, checking, backup and forgetting."""

from __future__ import annotations

import argparse
import itertools
import json
import random
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hcarec.serve.stores import open_store
from hcarec.serve.stores.interface import Change, Event, Rebuilt, Store, Wanted
from hcarec.serve.stores.sqlite import SqliteStore

from machine import describe

MODEL = "model"
STATE = 2800  # bytes of a state at d = 64 and windows of 5


def main() -> None:
    """Run, print a table and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--folder", type=Path, help="where the stores lie (default: the temporary folder)")
    parser.add_argument("--quick", action="store_true", help="2,000 users instead of 20,000")
    options = parser.parse_args()
    users = 2_000 if options.quick else 20_000
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        rows.append(measure("sqlite", lambda: SqliteStore(Path(folder) / "store.db"), users, Path(folder)))
        rows.append(without_sync(Path(folder) / "unsynced.db", users))
        server = start_server(Path(folder))
        if server is not None:
            rows.append(measure("redis", lambda: open_store(f"unix://{folder}/socket", timeout=60), users, Path(folder)))
            server.terminate()
            server.wait()
    for row in rows:
        print(f"\n{row['store']}")
        for name, value in row.items():
            if name != "store":
                print(f"  {name:54}{value:>14,.3f}")
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps({"machine": describe(), "rows": rows}, indent=1) + "\n")


def measure(name: str, opener: Callable[[], Store], users: int, folder: Path) -> dict[str, Any]:
    """Time everything on one store."""
    row: dict[str, Any] = {"store": name}
    store = opener()
    _, row["import, events/s"] = rate(lambda: store.seed("print", histories(users)))
    for group in (1, 16, 64):
        row |= update(store, users, group, rounds=50 if group == 1 else 40)
    _, row["all states for one model, users/s"] = rate(lambda: fill_states(store, users))
    row |= update(store, users, 64, rounds=40, label="with all states held, ")
    _, row["check, events/s"] = rate(lambda: store.check().events)
    _, backup = timed(lambda: store.backup(folder / f"{name}-copy.db"))
    size = store.figures().bytes
    row["store, MB"] = size / 1e6
    row["backup, s"] = backup
    _, row["forget without scrub, s"] = timed(lambda: store.forget("user 1", scrub=False))
    _, row["scrub, s"] = timed(lambda: store.forget("nobody"))  # all pieces that are left
    store.close()
    store, row["open, s"] = timed(opener)
    store.close()
    return row


def without_sync(path: Path, users: int) -> dict[str, Any]:
    """Time updates with the disk left out: what SQLite and Python take."""
    store = SqliteStore(path)
    store.seed("print", histories(users))
    store._db.execute("PRAGMA synchronous = OFF")
    row = {"store": "sqlite, not waiting for the disk", **update(store, users, 64, rounds=60)}
    row |= update(store, users, 64, rounds=60, label="states put later, ", state=False)
    store.close()
    return row


def update(store: Store, users: int, group: int, rounds: int, label: str = "", state: bool = True) -> dict[str, Any]:
    """Load and commit groups of one event each, for random users."""
    dice = random.Random(group)
    numbers = itertools.count()
    loads, commits = [], []
    for _ in range(rounds):
        chosen = dice.sample(range(users), group)
        ids = [f"{label}{group}-{next(numbers)}" for _ in chosen]
        loaded, seconds = timed(lambda: store.load([Wanted(f"user {n}", [event]) for n, event in zip(chosen, ids, strict=True)], MODEL))  # noqa: B023
        loads.append(seconds)
        changes = [
            Change(f"user {n}", each.version, [Event(10**15, f"item {n}", event)], MODEL, dice.randbytes(STATE) if state else None)
            for n, each, event in zip(chosen, loaded, ids, strict=True)
        ]
        versions, seconds = timed(lambda: store.commit(changes))  # noqa: B023
        commits.append(seconds)
        assert all(versions)
    both = sorted(a + b for a, b in zip(loads, commits, strict=True))
    return {
        f"{label}groups of {group}, events/s": group * rounds / sum(both),
        f"{label}groups of {group}, load, median ms": statistics.median(loads) * 1e3,
        f"{label}groups of {group}, commit, median ms": statistics.median(commits) * 1e3,
        f"{label}groups of {group}, both, worst ms": both[-1] * 1e3,
    }


def fill_states(store: Store, users: int) -> int:
    """Store a state for every user, as a rebuild in the background does."""
    after = None
    done = 0
    while True:
        page = store.users(after, 500)
        loaded = store.load([Wanted(user) for user in page.users], MODEL)
        store.put_states([Rebuilt(user, each.version, MODEL, random.randbytes(STATE)) for user, each in zip(page.users, loaded, strict=True)])
        done += len(page.users)
        if (after := page.after) is None:
            return done


def histories(users: int) -> Iterator[tuple[str, list[Event]]]:
    """Yield users of 40 events."""
    for user in range(users):
        yield f"user {user}", [Event(10**15 + n, f"item {(user * 7 + n * n) % 5000}") for n in range(40)]


def rate(work: Callable[[], int]) -> tuple[int, float]:
    """Return how many things some work did, and how many a second."""
    count, seconds = timed(work)
    return count, count / seconds


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """Return what some work gives and the seconds it took."""
    began = time.perf_counter()
    done = work()
    return done, time.perf_counter() - began


def start_server(folder: Path) -> subprocess.Popen[bytes] | None:
    """Start a durable Redis or Valkey server, where one is installed."""
    binary = shutil.which("valkey-server") or shutil.which("redis-server")
    if binary is None:
        return None
    options = ["--port", "0", "--unixsocket", str(folder / "socket"), "--dir", str(folder), "--save", "", "--appendonly", "yes", "--appendfsync", "always"]
    server = subprocess.Popen([binary, *options], stdout=subprocess.DEVNULL)
    while not (folder / "socket").exists():
        time.sleep(0.01)
    return server


if __name__ == "__main__":
    main()
