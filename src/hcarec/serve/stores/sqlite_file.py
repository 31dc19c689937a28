"""The file of an SQLite store: its schema, its one owner, its transactions, and what is found wrong with it."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from hcarec.serve.stores.errors import StoreBusy, StoreDamaged, StoreError, StoreFull
from hcarec.serve.stores.records import checksum
from hcarec.serve.stores.sqlite_mark import Mark
from hcarec.serve.stores.sqlite_slack import MOST_PAGES, Slack

APPLICATION = 0x68636172  # "hcar", in the header of the file
SCHEMA_VERSION = 2
SLOT = 1 << 48
MOST_USERS_HELD = 50_000
AT_ONCE = (128, 64, 32, 16, 8, 4, 2, 1)
"""Rows that one statement reads or writes; few sizes, so that the statements stay prepared."""
T = TypeVar("T")
# Ids are blobs: any bytes, compared as bytes. A state's id is slot * SLOT + user, slot being its model's, so that a table
# of plain rows serves (states of 3 KB then need no overflow page) and a model's states lie side by side.
SCHEMA = (
    "CREATE TABLE store (one INTEGER PRIMARY KEY, name BLOB, clock INTEGER, last_user INTEGER, users INTEGER, events INTEGER, "
    "traces INTEGER, checksum INTEGER) STRICT",
    "CREATE TABLE users (id INTEGER PRIMARY KEY, name BLOB NOT NULL, version INTEGER, n_events INTEGER, last_time INTEGER, "
    "digest INTEGER, checksum INTEGER) STRICT",
    "CREATE UNIQUE INDEX user_names ON users (name)",
    "CREATE TABLE events (user INTEGER, time INTEGER, arrival INTEGER, item BLOB, event_id BLOB, checksum INTEGER, "
    "PRIMARY KEY (user, time, arrival)) STRICT, WITHOUT ROWID",
    "CREATE UNIQUE INDEX event_ids ON events (user, event_id) WHERE event_id IS NOT NULL",
    "CREATE TABLE models (slot INTEGER PRIMARY KEY, name BLOB NOT NULL, states INTEGER, checksum INTEGER) STRICT",
    "CREATE TABLE states (id INTEGER PRIMARY KEY, version INTEGER, state BLOB, checksum INTEGER) STRICT",
    "CREATE TABLE seeds (name BLOB PRIMARY KEY, users INTEGER, finished INTEGER, checksum INTEGER) STRICT, WITHOUT ROWID",
)
# Since version 2: users who were forgotten and of whom events are left to remove. The rest of what was known of them is gone.
FORGOTTEN = "CREATE TABLE forgotten (user INTEGER PRIMARY KEY, n_events INTEGER, checksum INTEGER) STRICT"


@dataclass
class Totals:
    """The one row about the whole store: a random name, the last arrival number, the last user's id, sizes, traces."""

    name: bytes
    clock: int = 0
    last_user: int = 0
    users: int = 0
    events: int = 0
    traces: int = 0

    def row(self) -> tuple[bytes, int, int, int, int, int]:
        """Return the fields as they are stored."""
        return self.name, self.clock, self.last_user, self.users, self.events, self.traces

    def checksum(self) -> int:
        """Return the checksum of the row."""
        return checksum(self.row()[1:], self.name)


class User(NamedTuple):
    """A row of `users`; `digest` is the sum of the checksums of the user's events, modulo 2^32."""

    id: int
    name: bytes
    version: int
    n_events: int
    last_time: int
    digest: int

    def checksum(self) -> int:
        """Return the checksum of the row."""
        return checksum((self.id, self.version, self.n_events, self.last_time, self.digest), self.name)


def parts(rows: Sequence[T]) -> Iterator[Sequence[T]]:
    """Cut rows into pieces for one statement each: at every statement Python may hand the interpreter to another thread, and waits to get it back."""
    at = 0
    for size in AT_ONCE:
        while len(rows) - at >= size:
            yield rows[at : at + size]
            at += size


