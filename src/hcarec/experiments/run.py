"""One run of an experiment: what it is, the key that says whether it was done, and the doing."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hcarec import atomic
from hcarec.errors import ConfigError, DataError
from hcarec.experiments.machine import describe
from hcarec.experiments.own_best import COLUMN, OwnBest
from hcarec.experiments.results import SCHEMA, Results
from hcarec.metrics import KS
from hcarec.models import Config
from hcarec.training import Callback, train

if TYPE_CHECKING:
    from hcarec.evaluation import Result
    from hcarec.models import Model
    from hcarec.sequences import Sequences

PAPER = ("model", "window_x", "window_h", "d", "learning_rate", "l2", "epochs", "preset")
"""The settings of the paper's methods, which make the key of a run."""
CURVES = ("loss", "l2", "recall", "map", "ndcg", "auc")
"""What is kept of every epoch; of metrics with a k, at the largest."""
USER_COLUMNS = ("n_test", "hits@", "ap@", "ndcg@", "auc")
"""What is kept of every user, for paired tests."""


@dataclass(frozen=True)
class DataSet:
    """A prepared log under the name that tables give it."""

    name: str
    path: Path
    fingerprint: str
    users: int
    items: int
    events: int

    def open(self) -> Sequences:
        """Open the log, which must be the one that it was."""
        from hcarec.sequences import Sequences

        data = Sequences.open(self.path)
        if data.fingerprint != self.fingerprint:
            raise DataError(f"'{self.path}' has been replaced by other data since the experiment began: run the same command again for the new data")
        return data


@dataclass(frozen=True)
class Run:
    """One training run: a method on a data set with a seed, under a selection of the epoch."""

    data: DataSet
    config: Config
    seed: int
    selection: str
    ks: tuple[int, ...] = KS

    @cached_property
    def key(self) -> str:
        """Return a hash of everything that decides the figures: two runs of one key give the same bits."""
        config = self.settings if self.config.trains else {"model": self.config.model}
        identity: dict[str, Any] = {"schema": SCHEMA, "config": config, "data": self.data.fingerprint, "split": "ratio 0.8"}
        identity |= {"seed": self.seed, "selection": self.selection}
        if self.ks != KS:
            identity["k"] = list(self.ks)
        return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def settings(self) -> dict[str, Any]:
        """Return the settings of the paper that the method has."""
        return {name: value for name, value in self.config.as_dict().items() if name in PAPER}

    def seconds(self, records: Sequence[dict[str, Any]]) -> float:
        """Estimate the seconds that the run takes."""
        from hcarec.experiments.estimate import estimate

        return estimate(self, records, False).seconds

    def perform(self, results: Results, callback: Callback) -> dict[str, Any] | None:
        """Do the run, see `perform`."""
        return perform(self, results, callback)

    def __str__(self) -> str:
        return f"{self.data.name} {self.config.title} seed {self.seed} ({self.selection})"


def perform(run: Run, results: Results, callback: Callback | None = None) -> dict[str, Any] | None:
    """Train and evaluate, going on where an earlier attempt stopped; write the record, or return None where Ctrl-C ended it early."""
    try:
        return _perform(run, results, callback or Callback())
    except OSError as error:
        raise ConfigError(f"cannot use '{error.filename or results.work}': {error.strerror or error}; run the same command again when that is mended") from None


