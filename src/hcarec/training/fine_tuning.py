"""Fine-tune: once the epoch is chosen, let the network learn the validation events as well.

A model that counts takes in all that comes before the test. A network whose epoch is chosen on
validation events has not learned them, and on a log of short histories that is a large part of
what there is to know. So the chosen parameters are trained for a little longer on both together.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np

from hcarec.settings import MinibatchSettings
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
    """Train the model on all that comes before the test, the learning rate falling to zero.

    Return whether that went well; where the loss diverges, the parameters stay as they were.
    """
    model, history, began = task.model, task.parts.history, time.perf_counter()
    config, before = model.config, model.theta
    items = np.asarray(history.items)
    assert isinstance(config.training, MinibatchSettings)

    def tell(now: Progress) -> None:
        done = now.epoch - 1 + now.position / now.size
        seconds = max(time.perf_counter() - began, 1e-9)
        task.callback.chunk(now, len(items) * done / seconds)

    shortly = replace(
        config.training, epochs=config.training.fine_tuning, schedule="linear", warmup=WARMUP
    )
    model.config = replace(config, training=shortly)
    model.set_catalog(task.data, items)
    try:
        with task.callback.busy("learning the validation events"):
            fit(model, history, task.run, tell)
    except Diverged:
        task.callback.note(
            "learning the validation events diverged: the model is that of the chosen epoch"
        )
        model.theta = before
        model.set_catalog(task.data, np.asarray(task.train_part.items))
        return False
    finally:
        model.config = config
    return True


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
