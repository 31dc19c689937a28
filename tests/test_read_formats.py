"""Every format gives the same sequences."""

from __future__ import annotations

import datetime
import gzip
import json
import lzma
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest

from conftest import rows, write
from hcarec import Sequences, prepare, read_events
from hcarec.errors import InputError

EVENTS = [("anna", "x", 30), ("bert", "y", 10), ("anna", "y", 10), ("anna", "z", 20), ("bert", "x", 5)]
EXPECTED = [("anna", "y", 10), ("anna", "z", 20), ("anna", "x", 30), ("bert", "x", 5), ("bert", "y", 10)]
FRAME = pl.DataFrame(EVENTS, schema=["user_id", "item_id", "timestamp"], orient="row")


def text(delimiter: str = ",", header: bool = True) -> str:
    lines = [("user_id", "item_id", "timestamp")] * header + EVENTS
    return "".join(delimiter.join(map(str, line)) + "\n" for line in lines)


def zst(content: bytes) -> bytes:
    from backports import zstd

    return zstd.compress(content)


PACK = {"": lambda content: content, ".gz": gzip.compress, ".xz": lzma.compress, ".zst": zst}


@pytest.mark.parametrize("packed", PACK)
@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "inter", "parquet", "arrow"])
def test_every_format_plain_and_packed(tmp_path: Path, kind: str, packed: str) -> None:
    if kind == "csv":
        content = text().encode()
    elif kind == "tsv":
        content = text("\t").encode()
    elif kind == "inter":
        content = text("\t").replace("user_id", "user_id:token").replace("item_id", "item_id:token").replace("timestamp", "timestamp:float").encode()
    elif kind == "jsonl":
        content = "".join(json.dumps({"extra": None, "user_id": u, "item_id": i, "timestamp": t}) + "\n" for u, i, t in EVENTS).encode()
    else:
        (FRAME.write_parquet if kind == "parquet" else FRAME.write_ipc)(tmp_path / "plain")
        content = (tmp_path / "plain").read_bytes()
    path = tmp_path / f"log.{kind}{packed}"
    path.write_bytes(PACK[packed](content))
    assert rows(prepare(path)) == EXPECTED


@pytest.mark.parametrize("delimiter", [";", "|", "::", " "])
def test_delimiters_are_found(tmp_path: Path, delimiter: str) -> None:
    assert rows(prepare(write(tmp_path / "log.dat", text(delimiter)))) == EXPECTED


def test_no_header_names_columns_by_position(tmp_path: Path) -> None:
    path = write(tmp_path / "log.txt", text(" ", header=False))
    assert rows(prepare(path, header=False, user_col="1", item_col="2", time_col="3")) == EXPECTED


@pytest.mark.parametrize("frame", [FRAME, FRAME.lazy(), FRAME.to_pandas(), FRAME.to_arrow()], ids=["polars", "lazy", "pandas", "arrow"])
def test_frames(frame: object) -> None:
    assert rows(prepare(frame)) == EXPECTED


def test_a_stream_of_arrow(tmp_path: Path) -> None:
    FRAME.write_ipc_stream(tmp_path / "log.arrow")
    assert rows(prepare(tmp_path / "log.arrow")) == EXPECTED


def test_pandas_with_gaps_and_its_floats() -> None:
    frame = pd.DataFrame({"user_id": [1.0, None, 1.0], "item_id": [7, 8, 9], "timestamp": pd.to_datetime(["2024-01-02", "2024-01-01", "2024-01-01"])})
    events = read_events(frame)
    assert events.quarantined == {"missing user id": 1}
    assert rows(prepare(frame)) == [(1, 9, 1704067200000000), (1, 7, 1704153600000000)]


def test_folder_and_glob_count_in_byte_order_of_relative_paths(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    write(tmp_path / "b" / "1.csv", ["user_id,item_id,timestamp", "u,third,1"])
    write(tmp_path / "Z.csv", ["user_id,item_id,timestamp", "u,first,1"])
    write(tmp_path / "a.csv", ["item_id,timestamp,user_id", "second,1,u"])
    write(tmp_path / "_SUCCESS", "")
    write(tmp_path / ".hidden.csv", "nonsense")
    write(tmp_path / "empty.csv", "")
    data = prepare(tmp_path)
    assert [item for _, item, _ in rows(data)] == ["first", "second", "third"]
    assert data.about["report"]["empty_files"] == ["empty.csv"]
    assert [item for _, item, _ in rows(prepare(str(tmp_path / "[Za].csv")))] == ["first", "second"]


def test_files_that_disagree_on_having_a_time_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "1.csv", ["user_id,item_id,timestamp", "u,i,1"])
    write(tmp_path / "2.csv", ["user_id,item_id", "u,i"])
    with pytest.raises(InputError, match=r"'2.csv' has no time column, unlike"):
        prepare(tmp_path)


def test_without_a_time_file_order_counts(tmp_path: Path) -> None:
    data = prepare(write(tmp_path / "log.csv", ["user,item", "u,c", "v,a", "u,a", "u,b"]))
    assert data.times is None
    assert [item for user, item, _ in rows(data) if user == "u"] == ["c", "a", "b"]


@pytest.mark.parametrize("header", ["User ID,Product Id,Event Time", "userId,itemId,ts", "customer_id,stock_code,datetime", "visitorid,itemid,time"])
def test_columns_are_found_by_common_names(tmp_path: Path, header: str) -> None:
    assert rows(prepare(write(tmp_path / "log.csv", [header, "7,8,9"]))) == [(7, 8, 9)]


