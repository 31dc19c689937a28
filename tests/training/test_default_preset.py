"""What a run means that names no preset, where `modern` is the default."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hcarec.data.synthetic import synthetic
from hcarec.experiments.settings import Settings
from hcarec.models import config, make, stored_settings
from hcarec.sequences import Sequences
from hcarec.training import train

TINY: dict[str, Any] = {"model": "gru", "d": 4, "compare": False}


@pytest.fixture(autouse=True)
def _modern(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "DEFAULT_PRESET", "modern")


@pytest.fixture(scope="module")
def data() -> Sequences:
    return synthetic(users=40, items=30, mean_length=8)


@pytest.mark.parametrize(
    ("model", "given", "preset"),
    [
        ("gru", {}, "modern"),
        ("sasrec", {}, "modern"),
        ("gru", {"trainer": "minibatch"}, "modern"),
        ("gru", {"trainer": "user-sgd"}, "paper"),
        ("hca-gru", {"l2": 0.1}, "paper"),
        ("bpr", {}, "paper"),
    ],
)
def test_the_preset_follows_from_what_is_given(
    model: str, given: dict[str, Any], preset: str
) -> None:
    assert make(model, **given).config.preset == preset


def test_the_papers_experiments_and_older_folders_are_of_the_preset_paper() -> None:
    assert Settings().config("hca-gru", 5, 5).preset == "paper"
    older = {"model": "gru", "d": 4, "epochs": 3}
    assert make("gru", **stored_settings(older)).config.preset == "paper"
    assert "preset" not in stored_settings({"model": "pop"})


def test_a_run_that_follows_another_takes_its_preset(data: Sequences, tmp_path: Path) -> None:
    train(data, tmp_path / "m", preset="paper", epochs=2, **TINY)
    longer = train(data, tmp_path / "m", epochs=3, resume=True, **TINY)
    everything = train(data, split="none", epochs_from=tmp_path / "m", **TINY)
    assert longer.config.preset == everything.config.preset == "paper"
