"""The loop: epochs, their evaluation, the choice of one, early stopping, checkpoints.

It knows nothing of how an epoch learns: that is a `Trainer`'s business.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from dataclasses import replace
from typing import Any

import numpy as np

from hcarec import artefact, devices, rankers
from hcarec.errors import ConfigError, DeviceError, ModelError
from hcarec.evaluation import evaluate_part, finite
from hcarec.models import Model
from hcarec.training import checkpoint, fine_tuning, resuming
from hcarec.training.checkpoint import Checkpoint
from hcarec.training.finishing import Clock, finish, what_is_kept
from hcarec.training.interrupts import stop_flag
from hcarec.training.lock import one_run
from hcarec.training.resources import check_fits, less_memory, plan
from hcarec.training.resuming import note_better
from hcarec.training.speed import slowness
from hcarec.training.task import Task
from hcarec.training.trainer import Diverged, Trainer
from hcarec.training.trainers import trainer_of


class Loop:
    """One run of training, from the plan to the finished folder."""

    def __init__(self, task: Task, checkpoint_seconds: float) -> None:
        self.task, self.checkpoint_seconds = task, checkpoint_seconds
        self.began = time.perf_counter()

    def go(self, resume: bool, overwrite: bool, compare: bool) -> Model:
        """Train to the end, or to Ctrl-C, and finish."""
        task = self.task
        if resume and not task.model.config.trains:
            raise ConfigError(
                f"{task.model.name} does not train in epochs, so that there is nothing to resume:"
                " leave out --resume"
            )
        if task.model.config.trains and task.model.config.epochs == 0:
            raise ConfigError("epochs is 0, so that nothing would be learned: give 1 or more")
        if task.out is None:
            return self._run(resume, overwrite, compare)
        artefact.check_replaceable(task.out)
        with one_run(task.out):
            return self._run(resume, overwrite, compare)

    def _run(self, resume: bool, overwrite: bool, compare: bool) -> Model:
        """Plan, train and finish, alone in the folder."""
        task = self.task
        items, offsets = np.asarray(task.train_part.items), np.asarray(task.train_part.offsets)
        task.model.set_catalog(task.data, items)
        decided, notes = task.settle()
        n_evaluated = int(task.parts.evaluated.sum())
        planned = plan(
            task.model, task.train_part, task.data.n_items, n_evaluated, task.run.threads,
            task.validates,
        )  # fmt: skip
        planned = replace(planned, notes=notes)
        check_fits(planned, less_memory(task.model))
        state = resuming.begin(
            task.out, task.identity(), task.model.config.epochs, resume, overwrite
        )
        for line in decided:
            task.callback.note(line)
        # The unscaled plan decides: it is no clock's.
        on_gpu = task.run.device != "cpu"
        stated = planned.without_times() if on_gpu else planned.on_machine(slowness())
        task.callback.planned(stated, task.model.config, state.epoch or None)
        begins = "drawing parameters" if task.model.config.trains else "counting"
        failures = devices.failures(lambda: f"while {begins}", less_memory(task.model))
        with task.callback.busy(begins), failures:
            task.model.initialize(items, offsets, task.run.seed, task.run.threads)
        finished = self._train(state) if task.model.config.trains else True
        less = less_memory(task.model)
        with devices.failures(lambda: "while the trained model was judged", less):
            compared = planned if compare else None
            return finish(task, state, self._clock(state), finished, compared)

    def _train(self, state: Checkpoint) -> bool:
        """Train until the end or Ctrl-C; return whether the end was reached.

        Where the loss diverges or a device fails, the last good state is kept.
        """
        task = self.task
        kind = trainer_of(task.model)
        try:
            less = less_memory(task.model)
            with devices.failures(lambda: f"in epoch {max(1, state.epoch)}", less):
                trainer = kind(task.model, task.train_part, task.run)
                if state.trainer is not None:
                    assert task.out is not None
                    metric = task.metric if task.judged is not None else None
                    tunes = fine_tuning.applies(task)
                    resuming.restore(task.out, trainer, state, metric, tunes)
                return self._learn(trainer, state)
        except Diverged as error:
            text = str(error)
            if error.user is not None:
                text = text.replace(
                    f"user {error.user}", f"user '{task.data.user_ids.text(error.user)}'"
                )
            raise ModelError(f"{text}; {self._keep(state)}") from None
        except DeviceError as error:
            task.safe = True  # what is left is done where it is safe
            raise DeviceError(f"{error}; {self._keep(state)}") from None

    def _keep(self, state: Checkpoint) -> str:
        """Write the model of the best epoch so far, where there is one; say what is kept."""
        task, written = self.task, None
        if not task.holds_finished:
            with contextlib.suppress(DeviceError), devices.failures(str, ""):
                finish(task, state, self._clock(state), False, None)
                written = state.chosen
        return what_is_kept(task, written)

    def _learn(self, trainer: Trainer, state: Checkpoint) -> bool:
        """Get ready and train; return whether the end was reached."""
        task = self.task
        with task.callback.busy(
            "getting the compiled code ready (the first time this takes half a minute)"
        ):
            trainer.warm()
            if task.parts.evaluated.any():
                rankers.warm(task.run.device)
        with stop_flag() as stop:
            reached = self._epochs(trainer, state, stop)
        # Stopped in the last epoch: only the test is left, or much more.
        stopped = stop.is_set() or task.callback.stops()
        return reached and not (stopped and fine_tuning.applies(task))

    def _epochs(self, trainer: Trainer, state: Checkpoint, stop: threading.Event) -> bool:
        """Train epoch by epoch; return whether the end was reached."""
        task = self.task
        events, epochs = len(task.train_part.items), task.model.config.epochs
        saved, chunk_began = -math.inf, time.perf_counter()  # the first checkpoint comes soon
        first = trainer.progress.epoch + trainer.progress.complete
        for number in range(first, epochs + 1):
            if self._stops_early(state):
                break
            if number != state.epoch:
                state.epoch, state.epoch_seconds = number, 0.0
            for now in trainer.epoch(number):
                state.epoch_seconds += time.perf_counter() - chunk_began
                speed = events * now.position / now.size / max(state.epoch_seconds, 1e-9)
                task.callback.chunk(now, speed)
                if now.complete:
                    self._end_of_epoch(trainer, state)
                ends = stop.is_set() or task.callback.stops()
                if ends or time.perf_counter() - saved > self.checkpoint_seconds:
                    self._save(trainer, state)
                    saved = time.perf_counter()
                if ends and not (now.complete and number == epochs):
                    return False
                chunk_began = time.perf_counter()
        self._save(trainer, state)
        self._judge_last(trainer, state)
        return True

    def _stops_early(self, state: Checkpoint) -> bool:
        task = self.task
        assert task.model.config.training is not None
        return 0 < task.model.config.training.patience <= state.waited

    def _end_of_epoch(self, trainer: Trainer, state: Checkpoint) -> None:
        """Judge an epoch where it is its turn, and log it."""
        task = self.task
        now, settings = trainer.progress, task.model.config.training
        assert settings is not None
        events = len(task.train_part.items)
        record: dict[str, Any] = {
            "epoch": now.epoch,
            "loss": now.loss,
            **now.sums,
            "seconds": round(state.epoch_seconds, 4),
            "events_per_second": round(events / max(state.epoch_seconds, 1e-9)),
        }
        self._take_parameters(trainer)
        state.log.append(record)
        if task.judged is None:
            self._choose(trainer, state, now.epoch)
        elif now.epoch % settings.evaluate_every == 0:
            self._judge(trainer, state)
            return
        elif now.epoch == settings.epochs:
            return  # judged when the checkpoint is written, see _judge_last
        task.callback.epoch(record, False)

    def _judge(self, trainer: Trainer, state: Checkpoint) -> None:
        """Evaluate the epoch that was logged last, whose parameters the model has."""
        task = self.task
        assert task.judged is not None
        record, began = state.log[-1], time.perf_counter()
        with task.callback.busy(f"epoch {record['epoch']}: evaluating"):
            metrics, users, _ = evaluate_part(
                task.model, *task.judged,
                hide_seen=task.hide_seen, threads=task.run.threads, device=task.run.device,
                ks=task.ks,
            )  # fmt: skip
        record["evaluation_seconds"] = round(time.perf_counter() - began, 4)
        record["on"] = "validation" if task.selection == "validation" else "test"
        record |= finite(metrics)
        better = self._note_best(trainer, state, metrics, record["epoch"])
        task.callback.judged(record["epoch"], users, better)
        task.callback.epoch(record, task.metric in better)

    def _judge_last(self, trainer: Trainer, state: Checkpoint) -> None:
        """Evaluate the last epoch where it was not its turn.

        This comes after the last checkpoint, so that a longer run, in which this epoch is not the
        last, goes on as if it had never been evaluated.
        """
        if self.task.judged is not None and state.log and "on" not in state.log[-1]:
            self._take_parameters(trainer)
            self._judge(trainer, state)

    def _take_parameters(self, trainer: Trainer) -> None:
        task = self.task
        task.model.theta = trainer.parameters
        task.model.parameters_changed()

    def _note_best(
        self, trainer: Trainer, state: Checkpoint, metrics: dict[str, float], epoch: int
    ) -> set[str]:
        """Remember each metric's best epoch and choose one; return the better metrics."""
        better = note_better(state.best, metrics, epoch)
        if self.task.metric in better:
            self._choose(trainer, state, epoch)
        else:
            state.waited += 1
        return better

    def _choose(self, trainer: Trainer, state: Checkpoint, epoch: int) -> None:
        """Keep the parameters of an epoch: the best so far, or the last where none is judged."""
        state.best_theta = {letter: array.copy() for letter, array in self.task.model.theta.items()}
        state.chosen, state.waited = epoch, 0
        state.chosen_files = {}
        if fine_tuning.applies(self.task):
            state.chosen_trainer = None  # not two of them at once
            state.chosen_trainer = trainer.state()

    def _save(self, trainer: Trainer, state: Checkpoint) -> None:
        task = self.task
        if task.out is None:
            return
        at = trainer.progress
        chosen_now = state.chosen_trainer is not None and at.complete and at.epoch == state.chosen
        state.trainer = state.chosen_trainer if chosen_now else trainer.state()
        now = time.perf_counter()
        state.seconds, self.began = state.seconds + now - self.began, now
        try:
            checkpoint.write(task.out, state)
        except OSError as error:
            reason = error.strerror or error
            raise ModelError(
                f"cannot write a checkpoint to '{task.out}': {reason}; the one before is kept"
            ) from None

    def _clock(self, state: Checkpoint) -> Clock:
        """Return the clock of the run, what it took before it was interrupted included."""
        return Clock(self.began, state.seconds)
