"""The upkeep of a Redis store: import, removal and retention of events, rewriting of files, the check of everything."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from hcarec.serve.stores.errors import StoreError
from hcarec.serve.stores.interface import RETAIN_MOST, TRIM_FROM, TRIM_MOST, Checked, Event, History, Progress, Retained
from hcarec.serve.stores.records import check_time, encode, encode_events
from hcarec.serve.stores.redis_connection import RedisConnection
from hcarec.serve.stores.redis_keys import (
    COMMIT,
    DELETE_IF,
    RETAIN,
    RETRACT,
    Record,
    damaged,
    first_at,
    owner_of,
    pack_event,
    pack_record,
    pack_state,
    unpack_event,
    unpack_record,
    unpack_state,
)

NewEvent = tuple[int, bytes, bytes | None]
SEED_EVENTS = 5_000  # a call of the script; the server does nothing else meanwhile
LOOK_S = 0.25
"""How often it is looked whether the server has rewritten its files."""
CHECK_USERS = 200


def pack_change(name: bytes, record: Record | None, old: bytes | None, events: Sequence[NewEvent], clock: int, model: bytes, state: bytes | None) -> list[Any]:
    """Return the arguments of the commit script for one user; the events are numbered from `clock` + 1."""
    owner = owner_of(name)
    packed = [pack_event(owner, when, clock + n, item, event_id) for n, (when, item, event_id) in enumerate(events, 1)]
    before = record or Record(0, 0, events[0][0], 0)
    version = clock + len(events)
    digest = (before.digest + sum(expected for _, expected in packed)) % (1 << 32)
    new = Record(version, before.n_events + len(events), max(before.last_time, *(when for when, _, _ in events)), digest)
    ids = [event_id for _, _, event_id in events if event_id is not None]
    kept = b"" if state is None else pack_state(owner, model, version, state)
    return [name, model, old or b"", pack_record(new, name), kept, len(packed), len(ids), *(member for member, _ in packed), *ids]


def seed(at: RedisConnection, fingerprint: bytes, histories: Iterable[tuple[str, Sequence[Event]]], again: bool) -> int:
    """Import histories in batches, each of which also notes how far the import has come; several servers may do it at once."""
    known = at.seeds()
    if others := sorted(name.decode(errors="replace")[:12] for name in known if name != fingerprint):
        if fingerprint not in known and not again:
            raise StoreError(
                f"the Redis store already holds the histories of another data set ({', '.join(others)}): "
                "events in both would count twice; start without data, or with a new prefix"
            )
    added = 0
    progress = known.get(fingerprint, b"")
    for first, batch in _batches(histories):
        while not progress.endswith(b".") and (done := int(progress or 0)) < first + len(batch):
            rest = batch[done - first :]
            new = str(first + len(batch)).encode()
            if _import(at, fingerprint, progress, new, [(name, events) for name, events in rest if events]):
                added += sum(len(events) for _, events in rest)
                progress = new
            else:  # another server was quicker, with these users or with the import
                progress = at.seeds().get(fingerprint, b"")
    if not progress.endswith(b"."):
        at.write([("HSET", at.key("seeds"), fingerprint, (progress or b"0") + b".")])
    return added


def _import(at: RedisConnection, fingerprint: bytes, old: bytes, new: bytes, batch: list[tuple[bytes, list[NewEvent]]]) -> bool:
    clock, packed = at.reserve([(name, len(events)) for name, events in batch])
    keys, arguments = [], []
    for (name, events), record in zip(batch, packed, strict=True):
        keys += at.change_keys(name, b"")
        arguments += pack_change(name, unpack_record(record, name), record, events, clock, b"", None)
        clock += len(events)
    applied = at.script(COMMIT, [*at.common_keys(), *keys], [fingerprint, old, new, *arguments])
    return bool(applied != [-1])


def _batches(histories: Iterable[tuple[str, Sequence[Event]]]) -> Iterator[tuple[int, list[tuple[bytes, list[NewEvent]]]]]:
    """Cut histories into batches in which no user occurs twice; with each comes the number of users before it."""
    batch: dict[bytes, list[NewEvent]] = {}
    first = size = 0
    for user, events in histories:
        name = encode("user", user)
        if size >= SEED_EVENTS or name in batch:
            yield first, list(batch.items())
            first, batch, size = first + len(batch), {}, 0
        batch[name] = encode_events(events)
        size += len(events) + 1
    if batch:
        yield first, list(batch.items())


def retain(at: RedisConnection, last: int | None, since: int | None, after: str | None, limit: int) -> Retained:
    """Remove the oldest events of a page of users; versions and states stay."""
    assert last is None or last >= 0
    since = None if since is None else check_time(since)
    names = at.page(after, limit)
    removed = 0
    for name in names:
        removed += _retain(at, name, last, since)
        if removed >= RETAIN_MOST and name != names[-1]:
            return Retained(removed, name.decode())
    return Retained(removed, names[-1].decode() if len(names) == limit else None)


def trim(at: RedisConnection, names: Sequence[bytes], last: int) -> None:
    """Remove the oldest events of those users who have many more than `last`, some at a time; versions and states stay."""
    packed = at.read([("GET", at.key("user:", name)) for name in names])
    for name, record in zip(names, (unpack_record(*pair) for pair in zip(packed, names, strict=True)), strict=True):
        if record is not None and record.n_events >= last + TRIM_FROM:
            _retain(at, name, max(last, record.n_events - TRIM_MOST), None)


def _retain(at: RedisConnection, name: bytes, last: int | None, since: int | None) -> int:
    user, log, ids = at.key("user:", name), at.key("log:", name), at.key("ids:", name)
    owner = owner_of(name)
    while True:
        old, before = at.read([("GET", user), ("ZLEXCOUNT", log, b"-", b"(" + first_at(since) if since is not None else b"-")])
        record = unpack_record(old, name)
        going = max(before, 0 if last is None or record is None else record.n_events - last)
        if record is None or not going:
            return 0
        rows = [unpack_event(owner, member) for member in at.read([("ZRANGE", log, 0, going - 1)])[0]]
        if len(rows) != going:
            if at.read([("GET", user)])[0] == old:
                raise damaged("events")
            continue  # changed meanwhile
        digest = (record.digest - sum(row[4] for row in rows)) % (1 << 32)
        new = pack_record(record._replace(n_events=record.n_events - going, digest=digest), name)
        if at.script(RETAIN, [at.key("events"), user, log, ids], [old, new, going, *(row[3] for row in rows if row[3] is not None)]):
            return going


def retract(at: RedisConnection, name: bytes, event_id: bytes) -> int:
    """Remove the event of an id from a user's log; return how many went, 1 or 0."""
    user, log, ids, owner = at.key("user:", name), at.key("log:", name), at.key("ids:", name), owner_of(name)
    while True:
        old, held, members = at.read([("GET", user), ("SISMEMBER", ids, event_id), ("ZRANGE", log, 0, -1)])
        if (record := unpack_record(old, name)) is None or not held:
            return 0
        found = [(member, row) for member in members if (row := unpack_event(owner, member))[3] == event_id]
        if len(found) != 1:
            raise damaged("events")
        ((member, row),) = found
        clock, _ = at.reserve([(name, 1)])
        new = record._replace(version=clock + 1, n_events=record.n_events - 1, digest=(record.digest - row[4]) % (1 << 32))
        if at.script(RETRACT, [at.key("events"), user, log, ids], [old, pack_record(new, name), member, event_id]):
            return 1  # otherwise the log has changed meanwhile


