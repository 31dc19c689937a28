"""How experiments look in the terminal: the plan, the grid while it runs, the outcome."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.table import Table

from hcarec.cli.console import console
from hcarec.experiments.estimate import estimate
from hcarec.experiments.frames import summary
from hcarec.experiments.grid import Standing, missing
from hcarec.experiments.results import Results
from hcarec.experiments.study import Study, steps_of
from hcarec.parallel import cores

EVERY = 60.0
"""Seconds between two lines of progress where there is no terminal."""


class Grid:
    """A progress bar over all runs of a step, with the time left; away from a terminal a line now and then."""

    def __init__(self, results: Results) -> None:
        self._results, self._step = results, ""
        self._costs: dict[str, float] = {}
        self._progress: Any = None
        self._task: Any = None
        self._last = 0.0

    def __enter__(self) -> Self:
        return self

    def __call__(self, step: str, now: Standing) -> None:
        """Tell how far a step is."""
        if step != self._step:
            self._begin(step, now)
        if not self._costs:
            return
        total = sum(self._costs.values())
        done = sum(cost * (1.0 if key in now.done or key in now.failed else now.under_way.get(key, 0.0)) for key, cost in self._costs.items())
        left = now.seconds * (total - done) / done if done else None
        text = f"{step}: {len(now.done)} of {len(now.runs)} runs" + (f", {now.found} found" if now.found else "")
        if self._progress is not None:
            self._progress.update(self._task, completed=done / total, description=text, left=time_words(left))
        elif time.monotonic() - self._last > EVERY:
            self._last = time.monotonic()
            console(stderr=True).print(f"{text}, {time_words(left)} left")

    def _begin(self, step: str, now: Standing) -> None:
        self._close()
        self._step, self._last = step, time.monotonic()
        records = list(self._results.read().values()) if now.runs else []
        self._costs = {run.key: max(run.seconds(records), 0.1) for run in now.runs}
        if now.runs and sys.stderr.isatty():
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

            columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TextColumn("{task.fields[left]} left"))
            self._progress = Progress(*columns, console=console(stderr=True))
            self._progress.start()
            self._task = self._progress.add_task(step, total=1.0, left="?")

    def _close(self) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._close()


def show_plan(name: str, study: Study) -> None:
    """Print what an experiment would do: runs, hours, memory, disk."""
    out = console()
    table = Table(box=None, padding=(0, 3, 0, 0))
    for heading in ("step", "data set", "runs", "finished", "hours of a core"):
        table.add_column(heading, justify="left" if heading in ("step", "data set") else "right")
    records = list(study.results.read().values())
    seconds, memory, disk, planned = 0.0, [0], 0, set[str]()
    for step in steps_of(name):
        for one in study.data:
            runs = [run for run in study.runs(step) if run.data == one and run.key not in planned]
            planned |= {run.key for run in runs}
            todo = missing(runs, study.results)
            costs = [estimate(run, records, study.results.keeps_model(run.config, run.seed)) for run in todo]
            hours = sum(cost.seconds for cost in costs) / 3600
            seconds, disk = seconds + 3600 * hours, disk + sum(cost.disk for cost in costs)
            memory += [cost.memory for cost in costs]
            table.add_row(step, one.name, str(len(runs)), str(len(runs) - len(todo)), f"{hours:.2f}")
    out.print(table)
    workers = study.workers or cores()
    room = f"{workers * max(memory) / (1 << 30):.1f} GiB of memory, {disk / (1 << 20):.0f} MiB of disk in '{study.results.folder}'"
    out.print(f"about {seconds / 3600 / workers:.1f} hours on {workers} core{'s' * (workers != 1)}, {room}")
    if {"complete", "methods"} & set(steps_of(name)) and name != "methods":
        out.print("the networks of the later steps depend on the widths that the first one chooses; their number does not")


def show_results(name: str, study: Study, written: list[Path]) -> None:
    """Print the main figures and where the report lies."""
    out = console()
    k = study.settings.last_k
    if name == "datasets":
        out.print("\n".join(f"{one.name}: {one.users:,} users, {one.items:,} items, {one.events:,} events" for one in study.data))
    for one in study.data if name != "datasets" else ():
        frame = study.frame(one)
        wanted = study.titles(name, one)
        rows = {(row["method"], row["metric"], row["k"]): row for row in summary(frame).iter_rows(named=True)}
        table = Table(title=f"{one.name}, {study.settings.main_selection}, %", title_justify="left", title_style="bold", box=None, padding=(0, 3, 0, 0))
        table.add_column("method")
        columns = (("recall", k), ("map", k), ("ndcg", k), ("auc", None))
        for metric, at in columns:
            table.add_column(f"{metric}@{at}" if at else metric, justify="right")
        table.add_column("runs", justify="right")
        for method in wanted:
            if (method, "auc", None) in rows:
                cells = [rows[method, *column] for column in columns]
                table.add_row(
                    method, *(f"{100 * c['mean']:.3f}" + (f" ± {100 * c['sd']:.3f}" if c["sd"] is not None else "") for c in cells), str(cells[-1]["runs"])
                )
        out.print(table)
    out.print(f"report: {written[0]} and {written[1]}")


def time_words(seconds: float | None) -> str:
    """Write a span of time as people say it."""
    if seconds is None:
        return "?"
    minutes = int(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 60 else f"{minutes} min" if minutes else f"{int(seconds)} s"
