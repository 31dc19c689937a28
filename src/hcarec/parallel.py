"""Several runs at once, one process each: training takes one core, so runs take them all."""

from __future__ import annotations

import multiprocessing
import os
import queue
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any, NamedTuple

from hcarec.processes import safe_import_path
from hcarec.sequences import Sequences
from hcarec.training import Callback, train


class _Reporter(Callback):
    """Send how far a run is to the process that began it."""

    def __init__(self, job: int, messages: Any) -> None:
        self._job, self._epochs, self._messages = job, 0, messages

    def planned(self, planned: Any, config: Any, resumed_at: int | None) -> None:
        self._epochs = config.epochs

    def epoch(self, record: dict[str, Any], best: bool) -> None:
        self._messages.put(("epoch", self._job, record["epoch"], self._epochs))

    def note(self, text: str) -> None:
        self._messages.put(("note", self._job, text))


class Watcher(NamedTuple):
    """What hears of several runs: of (job, epoch, epochs), and of (job, a line to print)."""

    epoch: Callable[[int, int, int], None]
    note: Callable[[int, str], None]


class Job(NamedTuple):
    """One run: where its model goes, and what `train` is given (model, seed, windows, ..)."""

    out: Path
    options: dict[str, Any]


def train_several(data: Path, jobs: Sequence[Job], watcher: Watcher | None = None) -> list[dict[str, Any]]:
    """Train many models at once; return what became of each, in the order of the jobs."""
    watcher = watcher or Watcher(lambda job, epoch, epochs: None, lambda job, text: None)
    context = multiprocessing.get_context("spawn")
    with safe_import_path(), context.Manager() as manager, ProcessPoolExecutor(min(len(jobs), cores()), mp_context=context) as pool:
        messages = manager.Queue()
        running = [pool.submit(_one, data, job, number, messages) for number, job in enumerate(jobs)]
        _listen(running, messages, watcher)
        return [future.result() for future in running]


def cores() -> int:
    """Return the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _one(data: Path, job: Job, number: int, messages: Any) -> dict[str, Any]:
    options = {**job.options, "threads": job.options.get("threads") or 1}
    model = train(Sequences.open(data), job.out, callback=_Reporter(number, messages), **options)
    return {"model": model.config.title, **model.about}


def _listen(running: list[Future[dict[str, Any]]], messages: Any, watcher: Watcher) -> None:
    while True:
        done = wait(running, timeout=0).not_done
        try:
            while True:
                event, *what = messages.get(timeout=0.2 if done else 0.01)
                getattr(watcher, event)(*what)
        except queue.Empty:
            if not done:
                return