class Scrubbing:
    """Lets the server rewrite its files, which hold what was deleted until then, without waiting for it."""

    def __init__(self, at: RedisConnection) -> None:
        self._at = at
        self._about: bytes | None = None
        self._left: list[str] = []
        self._begun = ""

    def step(self) -> float | None:
        """Begin what is next, if the server has finished what is before it; return the seconds to wait, None when nothing is left."""
        traces = self._at.read([("GET", self._at.key("traces"))])[0]
        if traces is None:
            return None
        info = self._at.info("persistence")
        if info["aof_rewrite_in_progress"] or info["aof_rewrite_scheduled"] or info["rdb_bgsave_in_progress"]:
            return LOOK_S
        self._check(info)
        if traces != self._about:  # somebody was forgotten since: all of it again
            self._about, self._left = traces, self._files(info)
        if self._left:
            with self._at.reached():
                self._at.client.execute_command(self._left[0])
            self._begun = self._left.pop(0)
            return LOOK_S
        self._about = None
        return None if self._at.script(DELETE_IF, [self._at.key("traces")], [traces]) else LOOK_S

    def _files(self, info: dict[str, Any]) -> list[str]:
        """Return the commands that rewrite what the server keeps on disk."""
        with self._at.reached():
            saves = not info["aof_enabled"] or self._at.client.config_get("save").get("save")
        return ["BGREWRITEAOF"] * bool(info["aof_enabled"]) + ["BGSAVE"] * bool(saves)

    def _check(self, info: dict[str, Any]) -> None:
        """Fail if what was begun has failed; it is begun anew then."""
        begun, self._begun = self._begun, ""
        failed = {"BGREWRITEAOF": info["aof_last_bgrewrite_status"], "BGSAVE": info["rdb_last_bgsave_status"]}
        if failed.get(begun) == "err":
            self._about = None
            raise StoreError("the Redis server could not rewrite its files: check its log; it is tried again")


def check(at: RedisConnection, history: Callable[[str], History], progress: Progress | None) -> Checked:
    """Check every record, event and state, some users at a time; and the sum of events if nothing was written meanwhile."""
    n_users = n_events = n_states = n_damaged = 0
    clock, total, before = at.read([("GET", at.key("clock")), ("ZCARD", at.key("users")), ("GET", at.key("events"))])
    after = None
    while names := at.page(after, CHECK_USERS):
        after = names[-1].decode()
        models = at.read([("SMEMBERS", at.key("models"))])[0]
        for name in names:
            found = history(name.decode())
            n_users += found.version > 0
            n_events += len(found.events)
            for model, packed in zip(models, at.read([("HGET", at.key("states:", model), name) for model in models]), strict=True):
                n_states += packed is not None
                n_damaged += packed is not None and unpack_state(owner_of(name), model, packed) is None
        if progress is not None:
            progress(n_users, total)
    if at.read([("GET", at.key("clock")), ("ZCARD", at.key("users")), ("GET", at.key("events"))]) == [clock, total, before]:
        if (n_users, n_events) != (total, int(before or 0)):
            raise damaged("users")
    return Checked(n_users, n_events, n_states, n_damaged)
