"""What goes into the live service and what comes out of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from hcarec.errors import HcarecError
from hcarec.models.base import Recommendation

Status = Literal["applied", "late", "duplicate", "unknown_item"]
Basis = Literal["personal", "visit", "popular", "random"]


class NewEvent(NamedTuple):
    """An event as it comes in; `time` in microseconds since 1970, None for now."""

    user: str
    item: str
    time: int | None = None
    event_id: str | None = None


class Taken(NamedTuple):
    """What was done with an event.

    `applied`: the newest of its user, the state has taken one step. `late`: older than the newest, stored in its place by
    time, the state is replayed. `duplicate`: the user's log holds its `event_id` already, nothing was changed.
    `unknown_item`: stored, since a later model may know the item; this one's state does not move. `time` is the one it
    was stored under (would have been, for a duplicate); `time_corrected` says that this is not the one given, which lay
    in the future or before the year 2000.
    """

    status: Status
    time: int
    time_corrected: bool = False


class Ask(NamedTuple):
    """A wish for recommendations: by `user`, by a bare `history` of items, by the items of this `visit`, or two of them.

    A visit comes after what is known of the user or after the history; nothing of it is stored. `variety`, from 0 to 1, is
    the least cosine distance between any two items of the answer; where too few candidates keep it, those farthest from the
    others fill the answer up. `allow`, `deny` and `hide_seen` never shorten the answer either, unless too few items remain; `hide_seen` None follows
    the rule of the model. `model` names another model than the one being served.
    """

    user: str | None = None
    history: Sequence[str] | None = None
    visit: Sequence[str] = ()
    k: int = 20
    hide_seen: bool | None = None
    allow: Sequence[str] | None = None
    deny: Sequence[str] = ()
    variety: float = 0.0
    model: str | None = None


class Answer(NamedTuple):
    """Recommendations, best first.

    `basis`: `personal` (what is known of the user, or the history), `visit` (only this visit), `popular` (nothing known), or
    `random` for the model of that name. `model` is the beginning of the model's hash. `skipped` are the items of the ask
    that the model does not know. `seconds`: `state` (until the user's state was at hand), `queue` (waiting to be ranked), `rank`,
    `total`. `degraded` says that the store could not be asked in time, so that the answer rests on less than is known.
    `variety` is the least cosine distance between two items of the answer; None unless it was asked for and there are two. `hide_seen`
    says whether items of the history were left out.
    """

    items: list[Recommendation]
    basis: Basis
    model: str
    skipped: list[str]
    seconds: dict[str, float]
    degraded: bool = False
    variety: float | None = None
    hide_seen: bool = False


class ModelInfo(NamedTuple):
    """The model that answers: the beginning of its hash, its name, and how many items it knows."""

    model: str
    title: str
    items: int


class ModelCard(NamedTuple):
    """A model that can be named in an ask, as its folder describes it; `serving` says that it answers where none is named."""

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


class Overloaded(HcarecError):
    """More is waiting than can be served in good time; try again after `retry_after` seconds."""

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after
