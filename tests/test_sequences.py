"""`Sequences` on disk: exact, mapped, atomic, and hard to fool."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import rows, write
from hcarec import Sequences
from hcarec.errors import DataError
from hcarec.ids import Ids


def small(names: str = "abc") -> Sequences:
    return Sequences(np.array([0, 1, 2, 1], np.int32), np.array([0, 3, 4]), Ids.of(["u", "v"]), Ids.of(names), np.array([1, 2, 3, 4]), "s")


def test_indexing() -> None:
    data = small()
    assert len(data) == data.n_users == 2
    assert data[0].tolist() == [0, 1, 2]
    assert [sequence.tolist() for sequence in data] == [[0, 1, 2], [1]]
    with pytest.raises(IndexError):
        data[2]


def test_fingerprint_covers_content_and_order() -> None:
    base = small().fingerprint
    assert small().fingerprint == base
    assert small("abd").fingerprint != base
    shuffled = Sequences(np.array([1, 0, 2, 1], np.int32), np.array([0, 3, 4]), Ids.of(["u", "v"]), Ids.of("abc"), np.array([1, 2, 3, 4]), "s")
    assert shuffled.fingerprint != base
    assert small().with_titles({"a": "A"}).fingerprint == base


def test_round_trip_without_events_of_some_items(tmp_path: Path) -> None:
    small().with_titles({"b": "Bé"}).save(tmp_path / "d")
    again = Sequences.open(tmp_path / "d")
    assert rows(again) == rows(small())
    assert [again.label(n) for n in range(3)] == ["a", "Bé", "c"] and again.title(0) is None


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda d: (d / "sequences.json").unlink(), "is not a prepared data set"),
        (lambda d: write(d / "sequences.json", "{"), "is not valid JSON"),
        (lambda d: write(d / "sequences.json", "[]"), "is not of the format"),
        (lambda d: edit(d, version=99), "has data format 99, this hcarec reads 1"),
        (lambda d: edit(d, events=7), "does not hold what"),
        (lambda d: (d / "items.npy").unlink(), "cannot be read"),
        (lambda d: write(d / "items.npy", (d / "items.npy").read_bytes()[:-5]), "cannot be read"),
        (lambda d: np.save(d / "items.npy", np.zeros(2, np.int32)), "is not the array"),
        (lambda d: np.save(d / "items.npy", np.array([{}], dtype=object), allow_pickle=True), "cannot be read"),
    ],
)
def test_damaged_sets_are_refused(tmp_path: Path, damage: object, says: str) -> None:
    small().save(tmp_path / "d")
    damage(tmp_path / "d")  # type: ignore[operator]
    with pytest.raises(DataError, match=says):
        Sequences.open(tmp_path / "d")


def edit(folder: Path, **changes: object) -> None:
    manifest = json.loads((folder / "sequences.json").read_text())
    (folder / "sequences.json").write_text(json.dumps(manifest | changes))


def test_a_flipped_bit_is_found_by_verify(tmp_path: Path) -> None:
    small().save(tmp_path / "d")
    content = bytearray((tmp_path / "d" / "items.npy").read_bytes())
    content[-1] ^= 1
    (tmp_path / "d" / "items.npy").write_bytes(content)
    with pytest.raises(DataError, match="damaged"):
        Sequences.open(tmp_path / "d").verify()


@given(st.lists(st.text(max_size=12), unique=True, max_size=20), st.data())
def test_id_tables(values: list[str], data: st.DataObject) -> None:
    table = Ids.of(values)
    assert list(table) == values
    assert [table.find(value) for value in values] == list(range(len(values)))
    chosen = data.draw(st.lists(st.integers(0, max(0, len(values) - 1)), max_size=8)) if values else []
    assert list(table.take(np.array(chosen, np.int64))) == [values[n] for n in chosen]


def test_unknown_ids_name_the_nearest() -> None:
    with pytest.raises(DataError, match=r"id 'Jon' is not among the 2 known; did you mean 'John'\?"):
        Ids.of(["John", "Mary"]).index("Jon")


WRITER = """
import sys
import numpy as np
from hcarec import Sequences
from hcarec.ids import Ids
n = 200_000
while True:
    for mark in (1, 2):
        Sequences(np.full(n, mark, np.int32), np.array([0, n]), Ids.of(["u"]), Ids.of("abc"), np.full(n, mark), "s").save(sys.argv[1])
        print(mark, flush=True)
"""


def kill_writers(folder: Path, kills: int, seed: int) -> None:
    """Kill a writer that replaces a set over and over; the set must always be one of the two, whole."""
    chance = random.Random(seed)
    for _ in range(kills):
        with subprocess.Popen([sys.executable, "-c", WRITER, folder / "d"], stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            time.sleep(chance.random() * 0.2)
            writer.send_signal(signal.SIGKILL)
        data = Sequences.open(folder / "d")
        data.verify()
        assert (data.items == data.times).all()
    small().save(folder / "d")
    assert os.listdir(folder) == ["d"]  # what killed writers left behind is swept away


def test_a_killed_writer_leaves_a_whole_set(tmp_path: Path) -> None:
    kill_writers(tmp_path, kills=3, seed=1)


@pytest.mark.soak
def test_many_killed_writers_leave_a_whole_set(tmp_path: Path) -> None:
    kill_writers(tmp_path, kills=100, seed=2)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("offsets", lambda at: at[::-1].copy()),
        ("offsets", lambda at: at.astype(np.float64)),
        ("item_ids_offsets", lambda at: at * 1000),
        ("user_ids_offsets", lambda at: -at),
        ("items", lambda items: items + np.int32(2**30)),
        ("items", lambda items: items - np.int32(100)),
        ("titles_offsets", lambda at: at[:-1]),
    ],
)
def test_places_and_numbers_are_checked_on_opening(tmp_path: Path, name: str, change: Callable[[np.ndarray], np.ndarray]) -> None:
    small().with_titles({"b": "Bé"}).save(tmp_path / "d")
    file = tmp_path / "d" / f"{name}.npy"
    array = change(np.load(file))
    np.save(file, array)
    manifest = json.loads((tmp_path / "d" / "sequences.json").read_text())
    manifest["arrays"][name] = {"dtype": array.dtype.str, "shape": list(array.shape)}
    (tmp_path / "d" / "sequences.json").write_text(json.dumps(manifest))
    with pytest.raises(DataError, match="it is damaged, prepare it again"):
        Sequences.open(tmp_path / "d")


def test_another_cut_between_users_is_found_by_its_hash(tmp_path: Path) -> None:
    small().save(tmp_path / "d")
    np.save(tmp_path / "d" / "offsets.npy", np.array([0, 2, 4]))
    data = Sequences.open(tmp_path / "d")
    with pytest.raises(DataError, match="it is damaged, prepare it again"):
        data.verify()


def test_an_id_that_is_no_text(tmp_path: Path) -> None:
    small().save(tmp_path / "d")
    blob = np.load(tmp_path / "d" / "item_ids.npy")
    np.save(tmp_path / "d" / "item_ids.npy", np.full_like(blob, 0xFF))
    data = Sequences.open(tmp_path / "d")
    for look in (lambda: data.item_ids.text(0), lambda: list(data.item_ids.texts()), lambda: data.item_ids.find("a")):
        with pytest.raises(DataError, match="not UTF-8"):
            look()
