"""Answer requests: one function for each operation, from what was sent to what is sent back."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from hcarec.errors import DataError, HcarecError, InputError
from hcarec.models.base import Recommendation
from hcarec.serve import answers, schemas
from hcarec.serve.admission import Admission
from hcarec.serve.call import Call
from hcarec.serve.errors_http import Refusal
from hcarec.serve.keys import Keys
from hcarec.serve.lateness import Lateness
from hcarec.serve.limits import Limits, Rates
from hcarec.serve.logs import Log, iso
from hcarec.serve.messages import NewEvent, Taken
from hcarec.serve.metrics import Metrics
from hcarec.serve.page_files import INDEX, PageFile, read_page
from hcarec.serve.policy import CLOCK
from hcarec.serve.search import Item
from hcarec.serve.service import Service
from hcarec.serve.status import Recent
from hcarec.serve.stores.errors import StoreError, StoreUnreachable
from hcarec.serve.stores.interface import PAGE_EVENTS

WRITTEN_EVENTS, REST_S = 64, 0.001
"""Events of a history that are put into words at once, and the rest that follows where it is long, so that it takes a small part of the loop's time."""


@dataclass
class Site:
    """What answering needs; `models` and `backups` are the folders in which an admin names a model or a backup."""

    service: Service
    limits: Limits
    keys: Keys | None
    log: Log
    models: Path
    backups: Path | None = None
    asks: Admission = field(init=False)
    events: Admission = field(init=False)
    rates: Rates = field(init=False)
    metrics: Metrics = field(init=False)
    openapi: bytes = b"{}"
    page: dict[str, PageFile] = field(default_factory=read_page)
    recent: Recent = field(default_factory=Recent)
    late: Lateness = field(default_factory=Lateness)
    _keys_noted: str | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.rates = Rates(self.limits.rate)
        self.asks = Admission(self.limits.in_flight, self.limits.slow_ms / 1000)
        self.events = Admission(self.limits.in_flight, self.limits.slow_events_ms / 1000)
        self.metrics = Metrics(self.service.figures, {"asks": self.asks, "events": self.events}, self.late)

    def note_keys(self) -> None:
        """Write to the log when the file of keys can no longer be read, or can again."""
        trouble = None if self.keys is None else self.keys.trouble
        if trouble != self._keys_noted:
            self._keys_noted = trouble
            if trouble is None:
                self.log.line("keys read again")
            else:
                self.log.line("keys not read", error=trouble)

    def not_ready(self) -> str | None:
        """Return why requests cannot be served now, or None."""
        if self.keys is not None:
            unreadable = self.keys.unreadable()
            self.note_keys()
            if unreadable:
                return "the file of keys cannot be read, so no key is accepted"
        return self.service.ready()


class Text(NamedTuple):
    """An answer that is written already."""

    content: bytes
    kind: bytes
    headers: tuple[tuple[bytes, bytes], ...] = ()
    status: int = 200


_wish, _question = msgspec.json.Decoder(schemas.Wish), msgspec.json.Decoder(schemas.Question)
_look, _named = msgspec.json.Decoder(schemas.Look), msgspec.json.Decoder(schemas.Named)
_swap = msgspec.json.Decoder(schemas.Swap)


async def take(site: Site, call: Call, body: bytes) -> answers.TakenEvents:
    """Take in events."""
    return taken(await site.service.take(_events(body)))


def begin_take(site: Site, body: bytes, answer: Callable[[list[Taken] | Exception], None]) -> None:
    """Begin to take in events; `answer` will be told what was done with each, or why that failed."""
    site.service.begin_take(_events(body), answer)


def _events(body: bytes) -> list[NewEvent]:
    return [event.message() for event in schemas.read_events(body)]


def taken(events: Sequence[Taken]) -> answers.TakenEvents:
    """Return the answer about events that were taken in."""
    return answers.TakenEvents([answers.TakenEvent(one.status, iso(one.time), one.time_corrected) for one in events])


