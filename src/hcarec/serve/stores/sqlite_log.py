"""Events in an SQLite store: added to a log, read from it, and the users that have one, page by page."""

from __future__ import annotations

from collections.abc import Sequence

from hcarec.serve.stores.records import encode, event_checksum
from hcarec.serve.stores.sqlite_file import SqliteFile, Totals, User

Read = tuple[int, int, bytes, bytes | None]
"""An event as it is read: time, arrival, item, event id."""


def add_events(file: SqliteFile, totals: Totals, user: User | None, name: bytes, events: Sequence[tuple[int, bytes, bytes | None]]) -> User:
    """Add events to a user's log, new or not, inside a transaction; return the user's new row."""
    if user is None:
        totals.last_user += 1
        totals.users += 1
    owner = totals.last_user if user is None else user.id
    rows = []
    for time, item, event_id in events:
        totals.clock += 1
        rows.append((owner, time, totals.clock, item, event_id, event_checksum(owner, time, totals.clock, item, event_id)))
    totals.events += len(rows)
    last_time = max(row[1] for row in rows)
    digest = sum(row[5] for row in rows)
    if user is None:
        new = User(owner, name, totals.clock, len(rows), last_time, digest % (1 << 32))
        sql = "INSERT INTO users (name, version, n_events, last_time, digest, checksum, id) VALUES (?, ?, ?, ?, ?, ?, ?)"
    else:
        new = User(owner, name, totals.clock, user.n_events + len(rows), max(user.last_time, last_time), (user.digest + digest) % (1 << 32))
        sql = "UPDATE users SET version = ?2, n_events = ?3, last_time = ?4, digest = ?5, checksum = ?6 WHERE id = ?7 AND name = ?1"
    file.db.execute(sql, (*new[1:], new.checksum(), owner))
    file.db.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?)", rows)
    return new


def write_user(file: SqliteFile, user: User) -> None:
    """Write the row of a user that exists."""
    sql = "UPDATE users SET version = ?, n_events = ?, last_time = ?, digest = ?, checksum = ? WHERE id = ?"
    file.db.execute(sql, (*user[2:], user.checksum(), user.id))


def read_events(file: SqliteFile, user: User, limit: int | None = None) -> list[Read]:
    """Read a user's log, or its last `limit` events, oldest first, and check that it is the one that was written."""
    sql = "SELECT time, arrival, item, event_id, checksum FROM events WHERE user = ? ORDER BY time DESC, arrival DESC LIMIT ?"
    rows = file.db.execute(sql, (user.id, -1 if limit is None else limit)).fetchall()
    rows.reverse()
    events = check_events(file, user.id, rows)
    if limit is None or limit >= user.n_events:
        if len(rows) != user.n_events or sum(row[4] for row in rows) % (1 << 32) != user.digest:
            raise file.damaged("events")
    elif len(rows) != limit:
        raise file.damaged("events")
    return events


def check_events(file: SqliteFile, owner: int, rows: Sequence[tuple[int, int, bytes, bytes | None, int]]) -> list[Read]:
    """Return rows without their checksums if these are right and the order is that of a log."""
    before = None
    for time, arrival, item, event_id, expected in rows:
        if event_checksum(owner, time, arrival, item, event_id) != expected or (before is not None and (time, arrival) <= before):
            raise file.damaged("events")
        before = time, arrival
    return [row[:4] for row in rows]


def page(file: SqliteFile, after: str | None, limit: int) -> list[User]:
    """Read up to `limit` users in the order of their ids' bytes."""
    assert limit >= 1
    sql = "SELECT id, name, version, n_events, last_time, digest, checksum FROM users WHERE name > ? ORDER BY name LIMIT ?"
    with file.guarded():
        rows = file.db.execute(sql, (b"" if after is None else encode("user", after), limit)).fetchall()
        return [file.checked_user(row) for row in rows]


def next_page(users: Sequence[User], limit: int) -> str | None:
    """Return what leads to the page after this one, or None when it was the last."""
    return users[-1].name.decode() if len(users) == limit else None
