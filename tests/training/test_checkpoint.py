"""Damaged checkpoints: every wrong value and every wrong tensor is one line, and nothing hangs."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from hcarec import Sequences, synthetic
from hcarec.errors import ConfigError, ModelError
from hcarec.training import Callback, train
from hcarec.training.trainer import Progress

Command = Callable[..., tuple[int, str, str]]
REFUSED = r"^the checkpoint '.*/m/checkpoint' is damaged \(.*\): remove it and train again$"
OPTIONS: dict[str, dict[str, Any]] = {
    "user-sgd": {"model": "gru", "preset": "paper", "d": 4, "epochs": 5},
    "bpr": {"model": "bpr", "d": 4, "epochs": 5},
    "minibatch": {
        "model": "gru",
        "preset": "paper",
        "d": 4,
        "epochs": 5,
        "trainer": "minibatch",
        "batch_size": 4,
        "ema": 0.9,
    },
}


@pytest.fixture(scope="module")
def data() -> Sequences:
    return synthetic(users=80, items=40, mean_length=12, seed=6)


class Stop(Callback):
    """Ends a run in its fourth epoch, as a crash would."""

    def chunk(self, now: Progress, events_per_second: float) -> None:
        if now.epoch == 4:
            raise KeyboardInterrupt


@pytest.fixture(scope="module")
def runs(data: Sequences, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with an unfinished run of every kind."""
    folder = tmp_path_factory.mktemp("runs")
    for name, options in OPTIONS.items():
        with pytest.raises(KeyboardInterrupt):
            train(data, folder / name, checkpoint_seconds=0, callback=Stop(), **options)
    return folder


@pytest.fixture(params=OPTIONS)
def kind(request: pytest.FixtureRequest, runs: Path, tmp_path: Path) -> str:
    """Return the name of a kind whose unfinished run was copied to m."""
    shutil.copytree(runs / request.param, tmp_path / "m")
    return str(request.param)


def change(folder: Path, path: str, value: Any) -> None:
    """Set a value of checkpoint.json, or remove it where the value is ... ."""
    file = folder / "checkpoint" / "checkpoint.json"
    content = json.loads(file.read_text())
    place, names = content, path.split("/")
    for name in names[:-1]:
        place = place[int(name) if isinstance(place, list) else name]
    last: Any = int(names[-1]) if isinstance(place, list) else names[-1]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    file.write_text(json.dumps(content))


def resume(data: Sequences, folder: Path, kind: str) -> None:
    train(data, folder / "m", resume=True, compare=False, **OPTIONS[kind])


def test_one_that_is_whole_goes_on(data: Sequences, kind: str, tmp_path: Path) -> None:
    resume(data, tmp_path, kind)
    assert len((tmp_path / "m" / "log.jsonl").read_text().splitlines()) == 5


ODD = (None, "x", [], {}, True, -1, 2.5, math.nan, math.inf, 10**30, ...)
FIELDS = (
    "run", "run/config", "run/config/model", "run/data", "run/seed", "run/k", "run/split", "epoch",
    "best", "best/ndcg@20", "best/ndcg@20/value", "best/ndcg@20/epoch", "chosen", "waited", "log",
    "log/0", "log/1/epoch", "log/1/loss", "log/1/ndcg@20", "log/0/events_per_second", "trainer",
    "files", "files/state", "files/best", "files/state/name", "files/state/sha256",
)  # fmt: skip
TIMES = ("seconds", "epoch_seconds", "log/0/seconds", "log/1/evaluation_seconds")


@pytest.mark.parametrize("path", FIELDS)
def test_odd_values(path: str, data: Sequences, kind: str, tmp_path: Path) -> None:
    whole = (tmp_path / "m" / "checkpoint" / "checkpoint.json").read_bytes()
    for value in ODD:
        (tmp_path / "m" / "checkpoint" / "checkpoint.json").write_bytes(whole)
        if path == "log/1/ndcg@20" and value is None:
            continue
        if path in ("run/split", "run/k") and value in ({}, []):
            continue  # of the right type: another run, see below
        change(tmp_path / "m", path, value)
        if path == "log/1/loss" and value in (-1, 2.5, 10**30) and value is not True:
            continue  # a loss may be any number
        if path == "run/data" and value == "x":
            continue
        with pytest.raises(ModelError, match=REFUSED):
            resume(data, tmp_path, kind)


@pytest.mark.parametrize("path", TIMES)
def test_odd_times(path: str, data: Sequences, kind: str, tmp_path: Path) -> None:
    whole = (tmp_path / "m" / "checkpoint" / "checkpoint.json").read_bytes()
    for value in ODD:
        if value == 2.5 or (value is ... and "evaluation" in path):
            continue
        (tmp_path / "m" / "checkpoint" / "checkpoint.json").write_bytes(whole)
        change(tmp_path / "m", path, value)
        with pytest.raises(ModelError, match=REFUSED):
            resume(data, tmp_path, kind)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("epoch", 0), ("epoch", 2), ("epoch", 4), ("chosen", 9), ("chosen", 0), ("waited", 3),
        ("best/ndcg@20/epoch", 9), ("best/map@5/value", 0.9999),
        ("best/extra", {"value": 1.0, "epoch": 1}),
        ("files/state/name", "../../model.json"), ("files/state/name", "\0"), ("files/best", ...),
        ("run/config/d", "x"), ("run/config/d", -4), ("run/config/colour", 3), ("version", "2"),
    ],
)  # fmt: skip
def test_values_that_do_not_belong_together(
    path: str, value: Any, data: Sequences, kind: str, tmp_path: Path
) -> None:
    change(tmp_path / "m", path, value)
    with pytest.raises(ModelError, match=REFUSED):
        resume(data, tmp_path, kind)


