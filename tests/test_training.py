"""The trainer: what it chooses, what it writes, and that an interruption changes nothing."""

from __future__ import annotations

import json
import os
import pty
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import REPOSITORY
from hcarec import Sequences, load, synthetic
from hcarec.data.split import split
from hcarec.errors import ConfigError, ModelError
from hcarec.evaluation import evaluate, evaluate_part
from hcarec.ids import Ids
from hcarec.models import make
from hcarec.training import Callback, train
from hcarec.training.resources import check_fits, plan
from hcarec.training.user_sgd import CHUNK

Process = Callable[..., subprocess.CompletedProcess[str]]
Command = Callable[..., tuple[int, str, str]]
TRAINED = ["bpr", "gru", "hca-gru"]


@pytest.fixture(scope="module")
def data() -> Sequences:
    return synthetic(users=300, items=120, mean_length=20, seed=3)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prepared set of several chunks of users, on disk."""
    path = tmp_path_factory.mktemp("stored") / "data"
    synthetic(users=3 * CHUNK, items=300, mean_length=12, seed=4).save(path)
    return path


def log_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def timeless(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in record.items() if name not in ("seconds", "evaluation_seconds", "events_per_second")} for record in records]


def same_bits(first: Path, second: Path) -> None:
    """Two model folders hold the same model, trained the same way."""
    assert (first / "model.safetensors").read_bytes() == (second / "model.safetensors").read_bytes()
    assert timeless(log_of(first)) == timeless(log_of(second))
    one, two = (json.loads((folder / "model.json").read_text()) for folder in (first, second))
    for name in ("metrics", "selection", "protocol", "config"):
        assert one[name] == two[name]


@pytest.mark.parametrize("model", TRAINED)
def test_the_same_seed_gives_the_same_bits(data: Sequences, tmp_path: Path, model: str) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        train(data, tmp_path / name, model=model, preset="paper", epochs=3, seed=seed)
    same_bits(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "a" / "model.safetensors").read_bytes() != (tmp_path / "c" / "model.safetensors").read_bytes()


def test_the_log_has_an_object_per_epoch(data: Sequences, tmp_path: Path) -> None:
    train(data, tmp_path / "m", model="gru", preset="paper", epochs=4)
    log = log_of(tmp_path / "m")
    assert [record["epoch"] for record in log] == [1, 2, 3, 4]
    assert {"loss", "l2", "seconds", "events_per_second", "ndcg@20", "recall@5", "auc"} <= set(log[0])
    assert log[-1]["loss"] < log[0]["loss"]


def test_loss_is_the_bpr_part_summed_over_all_steps(data: Sequences) -> None:
    """With a learning rate of 0 nothing changes, so that the reference can say what the first epoch's loss must be."""
    import torch

    from hcarec.ops import reference
    from hcarec.ops.negatives import draw_user

    class Keep(Callback):
        def epoch(self, record: dict[str, Any], best: bool) -> None:
            self.record = record

    kept = Keep()
    model = train(data, model="hca-gru", preset="paper", window_x=3, window_h=2, epochs=1, learning_rate=0.0, split="none", seed=5, callback=kept)
    theta = {name: torch.from_numpy(array.astype(np.float64)) for name, array in model.theta.items()}
    loss = l2 = 0.0
    for user, items in enumerate(data):
        if len(items) > 1:
            negatives = draw_user(np.asarray(items), user, data.n_items, 5, 1, len(items) - 1)
            assert negatives is not None
            sequence, drawn = torch.from_numpy(np.asarray(items, np.int64)), torch.from_numpy(np.asarray(negatives, np.int64))
            loss += float(reference.bpr_loss(theta, sequence, drawn, 3, 2))
            l2 += float(reference.l2(theta, sequence[1:], drawn, 0.001))
    assert kept.record["loss"] == pytest.approx(loss, rel=1e-5)
    assert kept.record["l2"] == pytest.approx(l2, rel=1e-5)


