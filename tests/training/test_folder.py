"""The folder that a run writes into: what is there is never lost by accident."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path
from typing import Any

import pytest

from hcarec import Sequences, load, synthetic
from hcarec.errors import ConfigError, DataError
from hcarec.training import Callback, train

DATA = synthetic(users=60, items=40, mean_length=12)
SETTINGS: dict[str, Any] = {"model": "gru", "preset": "paper", "d": 4, "compare": False}


class Interrupt(Callback):
    """Press Ctrl-C after an epoch."""

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch

    def chunk(self, now: Any, events_per_second: float) -> None:
        import signal

        if now.epoch == self._epoch:
            signal.raise_signal(signal.SIGINT)


def test_a_finished_model_is_not_replaced_by_accident(tmp_path: Path) -> None:
    out = tmp_path / "model"
    train(DATA, out, epochs=2, **SETTINGS)
    before = (out / "model.safetensors").read_bytes()
    with pytest.raises(ConfigError, match=r"already holds GRU.*--resume.*--overwrite.*another -o"):
        train(DATA, out, epochs=1, seed=1, **SETTINGS)
    with pytest.raises(ConfigError, match="give one of them"):
        train(DATA, out, epochs=1, resume=True, overwrite=True, **SETTINGS)
    with pytest.raises(ConfigError, match="already holds GRU"):
        train(DATA, out, model="pop", compare=False)
    assert (out / "model.safetensors").read_bytes() == before
    replaced = train(DATA, out, epochs=1, seed=1, overwrite=True, **SETTINGS)
    assert (out / "model.safetensors").read_bytes() != before and replaced.about["seed"] == 1
    train(DATA, out, epochs=2, seed=1, resume=True, **SETTINGS)
    assert load(out).about["training"]["epochs"] == 2


def test_the_old_model_stays_until_the_new_one_is_whole(tmp_path: Path) -> None:
    out = tmp_path / "model"
    train(DATA, out, epochs=2, **SETTINGS)
    before = (out / "model.safetensors").read_bytes()
    options = {**SETTINGS, "epochs": 4, "seed": 1}
    stopped = train(DATA, out, overwrite=True, callback=Interrupt(3), **options)
    assert not stopped.about["finished"]
    assert (out / "model.safetensors").read_bytes() == before
    train(DATA, out, resume=True, **options)
    train(DATA, tmp_path / "whole", **options)
    assert (out / "model.safetensors").read_bytes() == (
        tmp_path / "whole" / "model.safetensors"
    ).read_bytes()


def test_an_unfinished_run_is_gone_on_with_or_given_up(tmp_path: Path) -> None:
    out = tmp_path / "model"
    options = {**SETTINGS, "epochs": 3}
    train(DATA, out, callback=Interrupt(1), **options)
    with pytest.raises(ConfigError, match="already holds GRU trained on synthetic, stopped early"):
        train(DATA, out, **options)
    assert train(DATA, out, overwrite=True, **options).about["finished"]


def test_a_model_without_a_checkpoint_has_nothing_to_resume(tmp_path: Path) -> None:
    out = tmp_path / "model"
    train(DATA, out, model="pop", compare=False)
    before = (out / "model.safetensors").read_bytes()
    with pytest.raises(ConfigError, match=r"holds POP .*without a checkpoint.*--overwrite"):
        train(DATA, out, epochs=1, resume=True, **SETTINGS)
    assert (out / "model.safetensors").read_bytes() == before


def test_no_epochs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"epochs is 0.*give 1 or more"):
        train(DATA, tmp_path / "model", epochs=0, **SETTINGS)
    assert not (tmp_path / "model").exists()


def _hold(out: Path, held: Any, go: Any) -> None:
    from hcarec.training.lock import one_run

    with one_run(out):
        held.set()
        go.wait(60)


def test_two_runs_do_not_share_a_folder(tmp_path: Path) -> None:
    out = tmp_path / "model"
    context = multiprocessing.get_context("spawn")
    held, go = context.Event(), context.Event()
    other = context.Process(target=_hold, args=(out, held, go))
    other.start()
    try:
        assert held.wait(60)
        for _ in range(3):  # a refusal takes nothing from the run that holds the folder
            with pytest.raises(ConfigError, match="another run is training into"):
                train(DATA, out, epochs=1, **SETTINGS)
    finally:
        go.set()
        other.join()
    assert not out.exists()  # nothing was written, and nothing is left behind
    assert train(DATA, out, epochs=1, **SETTINGS).about["finished"]


def test_the_first_checkpoint_comes_with_the_first_report(tmp_path: Path) -> None:
    out = tmp_path / "model"
    there: list[bool] = []

    class Look(Callback):
        def epoch(self, record: dict[str, Any], best: bool) -> None:
            there.append((out / "checkpoint" / "checkpoint.json").exists())

    train(DATA, out, epochs=2, checkpoint_seconds=1e9, callback=Look(), **SETTINGS)
    assert there == [False, True]  # the first report of so small a log is the end of its epoch


def test_refit_keeps_the_figures_of_the_evaluated_run(tmp_path: Path, command: Any) -> None:
    data, out = tmp_path / "data", tmp_path / "model"
    DATA.save(data)
    settings = ("--model", "gru", "--preset", "paper", "--epochs", "2", "--set", "d=4")
    arguments = ("train", data, "-o", out, *settings)
    code, printed, _ = command(*arguments, "--refit")
    assert code == 0 and "figures of the run before, which was evaluated" in printed
    kept = json.loads((out / "model.json").read_text())["evaluated"]
    assert kept["metrics"]["ndcg@20"] is not None and kept["protocol"]["split"]["split"] == "ratio"
    _, shown, _ = command("info", out)
    assert "of the run before it was trained on everything" in " ".join(shown.split())


def test_a_damaged_data_set_is_not_trained_on(tmp_path: Path) -> None:
    DATA.save(tmp_path / "data")
    data = Sequences.open(tmp_path / "data")
    items = (tmp_path / "data" / "items.npy").read_bytes()
    changed = bytearray(items)
    changed[-4] ^= 1  # another item that is in the catalog
    (tmp_path / "data" / "items.npy").write_bytes(changed)
    with pytest.raises(DataError, match="it is damaged, prepare it again"):
        train(Sequences.open(tmp_path / "data"), epochs=1, **SETTINGS)
    assert data.n_items == DATA.n_items
