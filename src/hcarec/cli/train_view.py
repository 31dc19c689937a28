"""Show a run while it goes, and what came of it."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from hcarec.cli.console import console
from hcarec.extras import require
from hcarec.parallel import Watcher
from hcarec.training.callbacks import Callback

if TYPE_CHECKING:
    from hcarec.models import Config, Model
    from hcarec.training.resources import Plan
    from hcarec.training.trainer import Progress

ROWS = 12
"""Epochs shown at once: the best and the last ones."""
COLUMNS = ("recall@20", "map@20", "ndcg@20", "auc")


class LiveTable(Callback):
    """Draw a live table on a terminal, and nothing away from one; write TensorBoard events if asked."""

    def __init__(self, tensorboard: Path | None = None) -> None:
        self._writer = _tensorboard(tensorboard) if tensorboard else None
        self._shown = sys.stderr.isatty()
        self._live: Any = None
        self._rows: deque[tuple[dict[str, Any], bool]] = deque(maxlen=ROWS)
        self._best: dict[str, Any] | None = None
        self._plan: Plan | None = None
        self._title = ""
        self._began, self._first_epoch, self._drawn, self._state, self._doing = time.monotonic(), 0, 0.0, "", ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
        if self._writer is not None:
            self._writer.close()

    def planned(self, planned: Plan, config: Config, resumed_at: int | None) -> None:
        self._plan, self._title, self._first_epoch = planned, config.title, resumed_at or 0
        self._began = time.monotonic()
        if not self._shown:
            return
        shown = console(stderr=True)
        where = f", going on in epoch {resumed_at}" if resumed_at else ""
        shown.print(f"{config.title}: {planned.users:,} users, {planned.items:,} items, {planned.events:,} training events{where}", style="bold")
        size = f"{planned.memory / (1 << 30):.1f} GiB, {planned.parameters:,} parameters"
        if math.isnan(planned.seconds):
            shown.print(f"at most {planned.epochs:,} epochs; the time is told after the first, about {size}")
        else:
            each = f"{span(planned.epoch_seconds)} an epoch, at most {planned.epochs:,} epochs: " if planned.epochs else ""
            shown.print(f"about {each}{span(planned.seconds)} and {size}")
        for note in planned.notes:
            shown.print(note, markup=False)

    @contextlib.contextmanager
    def busy(self, what: str) -> Iterator[None]:
        self._state = self._doing = what
        self._draw(force=not what.startswith("epoch"))
        try:
            yield
        finally:
            self._state = self._doing = ""

    def chunk(self, now: Progress, events_per_second: float) -> None:
        doing = f"{self._doing}, " if self._doing else ""
        self._state = (
            f"{doing}epoch {now.epoch}: {now.position / now.size:4.0%}, {events_per_second:,.0f} events/s, loss {now.loss / max(now.targets, 1):.4f} a step"
        )
        self._draw()

    def epoch(self, record: dict[str, Any], best: bool) -> None:
        self._rows.append((record, best))
        if best:
            self._best = record
        if self._writer is not None:
            for name, value in record.items():
                if isinstance(value, (int, float)) and name != "epoch":
                    self._writer.add_scalar(name, value, record["epoch"])
        self._draw(force=True)

    def note(self, text: str) -> None:
        shown = console(stderr=True) if self._live is None else self._live.console
        shown.print(text, markup=False)

    def _draw(self, force: bool = False) -> None:
        if not self._shown or (not force and time.monotonic() - self._drawn < 0.2):
            return
        from rich.live import Live

        self._drawn = time.monotonic()
        if self._live is None:
            self._live = Live(console=console(stderr=True), refresh_per_second=5, transient=True)
            self._live.start()
        self._live.update(self._table(), refresh=force)

    def _table(self) -> Any:
        from rich.table import Table

        table = Table(title=self._title, caption=self._caption(), title_justify="left", caption_justify="left", box=None, padding=(0, 2, 0, 0))
        judged = [name for name in COLUMNS if any(name in record for record, _ in self._rows)]
        for heading in ("epoch", "loss", "events/s", *judged):
            table.add_column(heading, justify="right")
        rows = list(self._rows)
        if self._best is not None and all(record is not self._best for record, _ in rows):
            rows.insert(0, (self._best, True))
        for record, _ in rows:
            figures = [f"{100 * (record[name] or 0):.3f}%" if name in record else "" for name in judged]
            style = "bold" if record is self._best else None
            table.add_row(str(record["epoch"]), f"{record['loss']:,.0f}", f"{record['events_per_second']:,}", *figures, style=style)
        return table

    def _caption(self) -> str:
        done = len({record["epoch"] for record, _ in self._rows}) and self._rows[-1][0]["epoch"]
        after = self._doing and not self._doing.startswith("epoch")
        if not done or not self._plan or after:
            return self._state
        each = (time.monotonic() - self._began) / max(1, done - self._first_epoch)
        return f"{self._state or 'working'}; {span(each * (self._plan.epochs - done))} left of {self._plan.epochs} epochs"


def span(seconds: float) -> str:
    """Say a time in words."""
    if seconds < 90:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{round(seconds)} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def show(model: Model, out: Path) -> None:
    """Print what came of a run."""
    from rich.table import Table

    shown, about = console(), model.about
    chosen = about["selection"]
    how = {"validation": "chosen by validation", "best-epoch-on-test": "the best on the test part, as in the paper"}.get(
        chosen["kind"], "trained on everything"
    )
    epochs = f", epoch {chosen['epoch']} of {about['training']['epochs']} ({how})" if model.config.trains else ""
    shown.print(f"{model.config.title}{epochs}", style="bold")
    evaluated = about.get("evaluated", about)
    if evaluated is not about:
        shown.print("figures of the run before, which was evaluated:")
    if evaluated["metrics"]:
        table = Table(box=None, padding=(0, 3, 0, 0))
        for heading in ("%", "@5", "@10", "@15", "@20"):
            table.add_column(heading, justify="right")
        for name in ("recall", "map", "ndcg"):
            table.add_row(name, *(f"{100 * evaluated['metrics'][f'{name}@{k}']:.3f}" for k in (5, 10, 15, 20)))
        shown.print(table)
        auc = evaluated["metrics"].get("auc")
        shown.print(f"AUC {100 * auc:.3f}" if auc is not None else "AUC not known: no user has a negative item")
    shown.print(_times(model))
    if model.hide_seen:
        shown.print("it hides seen items, here and wherever it recommends")
    shown.print(f"written to {out}")
    if "yardsticks" in evaluated:
        from hcarec.training.yardsticks import words

        shown.print(words(model.config.title, evaluated["metrics"], evaluated["yardsticks"]), markup=False)


def _times(model: Model) -> str:
    """Return how long a run took by the clock, what of that went where, and how fast it learned."""
    done = model.about["training"]
    learned, epochs = done["training_seconds"], f"{done['epochs']} epochs in " if model.config.trains else ""
    parts = {
        "training": learned if model.config.trains else 0.0,
        "fusing": done.get("fusing_seconds", 0.0),
        "fine-tuning": done.get("fine_tuning_seconds", 0.0),
        "evaluation": done["evaluation_seconds"],
        "yardsticks": done["yardstick_seconds"],
    }
    listed = ", ".join(f"{span(seconds)} {what}" for what, seconds in parts.items() if seconds)
    speed = f"; {done['events'] * done['epochs'] / learned:,.0f} events/s in training" if learned else ""
    return f"{epochs}{span(done['seconds'])}{': ' if listed else ''}{listed}{speed}"


@contextlib.contextmanager
def watch_runs(runs: int) -> Iterator[Watcher]:
    """Show a bar per run while several go on at once, and once each line that one or more of them have to say."""
    shown, lines = console(stderr=True), set[str]()

    def note(run: int, text: str) -> None:
        if text not in lines:
            lines.add(text)
            shown.print(f"run {run + 1}: {text}", markup=False)

    if not sys.stderr.isatty():
        yield Watcher(lambda run, epoch, epochs: None, note)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("epochs"), TimeRemainingColumn())
    with Progress(*columns, console=shown, transient=True) as bars:
        tasks = [bars.add_task(f"run {run + 1}", total=None) for run in range(runs)]
        yield Watcher(lambda run, epoch, epochs: bars.update(tasks[run], completed=epoch, total=epochs), note)


def show_runs(outcomes: list[dict[str, Any]], out: Path) -> None:
    """Print the mean and spread over several runs."""
    from rich.table import Table

    shown = console()
    table = Table(box=None, padding=(0, 3, 0, 0))
    names = [name for name in ("recall@5", "recall@20", "map@20", "ndcg@20", "auc") if outcomes and name in outcomes[0]["metrics"]]
    for heading in ("seed", "epoch", *names):
        table.add_column(heading, justify="right")
    for outcome in outcomes:
        table.add_row(str(outcome["seed"]), str(outcome["selection"]["epoch"]), *(f"{100 * outcome['metrics'][name]:.3f}" for name in names))
    means = [sum(outcome["metrics"][name] for outcome in outcomes) / len(outcomes) for name in names]
    table.add_row("mean", "", *(f"{100 * mean:.3f}" for mean in means), style="bold")
    shown.print(f"{outcomes[0]['model']}, {len(outcomes)} runs", style="bold")
    shown.print(table)
    shown.print(f"written to {out}/seed-*")
    if outcomes and "yardsticks" in outcomes[0]:
        from hcarec.training.yardsticks import words

        metric = outcomes[0]["yardsticks"]["metric"]
        mean = sum(outcome["metrics"][metric] for outcome in outcomes) / len(outcomes)
        shown.print(words(outcomes[0]["model"], {metric: mean}, outcomes[0]["yardsticks"]), markup=False)


def _tensorboard(folder: Path) -> Any:
    """Return a writer of TensorBoard events."""
    require("torch", "--tensorboard", extra="torch")
    require("tensorboard", "--tensorboard")
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder))
