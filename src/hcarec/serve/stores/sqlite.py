"""A store in one SQLite file: nothing else to run, one server."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from hcarec.serve.stores import sqlite_backup, sqlite_log, sqlite_upkeep
from hcarec.serve.stores.interface import Change, Checked, Event, Figures, History, Loaded, Page, Progress, Rebuilt, Retained, Wanted
from hcarec.serve.stores.records import checksum, decode_event, encode, encode_events, event_checksum
from hcarec.serve.stores.sqlite_file import SLOT, SqliteFile, Totals, User

SETTLE_CHANGES = 200  # about 800 pages of WAL
_LOAD = (
    "SELECT u.id, u.name, u.version, u.n_events, u.last_time, u.digest, u.checksum, s.version, s.state, s.checksum "
    "FROM users u LEFT JOIN states s ON s.id = ?1 + u.id WHERE u.name = ?2"
)


class _Encoded(NamedTuple):
    name: bytes
    expected: int
    events: list[tuple[int, bytes, bytes | None]]
    model: bytes
    state: bytes | None


class _Duplicate(Exception):
    """A change, by its place in the list, that brings an event id the log holds already."""


class SqliteStore:
    """Logs and states in the file `path`, made where there is none; see `interface` for what the methods promise.

    The file belongs to this process until `close`; a second one is refused with `StoreBusy`. With `verify` the
    structure of the whole file is checked first, in time proportional to its size; without it only rows are, as they
    are read, and damage that hides a row from its index would go unnoticed until `check`. The WAL is brought into the
    file by `settle`, or, where that is never called, by the commit that makes it longer than `checkpoint_pages` of 4 KB.
    """

    def __init__(self, path: str | Path, verify: bool = True, checkpoint_pages: int = 8000) -> None:
        self._file = SqliteFile(path, verify, checkpoint_pages)
        self._db = self._file.db
        self._damaged_states = 0
        self._unsettled = 0

    # -- the update of a user ------------------------------------------------------------------------------------

    def load(self, wanted: Sequence[Wanted], model: str) -> list[Loaded]:
        """Return, for every user wanted, in order, what the next event needs."""
        asked = [(encode("user", user), {encode("event", event_id): event_id for event_id in event_ids}) for user, event_ids in wanted]
        model_name = encode("model", model)
        with self._file.guarded():
            slot = self._slot(model_name)
            return [self._load(name, event_ids, model_name, slot) for name, event_ids in asked]

    def _load(self, name: bytes, event_ids: dict[bytes, str], model: bytes, slot: int) -> Loaded:
        row = self._db.execute(_LOAD, (slot * SLOT, name)).fetchone()
        if row is None:
            return Loaded(0, None, None, frozenset(), 0)
        user = self._file.checked_user(row[:7])
        state = row[8] if row[7] == user.version else None
        if state is not None and checksum((slot * SLOT + user.id, user.version), model, state) != row[9]:
            self._damaged_states += 1
            state = None
        duplicates = frozenset(text for event_id, text in event_ids.items() if self._holds(user, event_id))
        return Loaded(user.version, user.last_time, state, duplicates, user.n_events)

    def _holds(self, user: User, event_id: bytes) -> bool:
        sql = "SELECT time, arrival, item, event_id, checksum FROM events WHERE user = ? AND event_id = ?"
        row = self._db.execute(sql, (user.id, event_id)).fetchone()
        if row is not None and event_checksum(user.id, *row[:-1]) != row[-1]:
            raise self._file.damaged("events")
        return row is not None

    def commit(self, changes: Sequence[Change]) -> list[int | None]:
        """Make all changes in one durable transaction; return each user's new version, None where refused."""
        encoded = [_Encoded(encode("user", c.user), c.expected_version, encode_events(c.events), encode("model", c.model), c.state) for c in changes]
        assert all(change.events for change in encoded), "a change without events"
        refused: set[int] = set()
        while True:
            try:
                with self._file.writing() as totals:
                    versions = self._apply(encoded, refused, totals)
                self._unsettled += len(versions)
                return versions
            except _Duplicate as duplicate:  # rolled back: all again, without this one
                refused.add(duplicate.args[0])

    def _apply(self, changes: list[_Encoded], refused: set[int], totals: Totals) -> list[int | None]:
        versions: list[int | None] = []
        new_states: Counter[int] = Counter()
        slots = {name: slot for slot, name, _ in self._file.models()}
        changed: set[bytes] = set()
        for place, change in enumerate(changes):
            user = self._file.user(change.name)
            if place in refused or change.name in changed or change.expected != (user.version if user else 0):
                versions.append(None)
                continue
            changed.add(change.name)
            try:
                user = sqlite_log.add_events(self._file, totals, user, change.name, change.events)
            except sqlite3.IntegrityError as error:
                if user is not None and any(event_id and self._holds(user, event_id) for _, _, event_id in change.events):
                    raise _Duplicate(place) from None
                raise self._file.damaged("indexes") from error
            if change.state is not None:
                slot = slots[change.model] if change.model in slots else self._new_slot(slots, change.model)
                new_states[slot] += self._put_state(user, change.model, slot, change.state)
            versions.append(user.version)
        self._count_states(new_states)
        return versions

    def put_states(self, rebuilt: Sequence[Rebuilt]) -> list[bool]:
        """Store states for logs that are still at the given version; say for which that was so."""
        encoded = [(encode("user", user), version, encode("model", model), state) for user, version, model, state in rebuilt]
        stored = []
        new_states: Counter[int] = Counter()
        with self._file.writing():
            slots = {name: slot for slot, name, _ in self._file.models()}
            for name, version, model, state in encoded:
                user = self._file.user(name)
                stored.append(user is not None and user.version == version)
                if user is not None and user.version == version:
                    slot = slots[model] if model in slots else self._new_slot(slots, model)
                    new_states[slot] += self._put_state(user, model, slot, state)
            self._count_states(new_states)
        return stored

    def _put_state(self, user: User, model: bytes, slot: int, state: bytes) -> int:
        """Write a state; return 1 if there was none before."""
        key = slot * SLOT + user.id
        row = (user.version, state, checksum((key, user.version), model, state), key)
        if self._db.execute("UPDATE states SET version = ?, state = ?, checksum = ? WHERE id = ?", row).rowcount:
            return 0
        self._db.execute("INSERT INTO states (version, state, checksum, id) VALUES (?, ?, ?, ?)", row)
        return 1

    def _slot(self, model: bytes) -> int:
        """Return the slot of a model, 0 (which holds no states) for one that is not known."""
        return next((slot for slot, name, _ in self._file.models() if name == model), 0)

    def _new_slot(self, slots: dict[bytes, int], model: bytes) -> int:
        slots[model] = 1 + max(slots.values(), default=0)
        self._file.count_states(slots[model], model, 0)
        return slots[model]

    def _count_states(self, new: Counter[int]) -> None:
        if any(new.values()):
            for slot, name, states in self._file.models():
                self._file.count_states(slot, name, states + new[slot])

    def settle(self) -> None:
        """Bring the WAL into the file, if enough has been committed to be worth it."""
        if self._unsettled >= SETTLE_CHANGES:
            with self._file.guarded():
                self._db.execute("PRAGMA wal_checkpoint(PASSIVE)")
            self._unsettled = 0

    # -- reading -------------------------------------------------------------------------------------------------

    def history(self, user: str, limit: int | None = None) -> History:
        """Return a user's log, or its last `limit` events."""
        assert limit is None or limit >= 0
        name = encode("user", user)
        with self._file.guarded():
            row = self._file.user(name)
            if row is None:
                return History(0, [])
            kept = sqlite_log.read_events(self._file, row, limit)
        return History(row.version, [decode_event(*event) for event in kept])

    def users(self, after: str | None = None, limit: int = 1000) -> Page:
        """Return up to `limit` users that have a log."""
        rows = sqlite_log.page(self._file, after, limit)
        return Page([user.name.decode() for user in rows], sqlite_log.next_page(rows, limit))

    def without_state(self, model: str, after: str | None = None, limit: int = 1000) -> Page:
        """Look at up to `limit` users; return those that have events and no current state for a model."""
        rows = sqlite_log.page(self._file, after, limit)
        with self._file.guarded():
            slot = self._slot(encode("model", model))
            lacking = [user.name.decode() for user in rows if user.n_events and not self._is_current(user, slot)]
        return Page(lacking, sqlite_log.next_page(rows, limit))

    def _is_current(self, user: User, slot: int) -> bool:
        row = self._db.execute("SELECT version FROM states WHERE id = ?", (slot * SLOT + user.id,)).fetchone()
        return row is not None and row[0] == user.version

    def figures(self) -> Figures:
        """Return the size of the store, quickly."""
        with self._file.guarded():
            totals = self._file.totals()
            states = {name.decode(): count for _, name, count in self._file.models()}
            pages = self._db.execute("PRAGMA page_count").fetchone()[0] * self._db.execute("PRAGMA page_size").fetchone()[0]
        return Figures(totals.users, totals.events, pages, states, self._damaged_states, bool(totals.traces))

    # -- upkeep --------------------------------------------------------------------------------------------------

    def drop_states(self, keep: Collection[str], limit: int = 1000) -> int:
        """Remove about `limit` states of models other than those to keep; return how many."""
        return sqlite_upkeep.drop_states(self._file, {encode("model", model) for model in keep}, limit)

    def forget(self, user: str, scrub: bool = True) -> int:
        """Remove a user wholly and durably; return how many events went."""
        removed = sqlite_upkeep.forget(self._file, encode("user", user))
        if scrub:
            self.scrub()
        return removed

    def scrub(self) -> None:
        """Rewrite the file so that no trace of forgotten users is left in it; does nothing when there is none."""
        sqlite_upkeep.scrub(self._file)

    def seed(self, fingerprint: str, histories: Iterable[tuple[str, Sequence[Event]]], again: bool = False) -> int:
        """Import the histories of a data set, once; return how many events were added."""
        return sqlite_upkeep.seed(self._file, encode("data", fingerprint), histories, again)

    def seeded(self) -> dict[str, bool]:
        """Return the fingerprints of the data sets imported, and whether each import has finished."""
        with self._file.guarded():
            return {name.decode(): finished for name, (_, finished) in sqlite_upkeep.seeds(self._file).items()}

    def retain(self, last: int | None = None, since: int | None = None, after: str | None = None, limit: int = 1000) -> Retained:
        """Let go of events beyond the `last` ones of a user and those before the time `since`, for a page of users."""
        return sqlite_upkeep.retain(self._file, last, since, after, limit)

    def backup(self, target: str | Path, progress: Progress | None = None) -> None:
        """Write a copy to a file while the store is in use."""
        sqlite_backup.backup(self._file, Path(target), progress)

    def check(self, progress: Progress | None = None) -> Checked:
        """Read everything, compare all checksums, and raise `StoreDamaged` where they differ."""
        return sqlite_backup.check(self._file, progress)

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()
