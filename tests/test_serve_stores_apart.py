"""The store in a process of its own: what is special about it; the rest is in the suite that all stores pass."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hcarec.serve.stores.apart import ApartStore
from hcarec.serve.stores.errors import StoreBusy, StoreError, StoreUnreachable
from hcarec.serve.stores.interface import Change, Event
from hcarec.serve.stores.sqlite import SqliteStore

ONE = [Change("u", 0, [Event(1, "x", "e")], "m", b"state")]


def test_what_is_wrong_at_the_start_is_said_here(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be opened"):
        ApartStore(tmp_path / "nowhere" / "store.db")
    held = SqliteStore(tmp_path / "store.db")
    with pytest.raises(StoreBusy, match="another process"):
        ApartStore(tmp_path / "store.db")
    held.close()


def test_a_writer_that_is_killed_is_noticed_and_started_again(tmp_path: Path) -> None:
    store = ApartStore(tmp_path / "store.db")
    assert store.commit(ONE) == [1]
    for version in (1, 2):
        os.kill(store._process.pid, signal.SIGKILL)
        with pytest.raises(StoreUnreachable, match="has ended"):
            store.history("u")
        assert len(store.history("u").events) == version
        assert store.commit([Change("u", version, [Event(version, "y")], "m", None)]) == [version + 1]
    store.close()


def test_a_writer_that_is_killed_during_a_backup_ends_it(tmp_path: Path) -> None:
    store = ApartStore(tmp_path / "store.db")
    store.commit(ONE)
    seen: list[str] = []

    def meanwhile(done: int, total: int) -> None:
        os.kill(store._process.pid, signal.SIGKILL)
        with pytest.raises(StoreUnreachable):
            store.history("u")
        seen.extend(event.item for event in store.history("u").events)

    with pytest.raises(StoreUnreachable):
        store.backup(tmp_path / "copy.db", meanwhile)
    assert seen == ["x"] and not (tmp_path / "copy.db").exists()
    assert store.commit([Change("u", 1, [Event(2, "y")], "m", None)]) == [2]
    store.close()


def test_the_writer_ends_with_its_parent(tmp_path: Path) -> None:
    program = (
        "import os, sys; from hcarec.serve.stores.apart import ApartStore; from hcarec.serve.stores.interface import Change, Event\n"
        "store = ApartStore(sys.argv[1]); store.commit([Change('u', 0, [Event(1, 'x')], 'm', None)])\n"
        "print(store._process.pid, flush=True); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", program, tmp_path / "store.db"], stdout=subprocess.PIPE, text=True)
    assert done.returncode == -signal.SIGKILL
    end = time.monotonic() + 30
    while Path(f"/proc/{int(done.stdout)}").exists() and time.monotonic() < end:
        time.sleep(0.02)
    store = SqliteStore(tmp_path / "store.db")
    assert len(store.history("u").events) == 1
    store.close()


def test_a_signal_for_the_service_does_not_end_the_writer_first(tmp_path: Path) -> None:
    store = ApartStore(tmp_path / "store.db")
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(store._process.pid, number)
    assert store.commit(ONE) == [1]
    store.close()
    assert store._process.returncode == 0


def test_a_call_given_up_in_the_middle_leaves_the_line_in_order(tmp_path: Path) -> None:
    store = ApartStore(tmp_path / "store.db")
    store.commit(ONE)

    def enough(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.backup(tmp_path / "copy.db", enough)
    assert not (tmp_path / "copy.db").exists()
    assert [event.item for event in store.history("u").events] == ["x"]
    store.close()
