"""Finish a run: the chosen epoch, late fusing, fine-tuning, the test, the finished folder."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hcarec import protocol as protocols
from hcarec.errors import DeviceError
from hcarec.evaluation import evaluate_part, finite
from hcarec.models import Model
from hcarec.models.network import NetworkModel, has_counting
from hcarec.training import checkpoint, fine_tuning, fusing, yardsticks
from hcarec.training.checkpoint import Checkpoint
from hcarec.training.resources import Plan
from hcarec.training.task import Task


class Clock:
    """Seconds by the clock, of all of a run and of its parts; `earlier` are those before it."""

    def __init__(self, began: float, earlier: float) -> None:
        self.began, self.earlier = began, earlier
        self.parts: dict[str, float] = {}

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Count what is done meanwhile as a part."""
        began = time.perf_counter()
        yield
        self.parts[name] = round(time.perf_counter() - began, 3)

    @property
    def seconds(self) -> float:
        """Return the seconds of the run so far."""
        return round(self.earlier + time.perf_counter() - self.began, 3)


def finish(
    task: Task, state: Checkpoint, clock: Clock, finished: bool, planned: Plan | None
) -> Model:
    """Take the chosen epoch, fine-tune it, evaluate it on the test part, and write the model.

    Where fine-tuning is interrupted, or its device fails, the model is that of the chosen epoch and
    not finished. A run stopped before its first choice has nothing to write. The yardsticks are
    measured where there is a plan to hold them against.
    """
    model, parts = task.model, task.parts
    if state.best_theta is not None:
        model.theta = state.best_theta
        model.parameters_changed()
    begun_only = state.chosen is None and not finished
    counting = None
    if not begun_only and has_counting(model) and _is_of_use(task, finished):
        with clock.part("fusing_seconds"):
            counting = _fuse(task)
    tuned, failure = None, None
    if finished and fine_tuning.applies(task):
        with clock.part("fine_tuning_seconds"):
            try:
                tuned = _fine_tune(task, state)
            except DeviceError as error:
                failure, task.safe = error, True
        finished = tuned is not None
    train, history = task.train_part, parts.history
    model.complete((train.items, train.offsets), (history.items, history.offsets))
    metrics, compared = {}, None
    if parts.evaluated.any() and not begun_only and _is_of_use(task, finished):
        with clock.part("test"):
            metrics = _test(task)
        if tuned is not None and tuned["epochs"]:
            task.callback.note(fine_tuning.words(tuned, metrics))
        if finished and planned is not None:
            with clock.part("yardstick_seconds"):
                compared = _yardsticks(task, planned)
    training = _training(task, state, clock) | _present(counting=counting, fine_tuning=tuned)
    model.about = _about(task, state) | {"metrics": metrics, "finished": finished}
    model.about |= {"training": training, **_present(yardsticks=compared)}
    # A finished model gives way to a finished one alone; what is begun is in the checkpoint.
    replaces = finished or (not begun_only and not task.holds_finished)
    if task.out is not None and task.keep_model and replaces:
        log = "".join(json.dumps(record) + "\n" for record in state.log).encode()
        model.save(task.out, log, keep_checkpoint=model.config.trains)
    if failure is not None:
        raise DeviceError(f"{failure}; {what_is_kept(task, state.chosen)}") from None
    return model


def _is_of_use(task: Task, finished: bool) -> bool:
    """Say whether a model is of use: where none is kept, only that of a finished run is."""
    return finished or task.keep_model or task.out is None


def what_is_kept(task: Task, epoch: int | None) -> str:
    """Say what is left of a run that failed; `epoch` is that of the model it could finish with."""
    if task.holds_finished:
        return f"the model that was in '{task.out}' before is kept"
    if task.out is not None and task.keep_model and epoch is not None:
        return f"the model of epoch {epoch} is kept"
    if task.out is not None and checkpoint.exists(task.out):
        return "the last checkpoint is kept"
    return "nothing was written"


