"""Events in an SQLite store: added to a log, read from it, and the users that have one, page by page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hcarec.serve.stores.records import encode, event_checksum
from hcarec.serve.stores.sqlite_file import SqliteFile, Totals, User, marks, parts

Row = tuple[int, int, int, bytes, bytes | None, int]
"""An event as it is written: user, time, arrival, item, event id, checksum."""
Read = tuple[int, int, bytes, bytes | None]
"""An event as it is read: time, arrival, item, event id."""


def add_events(file: SqliteFile, totals: Totals, user: User | None, name: bytes, events: Sequence[tuple[int, bytes, bytes | None]]) -> None:
    """Add events to a user's log, new or not, inside a transaction."""
    user, rows = appended(totals, user, name, events)
    write_events(file, rows)
    write_users(file, [user])


def appended(totals: Totals, user: User | None, name: bytes, events: Sequence[tuple[int, bytes, bytes | None]]) -> tuple[User, list[Row]]:
    """Return the row of a user, new or not, after some more events, and the rows of these; the totals go along."""
    if user is None:
        totals.last_user += 1
        totals.users += 1
        user = User(totals.last_user, name, 0, 0, events[0][0], 0)
    rows = []
    for time, item, event_id in events:
        totals.clock += 1
        rows.append((user.id, time, totals.clock, item, event_id, event_checksum(user.id, time, totals.clock, item, event_id)))
    totals.events += len(rows)
    last_time = max(user.last_time, max(row[1] for row in rows))
    digest = (user.digest + sum(row[5] for row in rows)) % (1 << 32)
    return User(user.id, name, totals.clock, user.n_events + len(rows), last_time, digest), rows


def write_events(file: SqliteFile, rows: Sequence[Row]) -> None:
    """Write new events."""
    insert(file, "INSERT INTO events VALUES ", rows, "")


def write_users(file: SqliteFile, users: Sequence[User]) -> None:
    """Write the rows of users, new or not."""
    rows = [(*user, user.checksum()) for user in users]
    change = ", ".join(f"{name} = excluded.{name}" for name in ("version", "n_events", "last_time", "digest", "checksum"))
    insert(file, "INSERT INTO users VALUES ", rows, f" ON CONFLICT (id) DO UPDATE SET {change}")


def insert(file: SqliteFile, begin: str, rows: Sequence[tuple[Any, ...]], end: str) -> None:
    """Write rows in few statements."""
    for part in parts(rows):
        one = f"({marks(len(part[0]))})"
        file.db.execute(begin + ", ".join([one] * len(part)) + end, [value for row in part for value in row])


def count(file: SqliteFile, table: str, ids: Sequence[int]) -> int:
    """Count how many of some ids a table holds."""
    return sum(file.db.execute(f"SELECT count(*) FROM {table} WHERE id IN ({marks(len(part))})", part).fetchone()[0] for part in parts(ids))


def write_user(file: SqliteFile, user: User) -> None:
    """Write the row of a user that exists."""
    sql = "UPDATE users SET version = ?, n_events = ?, last_time = ?, digest = ?, checksum = ? WHERE id = ?"
    file.db.execute(sql, (*user[2:], user.checksum(), user.id))


def remove_event(file: SqliteFile, totals: Totals, user: User, event_id: bytes) -> int:
    """Remove the event of a user that has an id, inside a transaction; return how many went. The log has a new version then."""
    sql = "SELECT time, arrival, item, event_id, checksum FROM events WHERE user = ? AND event_id = ?"
    rows = file.db.execute(sql, (user.id, event_id)).fetchall()
    if not rows:
        return 0
    ((time, arrival, _, _),) = check_events(file, user.id, rows)
    if file.db.execute("DELETE FROM events WHERE user = ? AND time = ? AND arrival = ?", (user.id, time, arrival)).rowcount != 1:
        raise file.damaged("events")
    totals.clock += 1
    totals.events -= 1
    user = user._replace(version=totals.clock, n_events=user.n_events - 1, digest=(user.digest - rows[0][4]) % (1 << 32))
    write_user(file, user)
    file.hold(user)
    return 1


def read_events(file: SqliteFile, user: User, limit: int | None = None, before: tuple[int, int] | None = None) -> list[Read]:
    """Read a user's log, or its last `limit` events (`before` a time and arrival), oldest first, and check that it is the one that was written."""
    where, place = ("", ()) if before is None else (" AND (time, arrival) < (?, ?)", before)
    sql = f"SELECT time, arrival, item, event_id, checksum FROM events WHERE user = ?{where} ORDER BY time DESC, arrival DESC LIMIT ?"
    rows = file.db.execute(sql, (user.id, *place, -1 if limit is None else limit)).fetchall()
    rows.reverse()
    events = check_events(file, user.id, rows)
    if before is not None:
        return events
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
