"""The loop: split, epochs, evaluation, selection, early stopping, checkpoints, the finished model.

It knows nothing of how an epoch learns: that is a `Trainer`'s business.
"""

from __future__ import annotations

import contextlib
import json
import math
import threading
import time
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from hcarec import artefact, devices, rankers
from hcarec import protocol as protocols
from hcarec.data.split import Part, Split, split
from hcarec.errors import ConfigError, DeviceError, ModelError
from hcarec.evaluation import evaluate_part, finite
from hcarec.models import Model
from hcarec.models.network import NetworkModel
from hcarec.sequences import Sequences
from hcarec.settings import RunSettings
from hcarec.training import checkpoint, fusing, recipe, resuming, sizing, yardsticks
from hcarec.training.callbacks import Callback
from hcarec.training.checkpoint import Checkpoint
from hcarec.training.fusing import Judged
from hcarec.training.interrupts import stop_flag
from hcarec.training.lock import one_run
from hcarec.training.resources import (
    Plan,
    check_fits,
    less_memory,
    plan,
)
from hcarec.training.resuming import note_better
from hcarec.training.speed import slowness
from hcarec.training.trainer import Diverged, Trainer
from hcarec.training.trainers import check_learnable, settle, trainer_of


@dataclass(frozen=True)
class Rules:
    """How a run is judged: what chooses the epoch, whether seen items are hidden, k of metrics."""

    selection: str
    hide_seen: bool
    ks: tuple[int, ...]
    counting: dict[str, Any] | None = None
    """What an evaluated model chose for the counting term, where it is to be taken over."""


