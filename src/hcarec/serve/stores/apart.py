"""An SQLite store in a process of its own.

In one process every statement takes turns with the threads that read requests, and waits for its turn again and again: under load that is most of
the time of a commit. Here a call is one message to a small process that owns the file, and its answer is one message back.

Messages are MessagePack with their length before them. The parent sends calls; the other side answers each with a result or an error, or
with a question (progress of a long call, more histories to import), on which the parent may make further calls before it answers it.
Events have a line of their own (`for_events`), over which a loop can send them without waiting; at most one of both lines may be in use at a time.
The process ends when its parent does, however that happens; the file is then as after a kill: whole, with everything acknowledged in it.
"""

from __future__ import annotations

import itertools
import os
import socket
import subprocess
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from hcarec.errors import InputError
from hcarec.processes import python_module
from hcarec.serve.stores import errors
from hcarec.serve.stores.interface import Change, Checked, Event, Figures, History, Loaded, Page, Progress, Rebuilt, Retained, Wanted
from hcarec.serve.stores.line import ALIVE, ALIVE_EVERY_S, Line, Message
from hcarec.serve.taking import Moved

SEND_BUFFER = 1 << 18
"""Bytes that a line for events is to hold, so that sending a group does not wait."""
SEED_USERS = 256
"""Histories sent at once."""
OWNER = "hcarec.serve.stores.owner"
RESULTS: dict[str, Any] = {
    "load": list[Loaded], "commit": list[int | None], "put_states": list[bool], "history": History, "users": Page, "without_state": Page,
    "seeded": dict[str, bool], "retain": Retained, "check": Checked, "figures": Figures, "take": list[Moved],
}  # fmt: skip
SILENCE = 5.0
"""A process that has said nothing for so many times the `timeout` while it owes an answer, not even that it is alive, is ended and started anew."""
LEAST_SILENCE_S = 4 * ALIVE_EVERY_S
"""No process is given up sooner, however short a timeout is set: one that works says so every half second."""
START_S = 60.0
"""How long a process may be silent that has just been started, and has everything to import."""
END_S = 5.0
"""How long a process may take to end."""
FAILURES = errors.KINDS | {InputError.__name__: InputError}


