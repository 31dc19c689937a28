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
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

from hcarec.serve.stores import sqlite_file, sqlite_slack, sqlite_upkeep
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


def crowded(path: Path, seed: int) -> SqliteStore:
    """Make a store of 150 users whose rows have been moved about."""
    random.seed(seed)
    store = SqliteStore(path)
    for part in range(8):
        loaded = store.load([Wanted(f"name-{n}-name") for n in range(150)], M)
        store.commit(
            [
                Change(
                    f"name-{n}-name",
                    each.version,
                    [Event(random.randrange(10**9), f"item-{n}-item", f"id-{n}-{part}-{k}") for k in range(random.randrange(1, 5))],
                    M,
                    f"state-{n}-state".encode() * random.choice([5, 60, 250, 900]),
                )
                for n, each in enumerate(loaded)
            ]
        )
    return store


def traces(path: Path, users: Collection[int]) -> list[str]:
    """Return what the files of a store still hold of users."""
    held = files(path)
    return [word for n in users for word in (f"name-{n}-name", f"item-{n}-item", f"id-{n}-", f"state-{n}-state") if word.encode() in held]


def scrub_all(store: SqliteStore) -> int:
    """Remove all that is left of forgotten users; return the number of pieces."""
    pieces = 1
    while store.scrub() is not None:
        pieces += 1
    return pieces


@pytest.mark.parametrize("seed", range(6))
def test_forgetting_leaves_no_byte_behind(path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_slack, "STEP_PAGES", 16)
    store = crowded(path, seed)
    gone = random.sample(range(150), 110)
    assert len(traces(path, gone)) == 4 * len(gone)
    for n in gone:
        store.forget(f"name-{n}-name", scrub=False)
        assert not path.with_name(path.name + "-wal").stat().st_size
    assert store.figures().traces
    pieces = scrub_all(store)
    assert pieces > path.stat().st_size // 4096 // 16 and not store.figures().traces
    assert not traces(path, gone)
    # What SQLite held in memory must not bring anything back.
    for n in set(range(150)) - set(gone):
        version = store.load([Wanted(f"name-{n}-name")], M)[0].version
        store.commit([Change(f"name-{n}-name", version, [Event(random.randrange(10**9), "x")], M, bytes(random.choice([50, 500, 2000])))])
    assert not traces(path, gone)
    assert store.check().users == 40
    store.close()
    assert not traces(path, gone)
    with contextlib.closing(SqliteStore(path)) as again:
        assert again.check().users == 40


def test_where_pages_are_not_known_by_their_first_byte_the_file_is_written_anew(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_file, "MOST_PAGES", 10)
    store = crowded(path, 3)
    for n in range(110):
        store.forget(f"name-{n}-name", scrub=False)
    assert scrub_all(store) == 1 and not store.figures().traces and not traces(path, range(110))
    assert store.check().users == 40
    store.close()


def test_a_gap_is_told_from_cells(path: Path) -> None:
    crowded(path, 1).close()
    content = path.read_bytes()
    kinds: Counter[int] = Counter()
    for at in range(0, len(content), 4096):
        page = content[at : at + 4096]
        unused = sqlite_slack.gap(page, at == 0)
        kinds[page[100 if at == 0 else 0]] += 1
        if unused is not None:
            path.write_bytes(content := content[: at + unused.begin] + b"\xff" * (unused.end - unused.begin) + content[at + unused.end :])
    assert {0, 2, 5, 10, 13} <= set(kinds)  # overflow pages, interior pages and leaves of both kinds
    with contextlib.closing(SqliteStore(path)) as store:  # which verifies the structure
        assert store.check().users == 150


def test_a_page_that_contradicts_itself_is_said(path: Path) -> None:
    crowded(path, 2).close()
    content = bytearray(path.read_bytes())
    leaf = next(at for at in range(4096, len(content), 4096) if content[at] == 10)
    content[leaf + 5 : leaf + 7] = (4000).to_bytes(2, "big")  # the place where cells begin
    path.write_bytes(content)
    with contextlib.closing(SqliteStore(path, verify=False)) as store, pytest.raises(StoreDamaged):
        store.forget("name-3-name")


def long_user(path: Path, events: int) -> SqliteStore:
    store = SqliteStore(path)
    store.seed("print", [("long", [Event(n, f"item-{n}", f"id-{n}") for n in range(events)]), ("other", [Event(1, "x")])])
    return store


def test_a_long_log_is_forgotten_in_pieces_and_others_go_on_between_them(path: Path) -> None:
    store = long_user(path, 5000)
    statements: list[str] = []
    store._db.set_trace_callback(statements.append)
    changes, most = store._db.total_changes, 0
    assert store.forget("long", scrub=False) == 5000
    assert store.history("long") == (0, []) and store.users().users == ["other"] and store.figures()[:2] == (1, 1)
    while True:
        most, changes = max(most, store._db.total_changes - changes), store._db.total_changes
        assert store.check().events == store.figures().events  # also by what the rows say
        version = store.load([Wanted("other")], M)[0].version
        assert store.commit([Change("other", version, [Event(version, "y")], M, None)]) != [None]
        changes = store._db.total_changes
        if store.scrub() is None:
            break
    assert most < 2 * sqlite_upkeep.FORGET_EVENTS and not store.figures().traces
    assert not any(statement.startswith("VACUUM") for statement in statements)
    assert b"item-1234" not in files(path) and b"id-1234" not in files(path)
    # The name is free for somebody new, of whom nothing goes.
    assert store.commit([Change("long", 0, [Event(1, "z")], M, None)])[0] and len(store.history("long").events) == 1
    store.close()


def test_forgetting_goes_on_after_a_kill(path: Path, tmp_path: Path) -> None:
    store = long_user(path, 5000)
    store.forget("long", scrub=False)
    store.scrub()
    copy = tmp_path / "copy.db"
    for ending in ("", "-wal", "-mark"):  # by another process: closing a file here would drop the locks
        subprocess.run(["cp", f"{path}{ending}", f"{copy}{ending}"], check=True)
    store.close()
    with contextlib.closing(SqliteStore(copy)) as again:
        assert again.figures()[:2] == (1, 1) and again.figures().traces and b"item-4999" in files(copy)
        again.check()
        again.backup(tmp_path / "backup.db")
        scrub_all(again)
        assert b"item-4999" not in files(copy) and again.check().events == 1
        again.restore(tmp_path / "backup.db")  # which was made in between, and brings it back
        assert again.figures().traces and b"item-4999" in files(copy)
        scrub_all(again)
        assert b"item-4999" not in files(copy) and again.check().events == 1


def test_a_store_of_the_first_version_is_brought_up_to_date(path: Path, tmp_path: Path) -> None:
    def older(made: Path) -> None:
        with contextlib.closing(sqlite3.connect(made)) as db:
            db.execute("DROP TABLE forgotten")
            db.execute("PRAGMA user_version = 1")
            db.commit()

    store = filled(path)
    told = answers(store)
    store.backup(tmp_path / "older.db")
    store.close()
    older(path)
    older(tmp_path / "older.db")
    with contextlib.closing(SqliteStore(path)) as store:
        assert answers(store) == told
        assert store.forget("user 1") == 3 and store.check().users == 300
        store.restore(tmp_path / "older.db")
        assert answers(store) == told and store.forget("user 1") == 3
    with contextlib.closing(SqliteStore(path)) as store:
        assert store.check().users == 300


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
