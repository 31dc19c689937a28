"""Fine-tune: once the epoch is chosen, let the network learn the validation events as well.

A model that counts takes in all that comes before the test. A network whose epoch is chosen on
validation events has not learned them, and on a log of short histories that is a large part of
what there is to know. So the chosen parameters are trained for a little longer on both together.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from hcarec.data.split import Part
from hcarec.models import Model
from hcarec.sequences import Sequences
from hcarec.settings import MinibatchSettings, RunSettings
from hcarec.training.task import Task
from hcarec.training.trainer import Diverged, Progress
from hcarec.training.trainers import fit

WARMUP = 20
"""Steps over which the learning rate rises again."""


def applies(task: Task) -> bool:
    """Say whether the network of a run is to learn validation events in the end."""
    training = task.model.config.training
    return (
        task.selection == "validation" and training is not None and training.epochs_after_choice > 0
    )


def fine_tune(task: Task) -> bool:
    """Let the model of a run learn all that comes before the test.

    Return whether that went well; where the loss diverges, the model stays as it was.
    """
    model, history, began = task.model, task.parts.history, time.perf_counter()
    before = model.theta

    def tell(now: Progress) -> None:
        done = now.epoch - 1 + now.position / now.size
        seconds = max(time.perf_counter() - began, 1e-9)
        task.callback.chunk(now, len(history.items) * done / seconds)

    try:
        with task.callback.busy("learning the validation events"):
            go_on(model, task.data, history, task.run, tell)
    except Diverged:
        task.callback.note(
            "learning the validation events diverged: the model is that of the chosen epoch"
        )
        model.theta = before
        model.set_catalog(task.data, np.asarray(task.train_part.items))
        return False
    return True


def go_on(
    model: Model,
    data: Sequences,
    part: Part,
    run: RunSettings,
    tell: Callable[[Progress], None] | None = None,
) -> None:
    """Train a trained model for its epochs of fine-tuning, the learning rate falling to zero."""
    config = model.config
    assert isinstance(config.training, MinibatchSettings)
    epochs = config.training.fine_tuning
    shortly = replace(config.training, epochs=epochs, schedule="linear", warmup=WARMUP)
    model.config = replace(config, training=shortly)
    model.set_catalog(data, np.asarray(part.items))
    try:
        fit(model, part, run, tell)
    finally:
        model.config = config


def words(tuned: dict[str, Any], metrics: dict[str, Any]) -> str:
    """Say in a line what the validation events added on the test part."""
    epochs, metric, without = tuned["epochs"], tuned["metric"], tuned["without"]
    line = f"learned the validation events too, in {epochs} epoch{'s' * (epochs != 1)}"
    if metric not in without or metrics.get(metric) is None:
        return line
    return (
        f"{line}: {metric.upper()} {metrics[metric]:.2%} on the test part,"
        f" {without[metric]:.2%} without them"
    )
