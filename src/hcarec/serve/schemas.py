"""The JSON that comes in over HTTP, with its limits; the OpenAPI document is made from it and from `answers`."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from hcarec.errors import InputError
from hcarec.serve.messages import Ask, NewEvent

ID_BYTES = 512
MOST_EVENTS, MOST_K, MOST_ITEMS, MOST_LISTED, MOST_TYPED = 1000, 1000, 2000, 10_000, 200
"""Events in a request; items in an answer; items of a history or a visit; items in an allow-list or a deny-list, or events of a history read back;
characters of a search."""

Text = Annotated[str, Meta(min_length=1, max_length=ID_BYTES, description=f"Any text of at most {ID_BYTES} bytes of UTF-8.")]
Whole = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1, description='The same as its text: 17850 is the id "17850".')]
# To JSON 17850.0 is as whole a number as 17850, as far as it is written exactly.
Id = Text | Whole | Annotated[float, Meta(ge=-(2**53), le=2**53, multiple_of=1)]
Items = Annotated[list[Id], Meta(max_length=MOST_ITEMS)]
Listed = Annotated[list[Id], Meta(max_length=MOST_LISTED)]
ModelName = Annotated[str, Meta(min_length=1, max_length=ID_BYTES, description="One of /v1/models; by default the one being served.")]
# To JSON 20.0 is as whole a number as 20.
Count = Annotated[int, Meta(ge=1, le=MOST_K)] | Annotated[float, Meta(ge=1, le=MOST_K, multiple_of=1)]
Limit = Annotated[int, Meta(ge=1, le=MOST_LISTED)] | Annotated[float, Meta(ge=1, le=MOST_LISTED, multiple_of=1)]
NAME_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9._-]*$(?!\n)"
NAME_IN_WORDS = "of letters (a to z, A to Z), digits, `.`, `_` and `-`, the first of them neither `.` nor `-`"
Name = Annotated[str, Meta(min_length=1, max_length=128, pattern=NAME_PATTERN)]
# Milliseconds, often sent by mistake, would be a date in the far future: hence the limit, in the year 5138.
_RANGE = Meta(gt=-(10**11), lt=10**11)
When = Annotated[datetime.datetime, Meta(tz=True)] | Annotated[int, _RANGE] | Annotated[float, _RANGE]


class Event(Struct, forbid_unknown_fields=True):
    """An event. Without a time it happens now; the same event_id of the same user counts once."""

    user: Id
    item: Id
    time: Annotated[When, Meta(description="ISO 8601 with a zone, or seconds since 1970.")] | UnsetType = UNSET
    event_id: Id | UnsetType = UNSET

    def message(self) -> NewEvent:
        """Return the event as the service takes it, who checks how many bytes its ids have."""
        time = None if self.time is UNSET else microseconds(self.time)
        return NewEvent(text(self.user), text(self.item), time, None if self.event_id is UNSET else text(self.event_id))


EventList = Annotated[list[Event], Meta(min_length=1, max_length=MOST_EVENTS)]


class Events(Struct, forbid_unknown_fields=True):
    """Several events."""

    events: EventList


class _Shape(Struct):
    events: msgspec.Raw | UnsetType = UNSET


class Wish(Struct, forbid_unknown_fields=True):
    """By `user`, by `history` (items, oldest first), or neither; then, as if they came after it, the items of this `visit`."""

    user: Id | UnsetType = UNSET
    history: Items | UnsetType = UNSET
    visit: Items = msgspec.field(default_factory=list)
    k: Count = 20
    hide_seen: Annotated[bool | None, Meta(description="Leave out items of the history; null, the default, is the rule the model was trained with.")] = None
    allow: Listed | UnsetType = UNSET
    deny: Listed = msgspec.field(default_factory=list)
    variety: Annotated[float, Meta(ge=0, le=1, description="The least cosine distance between two items; the answer says how near it came.")] = 0.0
    model: ModelName | UnsetType = UNSET

    def message(self) -> Ask:
        """Return the wish as the service takes it."""
        allow, deny = _listed("allow", self.allow), _checked("deny", self.deny)
        return Ask(*_whose(self.user, self.history, self.visit), int(self.k), self.hide_seen, allow, deny, self.variety, self.model or None)


class Question(Struct, forbid_unknown_fields=True):
    """Why `item`, or else the best item, is recommended; by `user`, `history` and `visit` as in a wish."""

    user: Id | UnsetType = UNSET
    history: Items | UnsetType = UNSET
    visit: Items = msgspec.field(default_factory=list)
    item: Id | UnsetType = UNSET
    model: ModelName | UnsetType = UNSET

    def message(self) -> Ask:
        """Return whose recommendation it is about."""
        return Ask(*_whose(self.user, self.history, self.visit), 1, model=self.model or None)


class Look(Struct, forbid_unknown_fields=True):
    """What the attention was on at each of the `last` steps; by `user`, `history` and `visit` as in a wish."""

    user: Id | UnsetType = UNSET
    history: Items | UnsetType = UNSET
    visit: Items = msgspec.field(default_factory=list)
    last: Count = 30
    model: ModelName | UnsetType = UNSET

    def message(self) -> Ask:
        """Return whose steps are looked at."""
        return Ask(*_whose(self.user, self.history, self.visit), 1, model=self.model or None)


class Named(Struct, forbid_unknown_fields=True):
    """A model folder, or a backup, by the name that it has in its folder on the server."""

    name: Name


class Swap(Named, forbid_unknown_fields=True):
    """A model folder by its name."""

    allow_mismatch: Annotated[bool, Meta(description="Take it even if it knows less than half of the items known so far.")] = False


class SimilarQuery(Struct, forbid_unknown_fields=True):
    """How many similar items."""

    k: Count = 20


class ItemsQuery(Struct, forbid_unknown_fields=True):
    """Words of a name, or an id; how many items."""

    q: Annotated[str, Meta(max_length=MOST_TYPED, description="Words of a name, or an id; empty for the most frequent items.")] = ""
    limit: Count = 20


class UsersQuery(Struct, forbid_unknown_fields=True):
    """The beginning of ids; how many users."""

    q: Annotated[str, Meta(max_length=ID_BYTES, description="What the ids begin with.")] = ""
    limit: Count = 20


class HistoryQuery(Struct, forbid_unknown_fields=True):
    """How many of the last events."""

    limit: Limit = 100


# -- reading -----------------------------------------------------------------------------------------------------------

_shape, _event, _events = msgspec.json.Decoder(_Shape), msgspec.json.Decoder(Event), msgspec.json.Decoder(Events)
_list: msgspec.json.Decoder[list[Event]] = msgspec.json.Decoder(EventList)


def read_events(body: bytes) -> list[Event]:
    """Read one event, a list of them, or an object that holds such a list."""
    first = body[:1] if body[:1] in (b"[", b"{") else body.lstrip()[:1]
    if first == b"[":
        return _list.decode(body)
    # To look for the name is quicker than to decode twice; a name may be written with escapes.
    if (b'"events"' in body or b"\\" in body) and _shape.decode(body).events is not UNSET:
        return _events.decode(body).events
    return [_event.decode(body)]


def microseconds(when: datetime.datetime | float) -> int:
    """Return a time in microseconds since 1970."""
    if isinstance(when, datetime.datetime):
        return (when - _EPOCH) // datetime.timedelta(microseconds=1)
    return when * 1_000_000 if isinstance(when, int) else round(when * 1_000_000)


_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def text(given: str | float) -> str:
    """Return an id as the text that it is kept as."""
    return given if isinstance(given, str) else str(int(given))


def check_id(what: str, given: str) -> str:
    """Refuse an id that is too long for the store; its length in characters has been checked."""
    if (len(given) > ID_BYTES // 4 and len(given.encode()) > ID_BYTES) or not given:
        raise InputError(f"{what} has {len(given.encode())} bytes of UTF-8: give 1 to {ID_BYTES}")
    return given


def _checked(what: str, items: Sequence[str | float]) -> Sequence[str]:
    return [check_id(f"an item of {what}", text(item)) for item in items]


def _listed(what: str, items: Any) -> Sequence[str] | None:
    return None if items is UNSET else _checked(what, items)


def _whose(user: Any, history: Any, visit: Sequence[str | float]) -> tuple[str | None, Sequence[str] | None, Sequence[str]]:
    if user is not UNSET and history is not UNSET:
        raise InputError("user and history are both given: give one of them, and the items of this visit as visit")
    return None if user is UNSET else check_id("user", text(user)), _listed("history", history), _checked("visit", visit)
