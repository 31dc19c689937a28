"""What is done with an event: which time it is stored under, and whether it is the newest, late, known already or unknown."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from hcarec.serve.messages import NewEvent, Status, Taken
from hcarec.serve.stores.interface import Event
from hcarec.serve.stores.records import encode

SECOND = 1_000_000
CLOCK = 10 * 365 * 86_400 * SECOND
"""Earlier times, ten years from 1970 on, are those of a log that knows an order or an unknown day, and no date."""
EARLIEST = 946_684_800 * SECOND
"""The beginning of the year 2000: no event of a running service is older, a clock that says so is not set."""


class Stamped(NamedTuple):
    """An event with the time that it is stored under; `corrected` if that is not the one given."""

    user: str
    item: str
    time: int
    event_id: str | None
    corrected: bool


class Plan(NamedTuple):
    """What some events do to a user's log: those to add, the items that the state steps over, and whether it must be replayed instead."""

    add: list[Event]
    step: list[int]
    replay: bool
    last_time: int | None
    taken: list[Taken]


def stamp(event: NewEvent, now: int, max_skew_s: float) -> Stamped:
    """Check an event's ids and give it its time; `now` in microseconds."""
    encode("user", event.user)
    encode("item", event.item)
    if event.event_id is not None:
        encode("event", event.event_id)
    if event.time is None:
        return Stamped(event.user, event.item, now, event.event_id, False)
    corrected = not EARLIEST <= event.time <= now + max_skew_s * SECOND
    return Stamped(event.user, event.item, now if corrected else event.time, event.event_id, corrected)


def by_user(events: Sequence[Stamped]) -> dict[str, list[Stamped]]:
    """Return the events of each user, in the order in which they came."""
    found: dict[str, list[Stamped]] = {}
    for event in events:
        found.setdefault(event.user, []).append(event)
    return found


def plan(events: Sequence[Stamped], last_time: int | None, duplicates: Collection[str], find: Callable[[str], int]) -> Plan:
    """Decide about some events of one user, in the order in which they came.

    `last_time` is the latest time of the log so far, `duplicates` are the event ids that it holds, `find` gives an item's index or -1.
    """
    add: list[Event] = []
    step: list[int] = []
    taken: list[Taken] = []
    held, replay = set(duplicates), False
    for event in events:
        if event.event_id is not None and event.event_id in held:
            taken.append(Taken("duplicate", event.time, event.corrected))
            continue
        if event.event_id is not None:
            held.add(event.event_id)
        item, status = find(event.item), _status(event, last_time)
        if item < 0:
            status = "unknown_item"
        elif status == "late":
            replay = True
        else:
            step.append(item)
        add.append(Event(event.time, event.item, event.event_id))
        taken.append(Taken(status, event.time, event.corrected))
        last_time = event.time if last_time is None else max(last_time, event.time)
    return Plan(add, step, replay, last_time, taken)


def _status(event: Stamped, last_time: int | None) -> Status:
    return "late" if last_time is not None and event.time < last_time else "applied"
