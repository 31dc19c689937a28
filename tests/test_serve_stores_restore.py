"""A backup in the place of what a store holds, while the store is open: exactly the one or exactly the other, whatever happens."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hcarec.errors import InputError
from hcarec.serve.stores import open_store
from hcarec.serve.stores.apart import ApartStore
from hcarec.serve.stores.errors import StoreError, StoreFull, StoreUnreachable
from hcarec.serve.stores.interface import Change, Event, Rebuilt, Store, Wanted
from hcarec.serve.stores.sqlite import SqliteStore
from live_models import quick_folder
from soak_counts import counting
from store_servers import DURABLE, Server

M = "model"


def fill(store: Store, users: int = 60, tag: str = "") -> None:
    """Give a store users with logs, states of two models and an import."""
    for part in range(2):
        loaded = store.load([Wanted(f"user {n}") for n in range(users)], M)
        changes = [
            Change(f"user {n}", each.version, [Event(part, f"{tag}{n}", f"{tag}{part}-{n}")], M, f"state {tag}{n}".encode() * 40)
            for n, each in enumerate(loaded)
        ]
        assert all(store.commit(changes))
    loaded = store.load([Wanted(f"user {n}") for n in range(users)], M)
    store.put_states([Rebuilt(f"user {n}", each.version, "other", b"other") for n, each in enumerate(loaded[: users // 2])])
    store.seed(f"data {tag}", [(f"seeded {tag}", [Event(n, f"item {n}") for n in range(50)])], again=True)


def content(store: Store) -> list[object]:
    """Read all that a store holds."""
    users = store.users(limit=10_000).users
    loaded = [store.load([Wanted(user) for user in users], model) for model in (M, "other")]
    figures = store.figures()
    return [users, loaded, [store.history(user) for user in users], store.seeded(), figures.users, figures.events, figures.states]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture(params=["sqlite", "apart"])
def store(request: pytest.FixtureRequest, path: Path) -> Iterator[Store]:
    store = open_store(str(path), apart=request.param == "apart")
    yield store
    store.close()


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    """Return the backup of a store."""
    with contextlib.closing(SqliteStore(tmp_path / "other.db")) as other:
        fill(other, tag="backup ")
        other.backup(tmp_path / "backup.db")
    for file in tmp_path.glob("other.db*"):
        file.unlink()
    return tmp_path / "backup.db"


# -- what is restored --------------------------------------------------------------------------------------------


def test_all_is_as_it_was_when_the_backup_was_made(store: Store, tmp_path: Path, path: Path) -> None:
    fill(store)
    before = content(store)
    store.backup(tmp_path / "backup.db")
    written = (tmp_path / "backup.db").read_bytes()
    fill(store, 200, "later ")
    store.forget("user 3", scrub=False)
    store.restore(tmp_path / "backup.db")
    assert content(store) == before
    assert store.load([Wanted("user 5", ["1-5", "later 1-5"])], M)[0].duplicates == {"1-5"}
    store.check()
    assert (tmp_path / "backup.db").read_bytes() == written
    store.close()
    assert sorted(os.listdir(tmp_path)) == ["backup.db", "store.db", "store.db-mark"]
    with contextlib.closing(SqliteStore(path)) as again:
        assert content(again) == before


def test_a_backup_of_another_store_is_restored_again_and_again(store: Store, backup: Path, path: Path) -> None:
    with contextlib.closing(SqliteStore(shutil.copy(backup, path.with_name("copy.db")))) as copy:
        expected = content(copy)
    for _ in range(3):
        fill(store, 70)
        store.restore(backup)
        assert content(store) == expected


def test_versions_are_never_used_again(store: Store, tmp_path: Path) -> None:
    fill(store, 5)
    store.backup(tmp_path / "backup.db")
    given = set()
    for n in range(4):
        version = store.commit([Change(f"new {n}", 0, [Event(1, "x"), Event(2, "y")], M, None)])[0]
        assert version not in given
        given.add(version)
        store.restore(tmp_path / "backup.db")
        assert store.history(f"new {n}").version == 0


def test_what_is_remembered_of_users_is_not_served_afterwards(store: Store, tmp_path: Path) -> None:
    store.commit([Change("a", 0, [Event(1, "old", "e")], M, b"old")])
    store.backup(tmp_path / "backup.db")
    version = store.commit([Change("a", 1, [Event(2, "new")], "new model", b"new")])[0]
    store.restore(tmp_path / "backup.db")
    assert store.commit([Change("a", version or 0, [Event(3, "z")], M, None)]) == [None]
    assert store.load([Wanted("a", ["e"])], M)[0] == (1, 1, b"old", {"e"}, 1)
    assert store.figures().states == {M: 1}
    assert store.commit([Change("a", 1, [Event(3, "z")], M, None)]) != [None]


def test_the_settings_of_the_file_stay_and_its_journal_is_empty(path: Path, backup: Path) -> None:
    names = ("journal_mode", "locking_mode", "synchronous", "secure_delete", "cache_size", "wal_autocheckpoint", "application_id", "user_version", "page_size")
    with contextlib.closing(SqliteStore(path)) as store:
        fill(store, 100)
        before = [store._db.execute(f"PRAGMA {name}").fetchone() for name in names]
        store.restore(backup)
        assert [store._db.execute(f"PRAGMA {name}").fetchone() for name in names] == before
        assert path.with_name("store.db-wal").stat().st_size == 0
        with pytest.raises(StoreError, match="in use"):
            SqliteStore(path)


def test_users_are_read_while_the_backup_is_checked(store: Store, backup: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hcarec.serve.stores.sqlite_backup.BACKUP_PAGES", 4)
    fill(store, 5)
    seen: list[str] = []
    store.restore(backup, lambda done, total: seen.append(store.history("user 1").events[0].item))
    assert seen and set(seen) == {"1"}
    assert store.history("user 1").events[0].item == "backup 1"


# -- what is refused ---------------------------------------------------------------------------------------------


def bad_backups(backup: Path, folder: Path) -> Iterator[tuple[Path, str]]:
    """Make files that are no backups, each with what is said of it."""
    whole = backup.read_bytes()

    def made(name: str, bytes: bytes, *statements: str) -> Path:
        (folder / name).write_bytes(bytes)
        with contextlib.closing(sqlite3.connect(folder / name)) as db:
            for statement in statements:
                db.execute(statement)
            db.commit()
        return folder / name

    yield folder / "none.db", "there is no backup"
    yield folder, "there is no backup"
    yield made("empty.db", b""), "not the backup"
    yield made("garbage.db", b"no database at all\n" * 400), "cannot be read"
    yield made("foreign.db", b"", "CREATE TABLE t (x)"), "not the backup"
    yield made("newer.db", whole, "PRAGMA user_version = 99"), "newer"
    yield made("schema.db", whole, "DROP INDEX event_ids"), "damaged"
    for table, change in {"events": "item = x'00'", "users": "n_events = 9", "store": "clock = 1", "seeds": "finished = 0", "models": "states = 7"}.items():
        yield made(f"{table}.db", whole, f"UPDATE {table} SET {change}"), "damaged"
    yield made("fewer.db", whole, "DELETE FROM users WHERE id = 3"), "damaged"
    for size in (len(whole) // 2, len(whole) - 4096, 5000, 4096, 100):
        yield made(f"{size}.db", whole[:size]), "backup"
    flipped = bytearray(whole)
    flipped[len(whole) // 2 : len(whole) // 2 + 4096] = bytes(4096)
    yield made("zeros.db", bytes(flipped)), "damaged"
    pages = made("pages.db", whole, "PRAGMA page_size = 8192", "VACUUM")
    yield pages, "another size"


def test_a_file_that_is_no_backup_is_refused_and_the_old_goes_on(store: Store, backup: Path, tmp_path: Path) -> None:
    fill(store, 20)
    before = content(store)
    folder = tmp_path / "bad"
    folder.mkdir()
    for bad, said in bad_backups(backup, folder):
        kept, beside = bad.read_bytes() if bad.is_file() else None, sorted(os.listdir(folder))
        with pytest.raises(InputError, match=said) as caught:
            store.restore(bad)
        assert "\n" not in str(caught.value) and str(bad) in str(caught.value) and "restoring" not in str(caught.value), bad
        assert content(store) == before
        assert (bad.read_bytes() if bad.is_file() else None) == kept and sorted(os.listdir(folder)) == beside
    assert not list(tmp_path.glob(".*"))
    store.restore(backup)
    store.check()


def test_a_store_is_no_backup(store: Store, path: Path, tmp_path: Path) -> None:
    fill(store, 5)
    os.link(path, tmp_path / "linked.db")
    for same in (path, tmp_path / "linked.db"):
        with pytest.raises(InputError, match="itself"):
            store.restore(same)
    with pytest.raises(StoreError, match="in use"):
        SqliteStore(path)  # to look at the file has not given up its lock
    with contextlib.closing(SqliteStore(tmp_path / "used.db")) as used:
        fill(used, 5)
        with pytest.raises(InputError, match="in use"):
            store.restore(tmp_path / "used.db")


def test_without_room_the_old_goes_on(tmp_path: Path, backup: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(small)], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"cannot mount a small file system here: {done.stderr.strip()}")
    try:
        of_copy: set[bool] = set()
        with contextlib.closing(SqliteStore(small / "store.db")) as store:
            fill(store, 20)
            before = content(store)
            store._file.checkpoint()
            for room in range(4, 260, 3):  # in pages: where it gives out moves through all steps
                statistics = os.statvfs(small)
                (small / "ballast").write_bytes(bytes(max(0, statistics.f_bavail * statistics.f_frsize - room * 4096)))
                try:
                    store.restore(backup)
                except StoreFull as error:
                    of_copy.add("copy" in str(error))
                    assert content(store) == before
                    assert os.statvfs(small).f_bavail >= room - 2  # what it took is given back
                else:
                    break
                finally:
                    (small / "ballast").unlink()
            assert of_copy == {True, False}  # there was no room for the copy, and none to write it over the store
            assert store.history("user 1").events[0].item == "backup 1"
            store.check()
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


# -- sudden death ------------------------------------------------------------------------------------------------

CHILD = """
import os, sys
from hcarec.serve.stores.sqlite import SqliteStore
from hcarec.serve.stores.sqlite_file import SqliteFile
replace = SqliteFile.replace_all
SqliteFile.replace_all = lambda *given: (os.write(1, b"writing\\n"), replace(*given))
store = SqliteStore(sys.argv[1])
os.write(1, b"ready\\n")
store.restore(sys.argv[2])
os.write(1, b"done\\n")
os.kill(os.getpid(), 9)
"""


def killed(path: Path, backup: Path, after: bytes, seconds: float) -> tuple[bool, float]:
    """Restore in another process, which is killed so long after it has said a word; return whether it was done, and how long that took from the word on."""
    with subprocess.Popen([sys.executable, "-c", CHILD, str(path), str(backup)], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        while child.stdout.readline() != after:
            assert child.poll() is None
        began = time.monotonic()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(seconds)
        child.send_signal(signal.SIGKILL)
        return child.stdout.read().endswith(b"done\n"), time.monotonic() - began


@pytest.mark.parametrize("kills", [pytest.param(5, id="some"), pytest.param(150, id="many", marks=pytest.mark.soak)])
def test_kill_9_leaves_the_old_or_the_new(kills: int) -> None:
    with quick_folder() as folder, counting("store_restore", kills > 100) as counts:
        counts.update(after_kills(folder, kills))
        assert counts["old"] + counts["new"] == kills
        assert kills < 100 or min(counts["old"], counts["new"]) > 10, counts  # few kills may all come too early or too late


def after_kills(folder: Path, kills: int) -> Counter[str]:
    dice, outcomes = random.Random(kills), Counter[str]()
    contents, backups = [], [folder / "0.backup", folder / "1.backup"]
    for number, file in enumerate(backups):
        with contextlib.closing(SqliteStore(folder / f"{number}.db")) as store:
            fill(store, 3000, f"{number} ")
            store.backup(file)
            contents.append(content(store))
    path, held = folder / "0.db", 0
    longest = {word: killed(path, backups[0], word, 60)[1] for word in (b"ready\n", b"writing\n")}
    for n in range(kills):
        word = b"writing\n" if n % 3 else b"ready\n"
        done, _ = killed(path, backups[1 - held], word, dice.random() * longest[word])
        with contextlib.closing(SqliteStore(path)) as store:
            store.check()
            found = content(store)
            assert found in contents
            restored = found == contents[1 - held]
            assert restored or not done
            assert not list(folder.glob(".*")), "the copy of a backup is left"
            version = store.commit([Change("after", 0, [Event(1, "x")], M, None)])[0]
            assert version and store.forget("after") == 1
        held = 1 - held if restored else held
        outcomes["new" if restored else "old"] += 1
        outcomes["told that it was done"] += done
        outcomes["kills while it was written"] += n % 3 > 0
        outcomes["kills"] += 1
    return outcomes


def test_a_writer_that_is_killed_during_a_restore_ends_it(path: Path, backup: Path) -> None:
    store = ApartStore(path)
    fill(store, 5)
    before = content(store)
    with pytest.raises(StoreUnreachable):
        store.restore(backup, lambda done, total: os.kill(store._process.pid, signal.SIGKILL))
    assert content(store) == before and not list(path.parent.glob(".*"))
    store.restore(backup)
    assert store.history("user 1").events[0].item == "backup 1"
    store.close()


# -- Redis, which is filled while it is empty --------------------------------------------------------------------


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[Callable[[], Store]]:
    (tmp_path / "redis").mkdir()
    server = Server(tmp_path / "redis", *DURABLE)
    yield lambda: open_store(server.url)
    server.stop()


def test_redis_is_filled_from_a_backup_while_it_is_empty(redis: Callable[[], Store], backup: Path, tmp_path: Path) -> None:
    store = redis()
    (tmp_path / "garbage.db").write_bytes(b"garbage" * 1000)
    with pytest.raises(InputError, match="cannot be read"):
        store.restore(tmp_path / "garbage.db")
    redis().close()  # nothing was begun
    store.restore(backup)
    with contextlib.closing(SqliteStore(backup)) as copy:
        for user in copy.users().users:
            assert [event[:3] for event in store.history(user).events] == [event[:3] for event in copy.history(user).events]
            assert [store.load([Wanted(user)], model)[0].state for model in (M, "other")] == [
                copy.load([Wanted(user)], model)[0].state for model in (M, "other")
            ]
        assert store.seeded() == copy.seeded() and store.figures()[:2] == copy.figures()[:2]
    store.check()
    with pytest.raises(InputError, match="empty"):
        store.restore(backup)
    redis().close()


def test_a_redis_store_that_was_filled_by_half_is_not_opened(redis: Callable[[], Store], backup: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hcarec.serve.stores.copying.USERS", 10)
    store = redis()

    def meanwhile(done: int, total: int) -> None:
        if store.figures().users:
            with pytest.raises(StoreError, match="is being restored"):
                redis()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.restore(backup, meanwhile)
    assert 0 < store.figures().users < 60
    with pytest.raises(StoreError, match="FLUSHDB"):
        redis()
    store._at.client.flushdb()  # type: ignore[attr-defined]
    redis().restore(backup)
    assert redis().figures().users == 61
