"""Fuzz the readers: the scanner against Python's csv module, the accounting under garbage, the encoder against a dict."""

from __future__ import annotations

import csv
import io
import random
from pathlib import Path

import numpy as np
import pytest

from hcarec import HcarecError, prepare
from hcarec.config import ReadOptions
from hcarec.data import read_text
from hcarec.data.batches import Texts, fresh_status
from hcarec.data.encode import Encoder, _hash
from hcarec.data.files import InputFile
from hcarec.data.read_text import TextReader
from hcarec.data.scan import AFTER_QUOTE, OK, TOO_FEW, TOO_MANY, UNCLOSED

COUNTS = [300, pytest.param(5_000, marks=pytest.mark.soak)]
HEADER = b"u,i,t\n"


class ShortReads(io.BytesIO):
    """A stream that gives a few bytes at a time, as pipes and decompressors do."""

    def __init__(self, data: bytes, rng: random.Random) -> None:
        super().__init__(data)
        self._rng = rng

    def readinto(self, into: object) -> int:
        view = memoryview(into)  # type: ignore[arg-type]
        return super().readinto(view[: self._rng.randint(1, max(1, len(view)))])


def scanned(data: bytes, rng: random.Random) -> tuple[list[tuple[int, tuple[str, ...]]], int]:
    """Return status and fields of every row, as the text reader finds them, and the number of blank lines."""
    options = ReadOptions(user_col="u", item_col="i", time_col="t", delimiter=",")
    reader = TextReader(InputFile(Path("x.csv"), "x.csv"), ShortReads(HEADER + data, rng), options)
    rows, blank = [], 0
    for batch in reader:
        assert batch.first_row == len(rows) + 1
        blank += batch.blank_lines
        columns = [batch.user, batch.item, batch.time]
        for n in range(len(batch)):
            fields = tuple(bytes(one.text[one.starts[n] : one.ends[n]]).decode() for one in columns if isinstance(one, Texts))
            rows.append((int(batch.status[n]), fields))
    return rows, blank


def expected(data: bytes) -> list[tuple[int, tuple[str, ...]]]:
    """Return the same from Python's csv module; what it makes of broken quotes is its own affair."""
    rows = []
    for fields in csv.reader(io.StringIO(data.decode(), newline="")):
        if fields:
            rows.append((judged(fields), tuple(fields)))
    return rows


def judged(fields: list[str]) -> int:
    return OK if len(fields) == 3 else TOO_FEW if len(fields) < 3 else TOO_MANY


def same_rows(found: list[tuple[int, tuple[str, ...]]], wanted: list[tuple[int, tuple[str, ...]]]) -> None:
    for (status, fields), (wanted_status, wanted_fields) in zip(found, wanted, strict=True):
        assert status == wanted_status
        if status == OK:
            assert fields == wanted_fields


