"""The JSON that goes out over HTTP."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

Moment = Annotated[str, Meta(description="ISO 8601, UTC.", extra_json_schema={"format": "date-time"})]
When = Annotated[Moment | None, Meta(description="Null where the log knows an order but no clock.")]


ItemId = Annotated[str | int, Meta(description="In the type that it had in the log.")]
Title = Annotated[str | None, Meta(description="Null where it is not known.")]


class TakenEvent(Struct):
    """What was done with an event, and the time that it is stored under; of a duplicate, which is not stored again, the time just sent."""

    status: Literal["applied", "late", "duplicate", "unknown_item"]
    time: Moment
    time_corrected: bool


class TakenEvents(Struct):
    """What was done with each event, in order."""

    events: list[TakenEvent]


class Item(Struct):
    """A recommended item."""

    item: ItemId
    title: Title
    score: float
    basis: str


class Recommended(Struct):
    """Recommendations, best first, and what they rest on."""

    items: list[Item]
    basis: Literal["personal", "visit", "popular", "random"]
    model: str
    skipped: list[str]
    degraded: bool
    hide_seen: Annotated[bool, Meta(description="Whether items of the history were left out.")]
    seconds: dict[str, float]
    variety: Annotated[float, Meta(description="Where it was asked for: the least cosine distance between two of the items.")] | UnsetType = UNSET


class Similar(Struct):
    """The items most like one, best first, as the model sees it."""

    items: list[Item]


class ExplainedEvent(Struct):
    """One event: its attention in all, and how much lower the score is without it."""

    item: ItemId
    title: Title
    weight: float | None
    effect: float


class Explained(Struct):
    """Attention weights from oldest to newest, measured effects of the last events, and how far the two agree."""

    model: str
    item: ItemId
    title: Title
    score: float
    a_x: list[list[float]] | None
    a_h: list[float] | None
    events: list[ExplainedEvent]
    agreement: float | None
    verdict: str
    skipped: list[str]


class CatalogueItem(Struct):
    """An item: its name, how often it occurs in training, and what else the titles file said of it."""

    item: ItemId
    title: Title
    events: int
    fields: dict[str, str]


class FoundItems(Struct):
    """The best of the items found, how many there are in all, and how long the search took."""

    items: list[CatalogueItem]
    total: int
    seconds: float


class Step(Struct):
    """One event: the attention over the last inputs and the last hidden states when it came in, oldest to newest; null without that level."""

    item: ItemId
    title: Title
    time: When
    inputs: list[float] | None
    hidden: list[float] | None


class Attended(Struct):
    """The last steps that the model knows, oldest first."""

    model: str
    window_x: int
    window_h: int
    steps: list[Step]


class ModelCard(Struct):
    """A model by the name of its folder: what it is, and what its folder says about how it was made and measured."""

    name: str
    model: str
    title: str
    serving: bool
    items: int
    has_attention: bool
    hide_seen: bool
    config: dict[str, Any]
    data: dict[str, Any]
    protocol: dict[str, Any]
    metrics: dict[str, Any]
    yardsticks: dict[str, Any]


class Models(Struct):
    """The models that can be named, the one that answers by default first."""

    models: list[ModelCard]


class ListedUser(Struct):
    """A user, and how many events are kept."""

    user: str
    events: int


class Users(Struct):
    """Users in the order of their ids' bytes."""

    users: list[ListedUser]


class KeptEvent(Struct):
    """An event of the log."""

    item: ItemId
    time: When
    event_id: str | UnsetType = UNSET


class UserHistory(Struct):
    """The last events of a user, oldest first."""

    user: str
    events: list[KeptEvent]


class Forgotten(Struct):
    """How many events were removed."""

    forgotten: int


class Removed(Struct):
    """How many events were removed."""

    removed: int


class Swapped(Struct):
    """The model that answers from now on."""

    model: str
    title: str
    items: int


class BackedUp(Struct):
    """The backup that was written."""

    name: str


class Restored(Struct):
    """The backup that was restored, and how much the store holds now."""

    name: str
    users: int
    events: int


class Latency(Struct):
    """Percentiles of the last minute in milliseconds, null where nothing was asked."""

    p50: float | None
    p90: float | None
    p99: float | None


class Doing(Struct):
    """How the server is doing; what is about the store is about a second old."""

    uptime_s: float
    requests_per_second: float
    latency_ms: Latency
    in_flight: int
    refused: int
    errors: int
    users: int
    events: int
    store_bytes: int
    model: str
    title: str
    users_in_memory: int
    waiting_events: int
    waiting_asks: int


class Fine(Struct):
    """All is well."""

    status: str


class KnownItems(Struct):
    """How many of the items of the data, or of the model before, the model being served knows."""

    known: int
    items: int


class Ready(Struct):
    """Requests can be served; `catalog` says how well the model fits, null where there was nothing to compare it with."""

    status: str
    catalog: KnownItems | None


class Problem(Struct):
    """What is wrong, for a program and for a person."""

    code: str
    message: str


class Failure(Struct):
    """Every answer other than success."""

    error: Problem
