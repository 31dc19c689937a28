"""Once the epoch is chosen, the network learns the validation events as well."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hcarec import Sequences, evaluate, load, prepare, synthetic
from hcarec.data.split import split
from hcarec.errors import ConfigError, DeviceError, ModelError
from hcarec.evaluation import evaluate_part
from hcarec.settings import RunSettings
from hcarec.training import Callback, checkpoint, fine_tuning, train
from hcarec.training.fine_tuning import go_on
from hcarec.training.trainer import Diverged, Progress

Command = Callable[..., tuple[int, str, str]]
QUICK: dict[str, Any] = {
    "model": "gru",
    "preset": "paper",
    "trainer": "minibatch",
    "d": 8,
    "batch_size": 32,
    "learning_rate": 0.02,
    "initial": "scaled",
    "epochs": 3,
    "compare": False,
    "threads": 1,
    "split": "leave-one-out",
}
TUNED = QUICK | {"fine_tuning": 2}


class Listener(Callback):
    """Collects what it is told."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.fixture(scope="module")
def data() -> Sequences:
    return synthetic(users=150, items=70, mean_length=12, interest=0.9, taste=0.05, seed=4)


def short_histories() -> Sequences:
    """Users of three events, of whom all but a few leave one event to train on: i, i + 1, i + 2."""
    rows = [
        (f"u{user:04d}", f"i{(user + step) % 30:02d}", step)
        for user in range(600)
        for step in range(4 if user % 60 == 0 else 3)
    ]
    columns = zip(("user_id", "item_id", "timestamp"), zip(*rows, strict=True), strict=True)
    return prepare({name: list(values) for name, values in columns})


