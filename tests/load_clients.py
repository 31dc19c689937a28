"""Clients that use a service as hard as they can until they are told to stop or it dies."""

from __future__ import annotations

import http.client
import itertools
import json
import random
import threading
import time
from collections.abc import Mapping
from typing import Any, Self
from urllib.parse import quote

from client_log import ClientLog, Sent
from hcarec.models import Model
from hcarec.recommendation import recommend

BEGIN = 1_600_000_000_000_000
_numbers = itertools.count()
"""For event ids and times: none is used twice."""


class Connection:
    """One connection to a service, speaking JSON."""

    def __init__(self, address: str, timeout: float = 60.0) -> None:
        self._http = http.client.HTTPConnection(address.removeprefix("http://"), timeout=timeout)

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Return status and answer; `OSError` or `HTTPException` where none came."""
        sent = None if body is None else json.dumps(body).encode()
        self._http.request(method, path, sent, {"Content-Type": "application/json"} if sent is not None else {})
        answer = self._http.getresponse()
        return answer.status, json.loads(answer.read())

    def kept(self, user: str) -> list[dict[str, Any]]:
        """Return what the service has kept of a user."""
        status, said = self.ask("GET", f"/v1/users/{quote(user, safe='')}?limit=10000")
        assert status in (200, 404), said
        return said["events"] if status == 200 else []

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


GONE = (OSError, http.client.HTTPException)
"""What a client sees of a service that was killed."""


class Shopper(threading.Thread):
    """A client with a connection of its own that sends events, alone and in batches, with ids and without, again, late, and asks in between.

    The first user is its own, to whom nobody else sends: each answer about it must be exactly what the model makes of the events
    acknowledged so far. `models` are given by the beginning of their hash.
    """

    def __init__(self, address: str, log: ClientLog, users: list[str], items: list[str], models: Mapping[str, Model], seed: int) -> None:
        super().__init__(daemon=True)
        self._connection, self._log, self._users, self._items, self._models = Connection(address), log, users, items, models
        self._dice = random.Random(seed)
        self.answers_compared = 0
        self.stopping = threading.Event()
        self.requests = self.refused = 0
        self.trouble: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.stopping.is_set():
                self._step()
        except GONE:
            pass
        except BaseException as error:
            self.trouble = error
        finally:
            self._connection.close()

    def finish(self) -> None:
        """Wait for the end, and fail if something else than the service's death was the reason."""
        self.stopping.set()
        self.join(90)
        assert not self.is_alive()
        if self.trouble is not None:
            raise self.trouble

    def _step(self) -> None:
        dice, what = self._dice, self._dice.random()
        if what < 0.5:
            return self._send([self._event()])
        if what < 0.7:
            return self._send([self._event() for _ in range(dice.randrange(2, 30))])
        if what < 0.8:
            old = self._log.take_doubtful() if dice.random() < 0.7 else self._log.an_old_one(dice.choice(self._users), dice.randrange(99))
            return self._send([old], again=True) if old is not None else None
        self._ask(dice.choice([self._users[0], *self._users]), dice.choice([1, 20]), dice.random() < 0.3)

    def _ask(self, user: str, k: int, hide_seen: bool) -> None:
        status, said = self._connection.ask("POST", "/v1/recommend", {"user": user, "k": k, "hide_seen": hide_seen})
        self._count(status)
        events = self._log.sent[user]
        if status == 200 and user == self._users[0] and not said["degraded"] and all(event.told for event in events):
            known = sorted(range(len(events)), key=lambda n: (events[n].told, n))
            right = recommend(self._models[said["model"]], [events[n].item for n in known], k, hide_seen=hide_seen)
            assert [(one["item"], one["score"]) for one in said["items"]] == [(one.item, one.score) for one in right]
            self.answers_compared += 1

    def _event(self) -> Sent:
        dice, number = self._dice, next(_numbers)
        when = None if dice.random() < 0.6 else BEGIN + (number if dice.random() < 0.5 else dice.randrange(10**15 // 8))
        written = None if when is None else time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(when // 10**6)) + f".{when % 10**6:06}Z"
        return Sent(dice.choice(self._users), dice.choice(self._items), written, f"e{number}" if dice.random() < 0.6 else None)

    def _send(self, events: list[Sent], again: bool = False) -> None:
        self._log.sending(events, again)
        answered = False
        try:
            one = len(events) == 1 and self._dice.random() < 0.5
            status, said = self._connection.ask("POST", "/v1/events", events[0].json() if one else [event.json() for event in events])
            self._count(status)
            if answered := status == 200:
                self._log.answered(events, said["events"])
        finally:
            if not answered:
                self._log.failed(events)

    def _count(self, status: int) -> None:
        self.requests += 1
        assert status in (200, 503), status
        self.refused += status == 503