def test_selection_by_validation(data: Sequences, tmp_path: Path) -> None:
    model = train(data, tmp_path / "m", model="gru", preset="paper", epochs=6, learning_rate=0.05)
    log = log_of(tmp_path / "m")
    best = max(log, key=lambda record: (record["ndcg@20"], -record["epoch"]))
    assert model.about["selection"]["epoch"] == best["epoch"]
    assert model.about["selection"]["kind"] == "validation"
    assert all(record["on"] == "validation" for record in log)
    parts = split(data, "ratio", validation=True)
    again, _, _ = evaluate_part(model, parts.train, parts.validation, parts.validated)  # type: ignore[arg-type]
    assert again["ndcg@20"] == best["ndcg@20"]
    test, _, _ = evaluate_part(model, parts.history, parts.test, parts.evaluated)
    assert model.about["metrics"]["ndcg@20"] == test["ndcg@20"]


def test_selection_of_the_paper(data: Sequences, tmp_path: Path) -> None:
    model = train(data, tmp_path / "m", model="gru", preset="paper", epochs=6, learning_rate=0.05, selection="best-epoch-on-test")
    log = log_of(tmp_path / "m")
    for name, entry in model.about["selection"]["best"].items():
        values = [record[name] for record in log]
        assert entry["value"] == max(values)
        assert entry["epoch"] == 1 + values.index(max(values))
    assert model.about["metrics"]["ndcg@20"] == model.about["selection"]["best"]["ndcg@20"]["value"]
    assert model.about["protocol"]["split"]["counts"]["train_events"] == int((0.8 * data.lengths).astype(int).sum())


def test_leave_one_out_validates_by_ndcg_at_10(data: Sequences) -> None:
    assert train(data, model="gru", preset="paper", epochs=2, split="leave-one-out").about["selection"]["metric"] == "ndcg@10"


def test_production_model_takes_the_chosen_number_of_epochs(data: Sequences, tmp_path: Path) -> None:
    chosen = train(data, tmp_path / "m", model="gru", preset="paper", epochs=5, learning_rate=0.05).about["selection"]["epoch"]
    final = train(data, tmp_path / "p", model="gru", preset="paper", split="none", epochs_from=tmp_path / "m")
    assert final.config.epochs == chosen
    assert final.about["metrics"] == {}
    assert final.item_events.sum() == data.n_events
    with pytest.raises(ModelError, match="nothing is left to test it on"):
        evaluate(final, data)


def test_evaluating_again_gives_the_same_figures(data: Sequences, tmp_path: Path) -> None:
    data.save(tmp_path / "d")
    trained = train(Sequences.open(tmp_path / "d"), tmp_path / "m", model="hca-gru", preset="paper", epochs=2)
    result = evaluate(load(tmp_path / "m"), Sequences.open(tmp_path / "d"))
    assert {name: result.metrics[name] for name in trained.about["metrics"]} == trained.about["metrics"]
    assert result.protocol == trained.about["protocol"]
    hidden = evaluate(load(tmp_path / "m"), Sequences.open(tmp_path / "d"), hide_seen=True)
    assert hidden.protocol["seen"] == "hidden"
    assert hidden.metrics["recall@20"] != result.metrics["recall@20"]


@pytest.mark.parametrize("model", ["random", "pop"])
def test_models_without_epochs(data: Sequences, tmp_path: Path, model: str) -> None:
    trained = train(data, tmp_path / "m", model=model)
    assert trained.item_events.sum() == len(split(data, "ratio").train.items)
    assert trained.about["protocol"] == train(data, model="gru", preset="paper", epochs=1).about["protocol"]


def test_settings_are_checked(data: Sequences) -> None:
    for settings, says in (
        ({"model": "hcagru"}, "did you mean 'hca-gru'"),
        ({"selection": "test"}, "best-epoch-on-test"),
        ({"window_y": 3}, "did you mean 'window_"),
        ({"d": 0}, "at least 1"),
        ({"learning_rate": float("nan")}, "0 or more"),
        ({"split": "random"}, "split 'random' is not known"),
        ({"preset": "modem"}, "preset 'modem' is not known: give one of paper, modern; did you mean 'modern'"),
        ({"trainer": "adam"}, "trainer 'adam' is not known"),
        ({"model": "pop", "epochs": 3}, "there is no setting 'epochs' of pop: it has none"),
        ({"epochs": "many"}, "epochs is 'many': give a whole number"),
        ({"l2": True}, "l2 is True: give a number of 0 or more"),
        ({"model": "gru", "window_x": 3}, "gru has no attention"),
    ):
        with pytest.raises(ConfigError, match=says):
            train(data, **settings)  # type: ignore[arg-type]


