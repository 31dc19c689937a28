"""The loop around a trainer: it keeps whatever state a trainer has, and judges epochs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from hcarec import Sequences, load, settings, synthetic
from hcarec.data.split import Part
from hcarec.errors import ConfigError
from hcarec.hardware import Cost
from hcarec.models import Model
from hcarec.models.hca_gru import HCAGRU
from hcarec.ops.parameters import Theta
from hcarec.training import Callback, train, trainers
from hcarec.training.trainer import Progress, Trainer, TrainerState

SIZE = 5
"""Steps of an epoch of the trainer below."""


class NoisySettings(settings.TrainerSettings):
    """A trainer that moves parameters at random."""

    name: ClassVar[str] = "noisy"


class Noisy(Trainer):
    """Adds noise with momentum: it has a step, an optimizer and random numbers."""

    name = "noisy"

    def __init__(self, model: Model, part: Part, run: settings.RunSettings) -> None:
        super().__init__(model, part, run)
        self.theta = {name: array.copy() for name, array in model.theta.items()}
        self.momentum = {name: np.zeros_like(array) for name, array in self.theta.items()}
        self.random, self.step = np.random.default_rng(run.seed), 0

    @classmethod
    def cost(cls, model: Model, part: Part, n_items: int, threads: int) -> Cost:
        return Cost(0.0, 0)

    @property
    def parameters(self) -> Theta:
        return {name: array.copy() for name, array in self.theta.items()}

    def epoch(self, number: int) -> Iterator[Progress]:
        if self.progress.epoch != number:
            self.progress = Progress(number, 0, SIZE)
        while not self.progress.complete:
            for name, array in self.theta.items():
                self.momentum[name] *= np.float32(0.9)
                self.momentum[name] += self.random.standard_normal(array.shape, dtype=np.float32)
                array += np.float32(0.01) * self.momentum[name]
            self.step += 1
            now = self.progress
            self.progress = now._replace(
                position=now.position + 1, targets=now.targets + 10, loss=now.loss + self.step
            )
            yield self.progress

    def state(self) -> TrainerState:
        values = {
            "progress": self.progress._asdict(),
            "step": self.step,
            "random": self.random.bit_generator.state,
        }
        momentum = {f"optimizer.{name}": array for name, array in self.momentum.items()}
        return TrainerState(values, self.theta | momentum)

    def restore(self, state: TrainerState) -> None:
        self.progress, self.step = Progress(**state.values["progress"]), state.values["step"]
        self.random.bit_generator.state = state.values["random"]
        self.theta = {name: state.tensors[name] for name in self.theta}
        self.momentum = {name: state.tensors[f"optimizer.{name}"] for name in self.momentum}


@pytest.fixture
def noisy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the trainer known, as a new one would be."""
    monkeypatch.setitem(settings.TRAINERS, "noisy", NoisySettings)
    monkeypatch.setitem(trainers.TRAINERS, "noisy", lambda: Noisy)
    monkeypatch.setattr(HCAGRU, "trainers", ("user-sgd", "noisy"))


@pytest.fixture(scope="module")
def data() -> Sequences:
    return synthetic(users=80, items=40, mean_length=12, seed=6)


class Stop(Callback):
    """Ends a run at a step of an epoch, as a crash would."""

    def __init__(self, epoch: int, position: int) -> None:
        self.at = epoch, position

    def chunk(self, now: Progress, events_per_second: float) -> None:
        if (now.epoch, now.position) == self.at:
            raise KeyboardInterrupt


def log_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


@pytest.mark.usefixtures("noisy")
@pytest.mark.parametrize("at", [(1, 1), (1, 5), (2, 3), (4, 5)])
def test_a_trainer_with_optimizer_and_random_state_goes_on_bit_for_bit(
    at: tuple[int, int], data: Sequences, tmp_path: Path
) -> None:
    options: dict[str, Any] = {
        "model": "gru",
        "trainer": "noisy",
        "epochs": 4,
        "d": 4,
        "compare": False,
    }
    train(data, tmp_path / "whole", **options)
    with pytest.raises(KeyboardInterrupt):
        train(data, tmp_path / "cut", checkpoint_seconds=0, callback=Stop(*at), **options)
    train(data, tmp_path / "cut", resume=True, **options)
    whole, cut = (tmp_path / name / "model.safetensors" for name in ("whole", "cut"))
    assert whole.read_bytes() == cut.read_bytes()
    assert [record["loss"] for record in log_of(tmp_path / "cut")] == [15, 40, 65, 90]
    assert load(tmp_path / "cut").config.as_dict()["trainer"] == "noisy"


