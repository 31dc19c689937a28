"""Settings, presets and configuration files: each mistake is one line, and nothing is lost."""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest

import hcarec
from hcarec import Sequences, synthetic
from hcarec.errors import ConfigError, ModelError
from hcarec.models import MODELS, Options, make, read_config
from hcarec.settings import PRESETS, TRAINERS, TrainerOptions

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def data() -> Sequences:
    return synthetic(users=60, items=40, mean_length=12)


@pytest.fixture(scope="module")
def stored(data: Sequences, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("config") / "data"
    data.save(path)
    return path


def test_names_are_unique_so_that_settings_can_stand_side_by_side() -> None:
    trainers = {name for trainer in TRAINERS.values() for name in trainer.names()}
    for kind in MODELS.values():
        assert not set(kind.Network.names()) & (
            trainers | {"model", "preset", "trainer", "version"}
        )


def test_what_type_checkers_see_is_what_there_is() -> None:
    """The typed options of every model have the names and types of its settings, and no others."""
    for kind in MODELS.values():
        settings = [kind.Network, *(TRAINERS[name] for name in kind.trainers)]
        expected = {name: hint for one in settings for name, hint in hints(one).items()}
        expected |= {"preset": str} | ({"trainer": str} if kind.trainers else {})
        options = typing.get_type_hints(kind.__init__, localns=vars(hcarec.models))["settings"]
        found = get_type_hints(typing.get_args(options)[0])
        assert found.keys() == expected.keys(), kind.name
        for name, hint in expected.items():
            plain = (
                "Sequence[float]" if hint == tuple[float, ...] else getattr(hint, "__name__", hint)
            )
            assert plain in str(found[name]) or found[name] == hint, (kind.name, name)
    every = {name for kind in MODELS.values() for name in kind.setting_names()}
    assert set(get_type_hints(Options)) == every
    assert {"epochs", "learning_rate"} <= set(get_type_hints(TrainerOptions))


def hints(settings: type) -> dict[str, Any]:
    found = get_type_hints(settings)
    return {one.name: found[one.name] for one in dataclasses.fields(settings)}


@pytest.mark.parametrize("name", MODELS)
def test_a_preset_is_resolved_and_written_whole(name: str, data: Sequences, tmp_path: Path) -> None:
    epochs = {"epochs": 1} if MODELS[name].trainers else {}
    model = hcarec.train(data, tmp_path / "m", model=name, compare=False, **epochs)
    config = json.loads((tmp_path / "m" / "model.json").read_text())["config"]
    training = model.config.training
    settings = {*MODELS[name].Network.names(), *(training.names() if training is not None else ())}
    named = {"model"} | ({"trainer", "preset"} if training is not None else set())
    assert config.keys() == settings | named
    again = make(**config)
    assert again.config == model.config
    assert set(PRESETS) == {"paper", "modern"}


# -- files -----------------------------------------------------------------------------------------


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_file_gives_settings_and_what_is_given_goes_before_it(
    data: Sequences, tmp_path: Path
) -> None:
    file = write(tmp_path / "c.toml", 'version = 1\nmodel = "gru"\nd = 7\nepochs = 2\nl2 = 0.5\n')
    model = hcarec.train(data, config=file, epochs=1, compare=False)
    config = model.config.as_dict()
    assert (config["model"], config["d"], config["epochs"], config["l2"]) == ("gru", 7, 1, 0.5)


def test_a_model_folder_is_a_configuration(data: Sequences, tmp_path: Path) -> None:
    first = hcarec.train(
        data, tmp_path / "m", model="hca-gru", preset="paper", window_x=2, d=5, epochs=2, seed=3
    )
    again = hcarec.train(data, config=tmp_path / "m", seed=3)
    assert again.config == first.config
    assert all((again.theta[name] == first.theta[name]).all() for name in first.theta)


def test_lists_in_a_file(data: Sequences, tmp_path: Path) -> None:
    file = write(
        tmp_path / "c.toml", 'version = 1\nmodel = "markov"\nhistory_weights = [1, 0.25]\n'
    )
    assert hcarec.train(data, config=file).config.as_dict()["history_weights"] == (1.0, 0.25)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("d = 5", "has no version: begin it with version = 1"),
        ("version = 2\nd = 5", "is of version 2, this hcarec reads configurations of version 1"),
        ("version = 1\nd 5", "is not a TOML file"),
        ("version = 1\ndd = 5", r"there is no setting 'dd' of gru: .*did you mean 'd'"),
        ('version = 1\nd = "five"', "d is 'five': give a whole number of at least 1"),
        ("version = 1\nd = 2.5", "d is 2.5: give a whole number"),
        ("version = 1\nlearning_rate = true", "learning_rate is True: give a number"),
        ('version = 1\npreset = "best"', "preset 'best' is not known: give one of paper"),
        ('version = 1\ntrainer = "sgd"', "trainer 'sgd' is not known: give one of user-sgd"),
        ("version = 1\n[network]\nd = 5", "there is no setting 'network' of gru"),
        ('version = 1\nmodel = "bpr"', "is a configuration of bpr, but the model is gru"),
        ('version = 1\nmodel = ""', "is a configuration of , but the model is gru"),
        ("version = 1\nwindow-x = 1\nwindow_x = 1", "gives window_x twice"),
        ('version = 1\nmodel = "grru"', "is a configuration of grru, but the model is gru"),
    ],
)
def test_a_bad_file_is_one_line_and_changes_nothing(
    text: str, says: str, stored: Path, tmp_path: Path, command: Command
) -> None:
    file = write(tmp_path / "c.toml", text)
    out = tmp_path / "model"
    hcarec.train(
        Sequences.open(stored), out, model="gru", preset="paper", d=3, epochs=1, compare=False
    )
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    with pytest.raises(ConfigError, match=says):
        read_config(file, "gru")
    code, printed, error = command("train", stored, "-o", out, "--model", "gru", "--config", file)
    assert (code, printed) == (2, "")
    assert error.startswith("hcarec: ") and error.count("\n") == 1
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def test_an_empty_name_of_a_model(stored: Path, tmp_path: Path, command: Command) -> None:
    file = write(tmp_path / "c.toml", 'version = 1\nmodel = ""\n')
    code, _, error = command("train", stored, "-o", tmp_path / "m", "--config", file)
    assert code == 2 and error.count("\n") == 1
    assert f"'{file}': model '' is not known: give one of random" in error


