"""What no model folder may get away with: damaged, foreign, newer and malicious ones are refused in one line."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from hcarec import BPR, HCAGRU, Sequences, load, synthetic
from hcarec.errors import ModelError
from hcarec.models import make


@pytest.fixture(scope="module")
def data() -> Sequences:
    return synthetic(users=80, items=60, mean_length=20)


@pytest.fixture(scope="module")
def network(data: Sequences) -> HCAGRU:
    return HCAGRU(preset="paper", d=8, window_x=4, window_h=3).fit(data, epochs=1)


@pytest.fixture(scope="module")
def matrix(data: Sequences) -> BPR:
    return BPR(d=8).fit(data, epochs=1)


@pytest.fixture
def folder(network: HCAGRU, tmp_path: Path) -> Path:
    network.save(tmp_path / "both", b'{"epoch": 1}\n')
    return tmp_path / "both"


@pytest.fixture
def bpr_folder(matrix: BPR, tmp_path: Path) -> Path:
    matrix.save(tmp_path / "bpr", b'{"epoch": 1}\n')
    return tmp_path / "bpr"


def refused(folder: Path, match: str) -> str:
    with pytest.raises(ModelError, match=match) as caught:
        load(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def rewrite(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change model.json."""
    manifest = json.loads((folder / "model.json").read_text())
    change(manifest)
    (folder / "model.json").write_text(json.dumps(manifest))


def replace(folder: Path, name: str, content: bytes) -> None:
    """Put another file in place, with a hash that is right, as a forger would."""
    (folder / name).write_bytes(content)
    rewrite(folder, lambda manifest: manifest["files"].__setitem__(name, sha256(content).hexdigest()))


@pytest.mark.parametrize("file", ["model.safetensors", "items.parquet", "users.parquet", "log.jsonl"])
@pytest.mark.parametrize("where", [0.0, 0.5, 1.0])
def test_a_flipped_bit_is_found(bpr_folder: Path, file: str, where: float) -> None:
    content = bytearray((bpr_folder / file).read_bytes())
    content[int(where * (len(content) - 1))] ^= 4
    (bpr_folder / file).write_bytes(content)
    refused(bpr_folder, f"{file}' is not the file that model.json describes")


@pytest.mark.parametrize("file", ["model.safetensors", "items.parquet", "users.parquet", "log.jsonl"])
def test_a_short_or_missing_file_is_found(bpr_folder: Path, file: str) -> None:
    content = (bpr_folder / file).read_bytes()
    (bpr_folder / file).write_bytes(content[:-1])
    refused(bpr_folder, f"{file}' is not the file")
    (bpr_folder / file).unlink()
    refused(bpr_folder, f"cannot read .*{file}.*not whole")


def test_any_flipped_bit_of_model_json_is_refused_or_harmless(folder: Path, network: HCAGRU) -> None:
    """What is left after a flip is either refused in one line or loads to the same parameters."""
    content = (folder / "model.json").read_bytes()
    random = np.random.default_rng(0)
    for place in random.integers(len(content), size=60):
        flipped = bytearray(content)
        flipped[place] ^= 1 << int(random.integers(8))
        (folder / "model.json").write_bytes(flipped)
        try:
            found = load(folder)
        except ModelError as error:
            assert "\n" not in str(error)
        else:
            assert all(np.array_equal(found.theta[name], value) for name, value in network.theta.items())


def test_foreign_folders(folder: Path, tmp_path: Path) -> None:
    refused(tmp_path / "nowhere", "not a model folder")
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", "no model.json")
    for content, match in (
        (b"", "not valid JSON"),
        (b"\xff\xfe", "not valid JSON"),
        (b"{}", "not of the format"),
        (b"[1, 2]", "not of the format"),
        (b'{"format": "hcarec-sequences", "schema": 1}', "not of the format"),
        (b'{"format": "hcarec-model", "schema": 1}', "does not list the files"),
        (b"[" * 100_000, "not valid JSON"),
    ):
        (folder / "model.json").write_bytes(content)
        refused(folder, match)
    (folder / "model.json").unlink()
    refused(folder, "no model.json")