@pytest.mark.usefixtures("noisy")
def test_a_checkpoint_of_the_other_trainer(data: Sequences, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(
            data,
            tmp_path / "m",
            model="gru",
            trainer="noisy",
            checkpoint_seconds=0,
            callback=Stop(2, 2),
        )
    with pytest.raises(
        ConfigError,
        match=r"of the trainer noisy, this command trains with user-sgd; give --trainer noisy",
    ):
        train(data, tmp_path / "m", model="gru", preset="paper", resume=True)


# -- models that count --------------------------------------------------------------------------


def test_a_model_that_counts_keeps_no_checkpoint_of_another_run(
    data: Sequences, tmp_path: Path
) -> None:
    train(data, tmp_path / "m", model="gru", preset="paper", d=4, epochs=1, compare=False)
    assert (tmp_path / "m" / "checkpoint").is_dir()
    train(
        data, tmp_path / "m", model="gru", preset="paper", d=4, epochs=2, resume=True, compare=False
    )
    assert (tmp_path / "m" / "checkpoint").is_dir()
    model = train(data, tmp_path / "m", model="pop", overwrite=True, compare=False)
    assert not (tmp_path / "m" / "checkpoint").exists()
    train(data, tmp_path / "n", model="gru", preset="paper", d=4, epochs=1, compare=False)
    model.save(tmp_path / "n")
    assert not (tmp_path / "n" / "checkpoint").exists()
    assert load(tmp_path / "n").name == "pop"


@pytest.mark.parametrize("name", ["pop", "markov", "item-knn", "random"])
def test_a_model_that_counts_has_nothing_to_resume(
    name: str, data: Sequences, tmp_path: Path
) -> None:
    with pytest.raises(
        ConfigError, match=f"^{name} does not train in epochs, .*nothing to resume: leave out"
    ):
        train(data, tmp_path / "m", model=name, resume=True)
    assert not (tmp_path / "m").exists()


# -- when epochs are judged ------------------------------------------------------------------------


def test_epochs_are_evaluated_every_n_and_at_the_end(data: Sequences, tmp_path: Path) -> None:
    options: dict[str, Any] = {"model": "gru", "preset": "paper", "d": 4, "compare": False}
    model = train(data, tmp_path / "m", epochs=8, evaluate_every=3, **options)
    judged = [record["epoch"] for record in log_of(tmp_path / "m") if "ndcg@20" in record]
    assert judged == [3, 6, 8]
    assert model.about["selection"]["epoch"] in judged
    assert len(log_of(tmp_path / "m")) == 8


def untimed(folder: Path) -> list[dict[str, Any]]:
    timed = ("seconds", "evaluation_seconds", "events_per_second")
    return [
        {name: value for name, value in record.items() if name not in timed}
        for record in log_of(folder)
    ]


@pytest.mark.usefixtures("noisy")
@pytest.mark.parametrize("first", [1, 2, 4, 5])
@pytest.mark.parametrize("patience", [0, 2])
def test_an_evaluation_out_of_turn_does_not_change_a_longer_run(
    first: int, patience: int, data: Sequences, tmp_path: Path
) -> None:
    options: dict[str, Any] = {
        "model": "gru",
        "trainer": "noisy",
        "d": 4,
        "evaluate_every": 3,
        "patience": patience,
        "compare": False,
    }
    for seed in range(4):
        whole, cut = tmp_path / f"whole-{seed}", tmp_path / f"cut-{seed}"
        expected = train(data, whole, epochs=13, seed=seed, **options)
        short = train(data, cut, epochs=first, seed=seed, **options)
        assert "ndcg@20" in log_of(cut)[-1] and short.about["selection"]["epoch"] in (3, first)
        again = train(data, cut, epochs=first, seed=seed, resume=True, **options)
        assert again.about["selection"] == short.about["selection"]
        longer = train(data, cut, epochs=13, seed=seed, resume=True, **options)
        assert longer.about["selection"] == expected.about["selection"]
        assert untimed(cut) == untimed(whole)
        assert (cut / "model.safetensors").read_bytes() == (
            whole / "model.safetensors"
        ).read_bytes()


@pytest.mark.usefixtures("noisy")
def test_every_epoch_is_told_once(data: Sequences) -> None:
    told: list[tuple[int, bool]] = []

    class Listen(Callback):
        def epoch(self, record: dict[str, Any], best: bool) -> None:
            told.append((record["epoch"], "ndcg@20" in record))

    train(
        data, model="gru", trainer="noisy", d=4, epochs=5, evaluate_every=3, callback=Listen(),
        compare=False,
    )  # fmt: skip
    assert told == [(1, False), (2, False), (3, True), (4, False), (5, True)]


@pytest.mark.usefixtures("noisy")
def test_training_stops_early_where_nothing_gets_better(data: Sequences, tmp_path: Path) -> None:
    options: dict[str, Any] = {"model": "gru", "trainer": "noisy", "d": 4, "compare": False}
    model = train(data, tmp_path / "m", epochs=60, patience=4, **options)
    log, chosen = log_of(tmp_path / "m"), model.about["selection"]["epoch"]
    assert model.about["finished"] and len(log) < 60
    assert len(log) == chosen + 4
    best = max(record["ndcg@20"] for record in log)
    assert next(record["epoch"] for record in log if record["ndcg@20"] == best) == chosen
    patient = train(data, epochs=len(log), **options)
    assert all((patient.theta[name] == model.theta[name]).all() for name in model.theta)
    again = train(data, tmp_path / "m", epochs=90, patience=4, resume=True, **options)
    assert again.about["training"]["epochs"] == len(log)  # a run that stopped early has ended


def test_patience_counts_on_after_an_interruption(data: Sequences, tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "model": "gru",
        "preset": "paper",
        "d": 4,
        "epochs": 40,
        "patience": 3,
        "learning_rate": 0.05,
        "compare": False,
    }
    whole = train(data, tmp_path / "whole", **options)
    middle = whole.about["selection"]["epoch"] + 2
    with pytest.raises(KeyboardInterrupt):
        train(
            data,
            tmp_path / "cut",
            checkpoint_seconds=0,
            callback=Stop(middle, data.n_users),
            **options,
        )
    cut = train(data, tmp_path / "cut", resume=True, **options)
    assert cut.about["selection"] == whole.about["selection"]
    assert cut.about["training"]["epochs"] == whole.about["training"]["epochs"] < 40


# -- the clock -------------------------------------------------------------------------------------


def test_the_time_is_that_of_the_clock(
    data: Sequences, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock that moves a second at every look tells what is counted."""
    ticks = iter(range(10**6))
    monkeypatch.setattr("hcarec.training.loop.time.perf_counter", lambda: float(next(ticks)))
    options: dict[str, Any] = {"model": "gru", "preset": "paper", "d": 4, "compare": False}
    model = train(data, tmp_path / "m", epochs=3, checkpoint_seconds=1e9, **options)
    looks = next(ticks)
    done, log = model.about["training"], log_of(tmp_path / "m")
    assert looks - 6 <= done["seconds"] <= looks
    assert done["training_seconds"] == sum(record["seconds"] for record in log)
    assert done["evaluation_seconds"] == sum(record["evaluation_seconds"] for record in log) + 1
    assert done["seconds"] >= done["training_seconds"] + done["evaluation_seconds"]


def test_the_time_covers_the_yardsticks(
    data: Sequences, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks, slow = iter(range(10**6)), []
    monkeypatch.setattr(
        "hcarec.training.loop.time.perf_counter", lambda: float(next(ticks)) + sum(slow)
    )
    monkeypatch.setattr(
        "hcarec.training.yardsticks.measure",
        lambda *_, **__: slow.append(1000) or {"metric": "ndcg@20", "models": {}, "skipped": {}},
    )
    done = train(data, tmp_path / "m", model="gru", preset="paper", d=4, epochs=2).about["training"]
    assert done["yardstick_seconds"] == 1001
    parts = ("training_seconds", "evaluation_seconds", "yardstick_seconds")
    assert 1001 < sum(done[name] for name in parts) <= done["seconds"]


def test_the_printed_time_names_its_parts(tmp_path: Path, data: Sequences) -> None:
    from hcarec.cli.train_view import _times

    model = train(data, model="gru", preset="paper", d=4, epochs=2)
    model.about["training"] |= {
        "seconds": 31.2,
        "training_seconds": 12.0,
        "evaluation_seconds": 3.1,
        "yardstick_seconds": 1.2,
        "events": 600_000,
    }
    assert _times(model) == (
        "2 epochs in 31 s: 12 s training, 3.1 s evaluation, 1.2 s yardsticks;"
        " 100,000 events/s in training"
    )