class ApartStore:
    """A store in an SQLite file, reached through a process of its own; see `interface` for what the methods promise.

    Where that process has ended, the call under way fails and the next one starts it anew.
    """

    exclusive = True
    _ended: object = None
    """The line for events, `events` at its time, of the last process that is known to have ended."""

    def __init__(self, path: str | Path, verify: bool = True, timeout: float = 2.0, history_limit: int | None = None) -> None:
        self._path, self._verify, self._history_limit, self.silence_s = os.path.abspath(path), verify, history_limit, max(SILENCE * timeout, LEAST_SILENCE_S)
        self.waiting_since: float | None = None
        """When the call under way, or its last step, began, None while there is none; any thread may ask."""
        self.heard_at = 0.0
        """When the process last said something about it, if only that it is alive."""
        self._start()

    def _start(self) -> None:
        mine, other = socket.socketpair()
        self.events, for_events = socket.socketpair()
        self.events.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        with other, for_events:
            passed = [other.fileno(), for_events.fileno()]
            command = python_module(OWNER, *map(str, passed), self._path, str(int(self._verify)), str(self._history_limit or 0))
            self._process = subprocess.Popen(command, pass_fds=passed, stdin=subprocess.DEVNULL, start_new_session=True)
        self._line = Line(mine)
        try:
            self._line.patience(max(self.silence_s, START_S))
            self._finish("open", None)
            self._line.patience(self.silence_s)
        except BaseException:
            self.lose(self.events)
            self.close()
            raise

    def _call(self, name: str, *arguments: Any, asked: Callable[[msgspec.Raw], Any] | None = None) -> Any:
        if self.lost:
            self.close()
            self._start()
        line = self._line
        self._begin_wait()
        try:
            self._send(line, name, arguments)
            return self._finish(name, asked)
        finally:
            self.waiting_since = None

    def _send(self, line: Line, name: str, arguments: Sequence[Any]) -> None:
        try:
            line.send(name, arguments)
        except UnicodeEncodeError:
            raise InputError("an id is not valid unicode (it holds a lone surrogate): give text that UTF-8 can hold") from None
        except OverflowError:
            raise InputError("a number does not fit into 64 bits: give times in microseconds since 1970") from None
        except OSError:
            raise self._gone(line) from None

    def _begin_wait(self) -> None:
        self.waiting_since = self.heard_at = time.monotonic()

    def _finish(self, name: str, asked: Callable[[msgspec.Raw], Any] | None) -> Any:
        """Wait for the end of a call, and answer the questions that come before it."""
        line = self._line  # calls made by `asked` may have put another in its place
        while True:
            try:
                message = line.receive()
            except (OSError, EOFError):
                raise self._gone(line) from None
            self.heard_at = time.monotonic()
            if message.kind == ALIVE:
                continue
            if message.kind != "question":
                return result(name, message)
            assert asked is not None
            try:
                answer = asked(message.value)
            except BaseException:
                self._give_up(line)
                raise
            try:
                line.send("answer", answer)
                self._begin_wait()
            except OSError:
                raise self._gone(line) from None

    def _give_up(self, line: Line) -> None:
        """End a call in the middle: what it has not finished is undone."""
        try:
            line.send("abort")
            while (kind := line.receive().kind) in ("question", ALIVE):
                if kind == "question":
                    line.send("abort")
        except (OSError, EOFError):
            self._gone(line)

    def for_events(self) -> Line:
        """Return the line for events, which never waits, as one that the caller closes; `events` itself is not used but to know one process from another."""
        events = self.events.dup()
        events.setblocking(False)
        return Line(events)

    @property
    def lost(self) -> bool:
        """Whether the process is known to have ended; the next call starts it anew."""
        return self._ended is self.events

    def lose(self, events: object) -> errors.StoreUnreachable:
        """Note that the process has ended to which a line for events leads, and return the error that says so."""
        if events is self.events:
            self._ended = events
        return errors.StoreUnreachable(
            "the process that writes the store has ended or does not answer: it is started again; nothing that was acknowledged is lost"
        )

    def _gone(self, line: Line) -> errors.StoreUnreachable:
        return self.lose(self.events if line is self._line else None)

    def load(self, wanted: Sequence[Wanted], model: str) -> list[Loaded]:
        """Return, for every user wanted, in order, what the next event needs."""
        found: list[Loaded] = self._call("load", [Wanted(user, list(ids)) for user, ids in wanted], model)
        return found

    def commit(self, changes: Sequence[Change]) -> list[int | None]:
        """Make all changes in one durable transaction; return each user's new version, None where refused."""
        found: list[int | None] = self._call("commit", changes)
        return found

    def put_states(self, rebuilt: Sequence[Rebuilt]) -> list[bool]:
        """Store states for logs that are still at the given version; say for which that was so."""
        found: list[bool] = self._call("put_states", rebuilt)
        return found

    def settle(self) -> None:
        """Do nothing: the other process settles by itself while it has nothing to do."""

    def history(self, user: str, limit: int | None = None, before: tuple[int, int] | None = None) -> History:
        """Return a user's log, or its last `limit` events, or the last of those `before` a time and arrival."""
        found: History = self._call("history", user, limit, before)
        return found

    def users(self, after: str | None = None, limit: int = 1000) -> Page:
        """Return up to `limit` users that have a log."""
        found: Page = self._call("users", after, limit)
        return found

    def without_state(self, model: str, after: str | None = None, limit: int = 1000) -> Page:
        """Look at up to `limit` users; return those that have events and no current state for a model."""
        found: Page = self._call("without_state", model, after, limit)
        return found

    def drop_states(self, keep: Collection[str], limit: int = 1000) -> int:
        """Remove about `limit` states of models other than those to keep; return how many."""
        return int(self._call("drop_states", list(keep), limit))

    def retract(self, user: str, event_id: str) -> int:
        """Remove one event of a user durably, by its id; return how many went."""
        return int(self._call("retract", user, event_id))

    def forget(self, user: str, scrub: bool = True) -> int:
        """Remove a user wholly and durably; return how many events went."""
        return int(self._call("forget", user, scrub))

    def scrub(self) -> float | None:
        """Remove a piece of what is left of forgotten users; return the seconds to wait for the next one, None when nothing is left."""
        seconds: float | None = self._call("scrub")
        return seconds

    def seed(self, fingerprint: str, histories: Iterable[tuple[str, Sequence[Event]]], again: bool = False) -> int:
        """Import the histories of a data set, once; return how many events were added."""
        rest = iter(histories)
        return int(self._call("seed", fingerprint, again, asked=lambda _: list(itertools.islice(rest, SEED_USERS))))

    def seeded(self) -> dict[str, bool]:
        """Return the fingerprints of the data sets imported, and whether each import has finished."""
        found: dict[str, bool] = self._call("seeded")
        return found

    def retain(self, last: int | None = None, since: int | None = None, after: str | None = None, limit: int = 1000) -> Retained:
        """Let go of events beyond the `last` ones of a user and those before the time `since`, for a page of users."""
        found: Retained = self._call("retain", last, since, after, limit)
        return found

    def backup(self, target: str | Path, progress: Progress | None = None) -> None:
        """Write a copy to a file while the store is in use."""
        self._call("backup", os.path.abspath(target), asked=_telling(progress))

    def restore(self, source: str | Path, progress: Progress | None = None) -> None:
        """Put a backup in the place of everything that the store holds, while it is in use."""
        self._call("restore", os.path.abspath(source), asked=_telling(progress))

    def check(self, progress: Progress | None = None) -> Checked:
        """Read everything, compare all checksums, and raise `StoreDamaged` where they differ."""
        found: Checked = self._call("check", asked=_telling(progress))
        return found

    def figures(self) -> Figures:
        """Return the size of the store, quickly."""
        found: Figures = self._call("figures")
        return found

    def close(self) -> None:
        """Hang up, and wait until the file is free."""
        if self.lost:  # one that can no longer be talked to need not have ended
            self._process.kill()
        self._line.close()
        self.events.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:  # stopped, or waiting for the disk; what was acknowledged is on it
            self.abandon()

    def abandon(self) -> None:
        """End the process at once, whatever it is doing; any thread may ask for that."""
        self._process.kill()


def result(name: str, message: Message) -> Any:
    """Return the result of a call, or raise its error."""
    if message.kind == "result":
        return msgspec.msgpack.decode(message.value, type=RESULTS.get(name, Any))
    raise FAILURES[message.kind](msgspec.msgpack.decode(message.value))


def _telling(progress: Progress | None) -> Callable[[msgspec.Raw], Any]:
    def asked(value: msgspec.Raw) -> None:
        done, total = msgspec.msgpack.decode(value, type=tuple[int, int])
        if progress is not None:
            progress(done, total)

    return asked