def _perform(run: Run, results: Results, callback: Callback) -> dict[str, Any] | None:
    from hcarec.evaluation import evaluate

    began = time.perf_counter()
    data, work = run.data.open(), results.running / run.key
    keeper = OwnBest(results.running / f"{run.key}.users", run.selection == "best-epoch-on-test", callback)
    options: dict[str, Any] = {"selection": run.selection, "seed": run.seed, "threads": 1, "ks": run.ks, "compare": False}
    options |= {"resume": run.config.trains, "overwrite": not run.config.trains}
    model = train(data, work, callback=keeper, **options, **run.config.as_dict())
    if not model.about["finished"]:
        return None
    found = evaluate(model, data, threads=1)
    users = {name: values for name, values in found.users.items() if name.startswith(USER_COLUMNS)} | keeper.columns()
    log = [json.loads(line) for line in (work / "log.jsonl").read_text().splitlines()]
    record = _record(run, model, found, log)
    if not _belong(users, record):
        assert keeper.resumed, "figures per user do not belong to their run"
        shutil.rmtree(work)  # a power cut or a hand has lost figures of best epochs: they come back with the epochs
        keeper.clear()
        return _perform(run, results, callback)
    record |= {"seconds_here": round(time.perf_counter() - began, 1)}
    _write_users(results.users / f"{run.key}.parquet", users)
    if results.keeps_model(run.config, run.seed):
        _keep(work, results.models / run.key)
    results.write(run.data.name, record)
    shutil.rmtree(work, ignore_errors=True)
    keeper.clear()
    return record


def _record(run: Run, model: Model, found: Result, log: list[dict[str, Any]]) -> dict[str, Any]:
    about = model.about
    best = about["selection"].get("best") if run.selection == "best-epoch-on-test" else None
    metrics = found.as_dict()
    figures = {name: value for name, value in metrics.items() if isinstance(value, float)}
    chosen = about["selection"]["epoch"]
    return {
        "schema": SCHEMA,
        "key": run.key,
        "data": {"name": run.data.name, **about["protocol"]["data"]},
        "method": run.config.title,
        "config": run.settings,
        "seed": run.seed,
        "selection": run.selection,
        "epoch": chosen,
        "metrics": figures,
        # Each metric at its own best epoch, as the paper's figures are; under `validation` the chosen epoch's.
        "best": {name: entry for name, entry in best.items() if name in figures} if best else {n: {"value": v, "epoch": chosen} for n, v in figures.items()},
        "curves": {name: [_short(entry.get(name)) for entry in log] for name in _curves(run.ks)} if log else {},
        "training_seconds": about["training"]["training_seconds"],
        "training_events": about["training"]["events"],
        "protocol_fingerprint": about["protocol_fingerprint"],
        "machine": describe(),
    }


def _curves(ks: tuple[int, ...]) -> list[str]:
    return [name if name in ("loss", "l2", "auc") else f"{name}@{max(ks)}" for name in CURVES]


def _short(value: float | None) -> float | None:
    """Keep six digits: enough to draw."""
    return None if value is None else float(f"{value:.6g}")


def _belong(users: Mapping[str, np.ndarray], record: Mapping[str, Any]) -> bool:
    """Say whether the figures per user are those of the record: they are kept apart while a run goes on."""
    for name, entry in record["best"].items():
        metric, at, k = name.partition("@")
        if metric not in COLUMN:
            continue
        column = np.asarray(users[f"{COLUMN[metric]}{at}{k}"], np.float64)
        test = users["n_test"] if metric in ("recall", "auc") else np.ones(len(column))  # pooled, or a mean over users
        above = column if metric == "recall" else column * test
        if not abs(float(np.nansum(above)) / float(test[~np.isnan(column)].sum()) - entry["value"]) < 1e-9:
            return False
    return True


def _write_users(path: Path, users: Mapping[str, np.ndarray]) -> None:
    import polars as pl

    columns = {name: np.asarray(values) for name, values in users.items()}
    frame = pl.DataFrame({name: values if values.dtype.kind in "iu" else values.astype(np.float32) for name, values in columns.items()})
    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    atomic.write_bytes(path, buffer.getvalue())


def _keep(work: Path, target: Path) -> None:
    """Keep the model folder, without its checkpoint."""
    with atomic.folder(target) as copy:
        shutil.copytree(work, copy, ignore=shutil.ignore_patterns("checkpoint*"), dirs_exist_ok=True)