class Loop:
    """One run of training, from the plan to the finished folder."""

    def __init__(
        self,
        model: Model,
        data: Sequences,
        out: Path | None,
        rules: Rules,
        run: RunSettings,
        callback: Callback,
        checkpoint_seconds: float,
        keep_model: bool,
    ) -> None:
        self.model, self.data, self.out, self.run, self.callback = model, data, out, run, callback
        self.selection, self.hide_seen, self.ks = rules.selection, rules.hide_seen, rules.ks
        self.counting = rules.counting
        self.checkpoint_seconds, self.keep_model = checkpoint_seconds, keep_model
        self.ranks_on: str | None = None
        """What the test part is ranked on, where that is not what the run computes on."""
        self.began = time.perf_counter()

    # -- before ----------------------------------------------------------------------------------

    def divide(self, how: str, ratio: float, at: Any) -> None:
        """Split the data; a model that counts takes all that comes before the test."""
        if how == "none":
            self.selection = "none"
        validating = self.selection == "validation"
        self.parts: Split = split(self.data, how, ratio=ratio, at=at, validation=validating)
        trains = self.model.config.trains
        self.train_part: Part = self.parts.train if trains else self.parts.history
        if len(self.train_part.items) == 0:
            raise ConfigError(
                f"the split '{how}' leaves no event to train on: give more data or another split"
            )
        wanted = self.parts.validated if validating else self.parts.evaluated
        if how != "none" and not wanted.any():
            raise ConfigError(
                f"the split '{how}' leaves no user to {'validate' if validating else 'test'} with:"
                " give longer histories, or --split none"
            )
        check_learnable(self.model, self.train_part, f"with the split '{how}' ")
        # What epochs are judged by.
        self.judged: Judged | None = None
        if self.parts.validation is not None:
            self.judged = Judged(self.parts.train, self.parts.validation, self.parts.validated)
        elif self.selection == "best-epoch-on-test":
            self.judged = Judged(self.parts.history, self.parts.test, self.parts.evaluated)
        usual = 10 if how == "leave-one-out" else 20
        self.metric = f"ndcg@{usual if usual in self.ks else max(self.ks)}"
        self.protocol = protocols.protocol(
            self.data, self.parts.protocol, self.selection, self.hide_seen, self.ks
        )

    def identity(self) -> dict[str, Any]:
        """Return what two runs must share for one to go on with the other; `epochs` may grow."""
        config = json.loads(json.dumps(self.model.config.as_dict()))  # tuples as JSON has them
        training = self.model.config.training
        if training is None or not training.depends_on_epochs:
            config.pop("epochs", None)
        taken = {} if self.counting is None else {"counting": self.counting}
        return taken | {
            "config": config,
            "data": self.data.fingerprint,
            "split": self.parts.protocol,
            "selection": self.selection,
            "seen": self.hide_seen,
            "k": list(self.ks),
            "seed": self.run.seed,
            "device": self.run.device,
            "epochs": self.model.config.epochs,
        }

    # -- the run ---------------------------------------------------------------------------------

    def go(self, resume: bool, overwrite: bool, compare: bool) -> Model:
        """Train to the end, or to Ctrl-C, and finish."""
        if resume and not self.model.config.trains:
            raise ConfigError(
                f"{self.model.name} does not train in epochs, so that there is nothing to resume:"
                " leave out --resume"
            )
        if self.model.config.trains and self.model.config.epochs == 0:
            raise ConfigError("epochs is 0, so that nothing would be learned: give 1 or more")
        if self.out is None:
            return self._run(resume, overwrite, compare)
        artefact.check_replaceable(self.out)
        with one_run(self.out):
            return self._run(resume, overwrite, compare)

    def _run(self, resume: bool, overwrite: bool, compare: bool) -> Model:
        """Plan, train and finish, alone in the folder."""
        items, offsets = np.asarray(self.train_part.items), np.asarray(self.train_part.offsets)
        self.model.set_catalog(self.data, items)
        notes = self._settle()
        n_evaluated = int(self.parts.evaluated.sum())
        planned = plan(
            self.model, self.train_part, self.data.n_items, n_evaluated, self.run.threads
        )
        planned = replace(planned, notes=notes)
        check_fits(planned, less_memory(self.model))
        state = resuming.begin(
            self.out, self.identity(), self.model.config.epochs, resume, overwrite
        )
        # The unscaled plan decides: it is no clock's.
        on_gpu = self.run.device != "cpu"
        stated = planned.without_times() if on_gpu else planned.on_machine(slowness())
        self.callback.planned(stated, self.model.config, state.epoch or None)
        begins = "drawing parameters" if self.model.config.trains else "counting"
        failures = devices.failures(lambda: f"while {begins}", less_memory(self.model))
        with self.callback.busy(begins), failures:
            self.model.initialize(items, offsets, self.run.seed, self.run.threads)
        finished = self._train(state) if self.model.config.trains else True
        less = less_memory(self.model)
        with devices.failures(lambda: "while the trained model was judged", less):
            return self._finish(state, finished, planned if compare else None)

    def _settle(self) -> tuple[str, ...]:
        """Decide on device and whatever else is left to the data; return that in words."""
        if not self.model.config.trains:
            self.run = replace(self.run, device=Trainer.choose_device(self.run.device))
            return ()
        kind = trainer_of(self.model)
        self.run = replace(self.run, device=kind.choose_device(self.run.device))
        elsewhere = self._apply_recipe() if self.model.config.open else None
        note = settle(self.model, self.run.device)
        counts = isinstance(self.model, NetworkModel) and self.model.settings.counting
        if counts and find_spec("numba") is None:  # a machine for GPUs may lack it
            raise ConfigError(
                "the counting term needs the package numba, which is not installed:"
                " pip install numba, or --set counting=false"
            )
        device = kind.describe_device(self.run.device, self.model)
        return tuple(filter(None, (device, elsewhere, note)))

    def _apply_recipe(self) -> str | None:
        """Let the preset decide what it leaves to log and machine; say what a GPU would get."""
        evaluated, machine = int(self.parts.evaluated.sum()), sizing.Machine.here(self.run.device)
        run = sizing.Run(self.data, self.train_part, evaluated, self.judged is not None)
        decision = recipe.decide(self.model, run, machine)
        for line in decision.lines:
            self.callback.note(line)
        return decision.elsewhere

    def _train(self, state: Checkpoint) -> bool:
        """Train until the end or Ctrl-C; return whether the end was reached.

        Where the loss diverges or a device fails, the last good state is kept.
        """
        kind = trainer_of(self.model)
        try:
            less = less_memory(self.model)
            with devices.failures(lambda: f"in epoch {max(1, state.epoch)}", less):
                trainer = kind(self.model, self.train_part, self.run)
                if state.trainer is not None:
                    assert self.out is not None
                    judged = self.judged is not None
                    resuming.restore(self.out, trainer, state, self.metric if judged else None)
                return self._learn(trainer, state)
        except Diverged as error:
            text = str(error)
            if error.user is not None:
                text = text.replace(
                    f"user {error.user}", f"user '{self.data.user_ids.text(error.user)}'"
                )
            raise ModelError(f"{text}; {self._keep(state)}") from None
        except DeviceError as error:
            self.ranks_on = "cpu"  # what is left is done where it is safe
            raise DeviceError(f"{error}; {self._keep(state)}") from None

    def _keep(self, state: Checkpoint) -> str:
        """Write the model of the best epoch so far, where there is one; say what is kept."""
        if self._holds_finished():
            return f"the model that was in '{self.out}' before is kept"
        with contextlib.suppress(DeviceError), devices.failures(str, ""):
            self._finish(state, False, None)
            if state.chosen is not None:
                return f"the model of epoch {state.chosen} is kept"
        if self.out is not None and checkpoint.exists(self.out):
            return "the last checkpoint is kept"
        return "nothing was written"

    def _learn(self, trainer: Trainer, state: Checkpoint) -> bool:
        """Get ready and train; return whether the end was reached."""
        with self.callback.busy(
            "getting the compiled code ready (the first time this takes half a minute)"
        ):
            trainer.warm()
            if self.parts.evaluated.any():
                rankers.warm(self.run.device)
        with stop_flag() as stop:
            return self._epochs(trainer, state, stop)

    def _epochs(self, trainer: Trainer, state: Checkpoint, stop: threading.Event) -> bool:
        """Train epoch by epoch; return whether the end was reached."""
        events, epochs = len(self.train_part.items), self.model.config.epochs
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
                self.callback.chunk(now, speed)
                if now.complete:
                    self._end_of_epoch(trainer, state)
                ends = stop.is_set() or self.callback.stops()
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
        assert self.model.config.training is not None
        return 0 < self.model.config.training.patience <= state.waited

    def _end_of_epoch(self, trainer: Trainer, state: Checkpoint) -> None:
        """Judge an epoch where it is its turn, and log it."""
        now, settings = trainer.progress, self.model.config.training
        assert settings is not None
        events = len(self.train_part.items)
        record: dict[str, Any] = {
            "epoch": now.epoch,
            "loss": now.loss,
            **now.sums,
            "seconds": round(state.epoch_seconds, 4),
            "events_per_second": round(events / max(state.epoch_seconds, 1e-9)),
        }
        self._take_parameters(trainer)
        state.log.append(record)
        if self.judged is None:
            self._choose(state, now.epoch)
        elif now.epoch % settings.evaluate_every == 0:
            self._judge(state)
            return
        elif now.epoch == settings.epochs:
            return  # judged when the checkpoint is written, see _judge_last
        self.callback.epoch(record, False)

    def _judge(self, state: Checkpoint) -> None:
        """Evaluate the epoch that was logged last, whose parameters the model has."""
        assert self.judged is not None
        record, began = state.log[-1], time.perf_counter()
        with self.callback.busy(f"epoch {record['epoch']}: evaluating"):
            metrics, users, _ = evaluate_part(
                self.model, *self.judged,
                hide_seen=self.hide_seen, threads=self.run.threads, device=self.run.device,
                ks=self.ks,
            )  # fmt: skip
        record["evaluation_seconds"] = round(time.perf_counter() - began, 4)
        record["on"] = "validation" if self.selection == "validation" else "test"
        record |= finite(metrics)
        better = self._note_best(state, metrics, record["epoch"])
        self.callback.judged(record["epoch"], users, better)
        self.callback.epoch(record, self.metric in better)

    def _judge_last(self, trainer: Trainer, state: Checkpoint) -> None:
        """Evaluate the last epoch where it was not its turn.

        This comes after the last checkpoint, so that a longer run, in which this epoch is not the
        last, goes on as if it had never been evaluated.
        """
        if self.judged is not None and state.log and "on" not in state.log[-1]:
            self._take_parameters(trainer)
            self._judge(state)

    def _take_parameters(self, trainer: Trainer) -> None:
        self.model.theta = trainer.parameters
        self.model.parameters_changed()

    def _note_best(self, state: Checkpoint, metrics: dict[str, float], epoch: int) -> set[str]:
        """Remember each metric's best epoch and choose one; return the better metrics."""
        better = note_better(state.best, metrics, epoch)
        if self.metric in better:
            self._choose(state, epoch)
        else:
            state.waited += 1
        return better

    def _choose(self, state: Checkpoint, epoch: int) -> None:
        """Keep the parameters of an epoch: the best so far, or the last where none is judged."""
        state.best_theta = {letter: array.copy() for letter, array in self.model.theta.items()}
        state.chosen, state.waited = epoch, 0

    def _save(self, trainer: Trainer, state: Checkpoint) -> None:
        if self.out is None:
            return
        now = time.perf_counter()
        state.trainer, state.seconds, self.began = (
            trainer.state(),
            state.seconds + now - self.began,
            now,
        )
        try:
            checkpoint.write(self.out, state)
        except OSError as error:
            reason = error.strerror or error
            raise ModelError(
                f"cannot write a checkpoint to '{self.out}': {reason}; the one before is kept"
            ) from None

    # -- after -----------------------------------------------------------------------------------

    def _finish(self, state: Checkpoint, finished: bool, planned: Plan | None) -> Model:
        """Take the chosen epoch, evaluate it on the test part, and write the model.

        A run stopped before its first choice has nothing to write. The yardsticks are measured
        where there is a plan to hold them against.
        """
        model = self.model
        if state.best_theta is not None:
            model.theta = state.best_theta
            model.parameters_changed()
        begun_only = state.chosen is None and not finished
        fusing_began = time.perf_counter()
        counting = None if begun_only else self._fuse()
        fusing_ended = time.perf_counter()
        train, history = self.train_part, self.parts.history
        model.complete((train.items, train.offsets), (history.items, history.offsets))
        tested = self.parts.evaluated.any() and not begun_only
        test_began = time.perf_counter()
        metrics = self._test() if tested else {}
        test_ended = time.perf_counter()
        compared, yardstick_seconds = None, 0.0
        if tested and finished and planned is not None:
            compared = self._yardsticks(planned)
            yardstick_seconds = time.perf_counter() - test_ended
        evaluated = sum(record.get("evaluation_seconds", 0.0) for record in state.log)
        model.about = {
            "data": {
                "fingerprint": self.data.fingerprint,
                "path": self.data.about.get("path"),
                "name": self.data.about.get("source", {}).get("name"),
            },
            "protocol": self.protocol,
            "protocol_fingerprint": protocols.fingerprint(self.protocol),
            "selection": self._selection(state),
            "metrics": metrics,
            "seed": self.run.seed,
            "finished": finished,
            "training": {
                "epochs": len(state.log),
                "seconds": round(state.seconds + time.perf_counter() - self.began, 3),
                "training_seconds": round(sum(record["seconds"] for record in state.log), 3),
                "evaluation_seconds": round(evaluated + test_ended - test_began, 3),
                "yardstick_seconds": round(yardstick_seconds, 3),
                "events": len(train.items),
                "device": self.run.device,
            },
        }
        if counting is not None:
            seconds = round(fusing_ended - fusing_began, 3)
            model.about["training"] |= {"fusing_seconds": seconds, "counting": counting}
        if compared is not None:
            model.about["yardsticks"] = compared
        # A finished model gives way to a finished one alone; what is begun is in the checkpoint.
        replaces = finished or (not begun_only and not self._holds_finished())
        if self.out is not None and self.keep_model and replaces:
            log = "".join(json.dumps(record) + "\n" for record in state.log).encode()
            model.save(self.out, log, keep_checkpoint=model.config.trains)
        return model

    def _fuse(self) -> dict[str, Any] | None:
        """Decide how strong the counting term is, of a network that has one; return how.

        Only validation data choose: without them, and where the test part chooses the epoch, the
        defaults are taken.
        """
        model = self.model
        if not isinstance(model, NetworkModel) or not model.settings.counting:
            return None
        chosen = self.counting or fusing.fixed()
        if self.counting is None and self.selection == "validation":
            assert self.judged is not None
            with self.callback.busy("weighing the network against counting"):
                chosen = fusing.fuse(
                    model, self.judged, self.metric,
                    hide_seen=self.hide_seen, seed=self.run.seed,
                    device=self.ranks_on or self.run.device, threads=self.run.threads,
                )  # fmt: skip
        model.scale_and_floor = chosen["scale"], chosen["floor"]
        self.callback.note(fusing.words(chosen))
        return chosen

    def _holds_finished(self) -> bool:
        """Say whether the folder holds a finished model."""
        return self.out is not None and artefact.is_finished(self.out)

    def _test(self) -> dict[str, Any]:
        """Return the metrics of the test part."""
        test = self.parts.history, self.parts.test, self.parts.evaluated
        with self.callback.busy("evaluating on the test part"):
            found, _, _ = evaluate_part(
                self.model, *test,
                hide_seen=self.hide_seen, exact=True, threads=self.run.threads,
                device=self.ranks_on or self.run.device, ks=self.ks,
            )  # fmt: skip
        return finite(found)

    def _yardsticks(self, planned: Plan) -> dict[str, Any]:
        """Measure the yardsticks; Ctrl-C ends that alone, because the model itself is finished."""
        try:
            with self.callback.busy("measuring the yardsticks"):
                return yardsticks.measure(
                    self.data, self.parts, self.model, planned.seconds, metric=self.metric,
                    hide_seen=self.hide_seen, ks=self.ks, threads=self.run.threads,
                )  # fmt: skip
        except KeyboardInterrupt:
            return yardsticks.interrupted(self.model, self.metric)

    def _selection(self, state: Checkpoint) -> dict[str, Any]:
        """Return how the epoch was chosen, and each metric's best."""
        epoch = state.chosen if state.chosen is not None else state.epoch
        selection: dict[str, Any] = {"kind": self.selection, "epoch": epoch}
        if self.judged is not None and state.best:
            part = "validation" if self.selection == "validation" else "test"
            finite_best = {
                name: entry for name, entry in state.best.items() if math.isfinite(entry["value"])
            }
            selection |= {"metric": self.metric, "on": part, "best": finite_best}
        return selection