def test_names_with_dashes(data: Sequences, tmp_path: Path) -> None:
    file = write(tmp_path / "c.toml", 'version = 1\nmodel = "hca-gru"\nwindow-x = 2\n')
    assert read_config(file) == {"model": "hca-gru", "window_x": 2}


@pytest.mark.parametrize("name", ["colour", None, ..., 3, []])
def test_a_folder_of_an_unknown_model(
    name: Any, data: Sequences, stored: Path, tmp_path: Path, command: Command
) -> None:
    hcarec.train(data, tmp_path / "m", model="pop", compare=False)
    manifest = json.loads((tmp_path / "m" / "model.json").read_text())
    manifest["config"] = {} if name is ... else {"model": name}
    write(tmp_path / "m" / "model.json", json.dumps(manifest))
    code, _, error = command("train", stored, "-o", tmp_path / "n", "--config", tmp_path / "m")
    assert code == 2 and error.count("\n") == 1
    assert f"'{tmp_path / 'm'}': model '" in error and "is not known: give one of random" in error


def test_settings_of_other_models_are_left_out_of_schema_1_alone(
    data: Sequences, tmp_path: Path
) -> None:
    hcarec.train(data, tmp_path / "m", model="pop", compare=False)
    manifest = json.loads((tmp_path / "m" / "model.json").read_text())
    manifest["config"]["window_x"] = 5
    for schema, refused in ((1, False), (2, True)):
        write(tmp_path / "m" / "model.json", json.dumps({**manifest, "schema": schema}))
        if refused:
            with pytest.raises(ModelError, match="there is no setting 'window_x' of pop"):
                hcarec.load(tmp_path / "m")
            with pytest.raises(ConfigError, match="there is no setting 'window_x' of pop"):
                read_config(tmp_path / "m")
        else:
            assert hcarec.load(tmp_path / "m").name == "pop"
            assert read_config(tmp_path / "m") == {"model": "pop"}


@pytest.mark.parametrize("path", ["nothing.toml", "data"])
def test_a_configuration_that_is_none(
    path: str, stored: Path, tmp_path: Path, command: Command
) -> None:
    target = stored if path == "data" else tmp_path / path
    code, _, error = command("train", stored, "-o", tmp_path / "m", "--config", target)
    assert code == 2 and error.count("\n") == 1
    assert ("is not there" if path == "nothing.toml" else "is not a model folder") in error
    assert "give a TOML file or a model folder as the configuration" in error
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--set", "lr=0.1"), "there is no setting 'lr' of hca-gru"),
        (("--set", "d=big"), "d is 'big': give a whole number"),
        (("--model", "pop", "--epochs", "3"), "there is no setting 'epochs' of pop"),
        (("--model", "markov", "--window-x", "3"), "there is no setting 'window_x' of markov"),
        (("--model", "pop", "--trainer", "user-sgd"), "there is no setting 'trainer' of pop"),
        (("--trainer", "adam"), "trainer 'adam' is not known: give one of user-sgd, minibatch"),
        (("--device", "tpu"), "device 'tpu' is not known: give one of auto, cpu, cuda"),
        (("--set", "patience=-1"), "patience is -1: give a whole number"),
    ],
)
def test_settings_that_do_not_apply(
    options: tuple[str, ...], says: str, stored: Path, tmp_path: Path, command: Command
) -> None:
    code, _, error = command("train", stored, "-o", tmp_path / "m", *options)
    assert code == 2 and error.count("\n") == 1 and says in error, error
    assert not (tmp_path / "m").exists()


