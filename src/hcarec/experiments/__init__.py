"""Experiments, the paper's and our own, from Python: each verb runs what is missing, writes the report, and returns a tidy frame.

    from hcarec import experiments
    table = experiments.methods({"shop": "log.csv"}, "results", runs=2, epochs=20)

`data` maps names to raw logs, prepared folders or known names; `out` is the folder of results. Settings are fields of `Settings`, and what the
command has besides: `titles` (by data set), `min_user_events` and `max_user_events` of raw logs, `user`, `workers`, `work`; `told` hears of progress.
Those of `contest` and `ablation` are fields of `TrialSettings`, and `workers`, `work`, `minutes`, `told`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hcarec.experiments.settings import Settings

if TYPE_CHECKING:
    import polars as pl

    from hcarec.experiments.study import Study
    from hcarec.experiments.trials.study import TrialStudy

Sources = Mapping[str, str | Path]

__all__ = ["Settings", "ablation", "attention", "complete", "contest", "datasets", "everything", "load_runs", "merge", "methods", "run_trials", "widths"]


def datasets(data: Sources, out: str | Path, **settings: Any) -> pl.DataFrame:
    """Return the statistics of data sets (Table 3), a row each."""
    return _tidy(data, out, "datasets", settings)


def methods(data: Sources, out: str | Path, **settings: Any) -> pl.DataFrame:
    """Compare the seven methods (Table 2): a row per run and metric."""
    return _tidy(data, out, "methods", settings)


def widths(data: Sources, out: str | Path, **settings: Any) -> pl.DataFrame:
    """Vary the width of either level alone (Figure 2): a row per run and metric."""
    return _tidy(data, out, "widths", settings)


def complete(data: Sources, out: str | Path, **settings: Any) -> pl.DataFrame:
    """Fix one width at its best and vary the other (Table 4), after `widths`: a row per run and metric, GRU for comparison."""
    return _tidy(data, out, "complete", settings)


def attention(data: Sources, out: str | Path, **settings: Any) -> pl.DataFrame:
    """Return the attention weights of one user's last steps (Table 5): data, user, level, step, lag, item, weight."""
    return _tidy(data, out, "attention", settings)


def everything(data: Sources, out: str | Path, **settings: Any) -> pl.DataFrame:
    """Run all experiments: a row per run and metric of every network."""
    return _tidy(data, out, "all", settings)


def contest(data: Sources, out: str | Path, **settings: Any) -> pl.DataFrame:
    """Let all methods meet on every log, under leave-one-out: a row per trial, rule for seen items and metric."""
    return _trials("contest", data, out, settings)


def ablation(data: Sources, out: str | Path, **settings: Any) -> pl.DataFrame:
    """Take the ingredients of HCA-GRU out one at a time: a row per trial, rule for seen items and metric."""
    return _trials("ablation", data, out, settings)


def run_trials(name: str, data: Sources, out: str | Path, **settings: Any) -> int:
    """Do what is missing of `contest` or `ablation` and write records alone; return how many trials are left.

    With prepared logs, mini-batches and a GPU this needs NumPy, Numba, torch and safetensors; to go on after `minutes`, msgspec.
    """
    from hcarec.experiments.grid import missing

    study = _trial_study(name, data, out, settings)
    study.run()
    return len(missing(study.trials, study.results))


def merge(name: str, folders: Sequence[str | Path], out: str | Path, **settings: Any) -> pl.DataFrame:
    """Join the records of `contest` or `ablation` from other folders of results, and write the report of all of them."""
    import polars as pl

    from hcarec.experiments.trials.merge import merge
    from hcarec.experiments.trials.report import write_trials
    from hcarec.experiments.trials.settings import TrialSettings
    from hcarec.experiments.trials.study import TrialStudy, noted_data, tidy, trial_results

    results = trial_results(Path(out))
    merge(results, [Path(folder) for folder in folders])
    study = TrialStudy(name, noted_data(results), results, TrialSettings(**settings))
    write_trials(study)
    return pl.DataFrame(tidy(study.records()))


def load_runs(out: str | Path) -> pl.DataFrame:
    """Return the figures of all finished runs in a folder of results, whatever their settings."""
    from hcarec.experiments.frames import figures
    from hcarec.experiments.results import Results

    return figures(Results(Path(out)).read().values())


def _tidy(data: Sources, out: str | Path, name: str, settings: dict[str, Any]) -> pl.DataFrame:
    from hcarec.experiments.report import write_report

    study = _study(data, out, settings)
    study.run(name)
    write_report(study.results, study.settings)
    return study.tidy(name)


def _trials(name: str, data: Sources, out: str | Path, settings: dict[str, Any]) -> pl.DataFrame:
    import polars as pl

    from hcarec.experiments.trials.report import write_trials
    from hcarec.experiments.trials.study import tidy

    study = _trial_study(name, data, out, settings)
    study.run()
    write_trials(study)
    return pl.DataFrame(tidy(study.records()))


def _trial_study(name: str, data: Sources, out: str | Path, settings: dict[str, Any]) -> TrialStudy:
    from hcarec.experiments.data_sets import prepare_all
    from hcarec.experiments.trials.settings import TrialSettings
    from hcarec.experiments.trials.study import LEAST_EVENTS, NAMES, TrialStudy, trial_results
    from hcarec.settings import check_known

    check_known("experiment", name, tuple(NAMES))
    options = {option: settings.pop(option, None) for option in ("workers", "minutes", "told", "work")}
    work = options.pop("work")
    own = TrialSettings(**settings)
    results = trial_results(Path(out), own.first_seed, Path(work) if work else None)
    return TrialStudy(name, prepare_all(data, results, least_events=LEAST_EVENTS), results, own, **options)


def _study(data: Sources, out: str | Path, settings: dict[str, Any]) -> Study:
    from hcarec.experiments.data_sets import prepare_all
    from hcarec.experiments.results import Results
    from hcarec.experiments.study import Study

    given = {name: settings.pop(name, None) for name in ("workers", "told", "user", "titles", "work")}
    filters = {name: settings.pop(name) for name in ("min_user_events", "max_user_events") if settings.get(name) is not None}
    own = Settings(**settings)
    results = Results(Path(out), own.first_seed, Path(given["work"]) if given["work"] else None)
    prepared = prepare_all(data, results, given["titles"], **filters)
    return Study(prepared, results, own, given["workers"], given["told"], given["user"])
