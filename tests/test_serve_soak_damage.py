"""A store that was torn or changed on disk, under the whole service: it is said in a line, and no answer is ever wrong."""

from __future__ import annotations

import random
import shutil
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from live_models import saved
from load_clients import Connection
from service_process import Process, Starter
from soak_counts import counting

USERS = [f"u{n}" for n in range(12)]
PAGE = 4096


def flip(content: bytearray, dice: random.Random) -> None:
    content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)


def tear(content: bytearray, dice: random.Random) -> None:
    del content[dice.randrange(len(content)) :]


def tear_page(content: bytearray, dice: random.Random) -> None:
    """Keep the first half of a page, as a disk that stopped while it wrote."""
    start = dice.randrange(max(1, len(content) // PAGE)) * PAGE
    content[start + PAGE // 2 : start + PAGE] = bytes(len(content[start + PAGE // 2 : start + PAGE]))


def scramble(content: bytearray, dice: random.Random) -> None:
    start = dice.randrange(len(content))
    content[start : start + 64] = dice.randbytes(len(content[start : start + 64]))


def lose(content: bytearray, dice: random.Random) -> None:
    content.clear()


DAMAGE: list[Callable[[bytearray, random.Random], None]] = [flip, flip, flip, tear, tear_page, scramble, lose]


class Damaged:
    """Two stores with the same events, one closed and one left behind by a kill, and what is right."""

    def __init__(self, starter: Starter, folder: Path) -> None:
        self.starter, self.folder, self.model = starter, folder, saved(folder, "hca-gru")
        self.stores = {"closed": folder / "closed", "killed": folder / "killed"}
        self.right: dict[str, tuple[Any, Any]] = {}
        self.wrong = 0
        for name, place in self.stores.items():
            place.mkdir()
            process, address = self.start(place)
            assert address is not None, process.errors
            with Connection(address) as connection:
                for part in range(4):
                    when = 1_600_000_000 + part * 100
                    events = [{"user": user, "item": f"i{n + part:02}", "time": when + n, "event_id": f"{part}"} for n, user in enumerate(USERS)]
                    assert connection.ask("POST", "/v1/events", events * (2 if part == 3 else 1))[0] == 200
                self.right = {user: self.asked(connection, user) for user in USERS}
            if name == "closed":
                process.signal(signal.SIGTERM)
                process.wait()
            process.kill_all()

    def start(self, place: Path) -> tuple[Process, str | None]:
        process = self.starter.start(self.model, "--store", place / "store.sqlite")
        return process, process.address()

    def asked(self, connection: Connection, user: str) -> tuple[Any, Any]:
        """Return what is kept of a user and what is recommended, None in the place of what is refused or said to rest on less."""
        status, kept = connection.ask("GET", f"/v1/users/{user}")
        assert status == 200 or (status, kept["error"]["code"]) == (503, "store_unavailable"), kept
        status_of_answer, answer = connection.ask("POST", "/v1/recommend", {"user": user})
        assert status_of_answer == 200, answer
        items = None if answer["degraded"] else [(one["item"], one["score"]) for one in answer["items"]]
        return (kept["events"] if status == 200 else None), items

    def outcome(self, kind: str, damage: Callable[[bytearray, random.Random], None], dice: random.Random) -> str:
        """Damage a copy of a store, start a service on it, and see what becomes of it."""
        place = self.folder / "copy"
        shutil.copytree(self.stores[kind], place)
        file = dice.choice(sorted(path for path in place.iterdir() if not path.name.endswith("-shm")))
        content = bytearray(file.read_bytes())
        damage(content, dice)
        file.write_bytes(content)
        what = f"{damage.__name__} {file.name} ({kind})"
        process, address = self.start(place)
        try:
            return self.refused(process, what) if address is None else self.answers(process, address, what)
        finally:
            process.kill_all()
            shutil.rmtree(place)

    def refused(self, process: Process, what: str) -> str:
        assert process.wait() == 2, (what, process.errors)
        assert process.errors.count("\n") == 1 and process.errors.startswith("hcarec: the store "), (what, process.errors)
        assert process.said == ""
        return "said at the start"

    def answers(self, process: Process, address: str, what: str) -> str:
        said = False
        with Connection(address) as connection:
            for user in USERS:
                kept, items = self.asked(connection, user)
                right_kept, right_items = self.right[user]
                self.wrong += (kept not in (None, right_kept)) + (items not in (None, right_items))
                assert not self.wrong, (what, user)
                said |= kept is None or items is None
            status, answer = connection.ask("POST", "/v1/events", {"user": USERS[0], "item": "i01", "event_id": "0"})
            assert status == 503 or answer["events"][0]["status"] == "duplicate", what
        assert "Traceback" not in process.errors, (what, process.errors)
        return "said in an answer" if said else "nothing wrong"


@pytest.mark.parametrize("times", [pytest.param(4, id="some"), pytest.param(250, id="many", marks=pytest.mark.soak)])
def test_damage_is_said_and_never_served(tmp_path: Path, starter: Starter, times: int) -> None:
    dice = random.Random(times)
    with counting("damage", times > 100) as counts:
        damaged = Damaged(starter, tmp_path)
        outcomes: Counter[str] = Counter()
        for number in range(times):
            outcomes[damaged.outcome(("closed", "killed")[number % 2], DAMAGE[number % len(DAMAGE)], dice)] += 1
        assert outcomes["said at the start"], outcomes
        counts.update(outcomes)
        counts["stores damaged"], counts["wrong answers"] = times, damaged.wrong
