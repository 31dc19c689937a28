"""What only the SQLite store has to stand: a full disk, flipped bits, a second owner, traces in its file."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from hcarec.serve.stores.errors import StoreBusy, StoreDamaged, StoreError, StoreFull
from hcarec.serve.stores.interface import Change, Event, Rebuilt, Wanted
from hcarec.serve.stores.sqlite import SqliteStore
from soak_counts import counting

M = "model"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def filled(path: Path, users: int = 300, seed: int = 0) -> SqliteStore:
    """Make a store of some pages: users with long and short logs, states of two models, an import."""
    random.seed(seed)
    store = SqliteStore(path)
    for part in range(3):
        loaded = store.load([Wanted(f"user {n}") for n in range(users)], M)
        store.commit(
            [
                Change(f"user {n}", each.version, [Event(random.randrange(1000), f"item {n}", f"{part}-{n}") for _ in range(1)], M, random.randbytes(300))
                for n, each in enumerate(loaded)
            ]
        )
    loaded = store.load([Wanted(f"user {n}") for n in range(users)], M)
    store.put_states([Rebuilt(f"user {n}", each.version, "other", random.randbytes(1500)) for n, each in enumerate(loaded[:40])])
    store.seed("print", [("seeded", [Event(n, f"item {n}") for n in range(200)])])
    return store


def answers(store: SqliteStore, users: int = 300) -> tuple[list[object], list[bytes | None]]:
    """Ask everything; return the answers that must not change, and the states, which may be absent."""
    names = [*(f"user {n}" for n in range(users)), "seeded", "nobody"]
    told: list[object] = [store.seeded(), store.users(limit=10_000), store.figures()[:2]]
    states = []
    for model in (M, "other"):
        for loaded in store.load([Wanted(name, [f"{part}-{name[5:]}" for part in range(4)]) for name in names], model):
            told.append(loaded._replace(state=None))
            states.append(loaded.state)
    told += [store.history(name) for name in names]
    told += [store.history(name, 2) for name in names]
    return told, states


# -- one owner, one kind of file ---------------------------------------------------------------------------------


def test_a_second_process_is_refused_in_one_line(path: Path) -> None:
    store = SqliteStore(path)
    with pytest.raises(StoreBusy, match="in use"):
        SqliteStore(path)
    code = f"from hcarec.serve.stores.sqlite import SqliteStore\ntry: SqliteStore({str(path)!r})\nexcept Exception as e: print(type(e).__name__, e)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.startswith("StoreBusy") and done.stdout.count("\n") == 1
    assert store.commit([Change("a", 0, [Event(1, "x")], M, None)]) == [1]
    store.close()
    SqliteStore(path).close()


def test_another_thread_is_refused(path: Path) -> None:
    store = SqliteStore(path)
    caught: list[Exception] = []

    def work() -> None:
        try:
            store.figures()
        except sqlite3.ProgrammingError as error:
            caught.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    store.close()
    assert caught


def test_foreign_newer_and_torn_files_are_refused(path: Path, tmp_path: Path) -> None:
    foreign = tmp_path / "foreign.db"
    with contextlib.closing(sqlite3.connect(foreign)) as db:
        db.execute("CREATE TABLE t (x)")
        db.commit()
    content = foreign.read_bytes()
    with pytest.raises(StoreError, match="another program"):
        SqliteStore(foreign)
    assert foreign.read_bytes() == content
    (tmp_path / "garbage.db").write_bytes(b"not a database at all\n" * 400)
    with pytest.raises(StoreDamaged):
        SqliteStore(tmp_path / "garbage.db")
    with pytest.raises(StoreError, match="existing folder"):
        SqliteStore(tmp_path / "no" / "folder.db")
    filled(path).close()
    whole = path.read_bytes()
    for size in (len(whole) // 2, 5000, 4096, 100, 10):
        path.write_bytes(whole[:size])
        with pytest.raises(StoreDamaged):
            SqliteStore(path)
    path.write_bytes(b"")
    with pytest.raises(StoreDamaged, match="lost acknowledged"):
        SqliteStore(path)
    path.write_bytes(whole)
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreError, match="newer"):
        SqliteStore(path)


# -- damage ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "change"),
    [
        ("events", "item = CAST(x'00' || item AS BLOB)"),
        ("events", "time = time + 1"),
        ("users", "n_events = n_events + 1"),
        ("store", "clock = clock - 1"),
        ("seeds", "finished = 0"),
    ],
)
def test_a_changed_row_is_said_and_never_served(path: Path, table: str, change: str) -> None:
    filled(path).close()
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute(f"UPDATE {table} SET {change}")
        db.commit()
    with pytest.raises(StoreDamaged, match=table):
        answers(SqliteStore(path))


def test_a_row_that_is_gone_is_missed(path: Path) -> None:
    filled(path).close()
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("DELETE FROM events WHERE user = 3 AND arrival = (SELECT max(arrival) FROM events WHERE user = 3)")
        db.commit()
    store = SqliteStore(path)
    with pytest.raises(StoreDamaged):
        store.history("user 2")
    with pytest.raises(StoreDamaged):
        store.check()
    assert len(store.history("user 1").events) == 3
    store.close()


def test_a_damaged_state_counts_as_absent(path: Path) -> None:
    filled(path).close()
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE states SET state = zeroblob(10) WHERE id % (1 << 48) = 5")
        db.commit()
    store = SqliteStore(path)
    assert store.load([Wanted("user 4")], M)[0].state is None
    assert store.figures().damaged_states == 1 and store.check().damaged_states == 2
    store.close()


def flip(path: Path, dice: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
    path.write_bytes(content)


@pytest.mark.parametrize("count", [pytest.param(60, id="some"), pytest.param(3000, id="many", marks=pytest.mark.soak)])
def test_a_flipped_bit_never_changes_an_answer(path: Path, tmp_path: Path, count: int) -> None:
    with counting("store_bits", count > 1000) as counts:
        counts.update(after_flips(path, tmp_path, count))
        assert counts["said"] and counts["state absent"], counts


def after_flips(path: Path, tmp_path: Path, count: int) -> Counter[str]:
    store = filled(path, users=60)
    told, states = answers(store, 60)
    store.close()
    dice = random.Random(1)
    outcomes: Counter[str] = Counter()
    for n in range(count):
        flipped = tmp_path / f"{n}.db"
        shutil.copyfile(path, flipped)
        flip(flipped, dice)
        try:
            with contextlib.closing(SqliteStore(flipped)) as store:
                found, found_states = answers(store, 60)
        except StoreError:
            outcomes["said"] += 1
        else:
            assert found == told
            assert all(found is None or found == state for found, state in zip(found_states, states, strict=True))
            outcomes["state absent" if found_states != states else "harmless"] += 1
        for beside in tmp_path.glob(f"{n}.db*"):
            beside.unlink()
    return outcomes


# -- a full disk -------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder)], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"cannot mount a small file system here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_stops_writes_only_and_only_while_it_is_full(small_disk: Path) -> None:
    store = SqliteStore(small_disk / "store.db", checkpoint_pages=100)
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(1 << 20))
    written = 0
    with contextlib.suppress(StoreFull):
        while written < 10_000:
            assert store.commit([Change(f"u{written}", 0, [Event(1, "x", "e")], M, bytes(2000))])[0]
            written += 1
    assert 50 < written < 10_000
    for _ in range(3):
        with pytest.raises(StoreFull, match="no room"):
            store.commit([Change("late", 0, [Event(1, "y", "e")], M, bytes(60_000))])
    assert [loaded.n_events for loaded in store.load([Wanted(f"u{n}") for n in range(written)], M)] == [1] * written
    assert store.history("u0").events[0].item == "x" and store.figures().events == written
    with pytest.raises(StoreError, match="backup"):
        store.backup(small_disk / "copy.db")
    ballast.unlink()
    assert store.commit([Change("late", 0, [Event(1, "y", "e")], M, bytes(60_000))])[0]
    assert store.check().events == written + 1
    store.close()
    with contextlib.closing(SqliteStore(small_disk / "store.db")) as again:
        assert again.figures().events == written + 1


def test_what_a_refused_group_took_of_the_disk_holds_a_smaller_one(small_disk: Path) -> None:
    store = SqliteStore(small_disk / "store.db")
    room = os.statvfs(small_disk)
    (small_disk / "ballast").write_bytes(bytes((room.f_bavail - 15) * room.f_frsize))
    with pytest.raises(StoreFull):
        store.commit([Change(f"u{n}", 0, [Event(1, "x", "e")], M, bytes(2000)) for n in range(500)])
    assert os.statvfs(small_disk).f_bavail == 0  # the journal had grown before there was no more room
    assert store.commit([Change("one", 0, [Event(1, "x", "e")], M, None)])[0]
    taken = 1
    with contextlib.suppress(StoreFull):
        while taken < 100:
            store.commit([Change(f"late {taken}", 0, [Event(1, "x", "e")], M, None)])
            taken += 1
    assert taken < 100 and store.figures().events == taken
    store.close()
    with contextlib.closing(SqliteStore(small_disk / "store.db")) as again:
        assert [event.item for event in again.history("one").events] == ["x"]


# -- forgetting and copies ---------------------------------------------------------------------------------------


def files(path: Path) -> bytes:
    """Read all files of a store from another process: closing a file here would drop the locks of the owner."""
    names = [str(each) for each in path.parent.glob(path.name + "*")]
    return subprocess.run(["cat", *names], capture_output=True, check=True).stdout


def test_forgetting_leaves_no_byte_behind(path: Path) -> None:
    random.seed(5)
    store = SqliteStore(path)
    names = list(range(150))
    for part in range(8):
        loaded = store.load([Wanted(f"name-{n}-name") for n in names], M)
        store.commit(
            [
                Change(
                    f"name-{n}-name",
                    each.version,
                    [Event(random.randrange(10**9), f"item-{n}-item", f"id-{n}-{part}-{k}") for k in range(random.randrange(1, 5))],
                    M,
                    f"state-{n}-state".encode() * random.choice([5, 60, 250]),
                )
                for n, each in enumerate(loaded)
            ]
        )
    gone = random.sample(names, 12)
    assert all(f"name-{n}-name".encode() in files(path) for n in gone)
    for n in gone:
        store.forget(f"name-{n}-name", scrub=False)
        assert not path.with_name(path.name + "-wal").stat().st_size
    store.scrub()
    assert not store.figures().traces
    left = files(path)
    for n in gone:
        for trace in (f"name-{n}-name", f"item-{n}-item", f"id-{n}-", f"state-{n}-state"):
            assert trace.encode() not in left
    store.check()
    store.close()
    assert not any(f"-{n}-".encode() in files(path) for n in gone)
    with contextlib.closing(SqliteStore(path)) as again:
        assert again.check().users == 150 - len(gone)


def test_new_stores_and_backups_are_readable_by_their_owner_alone(path: Path, tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        store = filled(path, 5)
        store.backup(tmp_path / "copy.db")
        os.symlink(tmp_path / "elsewhere.db", tmp_path / "link.db")
        SqliteStore(tmp_path / "link.db").close()
        modes = {file.name: file.stat().st_mode & 0o777 for file in tmp_path.iterdir()}
        assert set(modes.values()) == {0o600} and {"store.db", "store.db-wal", "store.db-mark", "copy.db", "elsewhere.db"} <= set(modes)
        store.close()
        path.chmod(0o640)  # whoever shares a store on purpose goes on to do so
        SqliteStore(path).close()
        assert path.stat().st_mode & 0o777 == 0o640
    finally:
        os.umask(before)
