"""Settings, studies and records that the tests of trials share."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import polars as pl

from hcarec.experiments.data_sets import prepare_all
from hcarec.experiments.results import Results
from hcarec.experiments.run import DataSet
from hcarec.experiments.trials.settings import TrialSettings
from hcarec.experiments.trials.study import TrialStudy, trial_results

Done = tuple[Path, pl.DataFrame]
"""The folder of a finished contest, and the frame that it returned."""
TINY: dict[str, Any] = {"epochs": 1, "runs": 2, "changes": {"d": 8}}
"""Settings of a contest that takes seconds."""
REPEATS = {"repeats": 0.3, "mean_length": 50.0, "events": 9000, "items": 100}
"""Statistics of a log in which users repeat items."""
ONCE = {"repeats": 0.0, "mean_length": 9.0, "events": 900, "items": 100}
"""Statistics of a log in which no user has an item twice."""


def study(name: str, logs: dict[str, Path], out: Path, **changes: Any) -> TrialStudy:
    """Return a study with tiny settings, but for the changes."""
    results = trial_results(out)
    data = prepare_all(logs, results, least_events=3)
    return TrialStudy(name, data, results, TrialSettings(**{**TINY, **changes}), workers=1)


def log_of(**changes: Any) -> DataSet:
    """Return a log that only its description exists of."""
    counts = {"users": 1, "items": 1, "events": 1}
    return DataSet(**{"name": "log", "path": Path(), "fingerprint": "f" * 64, **counts, **changes})


def copy_records(done: Done, out: Path) -> None:
    """Copy a finished contest without its work folder, and so without ranks of users."""
    shutil.copytree(done[0] / "contest", out / "contest", ignore=shutil.ignore_patterns("work"))


def of_method(results: Results, log: str, method: str, rule: str) -> list[dict[str, Any]]:
    """Return the records of a method on a log under a rule."""
    asked = (log, method, rule)
    records = results.read().values()
    return [r for r in records if (r["data"]["name"], r["method"], r["rule"]) == asked]


def timeless(results: Results) -> dict[str, Any]:
    """Return all records without the fields that depend on the clock or the machine."""
    ignored = ("seconds_here", "training_seconds", "run_seconds", "machine")
    return {
        key: {name: value for name, value in record.items() if name not in ignored}
        for key, record in results.read().items()
    }