def test_a_newer_folder(folder: Path) -> None:
    rewrite(folder, lambda manifest: manifest.update(schema=99))
    refused(folder, "schema 99, this hcarec reads up to 2: update hcarec")


@pytest.mark.parametrize(
    "change",
    [
        lambda manifest: manifest.pop("config"),
        lambda manifest: manifest.update(config=None),
        lambda manifest: manifest.update(config=[1]),
        lambda manifest: manifest["config"].update(model="transformer"),
        lambda manifest: manifest["config"].update(window_x=0),
        lambda manifest: manifest["config"].update(d="8"),
        lambda manifest: manifest["config"].update(surprise=1),
        lambda manifest: manifest.pop("integer_ids"),
        lambda manifest: manifest.update(integer_ids=3),
        lambda manifest: manifest.update(files=None),
        lambda manifest: manifest.update(files={}),
    ],
)
def test_a_manifest_that_makes_no_sense(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    rewrite(folder, change)
    refused(folder, "model.json|both")


class Bomb:
    """What runs when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.write_text, (self.mark, "executed")


@pytest.mark.parametrize("file", ["model.safetensors", "items.parquet", "users.parquet"])
def test_a_pickle_is_never_executed(bpr_folder: Path, file: str, tmp_path: Path) -> None:
    bomb = pickle.dumps(Bomb(tmp_path / "mark"))
    replace(bpr_folder, file, bomb)
    refused(bpr_folder, f"{file}' is not a (safetensors|Parquet) file")
    assert not (tmp_path / "mark").exists()
    pickle.loads(bomb)
    assert (tmp_path / "mark").exists()  # so the bomb was a real one


def test_a_pickled_array_is_never_executed(folder: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "array.npy", np.array([Bomb(tmp_path / "mark")], object), allow_pickle=True)
    replace(folder, "model.safetensors", (tmp_path / "array.npy").read_bytes())
    refused(folder, "not a safetensors file")
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize("name", ["../secret", "/etc/hostname", "sub/../../secret", "model.safetensors\x00.txt", "checkpoint/state"])
def test_files_outside_the_folder_are_not_looked_at(folder: Path, name: str) -> None:
    (folder.parent / "secret").write_text("secret")
    digest = sha256(b"secret").hexdigest()
    rewrite(folder, lambda manifest: manifest["files"].__setitem__(name, digest))
    refused(folder, "does not list the files of a model")


def test_wrong_names_and_shapes_are_refused(folder: Path) -> None:
    theta = load_tensors((folder / "model.safetensors").read_bytes())
    changes: list[dict[str, np.ndarray]] = [
        {name: value for name, value in theta.items() if name != "V"},
        theta | {"surprise": np.zeros(3, np.float32)},
        theta | {"X": theta["X"][:-1]},
        theta | {"X": theta["X"][:, :-1]},
        theta | {"U": theta["U"][0]},
        theta | {"b": theta["b"].T.copy()},
        {},
    ]
    for changed in changes:
        replace(folder, "model.safetensors", save_tensors(changed))
        refused(folder, "but this model has")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("letter", ["X", "r_h"])
def test_numbers_that_are_none_are_refused(folder: Path, letter: str, value: float) -> None:
    theta = load_tensors((folder / "model.safetensors").read_bytes())
    theta[letter].flat[-1] = value
    replace(folder, "model.safetensors", save_tensors(theta))
    refused(folder, f"{letter} is not finite numbers")


def test_tensors_of_another_type_are_refused(folder: Path) -> None:
    theta = load_tensors((folder / "model.safetensors").read_bytes())
    replace(folder, "model.safetensors", save_tensors(theta | {"X": theta["X"].astype(np.int32)}))
    refused(folder, "X is not finite numbers")


def test_another_catalogue_is_refused(folder: Path, tmp_path: Path) -> None:
    import polars as pl

    items = pl.read_parquet(folder / "items.parquet")
    for changed, match in (
        (items[:-1], "but this model has"),
        (items.select("title", "item_id"), "first column item_id"),
        (items.with_columns(item_id=pl.int_range(items.height)), "not of the type that model.json says"),
        (items.with_columns(item_id=pl.int_range(items.height) / 2), "first column item_id"),
    ):
        changed.write_parquet(tmp_path / "items.parquet")
        replace(folder, "items.parquet", (tmp_path / "items.parquet").read_bytes())
        refused(folder, match)


def test_files_of_another_model_are_refused(folder: Path, bpr_folder: Path) -> None:
    shutil.copy(bpr_folder / "model.safetensors", folder / "model.safetensors")
    refused(folder, "is not the file that model.json describes")


def test_the_command_refuses_in_one_line(folder: Path, command: Callable[..., tuple[int, str, str]]) -> None:
    content = bytearray((folder / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (folder / "model.safetensors").write_bytes(content)
    code, out, err = command("recommend", folder, "--history", "1")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "damaged or changed" in err


@pytest.mark.parametrize("name", ["markov", "item-knn"])
@pytest.mark.parametrize(
    ("letter", "spoil", "says"),
    [
        ("indices", lambda array: array + np.int32(10**6), "outside"),
        ("indices", lambda array: -array - np.int32(1), "outside"),
        ("indices", lambda array: array[::-1].copy(), "ascend"),
        ("indices", lambda array: array.astype(np.int64), "int64"),
        ("indptr", lambda array: array[:-1], "holds"),
        ("indptr", lambda array: array * 3, "indptr runs"),
        ("indptr", lambda array: np.append(array[:2][::-1], array[2:]), "indptr runs|descends"),
        ("values", lambda array: array[:-1], "values"),
        ("values", lambda array: array * np.float32(np.nan), "finite"),
    ],
)
def test_a_table_that_points_astray_is_refused(name: str, letter: str, spoil: Callable[[Any], Any], says: str, tmp_path: Path) -> None:
    """The kernels check no bounds: what is read from a folder is checked before."""
    make(name).fit(synthetic(users=40, items=30)).save(tmp_path / "m")
    theta = load_tensors((tmp_path / "m" / "model.safetensors").read_bytes())
    replace(tmp_path / "m", "model.safetensors", save_tensors(theta | {letter: np.ascontiguousarray(spoil(theta[letter]))}))
    refused(tmp_path / "m", says)


# -- folders of schema 1 -----------------------------------------------------------------------------------------------

SCHEMA_1 = Path(__file__).parent / "golden" / "schema_1"
EXPECTED = json.loads((SCHEMA_1 / "expected.json").read_text())


@pytest.mark.parametrize("name", EXPECTED["models"])
def test_a_folder_of_schema_1_gives_the_same_scores_bit_for_bit(name: str, tmp_path: Path) -> None:
    """They were written by the version before; one trained with --hide-seen, as its protocol says, now hides."""
    model, expected = load(SCHEMA_1 / name), EXPECTED["models"][name]
    assert model.hide_seen is expected["hide_seen"]
    found = model.recommend(EXPECTED["history"], 10)
    assert [(one.item, float(one.score).hex()) for one in found] == list(zip(expected["items"], expected["scores"], strict=True))
    model.save(tmp_path / "again")
    assert json.loads((tmp_path / "again" / "model.json").read_text())["schema"] == 2
    assert load(tmp_path / "again").recommend(EXPECTED["history"], 10) == found


def test_a_model_of_schema_1_is_a_configuration_and_is_told_in_words(tmp_path: Path) -> None:
    from hcarec.cli.info import look, words
    from hcarec.models import read_config

    assert read_config(SCHEMA_1 / "pop") == {"model": "pop", "preset": "paper"}
    assert read_config(SCHEMA_1 / "hca-gru")["window_x"] == 3
    for name in EXPECTED["models"]:
        told = dict(words(look(SCHEMA_1 / name)))
        assert "all intact" in told["files"] and ("window_x" in told["settings"]) == (name in ("gru", "hca-gru"))


@pytest.mark.parametrize("name", ["model.json", "model.safetensors", "items.parquet"])
def test_a_pipe_in_the_place_of_a_file_is_refused(folder: Path, name: str) -> None:
    (folder / name).unlink()
    os.mkfifo(folder / name)  # to read it would wait for ever
    refused(folder, "not a plain file")
