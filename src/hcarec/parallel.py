"""Several runs at once, one process each: training takes one core, so runs take them all."""

from __future__ import annotations

import multiprocessing
import os
import queue
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any

from hcarec.sequences import Sequences
from hcarec.training import Watcher, train


class _Reporter(Watcher):
    """Send how far a run is to the process that began it."""

    def __init__(self, run: int, epochs: int, messages: Any) -> None:
        self._run, self._epochs, self._messages = run, epochs, messages

    def planned(self, planned: Any, config: Any, resumed_at: int | None) -> None:
        self._epochs = config.epochs

    def epoch(self, record: dict[str, Any], best: bool) -> None:
        self._messages.put((self._run, record["epoch"], self._epochs))


def train_several(data: Path, out: Path, seeds: list[int], options: dict[str, Any], told: Callable[[int, int, int], None]) -> list[dict[str, Any]]:
    """Train one model per seed into `out`/seed-N; return what became of each, in the order of the seeds."""
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager, ProcessPoolExecutor(min(len(seeds), cores()), mp_context=context) as pool:
        messages = manager.Queue()
        running = [pool.submit(_one, data, out / f"seed-{seed}", seed, options, run, messages) for run, seed in enumerate(seeds)]
        _listen(running, messages, told)
        return [future.result() for future in running]


def cores() -> int:
    """Return the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _one(data: Path, out: Path, seed: int, options: dict[str, Any], run: int, messages: Any) -> dict[str, Any]:
    model = train(Sequences.open(data), out, seed=seed, watch=_Reporter(run, 0, messages), **{**options, "threads": options.get("threads") or 1})
    return {"model": model.config.title, **model.about}


def _listen(running: list[Future[dict[str, Any]]], messages: Any, told: Callable[[int, int, int], None]) -> None:
    while True:
        done = wait(running, timeout=0).not_done
        try:
            while True:
                told(*messages.get(timeout=0.2 if done else 0.01))
        except queue.Empty:
            if not done:
                return
