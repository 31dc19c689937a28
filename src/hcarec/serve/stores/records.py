"""What both stores write: ids as bytes, checksums over fields, and the checks of what comes in."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from zlib import crc32

from hcarec.errors import InputError
from hcarec.serve.stores.interface import Event

LONGEST_ID = 512
_EVENT = struct.Struct("<qqqii")


def encode(kind: str, text: str) -> bytes:
    """Return an id as UTF-8, or fail with a word on which kind of id is wrong."""
    try:
        encoded = text.encode()
    except UnicodeEncodeError:
        raise InputError(f"{kind} id is not valid unicode (it holds a lone surrogate): give text that UTF-8 can hold") from None
    if not 1 <= len(encoded) <= LONGEST_ID:
        raise InputError(f"{kind} id has {len(encoded)} bytes of UTF-8, expected 1 to {LONGEST_ID}: give another id")
    return encoded


def check_time(time: int) -> int:
    """Return a time if a store can hold it."""
    if not -(1 << 63) <= time < 1 << 63:
        raise InputError(f"time {time} does not fit into 64 bits: give microseconds since 1970")
    return time


def encode_events(events: Sequence[Event]) -> list[tuple[int, bytes, bytes | None]]:
    """Return new events as (time, item, event id), checked."""
    encoded = []
    for time, item, event_id, _ in events:
        encoded.append((check_time(time), encode("item", item), None if event_id is None else encode("event", event_id)))
    ids = [event_id for _, _, event_id in encoded if event_id is not None]
    if len(ids) != len(set(ids)):
        raise InputError("an event id occurs twice in one change: leave out the second event")
    return encoded


def decode_event(time: int, arrival: int, item: bytes, event_id: bytes | None) -> Event:
    """Return an event as it is given out."""
    return Event(time, item.decode(), None if event_id is None else event_id.decode(), arrival)


def event_checksum(owner: int, time: int, arrival: int, item: bytes, event_id: bytes | None) -> int:
    """Return the checksum of an event, or -1 if the fields cannot have been written by us."""
    try:
        if event_id is None:
            return crc32(_EVENT.pack(owner, time, arrival, len(item), -1) + item)
        return crc32(_EVENT.pack(owner, time, arrival, len(item), len(event_id)) + item + event_id)
    except (struct.error, TypeError):
        return -1


def checksum(numbers: Sequence[int], *texts: bytes) -> int:
    """Return the checksum of a row, or -1 if the fields cannot have been written by us."""
    try:
        fields = [*numbers, *map(len, texts)]
        return crc32(b"".join((struct.pack(f"<{len(fields)}q", *fields), *texts)))
    except (struct.error, TypeError):
        return -1


def latest(histories: Iterable[tuple[str, Sequence[Event]]], limit: int | None) -> Iterator[tuple[str, Sequence[Event]]]:
    """Yield histories of which no more than the last events are kept."""
    for user, events in histories:
        yield user, events if limit is None else events[-limit:]
