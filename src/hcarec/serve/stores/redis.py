"""A store in Redis or Valkey, 7 and later: for several servers on the same users."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from hcarec.serve.stores import redis_upkeep
from hcarec.serve.stores.errors import StoreError
from hcarec.serve.stores.interface import Change, Checked, Event, Figures, History, Loaded, Page, Progress, Rebuilt, Retained, Wanted
from hcarec.serve.stores.records import decode_event, encode, encode_events, latest
from hcarec.serve.stores.redis_connection import RedisConnection
from hcarec.serve.stores.redis_keys import (
    COMMIT,
    FORGET,
    PUT_STATES,
    VERSIONS,
    Record,
    damaged,
    first_at,
    owner_of,
    pack_state,
    unpack_event,
    unpack_record,
    unpack_state,
    version_of,
)


class RedisStore:
    """Logs and states on the server at `url` (`redis://`, `rediss://`, `unix://`); see `interface` for what the methods promise.

    Redis may lose what it has acknowledged unless it runs with `appendonly yes`, `appendfsync always` and no eviction:
    a server set otherwise is refused unless `accept_less`, and `durability` says in a sentence what an acknowledgement
    rests on. No call waits longer than `timeout` seconds for one answer; a lost connection is made anew by the next
    call. Several stores may share a server under different prefixes; Redis Cluster is not supported.
    """

    exclusive = False

    def __init__(self, url: str, prefix: str = "hcarec:", timeout: float = 2.0, accept_less: bool = False, history_limit: int | None = None) -> None:
        self._at = RedisConnection(url, prefix, timeout, accept_less)
        self._read_with_epoch([])
        self._history_limit = history_limit
        self._damaged_states = 0
        self._scrubbing = redis_upkeep.Scrubbing(self._at)

    @property
    def durability(self) -> str:
        """Say in a sentence what an acknowledgement rests on."""
        return self._at.durability

    @property
    def trouble(self) -> str | None:
        """Why nothing is written at the moment, though the server answers."""
        return self._at.trouble

    @property
    def epoch(self) -> object:
        """What versions belong to; one that is equal to another of another epoch may be of other events."""
        return self._at.epoch

    def _read_with_epoch(self, requests: list[tuple[Any, ...]]) -> list[Any]:
        """Read about users, and note as of the same moment which epoch that belongs to."""
        *replies, epoch = self._at.read([*requests, ("GET", self._at.key("epoch"))])
        self._at.note_epoch(epoch)
        return replies

    # -- the update of a user ------------------------------------------------------------------------------------

    def load(self, wanted: Sequence[Wanted], model: str) -> list[Loaded]:
        """Return, for every user wanted, in order, what the next event needs."""
        asked = [(encode("user", user), {encode("event", event_id): event_id for event_id in event_ids}) for user, event_ids in wanted]
        model_name, key = encode("model", model), self._at.key
        requests: list[tuple[Any, ...]] = []
        for name, event_ids in asked:
            requests += [("GET", key("user:", name)), ("HGET", key("states:", model_name), name)]
            requests += [("SMISMEMBER", key("ids:", name), *event_ids)] if event_ids else []
        self._at.examine_if_due()
        replies = iter(self._read_with_epoch(requests))
        loaded = []
        for name, event_ids in asked:
            record = unpack_record(next(replies), name)
            packed = next(replies)
            held = next(replies) if event_ids else []
            if record is None:
                loaded.append(Loaded(0, None, None, frozenset(), 0))
                continue
            duplicates = frozenset(text for text, there in zip(event_ids.values(), held, strict=True) if there)
            loaded.append(Loaded(record.version, record.last_time, self._current(name, model_name, packed, record), duplicates, record.n_events))
        return loaded

    def _current(self, name: bytes, model: bytes, packed: bytes | None, record: Record) -> bytes | None:
        if packed is None:
            return None
        found = unpack_state(owner_of(name), model, packed)
        self._damaged_states += found is None
        return found[1] if found is not None and found[0] == record.version else None

    def commit(self, changes: Sequence[Change]) -> list[int | None]:
        """Make all changes in one durable transaction; return each user's new version, None where refused."""
        encoded = [(encode("user", c.user), c.expected_version, encode_events(c.events), encode("model", c.model), c.state) for c in changes]
        assert all(events for _, _, events, _, _ in encoded), "a change without events"
        if not encoded:
            return []
        clock, packed = self._at.reserve([(name, len(events)) for name, _, events, _, _ in encoded])
        versions: list[int | None] = [None] * len(encoded)
        keys, arguments, sent = [], [], []
        for place, (name, expected, events, model, state) in enumerate(encoded):
            record = unpack_record(packed[place], name)
            if expected == (record.version if record else 0):
                keys += self._at.change_keys(name, model)
                arguments += redis_upkeep.pack_change(name, record, packed[place], events, clock, model, state)
                sent.append((place, clock + len(events)))
            clock += len(events)
        if sent:
            applied = self._at.script(COMMIT, [*self._at.common_keys(), *keys], ["", "", "", *arguments])
            for (place, version), done in zip(sent, applied, strict=True):
                versions[place] = version if done else None
            if self._history_limit is not None:
                with contextlib.suppress(StoreError):  # the changes are made; the next ones will do
                    redis_upkeep.trim(self._at, [encoded[place][0] for place, _ in sent], self._history_limit)
        return versions

    def put_states(self, rebuilt: Sequence[Rebuilt]) -> list[bool]:
        """Store states for logs that are still at the given version; say for which that was so."""
        encoded = [(encode("user", user), version, encode("model", model), state) for user, version, model, state in rebuilt]
        epoch, stored = self.epoch, [False] * len(encoded)
        packed = self._read_with_epoch([("GET", self._at.key("user:", name)) for name, _, _, _ in encoded])
        if self.epoch != epoch:
            return stored
        keys, arguments, sent = [self._at.key("models")], [], []
        for place, (name, version, model, state) in enumerate(encoded):
            record = unpack_record(packed[place], name)
            if record is not None and record.version == version:
                keys += [self._at.key("user:", name), self._at.key("states:", model)]
                arguments += [name, model, packed[place], pack_state(owner_of(name), model, version, state)]
                sent.append(place)
        for place, done in zip(sent, self._at.script(PUT_STATES, keys, arguments) if sent else [], strict=True):
            stored[place] = bool(done)
        return stored

    def settle(self) -> None:
        """Do nothing: the server puts nothing off."""

    # -- reading -------------------------------------------------------------------------------------------------

    def history(self, user: str, limit: int | None = None, before: tuple[int, int] | None = None) -> History:
        """Return a user's log, or its last `limit` events, or the last of those `before` a time and arrival."""
        assert limit is None or limit >= 0
        name, key = encode("user", user), self._at.key
        log: tuple[Any, ...] = ("ZRANGE", key("log:", name), 0 if limit is None else -limit, -1)
        if before is not None:
            log = ("ZREVRANGEBYLEX", key("log:", name), b"(" + first_at(*before), b"-", b"LIMIT", 0, -1 if limit is None else limit)
        packed, members = self._read_with_epoch([("GET", key("user:", name)), log])
        record = unpack_record(packed, name)
        if record is None:
            return History(0, [])
        if limit == 0:
            return History(record.version, [])
        owner = owner_of(name)
        rows = [unpack_event(owner, member) for member in (members if before is None else reversed(members))]
        if before is not None:
            return History(record.version, [decode_event(*row[:4]) for row in rows])
        if len(rows) != (record.n_events if limit is None else min(limit, record.n_events)):
            raise damaged("events")
        if len(rows) == record.n_events and sum(row[4] for row in rows) % (1 << 32) != record.digest:
            raise damaged("events")
        return History(record.version, [decode_event(*row[:4]) for row in rows])

    def users(self, after: str | None = None, limit: int = 1000) -> Page:
        """Return up to `limit` users that have a log."""
        names = self._at.page(after, limit)
        return Page([name.decode() for name in names], names[-1].decode() if len(names) == limit else None)

    def without_state(self, model: str, after: str | None = None, limit: int = 1000) -> Page:
        """Look at up to `limit` users; return those that have events and no current state for a model."""
        names = self._at.page(after, limit)
        packed = self._at.read([("GET", self._at.key("user:", name)) for name in names])
        records = [unpack_record(record, name) for record, name in zip(packed, names, strict=True)]
        heads = self._at.script(VERSIONS, [self._at.key("states:", encode("model", model))], names) if names else []
        lacking = [
            name.decode()
            for name, record, head in zip(names, records, heads, strict=True)
            if record is not None and record.n_events and version_of(head) != record.version
        ]
        return Page(lacking, names[-1].decode() if len(names) == limit else None)

    def figures(self) -> Figures:
        """Return the size of the store, quickly; `bytes` is the memory of the whole server."""
        self._at.examine_if_due()
        key = self._at.key
        wanted = [("ZCARD", key("users")), ("GET", key("events")), ("SMEMBERS", key("models")), ("GET", key("traces"))]
        users, events, models, traces = self._at.read(wanted)
        held = self._at.read([("HLEN", key("states:", model)) for model in models])
        states = {model.decode(): count for model, count in sorted(zip(models, held, strict=True))}
        return Figures(users, int(events or 0), self._at.info("memory")["used_memory"], states, self._damaged_states, traces is not None)

    # -- upkeep --------------------------------------------------------------------------------------------------

    def drop_states(self, keep: Collection[str], limit: int = 1000) -> int:
        """Remove the states of one model other than those to keep, all at once; return how many."""
        kept = {encode("model", model) for model in keep}
        for model in sorted(self._at.read([("SMEMBERS", self._at.key("models"))])[0]):
            if model not in kept:
                key = self._at.key("states:", model)
                count, _, _ = self._at.write([("HLEN", key), ("UNLINK", key), ("SREM", self._at.key("models"), model)])
                if count:
                    return int(count)
        return 0

    def retract(self, user: str, event_id: str) -> int:
        """Remove one event of a user durably, by its id; return how many went."""
        return redis_upkeep.retract(self._at, encode("user", user), encode("event", event_id))

    def forget(self, user: str, scrub: bool = True) -> int:
        """Remove a user wholly and durably; return how many events went."""
        name, key = encode("user", user), self._at.key
        keys = [key("events"), key("users"), key("models"), key("user:", name), key("log:", name), key("ids:", name), key("traces")]
        self._at.refuse_if_not_durable()
        removed = int(self._at.script(FORGET, keys, [name, key("states:"), secrets.token_hex(8)]))
        while scrub and (seconds := self.scrub()) is not None:
            time.sleep(seconds)
        return removed

    def scrub(self) -> float | None:
        """Let the server rewrite its files; return the seconds after which to look whether it has, None when nothing is left."""
        return self._scrubbing.step()

    def seed(self, fingerprint: str, histories: Iterable[tuple[str, Sequence[Event]]], again: bool = False) -> int:
        """Import the histories of a data set, once; return how many events were added."""
        return redis_upkeep.seed(self._at, encode("data", fingerprint), latest(histories, self._history_limit), again)

    def seeded(self) -> dict[str, bool]:
        """Return the fingerprints of the data sets imported, and whether the import has finished."""
        return {name.decode(): done.endswith(b".") for name, done in self._at.seeds().items()}

    def retain(self, last: int | None = None, since: int | None = None, after: str | None = None, limit: int = 1000) -> Retained:
        """Let go of events beyond the `last` ones of a user and those before the time `since`, for a page of users."""
        return redis_upkeep.retain(self._at, last, since, after, limit)

    def backup(self, target: str | Path, progress: Progress | None = None) -> None:
        """Write a copy to a file while the store is in use: each user as of one moment, not all as of the same."""
        from hcarec.serve.stores.copying import backup

        backup(self, Path(target), progress)

    def restore(self, source: str | Path, progress: Progress | None = None) -> None:
        """Fill the store, which must be empty and used by nobody else, from a backup."""
        from hcarec.serve.stores.copying import fill

        fill(self, self._at.restoring, Path(source), progress)

    def check(self, progress: Progress | None = None) -> Checked:
        """Read everything, compare all checksums, and raise `StoreDamaged` where they differ."""
        return redis_upkeep.check(self._at, self.history, progress)

    def close(self) -> None:
        """Let go of the connections."""
        self._at.close()