@pytest.mark.parametrize("count", COUNTS)
def test_what_csv_writes_is_read_back(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(1)
    for _ in range(count):
        monkeypatch.setattr(read_text, "BLOCK", rng.randint(len(HEADER), 90))
        out = io.StringIO()
        everything = rng.random() < 0.5
        writer = csv.writer(out, quoting=csv.QUOTE_ALL if everything else csv.QUOTE_MINIMAL, lineterminator=rng.choice(["\n", "\r\n"]))
        letters = 'ab",\n é😀' + "\r" * everything  # a lone carriage return is not always quoted by the csv module
        written = [["".join(rng.choices(letters, k=rng.randint(0, 6))) for _ in range(rng.choice([2, 3, 3, 3, 4]))] for _ in range(rng.randint(0, 9))]
        writer.writerows(written)
        data = out.getvalue().encode()
        if data.endswith(b"\n") and rng.random() < 0.3:
            data = data[: -2 if data.endswith(b"\r\n") else -1]
        found, blank = scanned(data, rng)
        assert blank == 0
        same_rows(found, [(judged(row), tuple(row)) for row in written])


@pytest.mark.parametrize("count", COUNTS)
def test_any_text_is_cut_as_csv_cuts_it_until_a_quote_is_broken(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(2)
    for _ in range(count):
        monkeypatch.setattr(read_text, "BLOCK", rng.randint(len(HEADER), 40))
        data = "".join(rng.choices(["a", "b", ",", ",", '"', '""', "\n", "\r\n", "é"], k=rng.randint(0, 40))).encode()
        found, _ = scanned(data, rng)
        broken = next((n for n, (status, _) in enumerate(found) if status in (AFTER_QUOTE, UNCLOSED)), None)
        wanted = expected(data)
        if broken is None:
            same_rows(found, wanted)
        else:
            same_rows(found[:broken], wanted[:broken])


@pytest.mark.parametrize("count", COUNTS)
def test_rows_do_not_depend_on_where_blocks_end(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(3)
    for _ in range(count):
        data = "".join(rng.choices(["a", ",", ",", '"', "\n", "\r", "\r\n", "é", "\x00"], k=rng.randint(0, 60))).encode()
        results = []
        for block in (len(HEADER), rng.randint(len(HEADER), 30), 1 << 16):
            monkeypatch.setattr(read_text, "BLOCK", block)
            rows, blank = scanned(data, rng)
            results.append(([(status, fields if status == OK else ()) for status, fields in rows], blank))
        assert results[0] == results[1] == results[2]


def test_more_rows_than_a_batch_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_text, "BLOCK", 1 << 16)
    data = b"".join(b"%d,%d,\n" % (n % 10, n % 7) for n in range(40_000))
    found, _ = scanned(data, random.Random(4))
    same_rows(found, expected(data))


@pytest.mark.parametrize("count", COUNTS)
def test_garbage_is_accounted_for_row_by_row(count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(5)
    pieces = [b"a", b"b", b"7", b",", b",", b",", b'"', b"\n", b"\n", b"\r\n", b"\x00", b"\xff", "é".encode(), b" ", b"1e3", b"nan", b"20240102"]
    read = 0
    for n in range(count // 10):  # each is written and synced to disk
        file, out = tmp_path / "log.csv", tmp_path / f"data{n % 2}"
        good = [b"u%d,i%d,%d\n" % (rng.randrange(3), rng.randrange(3), rng.randrange(9)) for _ in range(rng.randint(1, 4))]  # settle the form of time
        file.write_bytes(b"user_id,item_id,timestamp\n" + b"".join(good) + b"".join(rng.choices(pieces, k=rng.randint(1, 60))))
        results = []
        for block in (64, 1 << 16):
            monkeypatch.setattr(read_text, "BLOCK", block)
            try:
                data = prepare(file, out)
            except HcarecError as error:
                results.append(str(error))
                continue
            read += 1
            report = data.about["report"]
            assert report["rows"] == report["kept"] + report["quarantined"]["rows"]
            assert report["kept"] == data.n_events >= 1
            aside = out / "quarantine.csv"
            with open(aside, newline="", encoding="utf-8") if aside.exists() else io.StringIO("header\n") as lines:
                written = list(csv.reader(lines))[1:]
            assert len(written) == report["quarantined"]["rows"]
            numbers = [int(row[1]) for row in written]
            assert numbers == sorted(set(numbers))
            assert all(1 <= number <= report["rows"] for number in numbers)
            results.append(data.fingerprint + str(report))
        assert results[0] == results[1]
    assert read == 2 * (count // 10)  # a good row stands first, so something is always left


def encoded(encoder: Encoder, texts: list[bytes]) -> list[int]:
    ends = np.cumsum([len(text) for text in texts], dtype=np.int64).astype(np.int32)
    starts = np.concatenate([np.zeros(1, np.int32), ends[:-1]])
    return encoder.encode(np.frombuffer(b"".join(texts), np.uint8), starts, ends, fresh_status(len(texts))).tolist()


def adversarial(rng: random.Random, n: int) -> list[bytes]:
    """Make ids that differ in one byte, at the border between packed and hashed, or by a trailing byte alone."""
    stems = [b"", b"\x01", b"aaaaaa", b"aaaaaaa", b"aaaaaaaa", b"prefix-that-is-shared-by-all-" * 5]
    return [(rng.choice(stems) + bytes(rng.choices(b"\x01ab\xff", k=rng.randint(0, 3)))) or b"x" for _ in range(n)]


@pytest.mark.parametrize("count", COUNTS)
def test_the_encoder_numbers_as_a_dict_does(count: int) -> None:
    rng = random.Random(6)
    for _ in range(count // 50):
        encoder, table = Encoder(), dict[bytes, int]()
        for _ in range(rng.randint(1, 4)):
            texts = adversarial(rng, rng.randint(1, 400))
            assert encoded(encoder, texts) == [table.setdefault(text, len(table)) for text in texts]
        ids = encoder.ids()
        assert [bytes(ids.blob[ids.offsets[n] : ids.offsets[n + 1]]) for n in range(len(ids))] == list(table)


def test_the_encoder_grows_through_many_long_and_short_ids() -> None:
    rng = random.Random(7)
    texts = [b"%d" % n for n in range(30_000)] + [b"%d" % n * rng.randint(1, 40) for n in range(10_000)]
    rng.shuffle(texts)
    table: dict[bytes, int] = {}
    encoder = Encoder()
    assert encoded(encoder, texts) == [table.setdefault(text, len(table)) for text in texts]
    assert encoded(encoder, texts[::-1]) == [table[text] for text in texts[::-1]]


def hash_of(text: bytes) -> int:
    padded = text.ljust(16, b"\0")
    first, second = np.uint64(int.from_bytes(padded[:8], "little")), np.uint64(int.from_bytes(padded[8:16], "little"))
    return int(_hash(first, second, np.frombuffer(text, np.uint8), 0, len(text)))


def test_ids_that_fall_on_one_slot_stay_apart() -> None:
    mask = len(Encoder()._slots) - 1
    by_slot: dict[int, list[bytes]] = {}
    for n in range(60_000):
        text = b"%d" % n if n % 2 else b"a-much-longer-id-%d" % n
        by_slot.setdefault(hash_of(text) & mask, []).append(text)
    crowded = max(by_slot.values(), key=len)
    assert len(crowded) > 20
    assert encoded(Encoder(), crowded + crowded) == [*range(len(crowded)), *range(len(crowded))]


@pytest.mark.parametrize(("known", "other"), [(b"first-of", b"other-of"), (b"the-same-sixteen-first", b"the-same-sixteen-other"), (b"a" * 16, b"a" * 17)])
def test_equal_hashes_of_different_ids_are_told_apart(known: bytes, other: bytes) -> None:
    encoder = Encoder()
    assert encoded(encoder, [known]) == [0]
    encoder._slots[:] = 0
    forged = hash_of(other)  # as if both had the same hash
    encoder._slots[forged & (len(encoder._slots) - 1)] = np.uint64((forged >> 32 << 32) | 1)
    assert encoded(encoder, [other, other]) == [1, 1]
