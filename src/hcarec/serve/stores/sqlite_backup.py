"""Copies of an SQLite store, made while it is in use, and the check of every row."""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from hcarec import atomic
from hcarec.serve.stores.errors import StoreError
from hcarec.serve.stores.interface import Checked, Progress
from hcarec.serve.stores.records import checksum
from hcarec.serve.stores.sqlite_file import SLOT, SqliteFile, Totals, User, make_private
from hcarec.serve.stores.sqlite_log import read_events
from hcarec.serve.stores.sqlite_upkeep import forgotten, seeds

BACKUP_PAGES = 256  # a step of the backup: 1 MB
CHECK_USERS = 200  # a step of the check


def backup(file: SqliteFile, target: Path, progress: Progress | None) -> None:
    """Copy page by page; what is written between two steps goes to the copy too."""
    if os.path.realpath(target) == os.path.realpath(file.path):
        raise StoreError(f"{target} is the store itself: give another file for the backup")
    try:
        with atomic.file(target) as work, closing(_private(work)) as copy:
            file.db.backup(copy, pages=BACKUP_PAGES, progress=told(progress))
            copy.execute("PRAGMA journal_mode = DELETE")  # one file, nothing beside it
            sizes = copy.execute("SELECT clock, last_user, users, events, traces FROM store").fetchone()
            totals = Totals(secrets.token_bytes(16), *sizes)  # a store of its own: the mark of the original is not about it
            copy.execute("UPDATE store SET name = ?, checksum = ?", (totals.name, totals.checksum()))
    except OSError as error:
        raise StoreError(f"the backup {target} cannot be written ({error.strerror}): give a folder with enough room") from None
    except sqlite3.OperationalError as error:
        raise StoreError(f"the backup {target} cannot be written ({error}): give a folder with enough room") from None
    except sqlite3.DatabaseError:
        raise file.damaged("backup") from None


def _private(work: Path) -> sqlite3.Connection:
    make_private(work)
    return sqlite3.connect(work, isolation_level=None)


def told(progress: Progress | None) -> Callable[[int, int, int], None]:
    """Return what SQLite calls after each step of a copy."""

    def step(_: int, left: int, total: int) -> None:
        if progress is not None:
            progress(total - left, total)

    return step


def check(file: SqliteFile, progress: Progress | None) -> Checked:
    """Check the structure and the sums, then every row, some users at a time."""
    with file.guarded():
        file.verify()
        totals = file.totals()
        users, events, newest = file.db.execute("SELECT count(*), ifnull(sum(n_events), 0), ifnull(max(version), 0) FROM users").fetchone()
        if (users, events) != (totals.users, totals.events) or newest > totals.clock:
            raise file.damaged("users")
        if file.db.execute("SELECT count(*) FROM events").fetchone()[0] != events + sum(left for _, left in forgotten(file)):
            raise file.damaged("events")
        seeds(file)  # which compares their checksums
    checked = Checked(0, 0, 0, 0)
    after = 0
    while True:
        with file.guarded():
            sql = "SELECT id, name, version, n_events, last_time, digest, checksum FROM users WHERE id > ? ORDER BY id LIMIT ?"
            rows = [file.checked_user(row) for row in file.db.execute(sql, (after, CHECK_USERS)).fetchall()]
            checked = _check_users(file, rows, checked)
        if progress is not None:
            progress(checked.users, totals.users)
        if len(rows) < CHECK_USERS:
            return checked
        after = rows[-1].id


def _check_users(file: SqliteFile, users: list[User], checked: Checked) -> Checked:
    n_users, n_events, n_states, damaged = checked
    models = file.models()
    for user in users:
        n_users += 1
        n_events += len(read_events(file, user))
        for slot, model, _ in models:
            key = slot * SLOT + user.id
            row = file.db.execute("SELECT version, state, checksum FROM states WHERE id = ?", (key,)).fetchone()
            if row is not None:
                n_states += 1
                damaged += checksum((key, row[0]), model, row[1]) != row[2]
    return Checked(n_users, n_events, n_states, damaged)
