"""The paper's experiments, from Python: each verb runs what is missing, writes the report, and returns a tidy frame.

    from hcarec import experiments
    table = experiments.methods({"shop": "log.csv"}, "results", runs=2, epochs=20)

`data` maps names to raw logs, prepared folders or known names; `out` is the folder of results. Settings are fields of `Settings`, and what the
command has besides: `titles` (by data set), `min_user_events` and `max_user_events` of raw logs, `user`, `workers`, `work`; `told` hears of progress.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hcarec.experiments.settings import Settings

if TYPE_CHECKING:
    import polars as pl

    from hcarec.experiments.study import Study

Sources = Mapping[str, str | Path]

__all__ = ["Settings", "attention", "complete", "datasets", "everything", "load_runs", "methods", "widths"]


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
