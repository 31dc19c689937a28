"""`hcarec experiment contest` and `ablation`: run in pieces, merge, plan, show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table
from typer import Exit

from hcarec.cli.console import bar, console, emit_json
from hcarec.cli.experiment_view import Grid, time_words
from hcarec.errors import ConfigError
from hcarec.experiments.data_sets import prepare_all
from hcarec.experiments.grid import Standing, missing
from hcarec.experiments.trials.settings import TrialSettings
from hcarec.experiments.trials.study import LEAST_EVENTS, TrialStudy, noted_data, tidy, trial_results


def run_trials(
    name: str,
    sources: Mapping[str, str],
    out: Path,
    settings: TrialSettings,
    filters: Mapping[str, Any],
    *,
    workers: int | None,
    work: Path | None,
    minutes: float | None,
    merged: Sequence[Path],
    dry_run: bool,
    json: str | None,
) -> None:
    """Do what is missing of an experiment, or merge, and write its report."""
    from hcarec.experiments.trials.merge import merge
    from hcarec.experiments.trials.report import write_trials

    if minutes is not None and not minutes > 0:
        raise ConfigError(f"minutes is {minutes:g}: give a number above 0")
    if merged and dry_run:
        raise ConfigError("--merge joins finished records and --dry-run plans runs: give one of them")
    for option, value in (("--minutes", minutes), ("--methods", settings.methods)):
        if merged and value:
            raise ConfigError(f"--merge runs nothing and joins all records that there are: leave out {option}")
    results = trial_results(out, settings.first_seed, work)
    if merged:
        fresh = merge(results, merged)
        console(stderr=True).print(f"{fresh} new record{'s' * (fresh != 1)} from {', '.join(map(str, merged))}", markup=False)
    if sources:
        with bar("preparing") as progress:
            data = prepare_all(sources, results, None, progress, note=not dry_run, least_events=LEAST_EVENTS, **filters)
    else:
        data = noted_data(results)
    study = TrialStudy(name, data, results, settings, workers, minutes)
    if dry_run:
        return show_plan(study)
    standing = _run(study) if not merged else None
    if merged and not study.records():
        raise ConfigError(f"none of the records that were joined is of the {name}, so that there is nothing to report: merge folders that hold some")
    if merged and (unclaimed := study.unclaimed()):
        console(stderr=True).print(
            f"{unclaimed} record{'s are' if unclaimed != 1 else ' is'} of other settings than these, and not in the report:"
            " give --epochs, --runs, --set and --first-seed as their runs had them"
        )
    written = write_trials(study)
    if json is not None:
        emit_json(json, tidy(study.records()))
    if json != "-":
        _show(study, written)
    if standing is not None and standing.stopped:
        left = len(missing(study.trials, results))
        why = "the time is up" if standing.out_of_time else "stopped"
        console(stderr=True).print(f"{why}: {left} runs are left; the same command goes on from here")
        if not standing.out_of_time:
            raise Exit(130)


def _run(study: TrialStudy) -> Standing:
    with Grid(study.results) as study.told:
        return study.run()


def show_plan(study: TrialStudy) -> None:
    """Print the runs of every piece, a method on a log, and the minutes that they are estimated to take."""
    out, records = console(), list(study.results.read().values())
    table = Table(box=None, padding=(0, 3, 0, 0))
    for heading in ("log", "method", "runs", "finished", "minutes"):
        table.add_column(heading, justify="left" if heading in ("log", "method") else "right")
    runs, left, seconds = 0, 0, {"GPU": 0.0, "CPU": 0.0}
    for data_set in study.data:
        trials = [trial for trial in study.trials if trial.data == data_set]
        for method in dict.fromkeys(trial.method for trial in trials):
            piece = [trial for trial in trials if trial.method == method]
            todo = missing(piece, study.results)
            cost = sum(trial.seconds(records) for trial in todo)
            runs, left = runs + len(piece), left + len(todo)
            seconds["GPU" if piece[0].on_card else "CPU"] += cost
            table.add_row(data_set.name, method, str(len(piece)), str(len(piece) - len(todo)), f"{cost / 60:.1f}")
    out.print(table)
    times = " and ".join(f"{time_words(cost)} on the {where}" for where, cost in seconds.items() if cost)
    rest = f"; the rest takes about {times} one after the other, {study.at_once} at once" if times else ""
    out.print(f"{runs} runs, {runs - left} finished{rest}")
    if seconds["GPU"] and not any(record["device"] != "cpu" for record in records):
        out.print("no run on a GPU is known yet: the times of the GPU are those of one core")


def _show(study: TrialStudy, written: list[Path]) -> None:
    """Print NDCG@10 by log and method under the deciding rule, and where the report lies."""
    from hcarec.experiments.trials.rules import deciding_rule
    from hcarec.experiments.trials.tables import values_of

    rule = {name: deciding_rule(log) for name, log in study.logs.items()}
    records = [record for record in study.records() if record["rule"] == rule[record["data"]["name"]]]
    values = values_of(records, "ndcg@10", lambda record: rule[record["data"]["name"]])
    table = Table(title="NDCG@10", title_justify="left", title_style="bold", box=None, padding=(0, 3, 0, 0))
    table.add_column("method")
    rule = {name: each for name, each in rule.items() if any(log == name for log, _ in values)}
    for name in rule:
        table.add_column(f"{name}, {rule[name]}", justify="right")
    for method in dict.fromkeys(record["method"] for record in records):
        seeds = [values.get((name, method), ()) for name in rule]
        table.add_row(method, *(f"{sum(each) / len(each):.4f}" if each else "-" for each in seeds))
    out = console()
    out.print(table)
    out.print(f"report: {written[0]} and {written[1]}")
