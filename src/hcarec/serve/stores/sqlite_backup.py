"""Copies of an SQLite store, made while it is in use, and the check of every row."""

from __future__ import annotations

import os
import secrets
import sqlite3
from contextlib import closing
from pathlib import Path

from hcarec import atomic
from hcarec.serve.stores.errors import StoreBusy, StoreDamaged, StoreError
from hcarec.serve.stores.interface import Checked, Progress
from hcarec.serve.stores.records import checksum
from hcarec.serve.stores.sqlite_file import APPLICATION, SLOT, SqliteFile, Totals, User
from hcarec.serve.stores.sqlite_log import read_events

BACKUP_PAGES = 256  # a step of the backup: 1 MB
CHECK_USERS = 200  # a step of the check


def backup(file: SqliteFile, target: Path, progress: Progress | None) -> None:
    """Copy page by page; what is written between two steps goes to the copy too."""
    if os.path.realpath(target) == os.path.realpath(file.path):
        raise StoreError(f"{target} is the store itself: give another file for the backup")

    def step(_: int, left: int, total: int) -> None:
        if progress is not None:
            progress(total - left, total)

    try:
        with atomic.file(target) as work, closing(sqlite3.connect(work, isolation_level=None)) as copy:
            file.db.backup(copy, pages=BACKUP_PAGES, progress=step)
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


def restore(source: str | Path, target: str | Path) -> None:
    """Put a backup in the place of a store that nobody uses, whatever state that is in; its WAL and mark go with it."""
    source, target = Path(source), Path(os.path.abspath(target))
    if not source.is_file():
        raise StoreError(f"there is no backup {source}: give the file that a backup wrote")
    _refuse_if_used(target)
    try:
        with atomic.file(target) as work:
            _copy_verified(source, work)
            for ending in ("-wal", "-shm", "-journal", "-mark"):  # an old WAL would be replayed over the backup
                target.with_name(target.name + ending).unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(f"the store {target} cannot be written ({error.strerror}): give a folder with enough room") from None


def _copy_verified(source: Path, work: Path) -> None:
    try:
        with closing(sqlite3.connect(source, timeout=0)) as db, closing(sqlite3.connect(work)) as copy:
            if db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
                raise StoreError(f"{source} is not the backup of a store: give the file that a backup wrote")
            db.backup(copy)
            if copy.execute("PRAGMA integrity_check(1)").fetchone()[0] != "ok":
                raise StoreDamaged(f"the backup {source} is damaged: use an older one")
            copy.execute("PRAGMA journal_mode = DELETE")
    except sqlite3.OperationalError as error:
        raise StoreBusy(f"the backup {source} cannot be copied ({error}): make sure that it is not in use and that there is room") from None
    except sqlite3.DatabaseError as error:
        raise StoreDamaged(f"the backup {source} cannot be read ({error}): use another one") from None


def _refuse_if_used(target: Path) -> None:
    if not target.exists():
        return
    with closing(sqlite3.connect(target, timeout=0, isolation_level=None)) as db:
        try:
            db.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
                raise StoreBusy(f"the store {target} is in use by another process: stop that one first") from None
        except sqlite3.DatabaseError:
            pass  # damaged: that is why it is being replaced


def check(file: SqliteFile, progress: Progress | None) -> Checked:
    """Check the structure and the sums, then every row, some users at a time."""
    with file.guarded():
        file.verify()
        totals = file.totals()
        users, events, newest = file.db.execute("SELECT count(*), ifnull(sum(n_events), 0), ifnull(max(version), 0) FROM users").fetchone()
        if (users, events) != (totals.users, totals.events) or newest > totals.clock:
            raise file.damaged("users")
        if file.db.execute("SELECT count(*) FROM events").fetchone()[0] != events:
            raise file.damaged("events")
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
