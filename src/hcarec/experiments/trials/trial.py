"""One trial: a method on a log under leave-one-out, its figures under both rules for seen items."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hcarec import atomic
from hcarec import protocol as protocols
from hcarec.data.split import split
from hcarec.errors import ConfigError
from hcarec.experiments.machine import describe
from hcarec.experiments.results import SCHEMA, Results
from hcarec.experiments.run import DataSet
from hcarec.experiments.trials.choosing import choose
from hcarec.experiments.trials.rules import RULES, F
from hcarec.models import Config, make
from hcarec.settings import MODERN
from hcarec.training import Callback, recipe, sizing, train

if TYPE_CHECKING:
    from hcarec.data.split import Split
    from hcarec.models import Model
    from hcarec.sequences import Sequences

K = 10
"""Length of the list that figures are about."""
DEPTH = 100
"""How far down the rank of a user's test item is kept; 0 stands for further down."""
SPLIT, SELECTION = "leave-one-out", "validation"
Figures = dict[str, dict[str, float | None]]
"""Metrics under each rule; None for one that is no number."""
WITHOUT = "without_validation"
"""Where a record has the figures of its network before it learned the validation events."""
CURVES = ("loss", f"ndcg@{K}")
"""What is kept of every epoch."""


@dataclass(frozen=True)
class Trial:
    """A method with a seed on a log; it is trained and its epoch chosen under `rule`.

    `method` is its name in tables. `device` and `threads` say how it is run and not what it is.
    Where there are `candidates`, the best of them on validation takes the place of `config`. With
    `cores` the preset, but for `changes`, is sized for a CPU of so many; `config` is that of a GPU.
    """

    data: DataSet
    method: str
    config: Config
    seed: int
    rule: str
    device: str = "auto"
    threads: int = 1
    candidates: tuple[Config, ...] = ()
    cores: int | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def key(self) -> str:
        """Return a hash of everything that decides the figures but the machine."""
        identity = {
            "schema": SCHEMA, "config": self.config.as_dict(), "data": self.data.fingerprint,
            "split": SPLIT, "selection": SELECTION, "rule": self.rule, "seed": self.seed, "k": K,
        }  # fmt: skip
        if self.candidates:
            identity["candidates"] = [config.as_dict() for config in self.candidates]
        if self.cores is not None:
            identity |= {"cores": self.cores, "sizing": recipe.ON_A_CPU}
        return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]

    def __str__(self) -> str:
        return f"{self.data.name} {self.method} seed {self.seed} ({self.rule})"

    def seconds(self, records: Sequence[Mapping[str, Any]]) -> float:
        """Estimate the seconds that the trial takes.

        From earlier ones of the method on the log; else from the plan, which is one for a CPU,
        corrected by how earlier trials of the trainer kept to theirs. Only those count that were
        computed on a GPU, or on a CPU, as this one is.
        """
        here = [record for record in records if (record["device"] != "cpu") == self.on_card]
        same = [
            record["seconds_here"]
            for record in here
            if record["data"]["fingerprint"] == self.data.fingerprint
            and record["method"] == self.method
        ]
        if same:
            return float(np.mean(same))
        alike = [r for r in here if r["config"].get("trainer") == self._trainer]
        planned = sum(record["planned_seconds"] for record in alike)
        pace = sum(record["seconds_here"] for record in alike) / planned if planned else 1.0
        return pace * self.planned_seconds

    @property
    def on_card(self) -> bool:
        """Whether it is computed on a GPU; where the device is auto, the study has settled that."""
        return self._trainer == "minibatch" and self.device == "cuda"

    @property
    def _trainer(self) -> str | None:
        return self.config.training.name if self.config.training is not None else None

    @cached_property
    def planned_seconds(self) -> float:
        """Return what the plan of a run on one core says, and some seconds to begin."""
        from hcarec.training.resources import plan

        if self.cores is not None:
            return sizing.BUDGET
        train_part, evaluated = _training_part(self.data.path)
        model = make(**self.config.as_dict())
        times = 1 + len(self.candidates)
        return 3.0 + times * plan(model, train_part, self.data.items, evaluated, 1).seconds

    def perform(self, results: Results, callback: Callback) -> dict[str, Any] | None:
        """Train and evaluate, going on where an earlier attempt stopped; write the record.

        Return None where it was ended before its end.
        """
        try:
            return self._perform(results, callback)
        except OSError as error:
            raise ConfigError(
                f"cannot use '{error.filename or results.work}': {error.strerror or error};"
                " run the same command again when that is mended"
            ) from None

    def _perform(self, results: Results, callback: Callback) -> dict[str, Any] | None:
        from hcarec.evaluation import resplit
        from hcarec.training import checkpoint

        began = time.perf_counter()
        data, work = self.data.open(), results.running / self.key
        config, tried = self._choose(data)
        chosen = time.perf_counter()
        model = self._train(data, config, work, callback)
        if not model.about["finished"]:
            return None
        trained = time.perf_counter()
        parts = resplit(data, model.about["protocol"]["split"])
        figures, ranks = self._evaluate(model, parts)
        record = self._record(model, figures, checkpoint.read_log(work))
        if tried:
            record["candidates"] = tried
        if (tuned := model.about["training"].get("fine_tuning")) is not None:
            kept = (f"ndcg@{K}", f"recall@{K}")
            record[WITHOUT] = {name: tuned["without"][name] for name in kept}
        length = getattr(model.config.training, "length", None)
        if length is not None and parts.history.lengths.max() > length:
            record["last_events"] = length
            record["figures_from_last"], _ = self._evaluate(model, parts, length)
        record["planned_seconds"] = round(self.planned_seconds, 1)
        # Training counts what earlier attempts took of it.
        around = chosen - began + time.perf_counter() - trained
        record["seconds_here"] = round(around + record["run_seconds"], 1)
        write_ranks(results, self.key, ranks)
        results.write(self.data.name, record)
        shutil.rmtree(work, ignore_errors=True)
        return record

    def _choose(self, data: Sequences) -> tuple[Config, list[dict[str, Any]]]:
        """Return the configuration to train, and what each candidate reached on validation."""
        if self.cores is None and not self.candidates:
            return self.config, []
        metric, parts = f"ndcg@{K}", split(data, SPLIT, validation=True)
        if self.cores is not None:
            return self._size(data, parts, self.cores), []
        config, values = choose(
            self.candidates, data, parts, metric, hide_seen=self.rule == F, threads=self.threads
        )
        pairs = zip(self.candidates, values, strict=True)
        return config, [{"config": each.as_dict(), metric: _short(value)} for each, value in pairs]

    def _size(self, data: Sequences, parts: Split, cores: int) -> Config:
        """Return what the preset decides for a CPU, whatever this machine is."""
        model = make(self.config.as_dict()["model"], preset=MODERN, **self.changes)
        model.set_catalog(data, np.asarray(parts.train.items))
        run = sizing.Run(data, parts.train, int(parts.evaluated.sum()), judged=True, validates=True)
        recipe.decide(model, run, sizing.Machine("cpu", cores, None))
        return model.config

    def _train(self, data: Sequences, config: Config, work: Path, callback: Callback) -> Model:
        trains = config.trains
        # A model that counts, and one of the paper's trainer, know no other device than the CPU.
        device = self.device if self._trainer == "minibatch" else "auto"
        return train(
            data, work, split=SPLIT, selection=SELECTION, hide_seen=self.rule == F, seed=self.seed,
            threads=self.threads, device=device, ks=(K,), compare=False, keep_model=False,
            resume=trains, overwrite=not trains, callback=callback, **config.as_dict(),
        )  # fmt: skip

    def _evaluate(
        self, model: Model, parts: Split, last: int | None = None
    ) -> tuple[Figures, dict[str, np.ndarray]]:
        """Return the figures and the ranks of the test items (users,) under each rule.

        Predictions are from the whole history, or from the `last` events of it.
        """
        from hcarec.evaluation import evaluate_part, finite

        figures, ranks = {}, {}
        for rule in RULES:
            metrics, users, _ = evaluate_part(
                model, parts.history, parts.test, parts.evaluated, hide_seen=rule == F,
                threads=self.threads, device=model.about["training"]["device"], ks=(K, DEPTH),
                last=last,
            )  # fmt: skip
            kept = (f"ndcg@{K}", f"recall@{K}", f"coverage@{K}", f"popularity@{K}", "auc")
            figures[rule] = finite({name: metrics[name] for name in kept})
            ranks[rule] = ranks_of(users[f"rr@{DEPTH}"])
        return figures, ranks

    def _record(self, model: Model, figures: Figures, log: list[dict[str, Any]]) -> dict[str, Any]:
        about = model.about
        rules, epoch = about["protocol"], about["selection"]["epoch"]
        seen = {rule: {**rules, "seen": "hidden" if rule == F else "kept"} for rule in RULES}
        return {
            "schema": SCHEMA,
            "key": self.key,
            "data": {"name": self.data.name, **rules["data"]},
            "method": self.method,
            "config": model.config.as_dict(),
            "seed": self.seed,
            "selection": SELECTION,
            "rule": self.rule,
            "epoch": epoch,
            "figures": figures,
            "best": {n: {"value": v, "epoch": epoch} for n, v in figures[self.rule].items()},
            "protocols": {rule: protocols.fingerprint(each) for rule, each in seen.items()},
            "curves": {name: [_short(entry.get(name)) for entry in log] for name in CURVES},
            "training_seconds": about["training"]["training_seconds"],
            "run_seconds": about["training"]["seconds"],
            "threads": self.threads,
            "training_events": about["training"]["events"],
            "device": _device_name(about["training"]["device"]),
            "machine": describe(),
        }


