"""What a model folder holds, in words and as JSON; damage is told, not hidden."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from hcarec import Sequences, synthetic
from hcarec.training.checkpoint import Checkpoint
from hcarec.training.checkpoint import write as write_checkpoint
from hcarec.training.trainer import TrainerState

train = import_module("hcarec.training").train
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def data() -> Sequences:
    return synthetic(users=60, items=50, mean_length=15)


@pytest.fixture
def folder(data: Sequences, tmp_path: Path) -> Path:
    train(data, tmp_path / "model", model="hca-gru", preset="paper", window_x=3, window_h=2, d=6, epochs=2)
    return tmp_path / "model"


def words(out: str) -> str:
    return " ".join(out.split())


def test_a_whole_model(folder: Path, data: Sequences, command: Command) -> None:
    code, out, err = command("info", folder)
    assert (code, err) == (0, "")
    said = words(out)
    manifest = json.loads((folder / "model.json").read_text())
    n = 50 * 6 + 3 * (3 * 6 * 6) + 3 * 6 + 6 * 6 + 6 + 3 * 6 * 6 + 6
    for text in (
        "HCA-GRU-x3-h2",
        "window_x 3, window_h 2, d 6",
        data.fingerprint[:12],
        "ratio: of a user's n events the first int(0.8 n) train",
        f"validation: epoch {manifest['selection']['epoch']}, best in ndcg@20 on the validation part",
        f"ndcg@20 {manifest['metrics']['ndcg@20']:.4f}",
        f"parameters {n:,} (X 50x6, U 3x6x6, V 3x6x6, W 3x6x6, b 3x6, Q_x 6x6, r_x 6, Q_h 6x6, r_h 6, E 6x6, F 6x6)",
        "50 items, with names",
        "numpy",
        "all intact",
    ):
        assert text in said, text


def test_json(folder: Path, data: Sequences, command: Command) -> None:
    code, out, _ = command("info", folder, "--json", "-")
    assert code == 0
    found, manifest = json.loads(out), json.loads((folder / "model.json").read_text())
    for name in ("model", "config", "data", "protocol", "selection", "metrics", "versions"):
        assert found[name] == manifest[name]
    assert found["state"] == "model" and found["intact"] is True
    assert found["items"] == data.n_items
    assert found["bytes"] == sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
    assert {file["state"] for file in found["files"].values()} == {"intact"}


@pytest.mark.parametrize("model", ["random", "pop", "bpr", "gru", "sasrec"])
@pytest.mark.parametrize("split", ["ratio", "none"])
def test_other_models(data: Sequences, model: str, split: str, command: Command, tmp_path: Path) -> None:
    settings = {"preset": "paper", "d": 6, "epochs": 1} if model in ("bpr", "gru", "sasrec") else {"d": 6} if model == "random" else {}
    train(data, tmp_path / "model", model=model, split=split, **settings)
    code, out, _ = command("info", tmp_path / "model")
    assert code == 0
    said = words(out)
    assert ("nothing is left to test on" in said) == (split == "none")
    assert ("selection" in said) == (model in ("bpr", "gru", "sasrec"))
    assert ("window_x" in said) == (model == "gru")
    assert ("heads" in said) == (model == "sasrec")
    assert ("vectors of 60 users" in said) == (model == "bpr")


def test_damage_is_told(folder: Path, command: Command) -> None:
    content = bytearray((folder / "items.parquet").read_bytes())
    content[-1] ^= 1
    (folder / "items.parquet").write_bytes(content)
    (folder / "log.jsonl").unlink()
    code, out, _ = command("info", folder)
    assert code == 2
    assert "NOT usable: " in words(out)
    assert "items.parquet is damaged" in words(out) and "log.jsonl is missing" in words(out)
    found = json.loads(command("info", folder, "--json", "-")[1])
    assert found["intact"] is False
    assert found["files"]["items.parquet"]["state"] == "damaged" and found["files"]["model.safetensors"]["state"] == "intact"


def test_files_that_are_whole_but_do_not_fit(folder: Path, command: Command) -> None:
    manifest = json.loads((folder / "model.json").read_text())
    manifest["config"]["d"] = 7
    (folder / "model.json").write_text(json.dumps(manifest))
    code, out, _ = command("info", folder)
    assert code == 2
    assert "NOT usable: " in words(out) and "but this model has" in words(out)


@pytest.mark.parametrize("part", ["data", "protocol", "selection", "training", "metrics", "versions"])
def test_a_manifest_that_anybody_may_have_written(folder: Path, part: str, command: Command) -> None:
    manifest = json.loads((folder / "model.json").read_text())
    manifest[part] = ["odd"]
    (folder / "model.json").write_text(json.dumps(manifest))
    code, _, err = command("info", folder)
    assert code == 0 or err.count("\n") == 1


def test_an_unfinished_run(data: Sequences, command: Command, tmp_path: Path) -> None:
    run = {"config": {"model": "gru", "d": 6}, "data": data.fingerprint, "split": {}, "selection": "validation", "seen": False}
    run |= {"k": [20], "seed": 4, "device": "cpu"}
    log = [{"epoch": epoch, "loss": 1.0, "seconds": 1.0, "events_per_second": 9} for epoch in (1, 2)]
    state = Checkpoint(run, 3, log=log, trainer=TrainerState({}, {"X": np.zeros((50, 6), np.float32)}))
    write_checkpoint(tmp_path / "run", state)
    code, out, _ = command("info", tmp_path / "run")
    assert code == 0
    assert "an unfinished training run" in out
    assert "stopped in epoch 3: go on with 'hcarec train DATA -o MODEL --resume'" in words(out)
    found = json.loads(command("info", tmp_path / "run", "--json", "-")[1])
    assert (found["state"], found["epoch"], found["model"]) == ("unfinished", 3, "gru")
    (tmp_path / "run" / "checkpoint" / "checkpoint.json").unlink()
    assert "an unfinished training run" in command("info", tmp_path / "run")[1]


def test_what_is_no_model(command: Command, tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere"):
        code, out, err = command("info", path)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert "is not a model folder" in err