async def recommend(site: Site, call: Call, body: bytes) -> answers.Recommended:
    """Recommend."""
    answer = await site.service.recommend(_wish.decode(body).message())
    site.metrics.recommended(answer.basis, answer.degraded, answer.seconds)
    variety = msgspec.UNSET if answer.variety is None else answer.variety
    return answers.Recommended(_items(answer.items), answer.basis, answer.model, answer.skipped, answer.degraded, answer.hide_seen, answer.seconds, variety)


async def explain(site: Site, call: Call, body: bytes) -> Any:
    """Explain a recommendation."""
    question = _question.decode(body)
    item = None if question.item is msgspec.UNSET else schemas.check_id("item", schemas.text(question.item))
    explanation = await site.service.explain(question.message(), item)
    return msgspec.convert(explanation.as_dict(), answers.Explained)


async def attention(site: Site, call: Call, body: bytes) -> answers.Attended:
    """Show the attention at the last steps."""
    look = _look.decode(body)
    found = await site.service.attention(look.message(), int(look.last))
    steps = [answers.Step(one.item, one.title, _when(one.time), one.inputs, one.hidden) for one in found.steps]
    return answers.Attended(found.model, found.window_x, found.window_h, steps)


async def items(site: Site, call: Call, body: bytes) -> answers.FoundItems:
    """Find items."""
    query, began = call.query(schemas.ItemsQuery), time.perf_counter()
    found = await site.service.search(query.q, int(query.limit))
    return answers.FoundItems([_described(one) for one in found.items], found.total, time.perf_counter() - began)


async def item(site: Site, call: Call, body: bytes) -> answers.CatalogueItem:
    """Say what is known of an item."""
    try:
        return _described(site.service.item(call.id_in_path("item")))
    except DataError as error:
        raise Refusal(404, "not_found", str(error)) from None


async def models(site: Site, call: Call, body: bytes) -> answers.Models:
    """Describe the models."""
    return answers.Models([answers.ModelCard(*card) for card in site.service.models()])


async def similar(site: Site, call: Call, body: bytes) -> answers.Similar:
    """List similar items."""
    item, query = call.id_in_path("item"), call.query(schemas.SimilarQuery)
    try:
        return answers.Similar(_items(await site.service.similar(item, int(query.k))))
    except DataError as error:
        raise Refusal(404, "not_found", str(error)) from None


async def users(site: Site, call: Call, body: bytes) -> answers.Users:
    """List users."""
    query = call.query(schemas.UsersQuery)
    return answers.Users([answers.ListedUser(*one) for one in await site.service.users(query.q, int(query.limit))])


async def history(site: Site, call: Call, body: bytes) -> answers.UserHistory:
    """List a user's events."""
    user, query = call.id_in_path("user"), call.query(schemas.HistoryQuery)
    found = await site.service.history(user, int(query.limit))
    if not found.events:
        raise Refusal(404, "not_found", "there are no events of this user")
    kept: list[answers.KeptEvent] = []
    for first in range(0, len(found.events), WRITTEN_EVENTS):
        page = found.events[first : first + WRITTEN_EVENTS]
        kept += [answers.KeptEvent(site.service.outside(one.item), _when(one.time), msgspec.UNSET if one.event_id is None else one.event_id) for one in page]
        await asyncio.sleep(REST_S if first >= PAGE_EVENTS else 0)  # others are answered in between
    return answers.UserHistory(user, kept)


async def retract(site: Site, call: Call, body: bytes) -> answers.Removed:
    """Remove one event."""
    removed = await site.service.retract(call.id_in_path("user"), call.id_in_path("event_id"))
    if not removed:
        raise Refusal(404, "not_found", "this user has no event of this id")
    return answers.Removed(removed)


async def forget(site: Site, call: Call, body: bytes) -> answers.Forgotten:
    """Forget a user."""
    forgotten = await site.service.forget(call.id_in_path("user"))
    if not forgotten:
        raise Refusal(404, "not_found", "there are no events of this user")
    return answers.Forgotten(forgotten)


async def swap(site: Site, call: Call, body: bytes) -> answers.Swapped:
    """Answer with another model."""
    asked = _swap.decode(body)
    name = asked.name
    try:
        info = await site.service.swap(site.models / name, allow_mismatch=asked.allow_mismatch)
    except StoreError:
        raise
    except HcarecError as error:
        site.log.line("model refused", name=name, error=str(error))
        # What is wrong is said, where the models lie is not.
        raise Refusal(422, "refused", str(error).replace(str(site.models / name), name)) from None
    site.log.line("model swapped", name=name, model=info.model)
    return answers.Swapped(info.model, info.title, info.items)


