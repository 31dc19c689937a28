"""What tests of the short way share: a server, what went that way, and a store that stands still."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hcarec.serve.short_way import ShortWay
from hcarec.serve.stores.sqlite_file import SqliteFile
from http_server import Running, small_model

EVENT = b'{"user":"u","item":"i01"}'


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("models"))


@pytest.fixture
def server(folder: Path, tmp_path: Path) -> Iterator[Running]:
    with Running(folder / "model", tmp_path / "store.sqlite") as running:
        yield running


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The bodies of all requests that went the short way."""
    bodies: list[bytes] = []
    before = ShortWay.__call__

    def noted(self: ShortWay, connection: Any, head: Any, body: bytes) -> None:
        bodies.append(body)
        before(self, connection, head, body)

    monkeypatch.setattr(ShortWay, "__call__", noted)
    return bodies


class Standing:
    """A store that stands still when it is told to; `reached` says that somebody waits for it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._go_on, self.reached, totals = threading.Event(), threading.Event(), SqliteFile.totals
        self._go_on.set()

        def slow(file: SqliteFile) -> Any:
            if not self._go_on.is_set():
                self.reached.set()
            self._go_on.wait(20)
            return totals(file)

        monkeypatch.setattr(SqliteFile, "totals", slow)

    def still(self) -> None:
        """Stand still, from the next transaction on."""
        self.reached.clear()
        self._go_on.clear()

    def go_on(self) -> None:
        """Go on."""
        self._go_on.set()


@pytest.fixture
def standing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Standing]:
    """A store in this process that can be made to stand still."""
    store = Standing(monkeypatch)
    yield store
    store.go_on()


def until(true: Callable[[], object]) -> None:
    """Wait for something."""
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.005)