def test_a_run_that_cannot_fit_is_refused(data: Sequences) -> None:
    part = split(data, "ratio").train
    planned = plan(make(preset="paper", d=64), part, 10_000_000, 100)
    assert planned.memory > 3 * 4 * 64 * 10_000_000
    with pytest.raises(ConfigError, match=r"needs about 7\.\d GiB and 4\.0 GiB are free: use a smaller d"):
        check_fits(planned, "a smaller d", available=4 << 30)


def test_a_loss_that_runs_away_keeps_the_last_good_model(data: Sequences, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelError, match=r"diverged in epoch 1 at user 'u\d+', step \d+: .*smaller learning rate.*nothing was written"):
        train(data, tmp_path / "m", model="gru", preset="paper", epochs=3, learning_rate=1e4)
    assert not (tmp_path / "m" / "model.json").exists()
    # good for two epochs, then every step is a huge one
    from hcarec.models.hca_gru import HCAGRU

    plain = HCAGRU.train_users

    def wild(self: Any, items: Any, offsets: Any, order: Any, settings: Any, seed: int, epoch: int) -> Any:
        return plain(self, items, offsets, order, replace(settings, learning_rate=1e4) if epoch == 3 else settings, seed, epoch)

    monkeypatch.setattr(HCAGRU, "train_users", wild)
    with pytest.raises(ModelError, match=r"the model of epoch [12] is kept"):
        train(data, tmp_path / "m", model="gru", preset="paper", epochs=5)
    kept = load(tmp_path / "m")
    assert kept.about["finished"] is False
    assert kept.about["selection"]["epoch"] in (1, 2)
    assert all(np.isfinite(array).all() for array in kept.theta.values())


# -- interruptions ---------------------------------------------------------------------------------------------------


def command(data: Path, out: Path, *more: str) -> list[str]:
    settings = ["--model", "hca-gru", "--preset", "paper", "--epochs", "6", "--seed", "7", "--threads", "1"]
    return [sys.executable, "-m", "hcarec", "train", str(data), "-o", str(out), *settings, *more]


def test_a_finished_run_goes_on_with_more_epochs(data: Sequences, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"model": "hca-gru", "preset": "paper", "window_x": 2, "seed": 1}
    train(data, tmp_path / "a", epochs=5, **settings)
    train(data, tmp_path / "b", epochs=2, **settings)
    train(data, tmp_path / "b", epochs=5, resume=True, **settings)
    same_bits(tmp_path / "a", tmp_path / "b")
    with pytest.raises(ConfigError, match=r"--resume cannot go on: seed is 1 in the checkpoint and 2 in this command"):
        train(data, tmp_path / "b", epochs=9, resume=True, **{**settings, "seed": 2})


