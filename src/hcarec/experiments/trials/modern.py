"""The settings that networks are trained with by mini-batches in the contest and the ablation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hcarec.experiments.trials.rules import has_repeats
from hcarec.models import MODELS

SHORT = 20
"""Mean events of a user below which every prefix is a sample of its own."""
LONG = 100
"""Mean events of a user from which on the last 200 of them are read."""


def modern(model: str, log: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a network on a log, given by its statistics, without its model's name.

    Whatever differs between logs follows from `repeats` and `mean_length`.
    """
    dropout = 0.5 if log["mean_length"] < SHORT else 0.4
    settings: dict[str, Any] = {
        "trainer": "minibatch", "epochs": 100, "patience": 10, "d": 256, "initial": "scaled",
        "padding": "masked", "fusion": "residual", "output_norm": True,
        "input_dropout": dropout, "output_dropout": dropout,
        "length": 200 if log["mean_length"] >= LONG else 100,
    }  # fmt: skip
    if model != "sasrec":
        settings["blocks"] = 1
    if has_repeats(log):
        settings |= {"copy_window": 50, "batch_size": 64}
    else:
        settings |= {"scores": "cosine"}
    if log["mean_length"] < SHORT:
        settings |= {"batches": "prefixes", "batch_size": 256, "length": 50, "item_norm": True}
    known = MODELS[model].setting_names()
    return {name: value for name, value in settings.items() if name in known or name == "trainer"}
