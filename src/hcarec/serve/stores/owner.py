"""The process that owns the file of an SQLite store, for a service in another process; see `apart`."""

from __future__ import annotations

import contextlib
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from hcarec.errors import HcarecError
from hcarec.serve.garbage import look_seldom
from hcarec.serve.stores import errors
from hcarec.serve.stores.interface import Change, Event, Rebuilt, Wanted
from hcarec.serve.stores.line import ALIVE, ALIVE_EVERY_S, Line, Message
from hcarec.serve.taking import Group, Taker

SETTLE_AFTER = 16
"""Calls after which the work that commits put off is done even if the next call waits already."""
ARGUMENTS: dict[str, Any] = {
    "load": tuple[list[Wanted], str],
    "commit": tuple[list[Change]],
    "put_states": tuple[list[Rebuilt]],
    "history": tuple[str, int | None, tuple[int, int] | None],
    "users": tuple[str | None, int],
    "without_state": tuple[str, str | None, int],
    "drop_states": tuple[list[str], int],
    "retract": tuple[str, str],
    "forget": tuple[str, bool],
    "seed": tuple[str, bool],
    "retain": tuple[int | None, int | None, str | None, int],
    "backup": tuple[str],
    "restore": tuple[str],
    "take": tuple[Group],
}
_histories = msgspec.msgpack.Decoder(list[tuple[str, list[Event]]])


class Owner:
    """Answers calls about one store, which come over two lines: one of them is for events alone, and nothing is asked over both at once."""

    def __init__(self, line: Line, events: Line, path: str, verify: bool, history_limit: int | None) -> None:
        from hcarec.serve.stores.sqlite import SqliteStore

        self._line, self._lines = line, {one.fileno(): one for one in (line, events)}
        self._readable = select.poll()
        for number in self._lines:
            self._readable.register(number, select.POLLIN)
        self._store: Any = None
        self._sending = threading.Lock()
        self._busy: Line | None = None
        threading.Thread(target=self._say_alive, name="alive", daemon=True).start()
        self._answer(line, lambda: SqliteStore(path, verify, history_limit=history_limit), "open")
        self._taker = Taker(self._store) if self._store is not None else None

    def serve(self) -> None:
        """Answer calls until the other side hangs up."""
        busy = 0
        try:
            while self._store is not None:
                for number, _ in self._readable.poll():
                    line = self._lines[number]
                    self._take(line, line.receive())
                busy = busy + 1 if self._readable.poll(0) else 0
                if busy % SETTLE_AFTER == 0:
                    with contextlib.suppress(errors.StoreError):  # no room, say: it can wait, and the next who writes is told
                        self._store.settle()
        except (EOFError, OSError):
            pass
        finally:
            if self._store is not None:
                self._store.close()

    def _take(self, line: Line, message: Message) -> None:
        name = message.kind
        arguments = msgspec.msgpack.decode(message.value, type=ARGUMENTS.get(name, tuple[()]))
        more: dict[str, Any] = {}
        of = self._taker if name in ("take", "forget", "restore") else self._store
        if name == "seed":
            arguments = arguments[0], self._histories(), arguments[1]
        elif name in ("backup", "restore", "check"):
            more["progress"] = lambda done, total: self._ask((done, total))
        self._answer(line, lambda: getattr(of, name)(*arguments, **more), name)

    def _answer(self, line: Line, work: Callable[[], Any], name: str) -> None:
        before, self._busy = self._busy, line
        try:
            found = work()
            kind = "result"
            if name == "open":
                self._store, found = found, None
        except HcarecError as error:
            kind, found = type(error).__name__, str(error)
        with self._sending:
            self._busy = before  # a call made while another asks is over, the other is not
            line.send(kind, found)

    def _say_alive(self) -> None:
        """Tell the other side, again and again, that a call is being worked on: who is silent for long has been stopped, and is ended and started anew."""
        while True:
            time.sleep(ALIVE_EVERY_S)
            with self._sending, contextlib.suppress(OSError):
                if self._busy is not None:
                    self._busy.send(ALIVE)

    def _ask(self, value: Any) -> msgspec.Raw:
        """Ask the other side, which may call before it answers."""
        with self._sending:
            self._line.send("question", value)
        while (message := self._line.receive()).kind != "answer":
            if message.kind == "abort":
                raise errors.StoreError("given up")
            self._take(self._line, message)
        return message.value

    def _histories(self) -> Iterator[tuple[str, list[Event]]]:
        while part := _histories.decode(self._ask(None)):
            yield from part


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):  # meant for the service, which says when it is time to end
        signal.signal(number, signal.SIG_IGN)
    given = [Line(socket.socket(fileno=int(number))) for number in sys.argv[1:3]]
    owner = Owner(given[0], given[1], sys.argv[3], sys.argv[4] == "1", int(sys.argv[5]) or None)
    look_seldom()
    owner.serve()
