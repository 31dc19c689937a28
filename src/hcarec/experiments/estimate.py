"""What a grid will take: hours, memory and disk, before anything is run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from hcarec.experiments.run import Run

RECORD = 20_000
"""Bytes of a run's record and of its share of the report, about."""


class Estimate(NamedTuple):
    """Seconds of one core for one run, bytes of memory while it runs, bytes on disk that stay."""

    seconds: float
    memory: int
    disk: int


def estimate(run: Run, records: Iterable[Mapping[str, Any]], keeps_model: bool) -> Estimate:
    """Estimate a run: from earlier runs of the same kind on the same data where there are any, else from the amount of arithmetic."""
    from hcarec.models import make
    from hcarec.training.resources import plan

    train, evaluated = _training_part(run.data.path)
    planned = plan(make(**run.config.as_dict()), train, run.data.items, evaluated)
    alike = [
        record["seconds_here"]
        for record in records
        if record["data"]["fingerprint"] == run.data.fingerprint
        and record["method"] == run.config.title
        and record["config"].get("epochs") == run.settings.get("epochs")
    ]
    seconds = sum(alike) / len(alike) if alike else 2 * planned.seconds + 3  # planned for all cores; a run has one, and takes a while to begin
    disk = RECORD + 40 * run.data.users + (4 * planned.parameters if keeps_model else 0)
    return Estimate(seconds, planned.memory, disk)


@cache
def _training_part(path: Path) -> tuple[Any, int]:
    from hcarec.data.split import split
    from hcarec.sequences import Sequences

    parts = split(Sequences.open(path), "ratio")
    return parts.history, int(parts.evaluated.sum())
