"""The JSON that goes out over HTTP."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

Moment = Annotated[str, Meta(description="ISO 8601, UTC.", extra_json_schema={"format": "date-time"})]


class TakenEvent(Struct):
    """What was done with an event, and the time it was stored under."""

    status: Literal["applied", "late", "duplicate", "unknown_item"]
    time: Moment
    time_corrected: bool


class TakenEvents(Struct):
    """What was done with each event, in order."""

    events: list[TakenEvent]


class Item(Struct):
    """A recommended item."""

    item: str
    score: float
    basis: str
    title: str


class Recommended(Struct):
    """Recommendations, best first, and what they rest on."""

    items: list[Item]
    basis: Literal["personal", "visit", "popular", "random"]
    model: str
    skipped: list[str]
    degraded: bool
    seconds: dict[str, float]


class Similar(Struct):
    """Items by the cosine of their vectors."""

    items: list[Item]


class ExplainedEvent(Struct):
    """One event: its attention in all, and how much lower the score is without it."""

    item: str
    title: str
    weight: float | None
    effect: float


class Explained(Struct):
    """Attention weights from oldest to newest, measured effects of the last events, and how far the two agree."""

    model: str
    item: str
    title: str
    score: float
    a_x: list[list[float]] | None
    a_h: list[float] | None
    events: list[ExplainedEvent]
    agreement: float | None
    verdict: str
    skipped: list[str]


class KeptEvent(Struct):
    """An event of the log."""

    item: str
    time: Moment
    event_id: str | UnsetType = UNSET


class UserHistory(Struct):
    """The last events of a user, oldest first."""

    user: str
    events: list[KeptEvent]


class Forgotten(Struct):
    """How many events were removed."""

    forgotten: int


class Swapped(Struct):
    """The model that answers from now on."""

    model: str
    title: str
    items: int


class BackedUp(Struct):
    """The backup that was written."""

    name: str


class Fine(Struct):
    """All is well."""

    status: str


class Problem(Struct):
    """What is wrong, for a program and for a person."""

    code: str
    message: str


class Failure(Struct):
    """Every answer other than success."""

    error: Problem
