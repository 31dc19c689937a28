"""The preset modern: a written rule over log and machine, which what is given goes before."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hcarec import Sequences, load, synthetic, train
from hcarec.data.split import Part, split
from hcarec.data.statistics import statistics
from hcarec.errors import ConfigError
from hcarec.models import MODELS, Model, make
from hcarec.training import Callback, checkpoint, minibatch, recipe, sizing
from hcarec.training.recipe import Log, settings_for
from hcarec.training.resources import plan
from hcarec.training.sizing import Machine, Run
from hcarec.training.trainer import Progress
from test_without_torch import WITHOUT_TORCH

NETWORKS = ("gru", "hca-gru", "sasrec")
TWO_CORES = Machine("cpu", 2, 8 << 30)
QUICK: dict[str, Any] = {"d": 8, "epochs": 2, "compare": False}


@pytest.fixture(scope="module")
def data() -> Sequences:
    return synthetic(users=60, items=40, mean_length=12)


class Listener(Callback):
    """Keeps what is said, and ends a run as a crash would in the epoch `crash`."""

    def __init__(self, crash: int = 0) -> None:
        self.lines: list[str] = []
        self.notes: tuple[str, ...] = ()
        self.crash = crash

    def note(self, text: str) -> None:
        self.lines.append(text)

    def planned(self, planned: Any, config: Any, resumed_at: int | None) -> None:
        self.notes = planned.notes

    def chunk(self, now: Progress, events_per_second: float) -> None:
        if now.epoch == self.crash:
            raise KeyboardInterrupt


def config_of(folder: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((folder / "model.json").read_text())["config"]
    return config


def same_bits(a: Model, b: Model) -> bool:
    return a.theta.keys() == b.theta.keys() and all(
        a.theta[name].tobytes() == b.theta[name].tobytes() for name in a.theta
    )


def decided(model: str, data: Sequences, machine: Machine, **settings: Any) -> tuple[Model, Any]:
    """Return a model on which the preset has decided, and what it says."""
    made, parts = make(model, preset="modern", **settings), split(data, "leave-one-out")
    made.set_catalog(data, np.asarray(parts.train.items))
    run = Run(data, parts.train, int(parts.evaluated.sum()), True, True)
    return made, recipe.decide(made, run, machine)


# -- the rule --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (
            Log(0.0, 8.9, 16.4, 198_502),
            {"d": 128, "blocks": 2, "scores": "cosine", "copy_window": 0, "batches": "prefixes",
             "batch_size": 256, "length": 50, "input_dropout": 0.5, "weight_decay": 0.1,
             "learning_rate": 1e-3, "patience": 5},
        ),
        (
            Log(0.0099, 165.0, 290.0, 999_611),
            {"d": 256, "blocks": 3, "scores": "cosine", "item_norm": True, "batches": "sequences",
             "batch_size": 128, "length": 200, "input_dropout": 0.4, "weight_decay": 0.01,
             "patience": 10},
        ),
        (Log(0.0, 99.0, 290.0, 999_611), {"batches": "sequences", "length": 100, "blocks": 2}),
        (
            Log(0.01, 83.0, 35.0, 194_108),
            {"d": 128, "blocks": 0, "scores": "dot", "item_norm": False, "output_norm": True,
             "copy_window": 50, "batch_size": 256, "learning_rate": 2e-3, "length": 100,
             "output_dropout": 0.4, "weight_decay": 0.01},
        ),
        (Log(0.3, 165.0, 50.0, 999_611), {"d": 256, "length": 100, "batches": "positions"}),
        (
            Log(0.3, 5.4, 19.0, 299_999),
            {"blocks": 0, "copy_window": 20, "batches": "prefixes", "batch_size": 256},
        ),
        (
            Log(0.3, 5.4, 19.0, 300_000),
            {"batches": "prefixes", "batch_size": 1024, "learning_rate": 2e-3},
        ),
    ],
)  # fmt: skip
def test_what_differs_between_logs_follows_from_their_statistics(
    log: Log, expected: dict[str, Any]
) -> None:
    settings = settings_for("hca-gru", log)
    assert {name: settings[name] for name in expected} == expected
    always = {"counting": True, "fusion": "residual", "padding": "masked"}
    assert settings.items() >= always.items()
    assert make("hca-gru", preset="modern", **settings).config.preset == "modern"


@pytest.mark.parametrize("log", [Log(0.0, 9.0, 16.0, 10_000), Log(0.3, 50.0, 100.0, 10_000)])
def test_each_network_gets_the_settings_that_it_has(log: Log) -> None:
    for name in NETWORKS:
        settings = settings_for(name, log)
        assert settings.keys() <= MODELS[name].setting_names()
        make(name, preset="modern", **settings)
    sasrec = settings_for("sasrec", log)
    assert (sasrec["blocks"], sasrec["heads"], sasrec["output_norm"]) == (2, 4, True)
    assert sasrec["hidden_dropout"] >= 0.2 and "fusion" not in sasrec


def test_sasrec_is_as_deep_as_the_others() -> None:
    assert settings_for("sasrec", Log(0.0, 165.0, 290.0, 999_611))["blocks"] == 3


@pytest.mark.parametrize(
    ("log", "batch_size"),
    [
        (Log(0.0, 149.0, 11.0, 100_004), 16),  # 671 sequences
        (Log(0.0, 165.0, 290.0, 999_611), 128),
        (Log(0.0, 9.0, 3.0, 7_680), 256),  # 30 steps of prefixes
        (Log(0.0, 9.0, 3.0, 7_679), 128),
        (Log(0.3, 50.0, 3.0, 100), 8),
    ],
)
def test_batches_of_a_small_log_are_smaller(log: Log, batch_size: int) -> None:
    assert settings_for("gru", log)["batch_size"] == batch_size


def test_the_statistics_are_those_of_inspect(data: Sequences) -> None:
    figures = statistics(data)
    log = Log.of(figures.as_dict())
    assert log == Log.of(vars(figures))
    rates = figures.repeats, figures.mean_length, data.n_events / data.n_items
    assert log == (*rates, data.n_events)


# -- the machine -----------------------------------------------------------------------------------


def test_a_gpu_gets_the_full_size_and_a_cpu_what_fits() -> None:
    often = synthetic(users=200, items=40, mean_length=15)
    on_gpu, says = decided("hca-gru", often, Machine("cuda", 2, None))
    assert on_gpu.config.as_dict()["d"] == 256 and says.elsewhere is None
    assert says.lines[0].endswith("d 256, up to 100 epochs for a GPU")
    on_cpu, says = decided("hca-gru", often, TWO_CORES)
    assert on_cpu.config.as_dict()["d"] == 128
    assert says.lines[0].endswith("d 128, up to 100 epochs for 2 cores")
    assert says.elsewhere is not None and says.elsewhere.startswith("on a GPU: ")
    assert says.elsewhere.endswith("d 256, up to 100 epochs")


def test_a_cpu_takes_sequences_where_a_gpu_takes_positions() -> None:
    returning = synthetic(users=60, items=10, mean_length=40)
    on_gpu, _ = decided("hca-gru", returning, Machine("cuda", 2, None))
    on_cpu, says = decided("hca-gru", returning, TWO_CORES)
    ours = {"batches": "sequences", "learning_rate": 1e-3, "patience": 10}
    assert on_gpu.config.as_dict()["batches"] == "positions"
    assert on_cpu.config.as_dict().items() >= ours.items()
    assert says.elsewhere is not None and "positions of 100" in says.elsewhere
    positions = decided("hca-gru", returning, TWO_CORES, batches="positions")[0].config
    theirs = {"learning_rate": 2e-3, "patience": 5, "positions": 8}
    assert positions.as_dict().items() >= theirs.items()


@pytest.mark.parametrize("name", NETWORKS)
def test_less_time_gives_smaller_sizes_then_fewer_epochs(
    name: str, data: Sequences, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(recipe.SAMPLED, "negatives", 10)
    parts = split(data, "leave-one-out")
    evaluated, chosen = int(parts.evaluated.sum()), []
    for budget in (900.0, 3.0, 1.0, 0.5, 0.05):
        monkeypatch.setattr(sizing, "BUDGET", budget)
        model, _ = decided(name, data, TWO_CORES)
        planned = plan(model, parts.train, data.n_items, evaluated, 2)
        has = model.config.as_dict()
        sampled, d, epochs = has["loss"] == "sampled-softmax", has["d"], has["epochs"]
        assert planned.seconds <= budget or (sampled, d, epochs) == (True, 32, 1)
        if not sampled:
            assert d >= recipe.LEAST_D and epochs >= sizing.NEEDED_EPOCHS[has["batches"]]
        elif d > 32:
            assert epochs >= sizing.NEEDED_SAMPLED
        chosen.append((not sampled, d))
    assert chosen == sorted(chosen, reverse=True)
    assert chosen[0] == (True, 128) and chosen[-1] == (False, 32)
    assert decided(name, data, TWO_CORES)[0].config == model.config


@pytest.mark.parametrize("mebibytes", [1024, 1160])
def test_little_memory_gives_a_smaller_size_and_no_fewer_epochs(
    data: Sequences, mebibytes: int
) -> None:
    config = decided("hca-gru", data, Machine("cpu", 2, mebibytes << 20))[0].config.as_dict()
    assert config["d"] < 128 and config["epochs"] == 100


def test_random_positions_stand_in_for_prefixes_before_d_shrinks(
    data: Sequences, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cost formulas, not a clock, say that prefixes take too long at this size."""
    prefixes = decided("hca-gru", data, TWO_CORES)[0].config
    monkeypatch.setattr(sizing, "plan", dear_prefixes(sizing.plan))
    positions = decided("hca-gru", data, TWO_CORES)[0].config
    assert prefixes.as_dict()["batches"] == "prefixes"
    chosen = positions.as_dict()
    assert (chosen["batches"], chosen["d"], chosen["positions"]) == ("positions", 128, 4)


