"""What is held in memory about users: the states of those seen last, and the model that made them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import NamedTuple

import numpy as np

from hcarec.serve.serving import NOTHING, Serving

MOST_ITEMS = 16_000_000
"""Items of all logs held in memory, at most: 64 MB. The log held longest ago is let go of first, and read again when it is needed."""


class Person(NamedTuple):
    """A user's log at a `version`, as a model sees it.

    `tail` are its last items (the bytes of 32-bit numbers, which take a tenth of the room of Python's), which `row` and `log` have yet to take in:
    `row` is the state after all others, None where no state is at hand or the model has none; `log` the others themselves, oldest first, as far as
    the model knows them, None where they are not at hand. `log_events` is how many of them `log` stands for: where only what was seen matters,
    it holds each item once. Version 0 stands for a user without a log.
    """

    version: int
    last_time: int | None
    row: bytes | None
    log: np.ndarray | None
    tail: bytes = b""
    log_events: int = 0

    def serves(self, stateful: bool, with_log: bool) -> bool:
        """Say whether this is enough to recommend by a model with states or without, which needs the log itself."""
        state, log = self.row is not None or not stateful, self.log is not None or (stateful and not with_log)
        return self.version == 0 or (state and log)

    @property
    def latest(self) -> np.ndarray:
        """The items of the tail, oldest first."""
        return np.frombuffer(self.tail, np.int32)

    @property
    def items(self) -> np.ndarray | None:
        """The known items of the whole log, oldest first, None where they are not at hand."""
        if self.log is None or not self.tail:
            return self.log
        return np.concatenate([self.log, self.latest])

    def settled(self, row: bytes | None) -> Person:
        """Return the same with nothing left to take in; `row` is the state then."""
        return Person(self.version, self.last_time, row, self.items, log_events=self.log_events + len(self.latest))


NOBODY = Person(0, None, None, NOTHING)


class People:
    """The users seen last under one model; one thread writes, any may read."""

    def __init__(self, serving: Serving, most: int) -> None:
        self.serving, self._most = serving, most
        self._held: OrderedDict[str, Person] = OrderedDict()
        self._logs: OrderedDict[str, int] = OrderedDict()
        self._items = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._held)

    def get(self, user: str) -> Person | None:
        """Return what is held about a user."""
        with self._lock:
            if (person := self._held.get(user)) is not None:
                self._held.move_to_end(user)
            return person

    def put(self, user: str, person: Person) -> None:
        """Hold on to a user, and let go of the one not seen for longest."""
        with self._lock:
            self._held[user] = person
            self._held.move_to_end(user)
            self._count(user, person)
            while self._items > MOST_ITEMS and len(self._logs) > 1:
                longest_ago = next(iter(self._logs))
                self._held[longest_ago] = without = self._held[longest_ago]._replace(log=None)
                self._count(longest_ago, without)
            if len(self._held) > self._most:
                self._count(self._held.popitem(last=False)[0], None)

    def _count(self, user: str, person: Person | None) -> None:
        """Count the items of the log that is held of a user from now on."""
        self._items -= self._logs.pop(user, 0)
        if person is not None and person.log is not None and len(person.log):
            self._logs[user] = len(person.log)
            self._items += len(person.log)

    def settle(self, user: str, to: Person) -> None:
        """Hold on to the state of a user that has taken in all events, unless there are newer ones."""
        with self._lock:
            held = self._held.get(user)
            if held is not None and held.version == to.version:
                self._held[user] = settled = held.settled(to.row)
                self._count(user, settled)

    def drop(self, user: str) -> None:
        """Let go of a user."""
        with self._lock:
            self._held.pop(user, None)
            self._count(user, None)

    def drop_logs(self) -> None:
        """Let go of all logs: the store keeps less of them now."""
        with self._lock:
            for user, person in self._held.items():
                self._held[user] = person._replace(log=None)
            self._logs.clear()
            self._items = 0
