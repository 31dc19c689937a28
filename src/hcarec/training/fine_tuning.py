"""Fine-tune: once the epoch is chosen, let the network learn the validation events as well.

A model that counts takes in all that comes before the test. A network whose epoch is chosen on
validation events has not learned them, and on a log of short histories that is a large part of
what there is to know. So the trainer goes on from where it stood at the chosen epoch, for a
few epochs over both together: neither its rate nor what its optimizer remembers begins anew.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from hcarec.data.split import Part
from hcarec.models import Model
from hcarec.sequences import Sequences
from hcarec.settings import RunSettings
from hcarec.training.checkpoint import Checkpoint, damaged
from hcarec.training.task import Task
from hcarec.training.trainer import Diverged, Progress, TrainerState
from hcarec.training.trainers import trainer_of


def applies(task: Task) -> bool:
    """Say whether the network of a run is to learn validation events in the end."""
    training = task.model.config.training
    return (
        task.selection == "validation" and training is not None and training.epochs_after_choice > 0
    )


def fine_tune(task: Task, state: Checkpoint) -> bool:
    """Let the model of a run learn all that comes before the test.

    Return whether that went well; where the loss diverges, the model stays as it was.
    """
    model, history, began = task.model, task.parts.history, time.perf_counter()
    before, first = model.theta, (state.chosen or 0) + 1
    assert state.chosen_trainer is not None

    def tell(now: Progress) -> None:
        done = now.epoch - first + now.position / now.size
        seconds = max(time.perf_counter() - began, 1e-9)
        task.callback.chunk(now, len(history.items) * done / seconds)

    try:
        with task.callback.busy("learning the validation events"):
            go_on(model, task.data, history, task.run, state.chosen_trainer, first, tell)
    except Diverged:
        task.callback.note(
            "learning the validation events diverged: the model is that of the chosen epoch"
        )
        model.theta = before
        model.set_catalog(task.data, np.asarray(task.train_part.items))
        return False
    except ValueError as error:  # of a checkpoint that was gone on from
        assert task.out is not None
        raise damaged(task.out, error) from None
    return True


def go_on(
    model: Model,
    data: Sequences,
    part: Part,
    run: RunSettings,
    state: TrainerState,
    first: int,
    tell: Callable[[Progress], None] | None = None,
) -> None:
    """Go on from the state of a trainer, over another part, for the epochs of fine-tuning.

    `first` is the number of the first of them.
    """
    assert model.config.training is not None
    model.set_catalog(data, np.asarray(part.items))
    trainer = trainer_of(model)(model, part, run)
    trainer.take_over(state)
    for number in range(first, first + model.config.training.epochs_after_choice):
        for now in trainer.epoch(number):
            if tell:
                tell(now)
    model.theta = trainer.parameters
    model.parameters_changed()


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
