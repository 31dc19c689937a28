"""Item names and the other columns of their file: read, carried with the data, and into the model folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from conftest import write
from hcarec import Pop, Sequences, load, prepare
from hcarec.data.titles import read_titles

LOG = {"user_id": ["u", "u", "v"], "item_id": ["a", "b", "a"]}
ROWS = ["sku,name,category,price,note", "a,An A,Café,1.50,", 'b,,"Tea, green",,', "a,Other,Other,9,late", "c,A C,x,2,"]


@pytest.fixture
def titles(tmp_path: Path) -> Path:
    return write(tmp_path / "titles.csv", ROWS)


def test_other_columns_are_kept_and_the_first_text_counts(titles: Path) -> None:
    found = read_titles(titles)
    assert found.titles == {"a": "An A", "c": "A C"}
    assert found.fields == {
        "category": {"a": "Café", "b": "Tea, green", "c": "x"},
        "price": {"a": "1.50", "c": "2"},
        "note": {"a": "late"},
    }


def test_json_lines_and_parquet(tmp_path: Path) -> None:
    lines = [json.dumps({"id": 1, "title": "One", "tags": ["x", "é"], "on": True}, ensure_ascii=False), '{"id": 2, "title": "\\ud800", "on": null}']
    found = read_titles(write(tmp_path / "t.jsonl", lines))
    assert found.titles == {"1": "One", "2": "?"}
    assert found.fields == {"tags": {"1": '["x", "é"]'}, "on": {"1": "True"}}
    pl.DataFrame({"item_id": ["a"], "title": ["A"], "price": [2.5], "none": [None]}).write_parquet(tmp_path / "t.parquet")
    assert read_titles(tmp_path / "t.parquet").fields == {"price": {"a": "2.5"}}


def test_names_of_columns_that_are_taken_or_missing(tmp_path: Path) -> None:
    found = read_titles(write(tmp_path / "t.csv", ["item_id:token,title:token,events,class:token, class ,", "a,A,1,2,3,4"]))
    assert list(found.fields) == ["events_", "class", "class_", "column 6"]


def test_fields_travel_with_the_data_and_leave_the_fingerprint(titles: Path, tmp_path: Path) -> None:
    plain, data = prepare(LOG, tmp_path / "plain"), prepare(LOG, tmp_path / "data", titles=titles)
    assert data.fingerprint == plain.fingerprint
    data.verify()
    again = Sequences.open(tmp_path / "data")
    assert {name: list(texts.texts()) for name, texts in again.fields.items()} == {
        "category": ["Café", "Tea, green"],
        "price": ["1.50", ""],
        "note": ["late", ""],
    }
    assert plain.fields == {} and Sequences.open(tmp_path / "plain").titles is None


def test_fields_travel_into_the_model_folder_after_the_title(titles: Path, tmp_path: Path) -> None:
    model = Pop().fit(prepare(LOG, titles=titles))
    model.save(tmp_path / "model")
    assert pl.read_parquet(tmp_path / "model" / "items.parquet").columns == ["item_id", "title", "category", "price", "note", "events"]
    again = load(tmp_path / "model")
    assert {name: texts.text(1) for name, texts in again.fields.items()} == {"category": "Tea, green", "price": "", "note": ""}
    again.save(tmp_path / "copy")
    assert (tmp_path / "copy" / "items.parquet").read_bytes() == (tmp_path / "model" / "items.parquet").read_bytes()


def test_folders_made_without_fields_are_read(tmp_path: Path) -> None:
    data = prepare(LOG, tmp_path / "data")
    manifest = json.loads((tmp_path / "data" / "sequences.json").read_text())
    del manifest["fields"]  # as earlier versions wrote it
    (tmp_path / "data" / "sequences.json").write_text(json.dumps(manifest))
    assert Sequences.open(tmp_path / "data").fields == {}
    Pop().fit(data).save(tmp_path / "model")
    assert pl.read_parquet(tmp_path / "model" / "items.parquet").columns == ["item_id", "events"]
    assert load(tmp_path / "model").fields == {}


def test_the_commands_say_what_is_known_of_items(command: Callable[..., tuple[int, str, str]], titles: Path, tmp_path: Path) -> None:
    log = write(tmp_path / "log.csv", ["user_id,item_id", "u,a", "u,b", "v,a"])
    code, out, _ = command("prepare", log, "-o", tmp_path / "data", "--titles", titles)
    assert code == 0
    assert "with item names, category, price, note" in out
    Pop().fit(Sequences.open(tmp_path / "data")).save(tmp_path / "model")
    assert "2 items, with names, category, price, note" in command("info", tmp_path / "model")[1]