def test_integer_ids_stay_integers_and_texts_stay_texts(tmp_path: Path) -> None:
    big = str(2**70)
    data = prepare(write(tmp_path / "log.csv", ["user_id,item_id", f"{big},007", "-5,7"]))
    assert list(data.user_ids) == [2**70, -5]
    assert list(data.item_ids) == ["007", "7"]
    assert data.user_ids.index(2**70) == data.user_ids.index(big) == 0
    frame = pl.DataFrame({"user_id": ["1", "2"], "item_id": [1, 2]})
    assert list(prepare(frame).user_ids) == ["1", "2"]
    assert list(prepare(frame).item_ids) == [1, 2]


def test_big_integers_of_json_and_parquet(tmp_path: Path) -> None:
    path = write(tmp_path / "log.jsonl", [json.dumps({"user": 2**64 + n, "item": -(2**63)}) for n in range(3)])
    assert list(prepare(path).user_ids) == [2**64, 2**64 + 1, 2**64 + 2]
    pl.DataFrame({"user": pl.Series([2**64 - 1], dtype=pl.UInt64), "item": pl.Series([2**100], dtype=pl.Int128)}).write_parquet(tmp_path / "log.parquet")
    assert rows(prepare(tmp_path / "log.parquet")) == [(2**64 - 1, 2**100, None)]


def test_encodings(tmp_path: Path) -> None:
    lines = "user_id,item_id\nJosé,£5\n"
    for encoding in ("latin-1", "utf-16", "utf-8-sig"):
        path = write(tmp_path / "log.csv", lines.encode(encoding))
        assert rows(prepare(path, encoding="utf-8" if encoding == "utf-8-sig" else encoding)) == [("José", "£5", None)]
    path = write(tmp_path / "log.csv", lines.encode("utf-16"))
    with pytest.raises(InputError, match="--encoding utf-16"):
        prepare(path)


def test_blocks_meet_in_the_middle_of_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tiny block makes every kind of row cross a border."""
    lines = ["user_id,item_id,timestamp"] + [f'"u{n % 7}","i ""{n}"", {"x" * (n % 50)}",{n}' for n in range(500)]
    path = write(tmp_path / "log.csv", "\r\n".join(lines))
    whole = prepare(path)
    monkeypatch.setattr("hcarec.data.read_text.BLOCK", 256)
    pieces = prepare(path)
    assert rows(pieces) == rows(whole)
    assert whole.n_events == 500
    assert whole.item_ids[0] == 'i "0", '


def test_prepared_set_survives_the_disk(tmp_path: Path) -> None:
    made = prepare(FRAME, tmp_path / "data", titles={"x": "An X"})
    again = Sequences.open(tmp_path / "data")
    assert rows(again) == EXPECTED
    assert isinstance(again.items, np.memmap)
    assert again.fingerprint == made.fingerprint == prepare(FRAME).fingerprint
    assert [again.label(again.item_ids.index(item)) for item in "xyz"] == ["An X", "y", "z"]
    again.verify()


def test_integer_days_of_typed_columns() -> None:
    frame = {"user_id": [1, 1], "item_id": [1, 2], "timestamp": [20240502, 20240501]}
    assert rows(prepare(frame)) == [(1, 2, 1714521600 * 10**6), (1, 1, 1714608000 * 10**6)]
    assert rows(prepare(frame | {"timestamp": [2024123, 2024122]}, time_format="%Y%j"))[0][1] == 2


def test_keys_of_json_lines_may_come_late(tmp_path: Path) -> None:
    path = write(tmp_path / "log.jsonl", ['{"user": 1, "item": 2}', '{"user": 1, "item": 3, "time": 5}'])
    assert read_events(path).quarantined == {"missing time": 1}


def test_files_with_different_forms_of_time_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "1.csv", ["user_id,item_id,timestamp", "u,i,2024-05-02"])
    write(tmp_path / "2.csv", ["user_id,item_id,timestamp", "u,i,1714608000"])
    with pytest.raises(InputError, match=r"no time in '2.csv' can be read as ISO date"):
        prepare(tmp_path)
    pl.DataFrame({"user_id": [1], "item_id": [1], "timestamp": [1704067300]}).write_parquet(tmp_path / "2.parquet")
    pl.DataFrame({"user_id": [1], "item_id": [1], "timestamp": [datetime.date(2024, 1, 1)]}).write_parquet(tmp_path / "1.parquet")
    with pytest.raises(InputError, match="mixes dates and numbers"):
        prepare([tmp_path / "1.parquet", tmp_path / "2.parquet"])


def test_a_lazy_frame_is_run_once() -> None:
    frame = pl.DataFrame({"user_id": range(5000), "item_id": range(5000)}).lazy().group_by("user_id", "item_id").agg(pl.len())
    assert len(set(rows(prepare(frame)))) == 5000


def test_an_output_inside_the_input_is_not_read_again(tmp_path: Path) -> None:
    write(tmp_path / "log.csv", ["user_id,item_id", "u,i", ",j"])
    for _ in range(2):
        assert prepare(tmp_path, tmp_path / "data").n_events == 1


def test_a_link_to_a_set_stays_a_link(tmp_path: Path) -> None:
    prepare(FRAME, tmp_path / "real")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    prepare({"user_id": [1], "item_id": [2]}, tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert Sequences.open(tmp_path / "real").n_events == 1


def test_titles_as_json_lines_and_csv(tmp_path: Path) -> None:
    log = write(tmp_path / "log.csv", ["user_id,item_id", "u,i"])
    for titles in (write(tmp_path / "t.jsonl", ['{"item_id": "i", "title": "An I"}']), write(tmp_path / "t.csv", ["id;name", "i;An I"])):
        assert prepare(log, titles=titles).title(0) == "An I"
