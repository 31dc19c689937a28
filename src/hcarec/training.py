"""The trainer: split, epochs, evaluation, selection, checkpoints, the finished model."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hcarec import artefact, checkpoint, topk
from hcarec import protocol as protocols
from hcarec.checkpoint import Checkpoint
from hcarec.config import SELECTIONS, ModelConfig, check_run_options
from hcarec.data.split import Part, Split, split
from hcarec.errors import ConfigError, ModelError, ProtocolError, nearest
from hcarec.evaluation import evaluate_part, finite
from hcarec.metrics import KS
from hcarec.models import Model, make
from hcarec.models.base import CHUNK, Progress, RanAway
from hcarec.plan import Plan, check_fits, plan
from hcarec.sequences import Sequences

MOST_K = 1000
"""Largest k of a metric."""
CHECKPOINT_SECONDS = 20.0
"""Least seconds between two checkpoints, so that short epochs are not slowed down by the disk."""


class Watcher:
    """Told what a run does; the command draws it, a notebook may ignore it."""

    def planned(self, planned: Plan, config: ModelConfig, resumed_at: int | None) -> None:
        """Hear the plan, before anything is done; `resumed_at` is the epoch that a checkpoint stands in."""

    @contextlib.contextmanager
    def busy(self, what: str) -> Iterator[None]:
        """Be told of something that takes a while."""
        yield

    def chunk(self, now: Progress, events_per_second: float) -> None:
        """Hear how far an epoch is."""

    def judged(self, epoch: int, users: dict[str, np.ndarray], better: set[str]) -> None:
        """Hear the figures per user of an epoch that was evaluated, and the metrics in which it is the best so far."""

    def epoch(self, record: dict[str, Any], best: bool) -> None:
        """Hear the figures of an epoch, and whether it is the best so far."""


def train(
    data: Sequences,
    out: str | Path | None = None,
    *,
    model: str = "hca-gru",
    split: str = "ratio",
    ratio: float = 0.8,
    at: str | int | float | None = None,
    selection: str = "validation",
    hide_seen: bool = False,
    seed: int = 0,
    threads: int | None = None,
    resume: bool = False,
    epochs_from: str | Path | None = None,
    watch: Watcher | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    ks: Sequence[int] = KS,
    **settings: Any,
) -> Model:
    """Train a model on the training part of `data`, choose an epoch, and write the model to `out` if given.

    `settings` are fields of `ModelConfig`. `split` none trains on everything, with no test; `epochs_from` takes the number of
    epochs that an evaluated model chose. The returned model's `about` has metrics, protocol and selection; its "finished" is false
    where Ctrl-C or a runaway loss ended the run early. `ks` are the k of the metrics.
    """
    if selection not in SELECTIONS:
        raise ConfigError(f"selection '{selection}' is not known: give one of {', '.join(SELECTIONS)}{nearest(selection, SELECTIONS)}")
    check_run_options(seed, threads)
    if out is not None:
        out = Path(os.path.realpath(out))
        if data.about.get("path") and os.path.realpath(data.about["path"]) == str(out):
            raise ConfigError(f"'{out}' is the data set itself: give another folder for the model with -o")
    if epochs_from is not None:
        settings["epochs"] = chosen_epochs(Path(epochs_from))
    fresh = make(model, **_checked(settings))
    run = _Run(fresh, data, Path(out) if out is not None else None, selection, hide_seen, seed, threads, watch or Watcher(), checkpoint_seconds, _cutoffs(ks))
    run.divide(split, ratio, at)
    return run.go(resume)


def chosen_epochs(folder: Path) -> int:
    """Return the number of epochs that an evaluated run chose."""
    epoch = artefact.read_manifest(folder).get("selection", {}).get("epoch")
    if not isinstance(epoch, int):
        raise ModelError(f"'{folder}' has not chosen an epoch: --epochs-from needs a model trained with an evaluated split")
    return epoch


class _Run:
    """One run of training, from the plan to the finished folder."""

    def __init__(
        self,
        model: Model,
        data: Sequences,
        out: Path | None,
        selection: str,
        hide_seen: bool,
        seed: int,
        threads: int | None,
        watch: Watcher,
        every: float,
        ks: tuple[int, ...],
    ) -> None:
        self.model, self.data, self.out, self.selection = model, data, out, selection
        self.hide_seen, self.seed, self.threads, self.watch, self.every, self.ks = hide_seen, seed, threads, watch, every, ks

    # -- before --------------------------------------------------------------------------------------------------

    def divide(self, how: str, ratio: float, at: Any) -> None:
        """Split the data; models without epochs have nothing to choose and train on the whole training part."""
        if how == "none":
            self.selection = "none"
        validating = self.selection == "validation"
        self.parts: Split = split(self.data, how, ratio=ratio, at=at, validation=validating)
        self.train_part: Part = self.parts.train if self.model.config.trains else self.parts.history
        if len(self.train_part.items) == 0:
            raise ConfigError(f"the split '{how}' leaves no event to train on: give more data or another split")
        if how != "none" and not (self.parts.validated if validating else self.parts.evaluated).any():
            raise ConfigError(f"the split '{how}' leaves no user to {'validate' if validating else 'test'} with: give longer histories, or --split none")
        self.judged: tuple[Part, Part, np.ndarray] | None = None  # what epochs are judged by: history, target, users
        if self.parts.validation is not None:
            self.judged = self.parts.train, self.parts.validation, self.parts.validated
        elif self.selection == "best-epoch-on-test":
            self.judged = self.parts.history, self.parts.test, self.parts.evaluated
        usual = 10 if how == "leave-one-out" else 20
        self.metric = f"ndcg@{usual if usual in self.ks else max(self.ks)}"
        self.protocol = protocols.protocol(self.data, self.parts.protocol, self.selection, self.hide_seen, self.ks)

    def identity(self) -> dict[str, Any]:
        """Return what two runs must share for one to go on where the other stopped; the number of epochs may grow."""
        config = {name: value for name, value in dataclasses.asdict(self.model.config).items() if name != "epochs"}
        rules = {"split": self.parts.protocol, "selection": self.selection, "seen": self.hide_seen, "k": list(self.ks)}
        return {"config": config, "data": self.data.fingerprint, **rules, "seed": self.seed}

    def restored(self, resume: bool) -> Checkpoint:
        """Return where to begin: at a checkpoint, or at the start."""
        found = checkpoint.read(self.out) if self.out is not None else None
        if found is not None and resume:
            try:
                protocols.check_equal(found.run, self.identity(), ("the checkpoint", "this command"))
            except ProtocolError as error:
                raise ConfigError(f"--resume cannot go on: {str(error).partition(': ')[2].partition(';')[0]}; give the same settings, or another -o") from None
            return found
        if found is not None and not (self.out is not None and (self.out / artefact.MANIFEST).exists()):
            raise ConfigError(f"'{self.out}' holds an unfinished run (epoch {found.at.epoch}): go on with --resume, or remove it first")
        self.model.adopt(self.data, np.asarray(self.train_part.items))
        self.model.initialise(len(self.train_part), self.seed)
        n_users = len(self.train_part)
        return Checkpoint(self.identity(), Progress(0, n_users, n_users, 0.0, 0.0, 0, 0), 0.0, self.model.theta)

    # -- the run -------------------------------------------------------------------------------------------------

    def go(self, resume: bool) -> Model:
        """Train to the end, or to Ctrl-C, and finish."""
        if self.out is not None:
            artefact.check_replaceable(self.out)
        planned = plan(self.model.config, self.train_part, self.data.n_items, int(self.parts.evaluated.sum()))
        check_fits(planned)
        state = self.restored(resume)
        self.watch.planned(planned, self.model.config, state.at.epoch if state.at.epoch else None)
        self.model.adopt(self.data, np.asarray(self.train_part.items))
        self.model.theta = state.theta
        finished = True
        if self.model.config.trains:
            with self.watch.busy("getting the compiled code ready (the first time this takes half a minute)"):
                self._warm()
            try:
                with _stop_flag() as stop:
                    finished = self._epochs(state, stop)
            except RanAway as error:
                kept = "nothing was written" if state.chosen is None else f"the model of epoch {state.chosen} is kept"
                self._finish(state, finished=False)
                named = str(error).replace(f"user {error.user}", f"user '{self.data.user_ids.text(error.user)}'")
                raise ModelError(f"{named}; {kept}") from None
        return self._finish(state, finished)

    def _warm(self) -> None:
        from hcarec.ops import bpr, cpu

        (bpr if self.model.name == "bpr" else cpu).warm()
        if self.parts.evaluated.any():
            topk.warm()

    def _epochs(self, state: Checkpoint, stop: threading.Event) -> bool:
        """Train epoch by epoch; return whether the end was reached."""
        saved = chunk_began = time.perf_counter()
        events = len(self.train_part.items)
        begin = state.at if state.at.epoch else None
        for now in self.model.epochs(self.train_part, self.seed, begin):
            if now.position <= CHUNK:
                state.epoch_seconds = 0.0
            state.epoch_seconds += time.perf_counter() - chunk_began
            state.at = now
            self.watch.chunk(now, events * now.position / now.n_users / max(state.epoch_seconds, 1e-9))
            if now.position == now.n_users:
                self._end_of_epoch(state, events)
            if stop.is_set() or time.perf_counter() - saved > self.every:
                self._save(state)
                saved = time.perf_counter()
            if stop.is_set() and (now.epoch, now.position) != (self.model.config.epochs, now.n_users):
                return False
            chunk_began = time.perf_counter()
        self._save(state)
        return True

    def _end_of_epoch(self, state: Checkpoint, events: int) -> None:
        now = state.at
        record: dict[str, Any] = {
            "epoch": now.epoch,
            "loss": now.loss,
            "l2": now.l2,
            "seconds": round(state.epoch_seconds, 4),
            "events_per_second": round(events / max(state.epoch_seconds, 1e-9)),
        }
        better: set[str] = set()
        if self.judged is not None:
            with self.watch.busy(f"epoch {now.epoch}: evaluating"):
                metrics, users, _ = evaluate_part(self.model, *self.judged, hide_seen=self.hide_seen, threads=self.threads, ks=self.ks)
            record |= {"on": "validation" if self.selection == "validation" else "test"} | finite(metrics)
            better = self._note_best(state, metrics, now.epoch)
            self.watch.judged(now.epoch, users, better)
        else:
            self._choose(state, now.epoch)
        state.log.append(record)
        self.watch.epoch(record, self.metric in better)

    def _note_best(self, state: Checkpoint, metrics: dict[str, float], epoch: int) -> set[str]:
        """Remember each metric's best epoch, the first on ties, and the parameters of the one that chooses; return the metrics that are better."""
        better = {name for name, value in metrics.items() if name not in state.best or value > state.best[name]["value"]}
        state.best |= {name: {"value": metrics[name], "epoch": epoch} for name in metrics if name in better}
        if self.metric in better:
            self._choose(state, epoch)
        return better

    def _choose(self, state: Checkpoint, epoch: int) -> None:
        """Keep the parameters of an epoch: the best so far, or the last whole one where nothing is judged."""
        state.best_theta, state.chosen = {letter: array.copy() for letter, array in self.model.theta.items()}, epoch

    def _save(self, state: Checkpoint) -> None:
        if self.out is not None:
            try:
                checkpoint.write(self.out, state)
            except OSError as error:
                raise ModelError(f"cannot write a checkpoint to '{self.out}': {error.strerror or error}; the one before is kept") from None

    # -- after ---------------------------------------------------------------------------------------------------

    def _finish(self, state: Checkpoint, finished: bool) -> Model:
        """Take the chosen epoch, evaluate it on the test part, and write the model; a run stopped before its first epoch has none to write."""
        model = self.model
        if state.best_theta is not None:
            model.theta = state.best_theta
        selection: dict[str, Any] = {"kind": self.selection, "epoch": state.chosen if state.chosen is not None else state.at.epoch}
        if self.judged is not None and state.best:
            selection |= {"metric": self.metric, "on": "validation" if self.selection == "validation" else "test"}
            selection["best"] = {name: entry for name, entry in state.best.items() if math.isfinite(entry["value"])}
        metrics: dict[str, Any] = {}
        begun_only = state.chosen is None and not finished  # stopped within its first epoch: there is nothing to show yet
        model.complete((self.train_part.items, self.train_part.offsets), (self.parts.history.items, self.parts.history.offsets))
        if self.parts.evaluated.any() and not begun_only:
            with self.watch.busy("evaluating on the test part"):
                test = self.parts.history, self.parts.test, self.parts.evaluated
                found, _, _ = evaluate_part(model, *test, hide_seen=self.hide_seen, exact=True, threads=self.threads, ks=self.ks)
            metrics = finite(found)
        seconds = sum(record["seconds"] for record in state.log)
        model.about = {
            "data": {"fingerprint": self.data.fingerprint, "path": self.data.about.get("path"), "name": self.data.about.get("source", {}).get("name")},
            "protocol": self.protocol,
            "protocol_fingerprint": protocols.fingerprint(self.protocol),
            "selection": selection,
            "metrics": metrics,
            "seed": self.seed,
            "finished": finished,
            "training": {
                "epochs": len(state.log),
                "seconds": round(seconds, 3),
                "events": len(self.train_part.items),
                "users_without_negative": state.at.without_negative,
            },
        }
        if self.out is not None and not begun_only:
            model.save(self.out, "".join(json.dumps(record) + "\n" for record in state.log).encode())
        return model


def _cutoffs(ks: Sequence[int]) -> tuple[int, ...]:
    """Check the places k that metrics are cut at."""
    if not ks or not all(isinstance(k, int) and 1 <= k <= MOST_K for k in ks):
        raise ConfigError(f"k is {list(ks)!r}: give whole numbers from 1 to {MOST_K:,}")
    return tuple(sorted(set(ks)))


def _checked(settings: dict[str, Any]) -> dict[str, Any]:
    known = [field.name for field in dataclasses.fields(ModelConfig) if field.name != "model"]
    for name in settings:
        if name not in known:
            raise ConfigError(f"there is no setting '{name}': the settings are {', '.join(known)}{nearest(name, known)}")
    return settings


@contextlib.contextmanager
def _stop_flag() -> Iterator[threading.Event]:
    """Turn the first Ctrl-C (or a polite kill) into a flag that is looked at between chunks; the second one stops at once."""
    flag = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield flag
        return
    before: dict[int, Any] = {}

    def ask(number: int, _: object) -> None:
        flag.set()
        signal.signal(number, before[number])

    for number in (int(signal.SIGINT), int(signal.SIGTERM)):
        before[number] = signal.getsignal(number)
        signal.signal(number, ask)
    try:
        yield flag
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
