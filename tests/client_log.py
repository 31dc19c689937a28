"""What clients have sent and what they were told: held against what a service has kept."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any


@dataclass(eq=False)
class Sent:
    """An event as it was sent; `told` is the time of the answer that acknowledged it, "" for one that called it a duplicate."""

    user: str
    item: str
    time: str | None = None
    event_id: str | None = None
    told: str | None = None

    def json(self) -> dict[str, str]:
        """Return it as it goes over the wire."""
        given = {"user": self.user, "item": self.item, "time": self.time, "event_id": self.event_id}
        return {name: value for name, value in given.items() if value is not None}

    @property
    def acknowledged(self) -> bool:
        return self.told is not None


@dataclass
class ClientLog:
    """All events ever sent, by user; any thread may add to it. `doubtful` are those with an id of which it is not known whether they are stored."""

    sent: dict[str, list[Sent]] = field(default_factory=lambda: defaultdict(list))
    doubtful: list[Sent] = field(default_factory=list)
    touched: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def sending(self, events: list[Sent], again: bool = False) -> None:
        """Note events that are about to be sent, for the first time or again."""
        with self._lock:
            for event in events:
                if not again:
                    self.sent[event.user].append(event)
                self.touched.add(event.user)

    def answered(self, events: list[Sent], answers: list[dict[str, Any]]) -> None:
        """Note an acknowledgement, of events sent for the first time or again."""
        assert len(events) == len(answers)
        for event, answer in zip(events, answers, strict=True):
            duplicate = answer["status"] == "duplicate"
            assert not duplicate or event.event_id is not None
            if event.told is None:
                event.told = "" if duplicate else answer["time"]
            else:
                assert duplicate, f"{event} was acknowledged before and then stored again"

    def failed(self, events: list[Sent]) -> None:
        """Note that it is not known whether events were stored."""
        with self._lock:
            self.doubtful += [event for event in events if event.event_id is not None and not event.acknowledged]

    def take_doubtful(self) -> Sent | None:
        """Return an event to send again."""
        with self._lock:
            return self.doubtful.pop() if self.doubtful else None

    def an_old_one(self, user: str, number: int) -> Sent | None:
        """Return an acknowledged event of a user that has an id."""
        with self._lock:
            known = [event for event in self.sent[user][-20:] if event.event_id is not None and event.acknowledged]
        return known[number % len(known)] if known else None

    def check(self, user: str, kept: list[dict[str, Any]], counts: Counter[str]) -> None:
        """Compare, add to the counts, and fail where anything is lost or doubled."""
        found = self.compare(user, kept)
        counts["events lost"] += found["lost"]
        counts["events counted twice"] += found["doubled"]
        assert (found["lost"], found["doubled"]) == (0, 0), (user, found)

    def compare(self, user: str, kept: list[dict[str, Any]]) -> Counter[str]:
        """Count what is `lost` and what is `doubled` or was never sent, in what a service has kept of a user."""
        counts: Counter[str] = Counter(kept=len(kept))
        assert [event["time"] for event in kept] == sorted(event["time"] for event in kept)
        named = Counter(event["event_id"] for event in kept if "event_id" in event)
        at = {event["event_id"]: (event["item"], event["time"]) for event in kept if "event_id" in event}
        nameless = Counter((event["item"], event["time"]) for event in kept if "event_id" not in event)
        doubt: list[Sent] = []
        for event in self.sent[user]:
            counts["acknowledged"] += event.acknowledged
            if event.event_id is not None:
                found = named.pop(event.event_id, 0)
                counts["lost"] += event.acknowledged and not found
                counts["doubled"] += max(0, found - 1)
                if found:
                    item, time = at[event.event_id]
                    assert item == event.item
                    assert time == (event.told or event.time or time)
            elif event.told is None:
                doubt.append(event)
            elif nameless[event.item, event.told]:
                nameless[event.item, event.told] -= 1
            else:
                counts["lost"] += 1
        # What is left came from events without an acknowledgement, each of them at most once; those of a given time first.
        for event in sorted(doubt, key=lambda event: event.time is None):
            fitting = [(item, time) for (item, time), left in nameless.items() if left and item == event.item and time == (event.time or time)]
            if fitting:
                nameless[fitting[0]] -= 1
        counts["doubled"] += sum(named.values()) + sum(nameless.values())
        return counts