def _fuse(task: Task) -> dict[str, Any]:
    """Decide how strong the counting term of a network is; return how.

    Only validation data choose: without them, and where the test part chooses the epoch, the
    defaults are taken.
    """
    model = task.model
    assert isinstance(model, NetworkModel)
    chosen = task.counting or fusing.fixed()
    if task.counting is None and task.selection == "validation":
        assert task.judged is not None
        with task.callback.busy("weighing the network against counting"):
            chosen = fusing.fuse(
                model, task.judged, task.metric,
                hide_seen=task.hide_seen, seed=task.run.seed, device=task.ranks_on,
                threads=task.run.threads,
            )  # fmt: skip
    model.scale_and_floor = chosen["scale"], chosen["floor"]
    task.callback.note(fusing.words(chosen))
    return chosen


def _fine_tune(task: Task, state: Checkpoint) -> dict[str, Any] | None:
    """Let the network learn the validation events; return how it did on the test part without them.

    None where that was interrupted.
    """
    model, train = task.model, (task.train_part.items, task.train_part.offsets)
    without: dict[str, Any] = {}
    if task.parts.evaluated.any():
        model.complete(train, train)
        without = _test(task, exact=False)
    epochs = fine_tuning.fine_tune(task, state)
    if epochs is None:
        return None
    return {"epochs": epochs, "metric": task.metric, "without": without}


def _test(task: Task, exact: bool = True) -> dict[str, Any]:
    """Return the metrics of the test part, the exact AUC among them or not."""
    test = task.parts.history, task.parts.test, task.parts.evaluated
    with task.callback.busy("evaluating on the test part"):
        metrics, _, _ = evaluate_part(
            task.model, *test,
            hide_seen=task.hide_seen, exact=exact, threads=task.run.threads, device=task.ranks_on,
            ks=task.ks,
        )  # fmt: skip
    return finite(metrics)


def _yardsticks(task: Task, planned: Plan) -> dict[str, Any]:
    """Measure the yardsticks; Ctrl-C ends that alone, because the model itself is finished."""
    try:
        with task.callback.busy("measuring the yardsticks"):
            return yardsticks.measure(
                task.data, task.parts, task.model, planned.seconds, metric=task.metric,
                hide_seen=task.hide_seen, ks=task.ks, threads=task.run.threads,
            )  # fmt: skip
    except KeyboardInterrupt:
        return yardsticks.interrupted(task.model, task.metric)


def _about(task: Task, state: Checkpoint) -> dict[str, Any]:
    """Return what a model is of: data, protocol, seed, the chosen epoch."""
    return {
        "data": {
            "fingerprint": task.data.fingerprint,
            "path": task.data.about.get("path"),
            "name": task.data.about.get("source", {}).get("name"),
        },
        "protocol": task.protocol,
        "protocol_fingerprint": protocols.fingerprint(task.protocol),
        "selection": _selection(task, state),
        "seed": task.run.seed,
    }


def _present(**values: Any) -> dict[str, Any]:
    """Return the values that there are."""
    return {name: value for name, value in values.items() if value is not None}


def _selection(task: Task, state: Checkpoint) -> dict[str, Any]:
    """Return how the epoch was chosen, and each metric's best."""
    epoch = state.chosen if state.chosen is not None else state.epoch
    selection: dict[str, Any] = {"kind": task.selection, "epoch": epoch}
    if task.judged is not None and state.best:
        part = "validation" if task.selection == "validation" else "test"
        finite_best = {
            name: entry for name, entry in state.best.items() if math.isfinite(entry["value"])
        }
        selection |= {"metric": task.metric, "on": part, "best": finite_best}
    return selection


def _training(task: Task, state: Checkpoint, clock: Clock) -> dict[str, Any]:
    """Return how long a run took, what of that went where, and what on."""
    parts = dict(clock.parts)
    judging = sum(record.get("evaluation_seconds", 0.0) for record in state.log)
    return {
        "epochs": len(state.log),
        "seconds": clock.seconds,
        "training_seconds": round(sum(record["seconds"] for record in state.log), 3),
        "evaluation_seconds": round(judging + parts.pop("test", 0.0), 3),
        "yardstick_seconds": parts.pop("yardstick_seconds", 0.0),
        "events": len(task.train_part.items),
        "device": task.run.device,
        **parts,
    }
