"""Put a backup in the place of everything that an SQLite store holds, while the store is in use."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from hcarec.errors import InputError
from hcarec.serve.stores import sqlite_backup
from hcarec.serve.stores.errors import StoreDamaged, StoreError, StoreFull
from hcarec.serve.stores.interface import Progress
from hcarec.serve.stores.sqlite_file import APPLICATION, SqliteFile, restoring_folder

CHECKPOINT_PAGES = 1000  # of the copy, which is written to once


def restore(file: SqliteFile, source: Path, progress: Progress | None) -> None:
    """Put a backup in the place of what a store holds, whole or not at all; the backup stays as it is.

    The name becomes a new one and the numbers go on from the higher of both: so the mark of what was there before says nothing about this, and
    no version that is given out from now on was given out before.
    """
    if os.path.exists(source) and os.path.samefile(source, file.path):  # to open and close it here would also drop our locks
        raise InputError(f"{source} is the store itself: give the file that a backup wrote")
    with _folder(file) as folder:
        work = copied(source, folder, progress)
        with closing(SqliteFile(work, False, CHECKPOINT_PAGES)) as copy:
            if len({db.execute("PRAGMA page_size").fetchone() for db in (copy.db, file.db)}) > 1:
                raise InputError(f"the backup {source} has pages of another size than the store: start a server with a copy of it as --store")
            with copy.writing() as totals:
                totals.name = secrets.token_bytes(16)
                totals.clock = max(totals.clock, file.totals().clock)
            file.replace_all(copy.db)


@contextlib.contextmanager
def _folder(file: SqliteFile) -> Iterator[Path]:
    """Yield an empty folder on the disk of a store; one that a kill leaves behind goes when the store is opened."""
    folder = restoring_folder(file.path)
    shutil.rmtree(folder, ignore_errors=True)
    try:
        folder.mkdir(mode=0o700)
    except OSError as error:
        kind = StoreFull if error.errno == errno.ENOSPC else StoreError
        raise kind(f"the store {file.path} has no place for a copy of the backup ({error.strerror}): make room in its folder") from None
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def copied(source: Path, folder: Path, progress: Progress | None) -> Path:
    """Copy a backup into a folder and check all of it; return the copy, which is a store."""
    work = folder / "copy.sqlite"
    _copy(source, work, progress)
    try:
        with closing(SqliteFile(work, False, CHECKPOINT_PAGES)) as copy:
            sqlite_backup.check(copy, progress)
    except StoreFull:
        raise
    except StoreDamaged:
        raise InputError(f"the backup {source} is damaged: use another one") from None
    except StoreError as error:
        raise InputError(str(error).replace(f"store {work}", f"backup {source}").replace(str(work), str(source))) from None
    return work


def _copy(source: Path, work: Path, progress: Progress | None) -> None:
    if not os.path.isfile(source):
        raise InputError(f"there is no backup {source}: give the file that a backup wrote")
    if any(os.path.lexists(f"{source}{ending}") for ending in ("-wal", "-journal")):
        raise InputError(f"{source} is a store in use, or one that was stopped hard: give the file that a backup wrote")
    try:
        # Immutable: so nothing is written to the backup or beside it.
        with closing(sqlite3.connect(f"{source.absolute().as_uri()}?immutable=1", uri=True)) as db, closing(sqlite3.connect(work)) as copy:
            if db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
                raise InputError(f"{source} is not the backup of a store: give the file that a backup wrote")
            db.backup(copy, pages=sqlite_backup.BACKUP_PAGES, progress=sqlite_backup.told(progress))
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
            raise StoreFull(f"no room left for a copy of the backup in {work.parent}: free some space; nothing was changed") from None
        raise InputError(f"the backup {source} cannot be read ({error}): use another one") from None
