"""What a run means that names no preset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hcarec.data.synthetic import synthetic
from hcarec.errors import ConfigError
from hcarec.experiments.settings import Settings
from hcarec.ids import Ids
from hcarec.models import make, stored_settings
from hcarec.sequences import Sequences
from hcarec.training import train

TINY: dict[str, Any] = {"model": "gru", "d": 4, "compare": False}


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


def log(*histories: list[int]) -> Sequences:
    """Make a log of some histories, each a list of items."""
    items, lengths = np.concatenate(histories).astype(np.int32), list(map(len, histories))
    user_ids = Ids.of(f"u{n}" for n in range(len(histories)))
    item_ids = Ids.of(f"i{n}" for n in range(items.max() + 1))
    return Sequences(items, np.concatenate([[0], np.cumsum(lengths)]), user_ids, item_ids)


SMALL = {
    "three users": log([0, 1, 2, 3, 4], [2, 3, 1, 0], [4, 0, 2]),
    "two items": log(*[[user % 2, 1 - user % 2] * 3 for user in range(8)]),
    "one item": log(*[[0] * 6 for _ in range(5)]),
    "one long user": log([0, 1, 2, 3, 4, 0, 1, 2, 3, 4], *[[n % 5] for n in range(20)]),
}
RULES: list[dict[str, Any]] = [
    {},
    {"split": "leave-one-out", "hide_seen": True},
    {"selection": "best-epoch-on-test"},
    {"split": "none"},
]


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("model", ["hca-gru", "sasrec"])
def test_the_default_copes_with_small_logs(name: str, model: str) -> None:
    for rules in RULES:
        made = train(SMALL[name], model=model, epochs=2, **rules)
        assert made.about["training"]["epochs"] == 2 and made.config.preset == "modern"
        assert all(np.isfinite(array).all() for array in made.theta.values())


@pytest.mark.parametrize("preset", ["modern", "paper"])
def test_a_network_is_refused_where_nothing_follows_anything(preset: str, tmp_path: Path) -> None:
    once, thrice = log([0], [1], [2], [0]), log(*[[n % 4, (n + 1) % 4, 3] for n in range(9)])
    says = "no user has two events to train on, and hca-gru learns what follows what: give longer"
    with pytest.raises(ConfigError, match=f"^with the split 'none' {says}"):
        train(once, tmp_path / "m", split="none", preset=preset)
    with pytest.raises(ConfigError, match=f"^with the split 'ratio' {says}"):  # of three one trains
        train(thrice, tmp_path / "m", preset=preset)
    with pytest.raises(ConfigError, match=f"^{says}"):
        make("hca-gru", preset=preset).fit(once)
    assert not (tmp_path / "m").exists()
    for model in ("markov", "bpr"):
        assert train(thrice, model=model).about["finished"]
