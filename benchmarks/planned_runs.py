"""Train one case in a process of its own; print what the plan said and what the run took as JSON.

Run by `benchmarks/train_minibatch.py`: python planned_runs.py DATA SETTINGS, where SETTINGS is a JSON object, DATA a
prepared folder or synthetic:USERS:ITEMS:LENGTH, and `users` in SETTINGS keeps so many users of a log, with its whole catalog.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import hcarec
from hcarec import Sequences, synthetic
from hcarec.training import speed
from hcarec.training.callbacks import Callback
from hcarec.training.resources import Plan

from machine import resident_mib

EPOCHS = 3


class Told(Callback):
    """Remembers the plan."""

    plan: Plan

    def planned(self, planned: Plan, config: Any, resumed_at: int | None) -> None:
        self.plan = planned


def open_data(name: str, users: int | None) -> Sequences:
    """Return a log, or its first users shuffled with a fixed seed."""
    if name.startswith("synthetic:"):
        n_users, n_items, length = map(int, name.split(":")[1:])
        return synthetic(users=n_users, items=n_items, mean_length=length)
    data = Sequences.open(name)
    if users is None or users >= data.n_users:
        return data
    chosen = np.sort(np.random.default_rng(0).permutation(data.n_users)[:users])
    lengths = data.lengths[chosen]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    places = np.repeat(np.asarray(data.offsets)[chosen] - offsets[:-1], lengths) + np.arange(offsets[-1])
    return replace(data, items=np.asarray(data.items)[places], offsets=offsets, user_ids=data.user_ids.take(chosen), times=None, time_unit=None, about={})


def run(data: Sequences, settings: dict[str, Any]) -> dict[str, Any]:
    """Train, and return what was planned and measured."""
    told = Told()
    with tempfile.TemporaryDirectory() as folder:
        model = hcarec.train(data, Path(folder) / "model", callback=told, compare=False, **settings)
        log = [json.loads(line) for line in (Path(folder) / "model" / "log.jsonl").read_text().splitlines()] if model.config.trains else []
    seconds = statistics.median(one["seconds"] for one in log[1:]) if log else model.about["training"]["seconds"]
    peak = resident_mib("VmHWM")
    plan, planned = told.plan, told.plan.epoch_seconds if log else told.plan.seconds
    return {
        "training_events": plan.events, "items": plan.items, "slowness": speed.slowness(),
        "planned_seconds": planned, "seconds": seconds, "time_ratio": planned / seconds,
        "seconds_of_epochs": [one["seconds"] for one in log],
        "planned_mib": plan.memory / 2**20, "mib": peak, "memory_ratio": plan.memory / 2**20 / peak if peak else None,
    }  # fmt: skip


def main() -> None:
    name, settings = sys.argv[1], json.loads(sys.argv[2])
    data = open_data(name, settings.pop("users", None))
    print(json.dumps(run(data, settings)))


if __name__ == "__main__":
    main()