def test_ctrl_c_keeps_the_work(stored: Path, tmp_path: Path) -> None:
    done = subprocess.run(command(stored, tmp_path / "whole"), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with subprocess.Popen([*command(stored, tmp_path / "cut"), "--set", "epochs=100000"], stderr=subprocess.PIPE, text=True) as run:
        end = time.monotonic() + 60
        while not (tmp_path / "cut" / "checkpoint" / "checkpoint.json").exists() and time.monotonic() < end:
            time.sleep(0.05)
        run.send_signal(signal.SIGINT)
        _, error = run.communicate(timeout=60)
    assert run.returncode == 130, error
    assert "go on with --resume" in error
    assert "Traceback" not in error


def kill_and_resume(data: Path, folder: Path, kills: int, seed: int) -> None:
    """Kill training at random moments, the writing of checkpoints among them, and resume until it ends: bit for bit the same."""
    whole = subprocess.run(command(data, folder / "whole"), capture_output=True, text=True)
    assert whole.returncode == 0, whole.stderr
    chance, killed = random.Random(seed), 0
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "tests")}
    out = folder / "cut"
    while killed < kills:
        program = [sys.executable, "-c", SLOWLY, str(data), str(out)]
        with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, text=True) as run:
            assert run.stdout is not None
            while (line := run.stdout.readline()) and chance.random() < 0.8:
                pass
            time.sleep(chance.random() * 0.02)
            run.send_signal(signal.SIGKILL)
            _, error = run.communicate()
            assert "Traceback" not in error, error
        killed += 1
        if not line:  # it reached the end: begin anew
            same_bits(folder / "whole", out)
            subprocess.run(["rm", "-rf", out], check=True)
    done = subprocess.run(command(data, out, "--resume"), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    same_bits(folder / "whole", out)


SLOWLY = """
import sys
from pathlib import Path
from hcarec import Sequences
from hcarec.training import Callback, train

class Tell(Callback):
    def chunk(self, now, events_per_second):
        print(now.epoch, now.position, flush=True)

settings = {"model": "hca-gru", "preset": "paper", "epochs": 6, "seed": 7, "threads": 1}
train(Sequences.open(sys.argv[1]), sys.argv[2], resume=True, checkpoint_seconds=0, callback=Tell(), **settings)
"""


def test_killed_and_resumed_equals_uninterrupted(stored: Path, tmp_path: Path) -> None:
    kill_and_resume(stored, tmp_path, kills=4, seed=1)


@pytest.mark.soak
def test_fifty_kills(stored: Path, tmp_path: Path) -> None:
    kill_and_resume(stored, tmp_path, kills=50, seed=2)


def test_an_unfinished_run_is_not_thrown_away(data: Sequences, tmp_path: Path) -> None:
    train(data, tmp_path / "m", model="gru", preset="paper", epochs=3)
    for name in ("model.json", "model.safetensors", "items.parquet", "log.jsonl"):
        (tmp_path / "m" / name).unlink()
    with pytest.raises(ConfigError, match=r"holds an unfinished run \(epoch 3\): go on with --resume"):
        train(data, tmp_path / "m", model="gru", preset="paper", epochs=1)


def test_several_seeds_at_once(stored: Path, tmp_path: Path, hcarec: Process) -> None:
    done = hcarec("train", stored, "-o", tmp_path / "m", "--model", "gru", "--preset", "paper", "--epochs", "2", "--runs", "2", "--json", "-")
    outcomes = json.loads(done.stdout)
    assert [outcome["seed"] for outcome in outcomes] == [0, 1]
    alone = train(Sequences.open(stored), model="gru", preset="paper", epochs=2, seed=1)
    assert outcomes[1]["metrics"] == alone.about["metrics"]
    assert "run 1" not in done.stderr


def test_several_seeds_say_once_what_the_preset_decided(stored: Path, tmp_path: Path, hcarec: Process) -> None:
    pytest.importorskip("torch", reason="the preset modern needs torch")
    settings = ["--model", "gru", "--split", "leave-one-out", "--set", "d=8", "--epochs", "1"]
    done = hcarec("train", stored, "-o", tmp_path / "m", *settings, "--runs", "2", "--json", "-")
    said = done.stderr.splitlines()
    assert sum(": modern: " in line for line in said) == 1
    assert {line[:6] for line in said if ": counting: " in line} <= {"run 1:", "run 2:"} and any(": counting: " in line for line in said)


@pytest.mark.parametrize(("missing", "install"), [(("torch", "tensorboard"), "'hcarec[torch]'"), (("tensorboard",), "tensorboard")], ids=lambda one: one[0])
def test_tensorboard_asks_for_its_packages_one_by_one(
    stored: Path, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch, missing: tuple[str, ...], install: str
) -> None:
    for name in missing:
        monkeypatch.setitem(sys.modules, name, None)
    code, out, err = command("train", stored, "-o", tmp_path / "m", "--tensorboard", tmp_path / "t")
    assert (code, out) == (2, "")
    assert err == f"hcarec: --tensorboard needs the package {missing[0]}, which is not installed: pip install {install}\n"
    assert not (tmp_path / "m").exists() and not (tmp_path / "t").exists()


def test_a_terminal_shows_the_table(stored: Path, tmp_path: Path) -> None:
    """On a terminal the plan, the figures of epochs and the time left are drawn; nothing of it goes to standard output."""
    master, slave = pty.openpty()
    settings = ["--model", "gru", "--preset", "paper", "--epochs", "3"]
    command_line = [sys.executable, "-m", "hcarec", "train", str(stored), "-o", str(tmp_path / "m"), *settings, "--json", "-"]
    with subprocess.Popen(command_line, stdout=subprocess.PIPE, stderr=slave, text=True, env={**os.environ, "TERM": "xterm", "COLUMNS": "120"}) as run:
        os.close(slave)
        seen = b""
        while True:
            try:
                block = os.read(master, 65536)
            except OSError:  # the other end is closed
                break
            if not block:
                break
            seen += block
        output, _ = run.communicate(timeout=60)
    os.close(master)
    assert run.returncode == 0
    assert json.loads(output)["metrics"]["ndcg@20"] > 0
    drawn = seen.decode(errors="replace")
    for expected in ("training events", "an epoch, at most 3 epochs: ", "GiB", "events/s", "ndcg@20", "left of 3 epochs"):
        assert expected in drawn, drawn


def test_nothing_foreign_is_lost(data: Sequences, tmp_path: Path) -> None:
    (tmp_path / "mine" / "checkpoint").mkdir(parents=True)
    (tmp_path / "mine" / "thesis.txt").write_text("precious")
    with pytest.raises(ModelError, match="is not a model folder"):
        train(data, tmp_path / "mine", model="pop")
    train(data, tmp_path / "m", model="pop")
    (tmp_path / "m" / "result.json").write_text("{}")
    with pytest.raises(ModelError, match=r"also holds 'result.json'"):
        train(data, tmp_path / "m", model="pop")
    data.save(tmp_path / "d")
    with pytest.raises(ConfigError, match="is the data set itself"):
        train(Sequences.open(tmp_path / "d"), tmp_path / "none" / ".." / "d", model="pop")


def test_refit_keeps_what_was_evaluated(stored: Path, tmp_path: Path, hcarec: Process) -> None:
    arguments = ("train", stored, "-o", tmp_path / "m", "--model", "gru", "--preset", "paper", "--epochs", "2", "--refit")
    hcarec(*arguments)
    manifest = json.loads((tmp_path / "m" / "model.json").read_text())
    assert manifest["selection"]["kind"] == "none"
    assert manifest["evaluated"]["selection"]["kind"] == "validation"
    assert manifest["config"]["epochs"] == manifest["evaluated"]["selection"]["epoch"]
    assert load(tmp_path / "m").item_events.sum() == Sequences.open(stored).n_events
    hcarec(*arguments, "--resume")


def test_mistakes_in_run_options(stored: Path, tmp_path: Path, hcarec: Process) -> None:
    for more, says in ((("--set", "seed=1"), "no setting 'seed'"), (("--threads", "-1"), "threads is -1"), (("--seed", "-1"), "seed is -1"),
                       (("--set", "d=true"), "d is True"), (("--runs", "2", "--refit"), "--runs"), (("--window-h", "100000"), "at most 1,000")):  # fmt: skip
        assert says in hcarec("train", stored, "-o", tmp_path / "m", "--epochs", "1", *more, code=2).stderr
    (tmp_path / "c" / "checkpoint").mkdir(parents=True)
    for content in ("[]", '{"version": 1}'):
        (tmp_path / "c" / "checkpoint" / "checkpoint.json").write_text(content)
        assert "hcarec: " in hcarec("train", stored, "-o", tmp_path / "c", "--resume", code=2).stderr


def test_bpr_fits_vectors_to_users_it_did_not_train(data: Sequences) -> None:
    short = Sequences(
        data.items, np.sort(np.append(data.offsets, data.offsets[1] + 2)), Ids.of(f"u{n}" for n in range(data.n_users + 1)), data.item_ids, data.times, "s"
    )
    model = train(short, model="bpr", epochs=1)
    parts = split(short, "ratio", validation=True)
    untrained = np.flatnonzero((parts.train.lengths == 0) & (parts.history.lengths > 0))
    assert len(untrained) > 0
    user = int(untrained[0])
    folded = model.encode(parts.history[user], np.array([0, len(parts.history[user])]))[0]
    assert (model.theta["P"][user] == folded).all()


def test_a_run_killed_in_its_first_checkpoint_begins_anew(data: Sequences, tmp_path: Path) -> None:
    (tmp_path / "m" / "checkpoint").mkdir(parents=True)
    for name in ("state-1-1024-abcdef01.safetensors", ".state-1-2048-0.safetensors.partial-1", ".checkpoint.json.partial-1"):
        (tmp_path / "m" / "checkpoint" / name).write_bytes(b"half")
    train(data, tmp_path / "m", model="gru", preset="paper", epochs=1, resume=True)
    assert load(tmp_path / "m").about["finished"]