async def backup(site: Site, call: Call, body: bytes) -> answers.BackedUp:
    """Back the store up."""
    name, target = _backup(site, body)
    await site.service.backup(target)
    site.log.line("backup written", name=name)
    return answers.BackedUp(name)


async def restore(site: Site, call: Call, body: bytes) -> answers.Restored:
    """Put a backup in the place of what the store holds."""
    name, source = _backup(site, body)
    try:
        found = await site.service.restore(source)
    except InputError as error:
        site.log.line("backup refused", name=name, error=str(error))
        raise Refusal(422, "refused", str(error).replace(str(source), name)) from None
    except StoreUnreachable as error:
        site.log.line("restore not known", name=name, error=str(error))
        raise Refusal(503, "store_unavailable", "it is not known whether the backup was restored: look at what there is before you ask again", 1) from None
    site.log.line("backup restored", name=name, users=found.users, events=found.events)
    return answers.Restored(name, found.users, found.events)


def _backup(site: Site, body: bytes) -> tuple[str, Path]:
    """Return the name of a backup, and its place."""
    name = _named.decode(body).name
    if site.backups is None:
        raise Refusal(422, "refused", "this server has no folder of backups: start it with --backups FOLDER")
    return name, Path(os.path.abspath(site.backups / name))


async def health(site: Site, call: Call, body: bytes) -> answers.Fine:
    """Say that the server runs."""
    return answers.Fine("ok")


async def ready(site: Site, call: Call, body: bytes) -> answers.Ready:
    """Say whether requests can be served."""
    reason = site.not_ready()
    if reason is not None:
        raise Refusal(503, "not_ready", reason, 1)
    fit = site.service.fit
    return answers.Ready("ready", None if fit is None else answers.KnownItems(fit.known, fit.items))


async def status(site: Site, call: Call, body: bytes) -> answers.Doing:
    """Say how the server is doing."""
    figures, recent = site.service.figures(), site.recent
    return answers.Doing(
        uptime_s=time.monotonic() - recent.began,
        requests_per_second=recent.rate(),
        latency_ms=answers.Latency(**recent.latency_ms()),
        in_flight=site.asks.under_way + site.events.under_way,
        refused=recent.refused,
        errors=recent.errors,
        store_bytes=figures["bytes"],
        **{name: figures[name] for name in ("users", "events", "model", "title", "users_in_memory", "waiting_events", "waiting_asks")},
    )


async def metrics(site: Site, call: Call, body: bytes) -> Text:
    """Give the figures."""
    return Text(site.metrics.text(), b"text/plain; version=0.0.4; charset=utf-8")


async def openapi(site: Site, call: Call, body: bytes) -> Text:
    """Give the OpenAPI document."""
    return Text(site.openapi, b"application/json")


async def page(site: Site, call: Call, body: bytes) -> Text:
    """Show the page, and make ready what it will ask for."""
    site.service.warm()
    return _file(site, call, INDEX)


async def page_file(site: Site, call: Call, body: bytes) -> Text:
    """Give a file of the page."""
    return _file(site, call, call.id_in_path("file"))


def _file(site: Site, call: Call, name: str) -> Text:
    if (file := site.page.get(name)) is None:
        raise Refusal(404, "not_found", "the page has no such file")
    if file.unchanged(call.headers.get(b"if-none-match", b"")):
        return Text(b"", file.kind, file.headers, 304)
    return Text(file.content, file.kind, file.headers)


def _described(item: Item) -> answers.CatalogueItem:
    return answers.CatalogueItem(*item)


def _items(found: Sequence[Recommendation]) -> list[answers.Item]:
    return [answers.Item(one.item, one.title, one.score, one.basis) for one in found]


def _when(time: int | None) -> str | None:
    """Write a time, in microseconds since 1970, where it is one of a clock."""
    return None if time is None or time < CLOCK else iso(time)