# -- odd values ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_self_is_no_setting(name: str, stored: Path, tmp_path: Path, command: Command) -> None:
    file = write(tmp_path / "c.toml", f'version = 1\nmodel = "{name}"\nself = 3\n')
    for options in (("--model", name, "--set", "self=3"), ("--config", file)):
        code, _, error = command("train", stored, "-o", tmp_path / "m", *options)
        assert code == 2 and error.count("\n") == 1
        assert f"there is no setting 'self' of {name}" in error
    if name not in ("gru", "hca-gru"):
        with pytest.raises(ConfigError, match="there is no setting 'self'"):
            MODELS[name](self=3)
    with pytest.raises(ConfigError, match="there is no setting 'model'"):
        MODELS[name](model="pop")


@pytest.mark.parametrize("value", [10**400, -(10**400), 10**5000], ids=["large", "low", "huge"])
def test_huge_numbers(value: int, stored: Path, tmp_path: Path, command: Command) -> None:
    for name in ("learning_rate", "epochs"):
        with pytest.raises(ConfigError, match=rf"^{name} is .{{1,90}}: give a (whole )?number"):
            make("gru", **{name: value})
    with pytest.raises(ConfigError, match=r"^history_weights is .{1,90}: give 1 to 1,000 numbers"):
        make("markov", history_weights=[1, value])
    digits = "9" * (400 if abs(value) < 10**4000 else 5000)
    file = write(tmp_path / "c.toml", f"version = 1\nlearning_rate = {digits}\n")
    for options in (("--set", f"learning_rate={digits}"), ("--config", file)):
        code, _, error = command("train", stored, "-o", tmp_path / "m", *options)
        assert code == 2 and error.count("\n") == 1


@pytest.mark.parametrize(
    "value",
    [[], "", [-1], [1e-7], [1e7], [float("nan")], [True], ["1"], [1] * 1001, {}, None, [[1]]],
)
def test_lists_of_numbers_have_bounds(value: Any) -> None:
    says = r"^history_weights is .{1,90}: give 1 to 1,000 numbers, each 0 or from 1e-06 to 1e\+06, "
    with pytest.raises(ConfigError, match=says):
        make("markov", history_weights=value)


def test_the_bounds_themselves() -> None:
    for value in ([1e-6], [1e6], [0, 1], [0.5] * 1000):
        found = make("markov", history_weights=value).config.as_dict()["history_weights"]
        assert found == tuple(value)


def test_numbers_of_numpy(data: Sequences) -> None:
    settings: dict[str, Any] = {
        "d": np.int64(3),
        "epochs": np.uint8(2),
        "learning_rate": np.float32(0.5),
        "l2": np.float64(0.25),
    }
    config = make("gru", **settings).config.as_dict()
    assert (config["d"], config["epochs"], config["learning_rate"], config["l2"]) == (
        3,
        2,
        0.5,
        0.25,
    )
    assert {type(config[name]) for name in ("d", "epochs")} == {int}
    assert {type(config[name]) for name in ("learning_rate", "l2")} == {float}
    for weights in (np.array([1.0, 0.5]), [np.float32(1), np.int8(0)], np.float64(0.5)):
        found = make("markov", history_weights=weights).config.as_dict()["history_weights"]
        assert found == tuple(np.atleast_1d(weights).tolist())
        assert json.loads(json.dumps(found)) == list(found)
    for wrong in (np.bool_(True), np.float64(2.0), np.int64(-1)):
        with pytest.raises(ConfigError, match=r"^d is "):
            make("gru", d=wrong)
    assert hcarec.train(data, model="pop", seed=np.int64(2), compare=False).about["seed"] == 2


def test_fit_checks_its_seed_first(data: Sequences) -> None:
    for name in MODELS:
        for seed in (-1, 2**63, "x", 1.5, True):
            with pytest.raises(
                ConfigError, match=r"^seed is .*: give a whole number of at least 0"
            ):
                make(name).fit(data, seed=seed)
        with pytest.raises(ConfigError, match=r"^threads is 0"):
            make(name).fit(data, threads=0)
