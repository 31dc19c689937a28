"""Fine-tune: once the epoch is chosen, let the network learn the validation events as well.

A model that counts takes in all that comes before the test. A network whose epoch is chosen on
validation events has not learned them, and on a log of short histories that is a large part of
what there is to know. So the trainer goes on from where it stood at the chosen epoch, for a few
epochs over both together: neither its rate nor what its optimizer remembers begins anew.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from hcarec import devices
from hcarec.data.split import Part
from hcarec.models import Model
from hcarec.sequences import Sequences
from hcarec.settings import RunSettings
from hcarec.training.checkpoint import Checkpoint
from hcarec.training.interrupts import stop_flag
from hcarec.training.resources import less_memory
from hcarec.training.task import Task
from hcarec.training.trainer import Diverged, Progress, TrainerState
from hcarec.training.trainers import trainer_of


def applies(task: Task) -> bool:
    """Say whether the network of a run is to learn validation events in the end."""
    training = task.model.config.training
    return task.validates and training is not None and training.epochs_after_choice > 0


def fine_tune(task: Task, state: Checkpoint) -> int | None:
    """Let the model of a run learn all that comes before the test; return over how many epochs.

    None where that was interrupted, 0 where the loss diverged; the model stays as it was then, and
    also where a device fails, which is a DeviceError.
    """
    model, history, began = task.model, task.parts.history, time.perf_counter()
    assert state.chosen is not None and state.chosen_trainer is not None
    assert model.config.training is not None
    before, first = model.theta, state.chosen + 1
    state.trainer = None  # written, and not gone on from any more
    learned: int | None = None

    def report(now: Progress) -> bool:
        done = now.epoch - first + now.position / now.size
        seconds = max(time.perf_counter() - began, 1e-9)
        task.callback.chunk(now, len(history.items) * done / seconds)
        return stop.is_set() or task.callback.stops()

    where = "learning the validation events"
    try:
        failures = devices.failures(lambda: f"while {where}", less_memory(model))
        with stop_flag() as stop, task.callback.busy(where), failures:
            whole = go_on(model, task.data, history, task.run, state.chosen_trainer, first, report)
        learned = model.config.training.epochs_after_choice if whole else None
    except Diverged:
        task.callback.note(f"{where} diverged: the model is that of the chosen epoch")
        learned = 0
    finally:
        if not learned:
            model.theta = before
            model.set_catalog(task.data, np.asarray(task.train_part.items))
    return learned


def go_on(
    model: Model,
    data: Sequences,
    part: Part,
    run: RunSettings,
    state: TrainerState,
    first: int,
    report: Callable[[Progress], bool] | None = None,
) -> bool:
    """Go on from the state of a trainer, over another part, for the epochs of fine-tuning.

    `first` is the number of the first of them. Where `report` says so it ends early; return
    whether the end was reached.
    """
    assert model.config.training is not None
    model.set_catalog(data, np.asarray(part.items))
    gc.collect()  # the trainer before may still hold memory of a card
    trainer = trainer_of(model)(model, part, run)
    trainer.take_over(state)
    last = first + model.config.training.epochs_after_choice - 1
    for number in range(first, last + 1):
        for now in trainer.epoch(number):
            ends = report is not None and report(now)
            if ends and not (now.complete and number == last):
                return False
    model.theta = trainer.parameters
    model.parameters_changed()
    return True


def words(tuned: dict[str, Any], metrics: dict[str, Any]) -> str:
    """Say in a line what the validation events added on the test part."""
    epochs, metric, without = tuned["epochs"], tuned["metric"], tuned["without"]
    if not epochs:
        return "left out, because the loss diverged over the validation events"
    line = f"learned the validation events too, in {epochs} epoch{'s' * (epochs != 1)}"
    if metric not in without or metrics.get(metric) is None:
        return line
    return (
        f"{line}: {metric.upper()} {metrics[metric]:.2%} on the test part,"
        f" {without[metric]:.2%} without them"
    )