def test_another_run_is_named_as_one(data: Sequences, kind: str, tmp_path: Path) -> None:
    change(tmp_path / "m", "run/data", "x")
    with pytest.raises(ConfigError, match=r"--resume cannot go on: data is 'x' in the checkpoint"):
        resume(data, tmp_path, kind)


def test_fewer_epochs_than_were_done(data: Sequences, kind: str, tmp_path: Path) -> None:
    options = {**OPTIONS[kind], "epochs": 2}
    with pytest.raises(ConfigError, match=r"is in epoch 3 already, and this command trains 2"):
        train(data, tmp_path / "m", resume=True, **options)


PROGRESS = [
    *[(name, value) for name in ("epoch", "position", "size", "targets") for value in ODD],
    *[("loss", value) for value in ODD if value not in (-1, 2.5, 10**30) or value is True],
    *[("sums", value) for value in ODD if value != {}],
    ("epoch", 0), ("epoch", 2), ("epoch", 4), ("position", 10**6), ("size", 10**6), ("size", 1),
    ("sums", {"l2": "x"}), ("sums", {"l2": 1.0}), ("extra", 3),
]  # fmt: skip


def test_the_place_of_the_trainer(data: Sequences, kind: str, tmp_path: Path) -> None:
    inside = "trainer/progress" if kind == "minibatch" else "trainer"
    whole = (tmp_path / "m" / "checkpoint" / "checkpoint.json").read_bytes()
    for name, value in PROGRESS:
        (tmp_path / "m" / "checkpoint" / "checkpoint.json").write_bytes(whole)
        change(tmp_path / "m", f"{inside}/{name}", value)
        with pytest.raises(ModelError, match=REFUSED):
            resume(data, tmp_path, kind)


def test_the_step_of_mini_batches(data: Sequences, runs: Path, tmp_path: Path) -> None:
    for value in (*ODD, 0, 1, 10**6):
        shutil.rmtree(tmp_path / "m", ignore_errors=True)
        shutil.copytree(runs / "minibatch", tmp_path / "m")
        change(tmp_path / "m", "trainer/step", value)
        with pytest.raises(ModelError, match=REFUSED):
            resume(data, tmp_path, "minibatch")


# -- tensors ---------------------------------------------------------------------------------------


def damage(folder: Path, which: str, name: str, how: Callable[[np.ndarray], Any] | None) -> None:
    """Change or remove a tensor, and let checkpoint.json name the file as if it were right."""
    file = next((folder / "checkpoint").glob(f"{which}-*.safetensors"))
    tensors = load_file(file)
    array = tensors.pop(name)
    if how is not None:
        tensors[name] = np.ascontiguousarray(how(array))
    save_file(tensors, file)
    change(folder, f"files/{which}/sha256", hashlib.sha256(file.read_bytes()).hexdigest())


def holed(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array.flat[0] = np.nan
    return array


HOW: dict[str, Callable[[np.ndarray], Any] | None] = {
    "missing": None,
    "shape": lambda array: array[:-1],
    "flat": lambda array: array.ravel(),
    "double": lambda array: array.astype(np.float64),
    "integers": lambda array: array.astype(np.int32),
    "NaN": holed,
}


@pytest.mark.parametrize("which", ["state", "best"])
@pytest.mark.parametrize("how", HOW)
def test_odd_tensors(
    which: str, how: str, data: Sequences, kind: str, runs: Path, tmp_path: Path
) -> None:
    names = list(load_file(next((runs / kind / "checkpoint").glob(f"{which}-*.safetensors"))))
    for name in names:
        if how == "flat" and name.rpartition(".")[2] == "b":
            continue
        shutil.rmtree(tmp_path / "m")
        shutil.copytree(runs / kind, tmp_path / "m")
        shape = load_file(next((tmp_path / "m" / "checkpoint").glob(f"{which}-*")))[name].shape
        if how == "flat" and len(shape) == 1:
            continue
        damage(tmp_path / "m", which, name, HOW[how])
        with pytest.raises(ModelError, match=REFUSED):
            resume(data, tmp_path, kind)


def test_files_that_are_none(data: Sequences, kind: str, tmp_path: Path) -> None:
    file = next((tmp_path / "m" / "checkpoint").glob("state-*.safetensors"))
    file.write_bytes(b"nothing")
    with pytest.raises(ModelError, match=REFUSED):
        resume(data, tmp_path, kind)
    change(tmp_path / "m", "files/state/sha256", hashlib.sha256(b"nothing").hexdigest())
    with pytest.raises(ModelError, match=REFUSED):
        resume(data, tmp_path, kind)
    file.unlink()
    with pytest.raises(ModelError, match=REFUSED):
        resume(data, tmp_path, kind)
    for content in (b"", b"[]", b"{", b"\xff", b"[" * 100_000, b'{"version": true}'):
        (tmp_path / "m" / "checkpoint" / "checkpoint.json").write_bytes(content)
        with pytest.raises(ModelError, match=REFUSED):
            resume(data, tmp_path, kind)


@pytest.mark.parametrize("path", ["run", "run/config", "run/config/model", "epoch", "log", "files"])
def test_info_says_it_in_one_line(path: str, kind: str, tmp_path: Path, command: Command) -> None:
    code, out, _ = command("info", tmp_path / "m")
    assert code == 0 and "stopped in epoch 3" in " ".join(out.split())
    for value in ODD:
        change(tmp_path / "m", path, value if path != "run/config/model" else "colour")
        code, out, error = command("info", tmp_path / "m")
        assert (code, out, error.count("\n")) == (2, "", 1), error
        assert "is damaged" in error and "remove it and train again" in error
        if path == "run/config/model" or value is ...:
            break