def marks(n: int) -> str:
    """Return n marks, where values are put in."""
    return ", ".join("?" * n)


def make_private(path: Path) -> None:
    """Make a file that nobody else may read, unless it is there; SQLite gives the same rights to what it keeps beside it."""
    with contextlib.suppress(OSError):  # it is there, or SQLite will say what is wrong
        os.close(os.open(os.path.realpath(path), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def restoring_folder(path: Path) -> Path:
    """Return the folder in which the copy of a backup lies while it is restored."""
    return path.with_name(f".{path.name}.restoring")


class SqliteFile:
    """The only connection to a store's file, which no other process can open meanwhile.

    One connection writes, reads and checkpoints: SQLite before 3.51.3 may damage a WAL database otherwise. Since nobody else writes,
    the row about the store, the models and the users of the last transactions are held in memory; what fails to commit is read again.
    """

    def __init__(self, path: str | Path, verify: bool, checkpoint_pages: int) -> None:
        self.path = Path(os.path.abspath(path))
        make_private(self.path)
        with self.guarded():
            self.db = sqlite3.connect(self.path, timeout=1.0, isolation_level=None)
        self._mark = Mark(self.path)
        self._slack = Slack(self.path, self.checkpoint, lambda: self.db.execute("PRAGMA shrink_memory").close())
        self._totals: Totals | None = None
        self._models: list[tuple[int, bytes, int]] | None = None
        self._users: dict[bytes, User] = {}
        try:
            with self.guarded():
                self._open(verify, checkpoint_pages)
        except BaseException:
            self.close()
            raise

    def _open(self, verify: bool, checkpoint_pages: int) -> None:
        execute = self.db.execute
        self.db.text_factory = bytes  # a damaged row may claim to be text
        execute("PRAGMA locking_mode = EXCLUSIVE")  # also keeps the WAL's index in memory: no file of it to go wrong
        execute("BEGIN IMMEDIATE").connection.rollback()  # takes the lock, before anything is changed
        shutil.rmtree(restoring_folder(self.path), ignore_errors=True)  # left by who was killed; it holds people's events
        tables = execute("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL").fetchall()
        application, version = (execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version"))
        if tables and application != APPLICATION:
            raise StoreError(f"{self.path} is an SQLite file of another program: give another path for the store")
        if tables and version > SCHEMA_VERSION:
            raise StoreError(f"the store {self.path} is of format {version}, this version reads up to {SCHEMA_VERSION}: use a newer hcarec")
        if tables and sorted(sql for (sql,) in tables) != sorted(sql.encode() for sql in (*SCHEMA, FORGOTTEN)[: len(SCHEMA) + (version > 1)]):
            raise self.damaged("schema")
        if execute("PRAGMA journal_mode = WAL").fetchone()[0] != b"wal":
            raise StoreError(f"the file system of {self.path} cannot hold a WAL database: put the store on a local disk")
        execute("PRAGMA synchronous = FULL")
        execute("PRAGMA secure_delete = ON")
        execute("PRAGMA cache_size = -65536")
        execute(f"PRAGMA wal_autocheckpoint = {checkpoint_pages:d}")
        if not tables:
            self._mark.compare(None, 0)
            self._create()
        elif verify:
            self.verify()
        if tables and version < SCHEMA_VERSION:
            self._convert()
        totals = self.totals()
        self._mark.compare(totals.name, totals.clock)
        self._mark.open()
        self._mark.write(totals.name, totals.clock)

    def _create(self) -> None:
        self.db.execute("BEGIN IMMEDIATE")
        for sql in (*SCHEMA, FORGOTTEN):
            self.db.execute(sql)
        self.db.execute(f"PRAGMA application_id = {APPLICATION}")
        self.db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        totals = Totals(secrets.token_bytes(16))
        self.db.execute("INSERT INTO store VALUES (1, ?, 0, 0, 0, 0, 0, ?)", (totals.name, totals.checksum()))
        self.db.execute("COMMIT")

    def _convert(self) -> None:
        """Bring a store of version 1 up to date."""
        self.db.execute("BEGIN IMMEDIATE")
        self.db.execute(FORGOTTEN)
        self.db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        self.db.execute("COMMIT")

    def verify(self) -> None:
        """Check that all pages and indexes fit together, so that nothing that is there can be missed."""
        if self.db.execute("PRAGMA integrity_check(1)").fetchone()[0] != b"ok":
            raise self.damaged("structure")

    # -- transactions --------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def guarded(self) -> Iterator[None]:
        """Turn errors of SQLite into ours."""
        try:
            yield
        except (sqlite3.ProgrammingError, sqlite3.InterfaceError):
            raise  # our mistake: a wrong thread, a closed store
        except sqlite3.Error as error:
            raise self._translated(error) from error
        except UnicodeDecodeError as error:  # the text of SQLite's own message, quoting a damaged schema
            raise self.damaged("schema") from error

    @contextlib.contextmanager
    def writing(self, holds_users: bool = False) -> Iterator[Totals]:
        """Run a block as one durable transaction, over the totals, which it may change; `holds_users` says that it passes all new rows of users to `hold`."""
        with self.guarded():
            self.db.execute("BEGIN IMMEDIATE")
            try:
                before = self.totals()
                totals = replace(before)
                yield totals
                if totals != before:
                    self.db.execute(
                        "UPDATE store SET name = ?, clock = ?, last_user = ?, users = ?, events = ?, traces = ?, checksum = ?",
                        (*totals.row(), totals.checksum()),
                    )
                self.db.execute("COMMIT")
            except BaseException:
                self._totals, self._models = None, None
                self._users.clear()
                with contextlib.suppress(sqlite3.Error):  # SQLite may have rolled back by itself
                    self.db.execute("ROLLBACK")
                raise
        self._totals = totals
        if not holds_users:
            self._models = None
            self._users.clear()
        self._mark.write(totals.name, totals.clock)

    def totals(self) -> Totals:
        """Return the row about the whole store."""
        if self._totals is None:
            self._totals = self._read_totals()
        return self._totals

    def _read_totals(self) -> Totals:
        row = self.db.execute("SELECT name, clock, last_user, users, events, traces, checksum FROM store WHERE one = 1").fetchone()
        if row is None or (totals := Totals(*row[:-1])).checksum() != row[-1]:
            raise self.damaged("store")
        return totals

    def user(self, name: bytes) -> User | None:
        """Return the row of a user."""
        return self.users([name]).get(name)

    def users(self, names: Sequence[bytes]) -> dict[bytes, User]:
        """Return the rows of those users that there are."""
        found = {name: user for name in names if (user := self._users.get(name)) is not None}
        rows = self.rows_of("SELECT id, name, version, n_events, last_time, digest, checksum FROM users WHERE name", [n for n in names if n not in found])
        return found | {row[1]: self.checked_user(row) for row in rows}

    def rows_of(self, select: str, names: Sequence[Any], *first: Any) -> list[Any]:
        """Read the rows of some names by a query that ends before ` IN (..)`, `first` being the values of its other marks."""
        rows: list[Any] = []
        for part in parts(names):
            rows += self.db.execute(f"{select} IN ({marks(len(part))})", (*first, *part)).fetchall()
        return rows

    def hold(self, user: User) -> None:
        """Keep the row of a user, just written, in memory."""
        self._users.pop(user.name, None)
        self._users[user.name] = user
        if len(self._users) > MOST_USERS_HELD:
            del self._users[next(iter(self._users))]

    def checked_user(self, row: tuple[int, bytes, int, int, int, int, int]) -> User:
        """Return a row of `users` if its checksum is right."""
        user = User(*row[:-1])
        if user.checksum() != row[-1]:
            raise self.damaged("users")
        return user

    def models(self) -> list[tuple[int, bytes, int]]:
        """Return slot, name and number of states of every model."""
        if self._models is None:
            self._models = self._read_models()
        return list(self._models)

    def _read_models(self) -> list[tuple[int, bytes, int]]:
        rows = self.db.execute("SELECT slot, name, states, checksum FROM models ORDER BY slot").fetchall()
        if any(checksum((slot, states), name) != expected for slot, name, states, expected in rows):
            raise self.damaged("models")
        return [row[:3] for row in rows]

    def count_states(self, slot: int, name: bytes, states: int) -> None:
        """Write how many states of a model there are."""
        self._models = None
        self.db.execute("INSERT OR REPLACE INTO models VALUES (?, ?, ?, ?)", (slot, name, states, checksum((slot, states), name)))

    def checkpoint(self) -> None:
        """Bring everything into the main file and cut the WAL to nothing."""
        if self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
            raise StoreBusy(f"the store {self.path} could not be brought into one file: something else is reading it")

    def deleted(self) -> None:
        """Note that rows of a forgotten user were deleted: the unused bytes of all pages are to be overwritten from now on."""
        self._slack.restart()

    def overwrite_slack(self) -> bool:
        """Overwrite the unused bytes of some pages; say whether there are more to come."""
        pages, size, moves = (self.db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size", "auto_vacuum"))
        if pages >= MOST_PAGES or moves:  # pages are not known by their first byte: all of it at once, while everything waits
            self.db.execute("VACUUM")
            self.checkpoint()
            return False
        try:
            return self._slack.step(pages, size)
        except ValueError:
            raise self.damaged("structure") from None
        except OSError as error:
            raise StoreError(f"the disk of the store {self.path} failed ({error.strerror}): check the disk") from None

    def replace_all(self, other: sqlite3.Connection) -> None:
        """Put what another database holds in the place of everything, in one durable transaction."""
        self._totals, self._models = None, None
        self._users.clear()
        self._slack.restart()
        with self.guarded():
            try:
                other.backup(self.db)
            finally:  # the WAL has become as large as that database, be the transaction done or not; later will do where this fails
                with contextlib.suppress(sqlite3.Error, StoreBusy):
                    self.checkpoint()
            totals = self.totals()
        self._mark.write(totals.name, totals.clock)

    def close(self) -> None:
        """Close the connection, then what else is open."""
        self.db.close()
        self._slack.close()
        self._mark.close()

    # -- errors ---------------------------------------------------------------------------------------------------

    def damaged(self, table: str) -> StoreDamaged:
        """Return the error for a table that is not what was written."""
        return StoreDamaged(f"the store {self.path} is damaged (found in: {table}): keep a copy of the file and restore the last backup")

    def _translated(self, error: sqlite3.Error) -> StoreError:
        code = getattr(error, "sqlite_errorcode", None)
        kind = -1 if code is None else code & 0xFF
        if kind in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return StoreBusy(f"the store {self.path} is in use by another process: stop that one, or give another path")
        if kind == sqlite3.SQLITE_FULL:
            return StoreFull(f"no room left to write to the store {self.path}: free some space; nothing was written, and writing goes on by itself")
        if kind == sqlite3.SQLITE_CANTOPEN:
            return StoreError(f"the store {self.path} cannot be opened: give a file in an existing folder that may be written to")
        if kind == sqlite3.SQLITE_READONLY:
            return StoreError(f"the store {self.path} cannot be written to: check the permissions of the file and its folder")
        if kind == sqlite3.SQLITE_IOERR and code != sqlite3.SQLITE_IOERR_SHORT_READ:
            return StoreError(f"the disk of the store {self.path} failed ({getattr(error, 'sqlite_errorname', 'I/O error')}): check the disk")
        return self.damaged(str(error))