def _cut(data: Sequences, folder: Path, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
    """Train up to fine-tuning and no further."""
    with monkeypatch.context() as patched:

        def stop(*_: Any) -> None:
            raise KeyboardInterrupt

        patched.setattr(fine_tuning, "go_on", stop)
        with pytest.raises(KeyboardInterrupt):
            train(data, folder, **TUNED | settings)


def test_what_validation_events_alone_tell_is_learned() -> None:
    log = short_histories()
    heard = Listener()
    model = train(log, callback=heard, **TUNED | {"fine_tuning": 20})
    tuned = model.about["training"]["fine_tuning"]
    assert tuned["epochs"] == 20 and tuned["metric"] == "ndcg@10"
    before, after = tuned["without"]["ndcg@10"], model.about["metrics"]["ndcg@10"]
    assert before < 0.6 and after > 0.9
    assert heard.notes == [
        f"learned the validation events too, in 20 epochs: NDCG@10 {after:.2%} on the test part,"
        f" {before:.2%} without them"
    ]
    seconds = model.about["training"]
    assert 0 < seconds["fine_tuning_seconds"] < seconds["seconds"]


def test_the_chosen_epoch_is_as_without_it(data: Sequences, tmp_path: Path) -> None:
    model, plain = train(data, tmp_path / "m", **TUNED), train(data, **QUICK)
    assert model.about["selection"] == plain.about["selection"]
    without = model.about["training"]["fine_tuning"]["without"]
    metrics = plain.about["metrics"]
    assert without == {name: value for name, value in metrics.items() if name != "auc_exact"}
    assert any(model.theta[x].tobytes() != plain.theta[x].tobytes() for x in plain.theta)
    stored = load(tmp_path / "m")
    result = evaluate(stored, data)
    assert result.metrics == model.about["metrics"]
    assert result.about["fine_tuning"] == model.about["training"]["fine_tuning"]
    history = split(data, "leave-one-out", validation=True).history
    assert model.item_events.tolist() == np.bincount(history.items, minlength=70).tolist()
    assert stored.item_events.tolist() == model.item_events.tolist()
    assert model.config.as_dict() | {"fine_tuning": 0} == plain.config.as_dict()


@pytest.mark.parametrize(
    "rules", [{"split": "none"}, {"selection": "best-epoch-on-test"}], ids=["none", "test"]
)
def test_without_validation_events_there_is_nothing_to_learn(
    rules: dict[str, Any], data: Sequences
) -> None:
    model, plain = train(data, **TUNED | rules), train(data, **QUICK | rules)
    assert "fine_tuning" not in model.about["training"]
    assert all(model.theta[x].tobytes() == plain.theta[x].tobytes() for x in plain.theta)


@pytest.mark.parametrize("counting", [False, True])
def test_interrupted_it_goes_on_bit_for_bit(
    counting: bool, data: Sequences, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = TUNED | {"counting": counting}
    train(data, tmp_path / "whole", **settings)
    _cut(data, tmp_path / "cut", monkeypatch, **settings)
    assert not (tmp_path / "cut" / "model.json").exists()
    train(data, tmp_path / "cut", resume=True, **settings)
    files = [tmp_path / name / "model.safetensors" for name in ("whole", "cut")]
    assert files[0].read_bytes() == files[1].read_bytes()


@pytest.mark.parametrize("damage", ["values", "step", "tensors", "file", "no file", "nothing"])
def test_a_damaged_checkpoint_is_one_line(
    damage: str, data: Sequences, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _cut(data, tmp_path / "m", monkeypatch)
    folder = tmp_path / "m" / "checkpoint"
    content = json.loads((folder / "checkpoint.json").read_text())
    if damage == "values":
        content["chosen_trainer"] = {}
    elif damage == "step":
        content["chosen_trainer"]["step"] += 1
    elif damage == "tensors":  # whole, but of something else
        content["files"]["chosen"] = content["files"]["best"]
    elif damage == "file":
        path = folder / content["files"]["chosen"]["name"]
        path.write_bytes(path.read_bytes()[:-8])
    else:
        del content["files"]["chosen"]
    if damage == "nothing":
        del content["chosen_trainer"]
    (folder / "checkpoint.json").write_text(json.dumps(content))
    with pytest.raises(ModelError, match=r"checkpoint.*is damaged") as raised:
        train(data, tmp_path / "m", resume=True, **TUNED)
    assert "\n" not in str(raised.value)


def test_it_goes_on_from_the_chosen_epoch(data: Sequences, tmp_path: Path) -> None:
    late = TUNED | {"epochs": 60, "learning_rate": 0.05, "patience": 3}
    model = train(data, tmp_path / "late", **late)
    state = checkpoint.read(tmp_path / "late")
    assert state is not None and state.chosen_trainer is not None and state.chosen is not None
    assert state.chosen < state.epoch < 60
    train(data, tmp_path / "short", **late | {"epochs": state.chosen, "patience": 0})
    short = checkpoint.read(tmp_path / "short")
    assert short is not None and short.trainer is not None
    assert short.trainer.values == state.chosen_trainer.values
    for name, array in short.trainer.tensors.items():
        assert array.tobytes() == state.chosen_trainer.tensors[name].tobytes(), name
    again = load(tmp_path / "short")
    history = split(data, "leave-one-out", validation=True).history
    run = RunSettings(threads=1, device="cpu")
    assert go_on(again, data, history, run, state.chosen_trainer, state.chosen + 1)
    for name, array in again.theta.items():
        assert array.tobytes() == model.theta[name].tobytes(), name


class Stopping(Listener):
    """Ends the run once the validation events are being learned."""

    def __init__(self) -> None:
        super().__init__()
        self.learning = False

    @contextmanager
    def busy(self, what: str) -> Iterator[None]:
        self.learning = what == "learning the validation events"
        yield

    def stops(self) -> bool:
        return self.learning


def test_ended_early_the_chosen_epoch_is_kept_and_the_run_goes_on(
    data: Sequences, tmp_path: Path
) -> None:
    settings = TUNED | {"counting": True}
    whole, plain = train(data, tmp_path / "whole", **settings), train(data, **QUICK)
    ended = train(data, tmp_path / "cut", callback=Stopping(), **settings)
    assert not ended.about["finished"] and "fine_tuning" not in ended.about["training"]
    kept = load(tmp_path / "cut")
    assert all(kept.theta[x].tobytes() == plain.theta[x].tobytes() for x in plain.theta)
    assert kept.item_events.tolist() == plain.item_events.tolist()
    resumed = train(data, tmp_path / "cut", resume=True, **settings)
    assert resumed.about["finished"]
    assert resumed.about["metrics"] == whole.about["metrics"]
    files = [tmp_path / name / "model.safetensors" for name in ("whole", "cut")]
    assert files[0].read_bytes() == files[1].read_bytes()


class Interrupting(Callback):
    """Presses Ctrl-C while the last epoch is judged."""

    def judged(self, epoch: int, *_: Any) -> None:
        if epoch == TUNED["epochs"]:
            signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("evaluate_every", [1, 2])
def test_interrupted_in_the_last_evaluation_it_does_not_begin(
    evaluate_every: int, data: Sequences, tmp_path: Path
) -> None:
    settings = TUNED | {"evaluate_every": evaluate_every}
    whole = train(data, tmp_path / "whole", **settings)
    ended = train(data, tmp_path / "cut", callback=Interrupting(), **settings)
    assert not ended.about["finished"] and "fine_tuning" not in ended.about["training"]
    resumed = train(data, tmp_path / "cut", resume=True, **settings)
    assert resumed.about["finished"] and resumed.about["metrics"] == whole.about["metrics"]
    assert train(data, callback=Interrupting(), **QUICK).about["finished"]  # only the test is left


class StoppingAtTheEnd(Listener):
    """Ends the run from its last epoch on."""

    def __init__(self) -> None:
        super().__init__()
        self.done, self.begun = False, list[str]()

    def epoch(self, record: dict[str, Any], best: bool) -> None:
        self.done = record["epoch"] == TUNED["epochs"]

    @contextmanager
    def busy(self, what: str) -> Iterator[None]:
        self.begun.append(what)
        yield

    def stops(self) -> bool:
        return self.done


def test_ended_in_the_last_epoch_it_does_not_begin(data: Sequences, tmp_path: Path) -> None:
    whole, ending = train(data, **TUNED), StoppingAtTheEnd()
    ended = train(data, tmp_path / "m", callback=ending, **TUNED)
    assert not ended.about["finished"] and "learning the validation events" not in ending.begun
    resumed = train(data, tmp_path / "m", resume=True, **TUNED)
    assert resumed.about["finished"] and resumed.about["metrics"] == whole.about["metrics"]


def test_what_is_reported_without_it_counts_no_validation_events(data: Sequences) -> None:
    tuned = train(data, **TUNED | {"counting": True})
    plain = train(data, **QUICK | {"counting": True})
    parts = split(data, "leave-one-out", validation=True)
    before = parts.train.items, parts.train.offsets
    plain.complete(before, before)
    metrics, _, _ = evaluate_part(plain, parts.history, parts.test, parts.evaluated)
    without = tuned.about["training"]["fine_tuning"]["without"]
    assert without == pytest.approx({name: metrics[name] for name in without}, abs=0, rel=0)
    assert plain.about["metrics"]["ndcg@10"] != without["ndcg@10"]  # its table counts them


class StoppingLate(Stopping):
    """Ends the run when there is nothing left to learn."""

    def stops(self) -> bool:
        return self.learning and self.last

    def chunk(self, now: Progress, events_per_second: float) -> None:
        self.last = now.complete and now.epoch == TUNED["fine_tuning"] + TUNED["epochs"]


def test_ended_after_its_last_step_it_is_finished(data: Sequences) -> None:
    settings = TUNED | {"evaluate_every": TUNED["epochs"]}  # the last epoch is the chosen one
    assert train(data, callback=StoppingLate(), **settings).about["finished"]


def _fail_on_validation_events(
    error: Exception, data: Sequences, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let training fail in its second piece over all that comes before the test."""
    from hcarec.training.minibatch import Minibatch

    history = split(data, "leave-one-out", validation=True).history
    plainly = Minibatch.epoch

    def epoch(self: Minibatch, number: int) -> Iterator[Any]:
        for place, now in enumerate(plainly(self, number)):
            yield now
            if len(self.part.items) == len(history.items) and (place or now.complete):
                raise error

    monkeypatch.setattr(Minibatch, "epoch", epoch)


def test_where_it_diverges_the_chosen_epoch_is_kept(
    data: Sequences, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, heard = train(data, **QUICK), Listener()
    _fail_on_validation_events(Diverged(1, "batch 3 of 9", ""), data, monkeypatch)
    model = train(data, callback=heard, **TUNED)
    assert model.about["finished"] and model.about["metrics"] == plain.about["metrics"]
    assert all(model.theta[x].tobytes() == plain.theta[x].tobytes() for x in plain.theta)
    assert model.item_events.tolist() == plain.item_events.tolist()
    assert model.about["training"]["fine_tuning"]["epochs"] == 0
    assert heard.notes == [
        "learning the validation events diverged: the model is that of the chosen epoch"
    ]


def test_where_memory_runs_out_the_chosen_epoch_is_kept(
    data: Sequences, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(data, tmp_path / "whole", **TUNED)
    with monkeypatch.context() as patched:
        _fail_on_validation_events(MemoryError(), data, patched)
        with pytest.raises(DeviceError, match="no memory left while learning the val") as raised:
            train(data, tmp_path / "m", **TUNED)
    assert re.search(r"the model of epoch \d is kept$", str(raised.value))
    assert load(tmp_path / "m").about["finished"] is False
    train(data, tmp_path / "m", resume=True, **TUNED)
    with monkeypatch.context() as patched:
        _fail_on_validation_events(MemoryError(), data, patched)
        with pytest.raises(DeviceError, match=r"the model that was in .* before is kept$"):
            train(data, tmp_path / "m", resume=True, **TUNED | {"epochs": 4})
        with pytest.raises(DeviceError, match=r"nothing was written$"):
            train(data, **TUNED)
    files = [tmp_path / name / "model.safetensors" for name in ("whole", "m")]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_a_falling_rate_leaves_nothing_to_go_on_with(data: Sequences, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="fine_tuning is 2 with the schedule linear"):
        train(data, **TUNED | {"schedule": "linear"})
    settings = {"preset": "modern", "d": 8, "epochs": 2, "compare": False}
    chosen = [
        train(data, model="gru", **settings, schedule=schedule).config.as_dict()["fine_tuning"]
        for schedule in ("constant", "cosine")
    ]
    assert chosen == [2, 0]
    train(data, tmp_path / "m", model="gru", **settings)
    falling = {"model": "gru", **settings, "schedule": "linear"}
    whole = train(data, split="none", epochs_from=tmp_path / "m", **falling)
    assert whole.config.as_dict()["fine_tuning"] == 0
    with pytest.raises(ConfigError, match="--resume cannot go on"):  # and is not damaged
        train(data, tmp_path / "m", resume=True, **falling)


def test_a_run_from_before_fine_tuning_goes_on(data: Sequences, tmp_path: Path) -> None:
    train(data, tmp_path / "m", **QUICK)
    path = tmp_path / "m" / "checkpoint" / "checkpoint.json"
    content = json.loads(path.read_text())
    del content["run"]["config"]["fine_tuning"]
    path.write_text(json.dumps(content))
    longer = train(data, tmp_path / "m", resume=True, **QUICK | {"epochs": 4})
    assert longer.about["training"]["epochs"] == 4


def test_the_command_says_what_it_did(data: Sequences, tmp_path: Path, command: Command) -> None:
    data.save(tmp_path / "data")
    options = [
        f"--set={name}={json.dumps(value).strip(chr(34))}"
        for name, value in TUNED.items()
        if name in ("d", "batch_size", "learning_rate", "initial", "fine_tuning")
    ]
    options += ["--model", "gru", "--preset", "paper", "--trainer", "minibatch", "--epochs", "2"]
    code, out, said = command("train", tmp_path / "data", "-o", tmp_path / "m", *options)
    assert code == 0 and "learned the validation events too, in 2 epochs: NDCG@20 " in said
    assert "fine-tuning" in out
    code, out, _ = command("info", tmp_path / "m")
    assert code == 0 and "learned the validation events too, in 2 epochs" in " ".join(out.split())