def _device_name(device: str) -> str:
    """Return `cpu`, or what the GPU is called."""
    if device == "cpu":
        return device
    import torch

    return str(torch.cuda.get_device_name(device))


def write_ranks(results: Results, key: str, ranks: Mapping[str, np.ndarray]) -> None:
    """Keep the ranks of all users' test items under each rule, for paired tests."""
    buffer = io.BytesIO()
    arrays: dict[str, Any] = dict(ranks)
    np.savez_compressed(buffer, **arrays)
    atomic.write_bytes(ranks_file(results, key), buffer.getvalue())


def ranks_file(results: Results, key: str) -> Path:
    """Return where the ranks of a trial lie."""
    return results.users / f"{key}.npz"


def ranks_of(reciprocal: np.ndarray) -> np.ndarray:
    """Return the ranks (users,) of reciprocal ranks; 0 where the test item is not in the list."""
    return np.where(reciprocal > 0, np.rint(1 / np.maximum(reciprocal, 1e-9)), 0).astype(np.uint8)


def _short(value: float | None) -> float | None:
    """Keep five digits: enough to draw."""
    return None if value is None else float(f"{value:.5g}")


@cache
def _training_part(path: Path) -> tuple[Any, int]:
    from hcarec.sequences import Sequences

    parts = split(Sequences.open(path), SPLIT, validation=True)
    return parts.train, int(parts.evaluated.sum())
