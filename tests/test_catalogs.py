from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import hcarec
from hcarec.catalogs import overlap
from hcarec.errors import DataError
from hcarec.ids import Ids
from hcarec.sequences import Sequences

Command = Callable[..., tuple[int, str, str]]


def log(items: list[str] | list[int], titles: dict[str, str] | None = None) -> Sequences:
    """Build two users, who are numbers, over a catalog."""
    order = np.arange(len(items), dtype=np.int32)
    data = Sequences(np.concatenate([order, order[::-1]]), np.array([0, len(items), 2 * len(items)]), Ids.of([7, 11]), Ids.of(items))
    return data if titles is None else data.with_titles(titles)


def test_ids_and_titles_decide_what_is_known() -> None:
    shop = log([1, 2, 3, 4], {"1": "a", "2": "b"})
    assert str(overlap(shop, shop)) == "4 of 4 items known"
    assert overlap(shop, log([3, 4, 5, 6])) == (2, 4, "")
    assert overlap(shop, log([1, 2, 3, 4], {"1": "a", "2": "another", "3": "c"})) == (3, 4, "")  # 3 has no title to compare with
    texts = overlap(shop, log(["1", "2", "x", "y", "z"]))
    assert texts.known == 2 and not texts.fits
    with pytest.raises(DataError, match=r"2 of 5 items known .the model's ids are whole numbers, the data's texts."):
        texts.check("'data'", allowed=False)
    texts.check("'data'", allowed=True)


@pytest.fixture(scope="module")
def shops(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of a model of a shop whose ids are numbers, its data, and the data of another shop."""
    place = tmp_path_factory.mktemp("shops")
    log(list(range(1, 31))).save(place / "data")
    log(list(range(25, 65))).save(place / "other")
    hcarec.train(Sequences.open(place / "data"), place / "model", model="gru", preset="paper", d=4, epochs=1, split="none")
    return place


def test_the_command_names_the_overlap_and_refuses(shops: Path, command: Command, tmp_path: Path) -> None:
    for arguments in (("recommend", shops / "model", "--user", "7"), ("explain", shops / "model", "--user", "7")):
        code, _, err = command(*arguments, "--data", shops / "other")
        assert code == 2 and "6 of 40 items known" in err and "--allow-mismatch" in err
        code, out, err = command(*arguments, "--data", shops / "other", "--allow-mismatch")
        assert code == 0 and out and "6 of 40 items known" in err
        code, out, err = command(*arguments, "--data", shops / "data")
        assert code == 0 and "items known" not in err
    code, _, err = command("recommend", shops / "model", "--all-users", "--data", shops / "other", "-o", tmp_path / "all.csv")
    assert code == 2 and "6 of 40 items known" in err and not (tmp_path / "all.csv").exists()


def test_numbers_stay_numbers(shops: Path, command: Command, tmp_path: Path) -> None:
    data = Sequences.open(shops / "data")
    frame = data.to_frame()
    assert frame.schema["user_id"] == frame.schema["item_id"] == pl.Int64
    _, out, _ = command("recommend", shops / "model", "--user", "7", "--json", "-")
    listed: list[dict[str, Any]] = json.loads(out)
    assert all(type(one["item"]) is int and one["title"] is None for one in listed) and list(listed[0]) == ["item", "title", "score", "basis"]
    _, out, _ = command("explain", shops / "model", "--user", "7", "--json", "-")
    told = json.loads(out)
    assert type(told["item"]) is int and told["title"] is None and all(type(one["item"]) is int for one in told["events"])
    command("recommend", shops / "model", "--all-users", "-o", tmp_path / "all.parquet")
    written = pl.read_parquet(tmp_path / "all.parquet")
    assert written.schema["user_id"] == written.schema["item_id"] == pl.Int64 and written["title"].null_count() == written.height
    assert pl.read_parquet(shops / "model" / "items.parquet").schema["item_id"] == pl.Int64
    assert hcarec.load(shops / "model").item_ids.integer


def test_numbers_beyond_64_bits_stay_texts() -> None:
    large = Ids.of([10**20, 3])
    assert large.integer and large.to_series().to_list() == [str(10**20), "3"]


def test_info_shows_how_well_a_model_fits_its_data(shops: Path, command: Command, tmp_path: Path) -> None:
    found = json.loads(command("info", shops / "model", "--json", "-")[1])
    assert found["catalog"] == {"known": 30, "items": 30}
    assert "30 of the 30 items that its data has now are known" in " ".join(command("info", shops / "model")[1].split())
    log([1, 2]).save(tmp_path / "gone")
    hcarec.train(Sequences.open(tmp_path / "gone"), tmp_path / "model", model="pop", split="none")
    (tmp_path / "gone" / "sequences.json").unlink()
    assert json.loads(command("info", tmp_path / "model", "--json", "-")[1])["catalog"] is None
