"""The upkeep of an SQLite store: import, retention, forgetting in pieces."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

from hcarec.serve.stores.errors import StoreError
from hcarec.serve.stores.interface import RETAIN_MOST, TRIM_FROM, TRIM_MOST, Event, Retained
from hcarec.serve.stores.records import check_time, checksum, encode, encode_events
from hcarec.serve.stores.sqlite_file import SLOT, SqliteFile, User
from hcarec.serve.stores.sqlite_log import add_events, check_events, next_page, page, write_user

SEED_EVENTS = 50_000  # a transaction of the import
FORGET_EVENTS = 1000
"""Events of a forgotten user that are removed in one transaction."""


def seed(file: SqliteFile, fingerprint: bytes, histories: Iterable[tuple[str, Sequence[Event]]], again: bool) -> int:
    """Import histories in large transactions, each of which also notes how far the import has come."""
    with file.guarded():
        known = seeds(file)
    if others := sorted(name.decode(errors="replace")[:12] for name in known if name != fingerprint):
        if fingerprint not in known and not again:
            raise StoreError(
                f"the store {file.path} already holds the histories of another data set ({', '.join(others)}): "
                "events in both would count twice; start without data, or with a new store"
            )
    done, finished = known.get(fingerprint, (0, False))
    if finished:
        return 0
    added = 0
    rest = itertools.islice(histories, done, None)
    for batch in _batches(rest):
        with file.writing() as totals:
            before = totals.events
            for name, events in batch:
                if events:
                    add_events(file, totals, file.user(name), name, events)
            done += len(batch)
            _note_seed(file, fingerprint, done, False)
        added += totals.events - before
    with file.writing():
        _note_seed(file, fingerprint, done, True)
    return added


def seeds(file: SqliteFile) -> dict[bytes, tuple[int, bool]]:
    """Read how many users of each data set have been imported, and whether that is all."""
    rows = file.db.execute("SELECT name, users, finished, checksum FROM seeds").fetchall()
    if any(checksum((users, finished), name) != expected for name, users, finished, expected in rows):
        raise file.damaged("seeds")
    return {name: (users, bool(finished)) for name, users, finished, _ in rows}


def _note_seed(file: SqliteFile, name: bytes, users: int, finished: bool) -> None:
    file.db.execute("INSERT OR REPLACE INTO seeds VALUES (?, ?, ?, ?)", (name, users, int(finished), checksum((users, int(finished)), name)))


def _batches(histories: Iterable[tuple[str, Sequence[Event]]]) -> Iterator[list[tuple[bytes, list[tuple[int, bytes, bytes | None]]]]]:
    batch, size = [], 0
    for user, events in histories:
        batch.append((encode("user", user), encode_events(events)))
        size += len(events) + 1
        if size >= SEED_EVENTS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def retain(file: SqliteFile, last: int | None, since: int | None, after: str | None, limit: int) -> Retained:
    """Remove the oldest events of a page of users; versions and states stay."""
    assert last is None or last >= 0
    since = None if since is None else check_time(since)
    users = page(file, after, limit)
    removed = 0
    with file.writing() as totals:
        for user in users:
            going = 0 if last is None else max(0, user.n_events - last)
            if since is not None:
                going = max(going, file.db.execute("SELECT count(*) FROM events WHERE user = ? AND time < ?", (user.id, since)).fetchone()[0])
            if not going:
                continue
            _remove_oldest(file, user, going)
            removed += going
            if removed >= RETAIN_MOST:
                break
        totals.events -= removed
    if users and user is not users[-1]:
        return Retained(removed, user.name.decode())
    return Retained(removed, next_page(users, limit))


def trim(file: SqliteFile, names: Sequence[bytes], last: int) -> None:
    """Remove the oldest events of those users who have many more than `last`, some at a time; versions and states stay."""
    long = [user for user in file.users(names).values() if user.n_events >= last + TRIM_FROM]
    if not long:
        return
    with file.writing(holds_users=True) as totals:
        for user in long:
            going = min(user.n_events - last, TRIM_MOST)
            file.hold(_remove_oldest(file, user, going))
            totals.events -= going


def _remove_oldest(file: SqliteFile, user: User, going: int) -> User:
    """Remove the oldest events of a user inside a transaction; return the row of the user then."""
    sql = "SELECT time, arrival, item, event_id, checksum FROM events WHERE user = ? ORDER BY time, arrival LIMIT ?"
    rows = file.db.execute(sql, (user.id, going)).fetchall()
    check_events(file, user.id, rows)
    if len(rows) != going:
        raise file.damaged("events")
    gone = file.db.execute("DELETE FROM events WHERE user = ? AND (time, arrival) <= (?, ?)", (user.id, *rows[-1][:2])).rowcount
    if gone != going:
        raise file.damaged("events")
    user = user._replace(n_events=user.n_events - gone, digest=(user.digest - sum(row[4] for row in rows)) % (1 << 32))
    write_user(file, user)
    return user


def drop_states(file: SqliteFile, keep: set[bytes], limit: int) -> int:
    """Remove up to `limit` states of one model that is not to be kept, and the model itself with its last one."""
    with file.writing():
        for slot, name, states in file.models():
            if name in keep:
                continue
            sql = "DELETE FROM states WHERE id IN (SELECT id FROM states WHERE id >= ? AND id < ? LIMIT ?)"
            gone = file.db.execute(sql, (slot * SLOT, (slot + 1) * SLOT, limit)).rowcount
            if gone:
                file.count_states(slot, name, states - gone)
                return gone
            file.db.execute("DELETE FROM models WHERE slot = ?", (slot,))
    return 0


def forget(file: SqliteFile, name: bytes) -> int:
    """Remove a user: nothing of it is there for anybody afterwards, and what many events take longer to remove is left to `scrub`."""
    with file.writing() as totals:
        user = file.user(name)
        if user is None:
            return 0
        for slot, model, states in file.models():
            gone = file.db.execute("DELETE FROM states WHERE id = ?", (slot * SLOT + user.id,)).rowcount
            file.count_states(slot, model, states - gone)
        file.db.execute("DELETE FROM users WHERE id = ?", (user.id,))
        _note_forgotten(file, user.id, user.n_events)
        _remove_forgotten(file, user.id, user.n_events)
        totals.users -= 1
        totals.events -= user.n_events
        totals.traces = 1
    with file.guarded():
        file.checkpoint()
    return user.n_events


def scrub(file: SqliteFile) -> bool:
    """Remove some of what is left of forgotten users: events, then copies of rows in unused bytes of the file; say whether there is more."""
    with file.guarded():
        if not file.totals().traces:
            return False
        left = forgotten(file)
        if not left and file.overwrite_slack():
            return True
    with file.writing(holds_users=True) as totals:
        if left:
            _remove_forgotten(file, *left[0])
        else:
            totals.traces = 0
    return bool(left)


def forgotten(file: SqliteFile) -> list[tuple[int, int]]:
    """Read the numbers of the users who were forgotten and have events left, and how many."""
    rows = file.db.execute("SELECT user, n_events, checksum FROM forgotten").fetchall()
    if any(checksum(row[:2]) != row[2] for row in rows):
        raise file.damaged("forgotten")
    return [row[:2] for row in rows]


def _note_forgotten(file: SqliteFile, user: int, n_events: int) -> None:
    file.db.execute("INSERT OR REPLACE INTO forgotten VALUES (?, ?, ?)", (user, n_events, checksum((user, n_events))))


def _remove_forgotten(file: SqliteFile, user: int, n_events: int) -> None:
    """Remove some events of a user who was forgotten, inside a transaction, and note how many are left."""
    places = file.db.execute("SELECT time, arrival FROM events WHERE user = ? ORDER BY time, arrival LIMIT ?", (user, FORGET_EVENTS)).fetchall()
    if places:
        file.db.execute("DELETE FROM events WHERE user = ? AND (time, arrival) <= (?, ?)", (user, *places[-1]))
    if len(places) < FORGET_EVENTS:
        file.db.execute("DELETE FROM forgotten WHERE user = ?", (user,))
    else:
        _note_forgotten(file, user, n_events - len(places))
    file.deleted()
