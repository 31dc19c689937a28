"""A store in one SQLite file: nothing else to run, one server."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hcarec.serve.stores import sqlite_backup, sqlite_log, sqlite_restore, sqlite_upkeep
from hcarec.serve.stores.errors import StoreError
from hcarec.serve.stores.interface import Change, Checked, Event, Figures, History, Loaded, Page, Progress, Rebuilt, Retained, Wanted
from hcarec.serve.stores.records import checksum, decode_event, encode, encode_events, event_checksum, latest
from hcarec.serve.stores.sqlite_file import SLOT, SqliteFile, Totals, User

SETTLE_CHANGES = 64  # about 250 pages of WAL, a millisecond or two
_LOAD = (
    "SELECT u.id, u.name, u.version, u.n_events, u.last_time, u.digest, u.checksum, s.version, s.state, s.checksum "
    "FROM users u LEFT JOIN states s ON s.id = ? + u.id WHERE u.name"
)


class _Encoded(NamedTuple):
    name: bytes
    expected: int
    events: list[tuple[int, bytes, bytes | None]]
    model: bytes
    state: bytes | None


class _Duplicates(Exception):
    """Changes, by their places in the list, that bring event ids which the log holds already."""

    def __init__(self, places: set[int]) -> None:
        super().__init__()
        self.places = places


class SqliteStore:
    """Logs and states in the file `path`, made where there is none; see `interface` for what the methods promise.

    The file belongs to this process until `close`; a second one is refused with `StoreBusy`. With `verify` the
    structure of the whole file is checked first, in time proportional to its size; without it only rows are, as they
    are read, and damage that hides a row from its index would go unnoticed until `check`. The WAL is brought into the
    file by `settle`, or, where that is never called, by the commit that makes it longer than `checkpoint_pages` of 4 KB.
    """

    exclusive = True

    def __init__(self, path: str | Path, verify: bool = True, checkpoint_pages: int = 8000, history_limit: int | None = None) -> None:
        self._file = SqliteFile(path, verify, checkpoint_pages)
        self._db = self._file.db
        self._history_limit = history_limit
        self._damaged_states = 0
        self._unsettled = 0

    # -- the update of a user ------------------------------------------------------------------------------------

    def load(self, wanted: Sequence[Wanted], model: str) -> list[Loaded]:
        """Return, for every user wanted, in order, what the next event needs."""
        asked = [(encode("user", user), {encode("event", event_id): event_id for event_id in event_ids}) for user, event_ids in wanted]
        model_name = encode("model", model)
        with self._file.guarded():
            slot = self._slot(model_name)
            rows = {row[1]: row for row in self._file.rows_of(_LOAD, [name for name, _ in asked], slot * SLOT)}
            return [self._loaded(rows.get(name), event_ids, model_name, slot) for name, event_ids in asked]

    def _loaded(self, row: Any, event_ids: dict[bytes, str], model: bytes, slot: int) -> Loaded:
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
                with self._file.writing(holds_users=True) as totals:
                    versions = self._apply(encoded, refused, totals)
                self._unsettled += len(versions)
                self._trim([change.name for change in encoded])
                return versions
            except _Duplicates as found:  # rolled back: all again, without these
                refused |= found.places

    def _trim(self, names: Sequence[bytes]) -> None:
        """Let go of what is beyond the limit; what fails now, with the changes already made, is done with the next ones."""
        if self._history_limit is not None:
            with contextlib.suppress(StoreError):
                sqlite_upkeep.trim(self._file, names, self._history_limit)

    def _apply(self, changes: list[_Encoded], refused: set[int], totals: Totals) -> list[int | None]:
        versions: list[int | None] = []
        slots = {name: slot for slot, name, _ in self._file.models()}
        changed: dict[bytes, User] = {}
        rows: list[sqlite_log.Row] = []
        states: list[tuple[User, bytes, bytes]] = []
        users = self._file.users([change.name for change in changes])
        for place, change in enumerate(changes):
            user = users.get(change.name)
            if place in refused or change.name in changed or change.expected != (user.version if user else 0):
                versions.append(None)
                continue
            user, own = sqlite_log.appended(totals, user, change.name, change.events)
            changed[change.name] = user
            rows += own
            if change.state is not None:
                states.append((user, change.model, change.state))
            versions.append(user.version)
        try:
            sqlite_log.write_users(self._file, list(changed.values()))
            sqlite_log.write_events(self._file, rows)
        except sqlite3.IntegrityError as error:
            raise self._what_clashed(changes, refused, error) from error
        self._write_states(slots, states)
        for user in changed.values():
            self._file.hold(user)
        return versions

    def _what_clashed(self, changes: list[_Encoded], refused: set[int], error: sqlite3.IntegrityError) -> Exception:
        """Find the changes that bring event ids which their logs hold; without one the file is damaged."""
        self._db.execute("ROLLBACK")
        places = set()
        for place, change in enumerate(changes):
            user = self._file.user(change.name) if place not in refused else None
            if user is not None and any(event_id and self._holds(user, event_id) for _, _, event_id in change.events):
                places.add(place)
        return _Duplicates(places) if places else self._file.damaged("indexes")

    def put_states(self, rebuilt: Sequence[Rebuilt]) -> list[bool]:
        """Store states for logs that are still at the given version; say for which that was so."""
        encoded = [(encode("user", user), version, encode("model", model), state) for user, version, model, state in rebuilt]
        stored = []
        with self._file.writing(holds_users=True):
            slots = {name: slot for slot, name, _ in self._file.models()}
            states = []
            users = self._file.users([name for name, _, _, _ in encoded])
            for name, version, model, state in encoded:
                user = users.get(name)
                stored.append(user is not None and user.version == version)
                if user is not None and user.version == version:
                    states.append((user, model, state))
            self._write_states(slots, states)
        return stored

    def _write_states(self, slots: dict[bytes, int], states: Sequence[tuple[User, bytes, bytes]]) -> None:
        """Write states; the last one counts where a user has several of one model."""
        by_slot: dict[int, dict[int, tuple[int, int, bytes, int]]] = {}
        for user, model, state in states:
            slot = slots[model] if model in slots else self._new_slot(slots, model)
            key = slot * SLOT + user.id
            by_slot.setdefault(slot, {})[key] = key, user.version, state, checksum((key, user.version), model, state)
        change = "version = excluded.version, state = excluded.state, checksum = excluded.checksum"
        for slot, rows in by_slot.items():
            before = sqlite_log.count(self._file, "states", list(rows))
            sqlite_log.insert(self._file, "INSERT INTO states VALUES ", list(rows.values()), f" ON CONFLICT (id) DO UPDATE SET {change}")
            name, states_held = next((name, n) for known, name, n in self._file.models() if known == slot)
            if before != len(rows):
                self._file.count_states(slot, name, states_held + len(rows) - before)

    def _slot(self, model: bytes) -> int:
        """Return the slot of a model, 0 (which holds no states) for one that is not known."""
        return next((slot for slot, name, _ in self._file.models() if name == model), 0)

    def _new_slot(self, slots: dict[bytes, int], model: bytes) -> int:
        slots[model] = 1 + max(slots.values(), default=0)
        self._file.count_states(slots[model], model, 0)
        return slots[model]

    def settle(self) -> None:
        """Bring the WAL into the file, if enough has been committed to be worth it."""
        if self._unsettled >= SETTLE_CHANGES:
            with self._file.guarded():
                self._db.execute("PRAGMA wal_checkpoint(PASSIVE)")
            self._unsettled = 0

    # -- reading -------------------------------------------------------------------------------------------------

    def history(self, user: str, limit: int | None = None, before: tuple[int, int] | None = None) -> History:
        """Return a user's log, or its last `limit` events, or the last of those `before` a time and arrival."""
        assert limit is None or limit >= 0
        name = encode("user", user)
        with self._file.guarded():
            row = self._file.user(name)
            if row is None:
                return History(0, [])
            kept = sqlite_log.read_events(self._file, row, limit, before)
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

    def retract(self, user: str, event_id: str) -> int:
        """Remove one event of a user durably, by its id; return how many went."""
        name, wanted = encode("user", user), encode("event", event_id)
        with self._file.writing(holds_users=True) as totals:
            row = self._file.user(name)
            removed = 0 if row is None else sqlite_log.remove_event(self._file, totals, row, wanted)
        self._unsettled += removed
        return removed

    def forget(self, user: str, scrub: bool = True) -> int:
        """Remove a user wholly and durably; return how many events went."""
        removed = sqlite_upkeep.forget(self._file, encode("user", user))
        while scrub and self.scrub() is not None:
            pass
        return removed

    def scrub(self) -> float | None:
        """Remove a piece of what is left of forgotten users; return 0 seconds to wait for the next one, None when nothing is left."""
        return 0.0 if sqlite_upkeep.scrub(self._file) else None

    def seed(self, fingerprint: str, histories: Iterable[tuple[str, Sequence[Event]]], again: bool = False) -> int:
        """Import the histories of a data set, once; return how many events were added."""
        return sqlite_upkeep.seed(self._file, encode("data", fingerprint), latest(histories, self._history_limit), again)

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

    def restore(self, source: str | Path, progress: Progress | None = None) -> None:
        """Put a backup in the place of everything that the store holds, while it is in use."""
        sqlite_restore.restore(self._file, Path(source), progress)

    def check(self, progress: Progress | None = None) -> Checked:
        """Read everything, compare all checksums, and raise `StoreDamaged` where they differ."""
        return sqlite_backup.check(self._file, progress)

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()