def test_a_catalog_that_is_too_large_for_a_cpu_is_sampled(
    data: Sequences, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sizing, "plan", dear_catalog(sizing.plan))
    whole = decided("hca-gru", data, TWO_CORES)[0].config.as_dict()
    assert (whole["loss"], whole["d"]) == ("auto", 32)  # of 40 items none is worth leaving out
    monkeypatch.setitem(recipe.SAMPLED, "negatives", 10)
    model, says = decided("hca-gru", data, TWO_CORES)
    expected = {"loss": "sampled-softmax", "d": 128, "batches": "positions", "evaluate_every": 2}
    assert model.config.as_dict().items() >= expected.items()
    assert "sampled softmax" in says.lines[0]
    given = decided("hca-gru", data, TWO_CORES, loss="cross-entropy")[0].config.as_dict()
    assert (given["negatives"], given["evaluate_every"], given["d"]) == (2048, 1, 32)
    few, many = (decided("hca-gru", data, TWO_CORES, negatives=n)[0] for n in (5, 30))
    assert (few.config.training.loss, few.config.training.negatives) == ("sampled-softmax", 5)
    assert many.config.training.loss == "auto"  # hardly fewer than the catalog has


def test_a_catalog_that_is_always_sampled_is_planned_as_such(
    data: Sequences, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(minibatch, "WHOLE_CATALOG", 30)
    monkeypatch.setattr(sizing, "plan", dear_catalog(sizing.plan))
    config = decided("hca-gru", data, TWO_CORES)[0].config.as_dict()
    assert (config["loss"], config["d"], config["epochs"]) == ("auto", 128, 100)


def test_more_epochs_than_are_needed_change_no_size(
    data: Sequences, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sizing, "BUDGET", 5.0)
    by_rule, more = (
        decided("hca-gru", data, TWO_CORES, **given)[0].config.as_dict()
        for given in ({}, {"epochs": 1000})
    )
    assert by_rule["epochs"] < 1000 and more == by_rule | {"epochs": 1000}


@pytest.mark.parametrize("kind", ["sequences", "positions"])
def test_settings_go_with_batches_that_are_given(kind: str) -> None:
    large = Log(0.3, 5.4, 19.0, 300_000)
    settings = settings_for("gru", large, kind)
    expected = {
        "sequences": {"batch_size": 64, "learning_rate": 1e-3, "patience": 10, "length": 50},
        "positions": {"batch_size": 1024, "learning_rate": 2e-3, "patience": 5, "positions": 4},
    }
    assert settings.items() >= expected[kind].items()


def dear_catalog(real: Any) -> Any:
    """Return a plan in which the loss over all items takes longer than any budget."""

    def planned(model: Model, *sizes: Any) -> Any:
        many = 1e6 if model.config.as_dict()["loss"] == "cross-entropy" else 1.0
        return real(model, *sizes).on_machine(many)

    return planned


def dear_prefixes(real: Any) -> Any:
    """Return a plan in which prefixes take longer than any budget."""

    def planned(model: Model, *sizes: Any) -> Any:
        many = 1e6 if model.config.as_dict()["batches"] == "prefixes" else 1.0
        return real(model, *sizes).on_machine(many)

    return planned


# -- what is given ---------------------------------------------------------------------------------


def test_what_is_given_goes_before_the_preset(data: Sequences, tmp_path: Path) -> None:
    heard = Listener()
    train(
        data, tmp_path / "m", preset="modern", callback=heard, window_x=3, scores="dot",
        batches="sequences", **QUICK,
    )  # fmt: skip
    config = config_of(tmp_path / "m")
    given = {"d": 8, "epochs": 2, "window_x": 3, "window_h": 5, "scores": "dot"}
    assert config.items() >= (given | {"batches": "sequences", "preset": "modern"}).items()
    assert config["fusion"] == "residual" and "auto" not in config.values()
    assert heard.lines[0].startswith("modern: ") and "d 8, up to 2 epochs" in heard.lines[0]
    assert "dot scores" in heard.lines[0] and "sequences" in heard.lines[0]
    assert any(note.startswith("on a GPU: ") for note in heard.notes)


def test_nothing_is_announced_of_a_run_that_is_refused(data: Sequences, tmp_path: Path) -> None:
    train(data, tmp_path / "m", model="pop", compare=False)
    heard = Listener()
    with pytest.raises(ConfigError, match="already holds POP"):
        train(data, tmp_path / "m", preset="modern", callback=heard, **QUICK)
    assert not heard.lines


def test_what_is_decided_goes_with_what_is_given(data: Sequences) -> None:
    config = decided("sasrec", data, TWO_CORES, length=7)[0].config.as_dict()
    assert (config["length"], config["copy_window"]) == (7, 7)
    with pytest.raises(ConfigError, match="length is 3, but counting reads the last 5 events"):
        decided("sasrec", data, TWO_CORES, length=3)
    with pytest.raises(ConfigError, match="give a d that is a multiple of heads"):
        decided("sasrec", data, TWO_CORES, d=30)


def test_a_file_goes_before_the_preset(data: Sequences, tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text('version = 1\npreset = "modern"\nd = 8\nema = 0.5\n')
    model = train(data, config=tmp_path / "c.toml", epochs=1, compare=False)
    assert model.config.as_dict().items() >= {"d": 8, "ema": 0.5, "counting": True}.items()


@pytest.mark.parametrize("name", ["random", "pop", "markov", "item-knn", "bpr"])
def test_models_with_one_recipe_ignore_the_preset(name: str, data: Sequences) -> None:
    epochs = {"epochs": 1} if name == "bpr" else {}
    heard = Listener()
    modern = train(data, model=name, preset="modern", compare=False, callback=heard, **epochs)
    plain = train(data, model=name, compare=False, **epochs)
    assert modern.config.as_dict() == plain.config.as_dict() and same_bits(modern, plain)
    assert not heard.lines


def test_the_papers_trainer_does_not_go_with_the_preset() -> None:
    with pytest.raises(ConfigError, match="leave it out, or give --preset paper"):
        make("gru", preset="modern", trainer="user-sgd")


def test_a_model_fitted_on_everything_follows_the_rule(data: Sequences) -> None:
    model = make("gru", preset="modern", d=8).fit(data, epochs=1)
    assert not model.config.open and model.config.epochs == 1
    assert model.config.as_dict().items() >= settings_of(data).items()


def settings_of(data: Sequences) -> dict[str, Any]:
    """Return the settings by the rule that neither size nor device decides."""
    settings = settings_for("gru", Log.of(vars(statistics(data))))
    sized = {"d", "epochs", "loss", "precision"}
    return {name: value for name, value in settings.items() if name not in sized}


# -- runs ------------------------------------------------------------------------------------------


def test_the_same_run_twice_has_the_same_bits(data: Sequences) -> None:
    runs = [train(data, preset="modern", split="leave-one-out", **QUICK) for _ in range(2)]
    assert same_bits(*runs) and runs[0].config == runs[1].config


def test_a_model_folder_keeps_every_choice(
    data: Sequences, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = QUICK | {"d": 12, "preset": "modern"}
    first = train(data, tmp_path / "m", split="leave-one-out", **settings)
    assert load(tmp_path / "m").config == first.config
    monkeypatch.setattr(recipe, "ALWAYS", recipe.ALWAYS | {"clip": 1.0})  # another version's rule
    again = train(data, config=tmp_path / "m", split="leave-one-out", compare=False)
    assert again.config == first.config and same_bits(again, first)
    heard = Listener()
    everything = train(
        data, preset="modern", split="none", epochs_from=tmp_path / "m", callback=heard
    )
    epochs = first.about["selection"]["epoch"]
    assert everything.config.as_dict() == first.config.as_dict() | {"epochs": epochs}
    assert heard.lines[0].startswith(f"modern, as '{tmp_path / 'm'}' has it: ")


def test_epochs_of_a_model_of_another_preset_are_refused(data: Sequences, tmp_path: Path) -> None:
    train(data, tmp_path / "m", model="gru", preset="paper", d=4, epochs=1, compare=False)
    with pytest.raises(ConfigError, match="holds gru of the preset paper, this run is gru of the"):
        train(data, model="gru", preset="modern", split="none", epochs_from=tmp_path / "m")


def test_a_refit_keeps_the_choices(
    data: Sequences, tmp_path: Path, command: Callable[..., tuple[int, str, str]]
) -> None:
    data.save(tmp_path / "data")
    options = ["--preset", "modern", "--set", "d=8", "--epochs", "2", "--split", "leave-one-out"]
    out = tmp_path / "m"
    code, _, said = command("train", tmp_path / "data", "-o", out, *options, "--refit")
    assert code == 0, said
    config, about = config_of(out), json.loads((out / "model.json").read_text())
    evaluated = about["evaluated"]
    assert config["epochs"] == evaluated["selection"]["epoch"]
    assert evaluated["fine_tuning"]["epochs"] == 2
    assert "fine-tuning" in command("info", out)[1] and "fine_tuning" not in about["training"]
    assert config.items() >= {"d": 8, "preset": "modern", "fusion": "residual"}.items()
    lines = [line for line in said.splitlines() if line.startswith("modern")]
    assert len(lines) == 2 and lines[1].startswith(f"modern, as '{out}' has it: ")


def test_without_validation_data_the_number_of_epochs_is_fixed(
    data: Sequences, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recipe, "FIXED_EPOCHS_REPEATS", 1)
    monkeypatch.setattr(recipe, "FIXED_EPOCHS", dict.fromkeys(recipe.FIXED_EPOCHS, 1))
    heard = Listener()
    model = train(data, preset="modern", split="none", d=8, callback=heard)
    assert model.config.epochs == 1
    assert heard.lines[1].startswith("1 epoch, the preset's fixed number: no validation data")
    elsewhere = next(note for note in heard.notes if note.startswith("on a GPU: "))
    assert elsewhere.endswith("up to 1 epoch")


def test_fewer_than_the_fixed_number_of_epochs_are_told(
    data: Sequences, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sizing, "BUDGET", 0.05)
    monkeypatch.setitem(recipe.SAMPLED, "negatives", 10)
    model = make("gru", preset="modern")
    model.set_catalog(data, np.asarray(data.items))
    everything = Run(data, Part(data.items, data.offsets), 0, judged=False, validates=False)
    says = recipe.decide(model, everything, TWO_CORES)
    assert model.config.epochs < recipe.FIXED_EPOCHS_SAMPLED
    assert "as many as a CPU has time for of the preset's 20" in says.lines[1]


def test_a_run_that_is_gone_on_with_keeps_its_settings(
    data: Sequences, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {"preset": "modern", "split": "leave-one-out", "compare": False}
    monkeypatch.setattr(recipe, "ALWAYS", recipe.ALWAYS | {"epochs": 3})
    monkeypatch.setattr(sizing, "SIZES", (12,))
    whole = train(data, **settings)
    stopping = Listener(crash=2)
    with pytest.raises(KeyboardInterrupt):
        train(data, tmp_path / "m", callback=stopping, checkpoint_seconds=0, **settings)
    monkeypatch.setattr(sizing, "SIZES", (8,))  # as on a smaller machine
    monkeypatch.setattr(recipe, "ALWAYS", recipe.ALWAYS | {"epochs": 2})
    shutil.copytree(tmp_path / "m", tmp_path / "copy")
    with pytest.raises(ConfigError, match=r"a run of the preset modern.*give --preset modern"):
        train(data, tmp_path / "copy", resume=True, split="leave-one-out", preset="paper")
    heard = Listener()
    resumed = train(data, tmp_path / "m", resume=True, callback=heard, **settings)
    assert (resumed.config.as_dict()["d"], resumed.config.epochs) == (12, 3)
    assert resumed.config == whole.config and same_bits(resumed, whole)
    assert heard.lines[0].startswith("modern, as the run began: ")
    stored = checkpoint.read_config(tmp_path / "m")
    assert stored is not None and stored["epochs"] == 3


@pytest.mark.parametrize("more", [(), ("--resume",), ("--epochs-from", "m", "--split", "none")])
def test_without_torch_one_line_names_the_install_and_the_paper(
    more: tuple[str, ...], data: Sequences, tmp_path: Path
) -> None:
    data.save(tmp_path / "data")
    train(data, tmp_path / "m", model="hca-gru", d=8, epochs=1, compare=False)
    options = ("train", "data", "-o", "m" if "--resume" in more else "model", *more)
    code = WITHOUT_TORCH + f"print(json.dumps(hcarec(*{options!r})))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout.splitlines()[-1] == "2" and done.stderr.count("\n") == 1, done.stderr
    assert "pip install 'hcarec[torch,serve]', or give --preset paper" in done.stderr
    assert not (tmp_path / "model" / "model.json").exists()


@pytest.mark.parametrize("name", sorted(set(MODELS) - set(NETWORKS)))
def test_models_with_one_recipe_never_need_torch(
    name: str, data: Sequences, tmp_path: Path
) -> None:
    data.save(tmp_path / "data")
    epochs = ("--epochs", "1") if MODELS[name].trainers else ()
    options = ("train", "data", "-o", "model", "--model", name, *epochs)
    code = WITHOUT_TORCH + f"print(json.dumps([hcarec(*{options!r}), sorted(attempts)]))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout.splitlines()[-1] == "[0, []]", done.stderr
