"""Contest or ablation from beginning to end: its trials, what they have found, the report."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from hcarec.errors import ConfigError, HcarecError, nearest
from hcarec.experiments.data_sets import noted_statistics, statistics_of
from hcarec.experiments.grid import Standing, go, missing
from hcarec.experiments.results import Results
from hcarec.experiments.run import DataSet
from hcarec.experiments.trials import ablation, contest
from hcarec.experiments.trials.settings import TrialSettings
from hcarec.experiments.trials.trial import Trial
from hcarec.hardware import cores

NAMES: dict[str, Any] = {"contest": contest.trials, "ablation": ablation.trials}
"""The experiments of trials, and what makes their trials."""
FOLDER = "contest"
"""Where the records of both lie in a folder of results: they share the whole network's."""
LEAST_EVENTS = 3
"""Events of a user that leave-one-out with a validation event asks for."""
ON_A_CARD = 8
"""Trials that share a GPU, unless told otherwise."""


@dataclass
class TrialStudy:
    """Trials on some logs; `told` hears of every step of the grid."""

    name: str
    data: Sequence[DataSet]
    results: Results
    settings: TrialSettings
    workers: int | None = None
    minutes: float | None = None
    told: Callable[[str, Standing], None] | None = None

    @cached_property
    def logs(self) -> dict[str, Any]:
        """The statistics of each log by its name."""
        return statistics_of(self.data, self.results)

    @cached_property
    def all_trials(self) -> list[Trial]:
        """All trials of the experiment, whichever methods are asked for."""
        settled = replace(self.settings, device="cuda" if self.on_card else "cpu")
        made: list[Trial] = NAMES[self.name](self.data, self.logs, settled)
        threads = max(1, cores() // self.at_once)
        return [replace(trial, threads=threads) for trial in made]

    @property
    def trials(self) -> list[Trial]:
        """The trials that are asked for."""
        asked = self.settings.methods
        known = list(dict.fromkeys(trial.method for trial in self.all_trials))
        for method in asked:
            if method not in known:
                listed = "; ".join(known)
                raise ConfigError(
                    f"method '{method}' is not known: give one of {listed}{nearest(method, known)}"
                )
        return [trial for trial in self.all_trials if not asked or trial.method in asked]

    @property
    def at_once(self) -> int:
        """Return how many trials run at the same time."""
        usual = min(ON_A_CARD, cores()) if self.on_card else cores()
        return self.workers or usual

    @cached_property
    def on_card(self) -> bool:
        """Whether mini-batches are computed on a GPU."""
        if self.settings.device != "auto":
            return self.settings.device == "cuda"  # a plan may be of another machine
        return self._card_is_here("auto")

    def _card_is_here(self, asked: str) -> bool:
        """Whether there is a GPU; where it was asked for by name and is missing, an error."""
        try:
            from hcarec import devices

            return devices.choose(asked) == "cuda"
        except ImportError:
            return False  # that torch is missing is the trainer's to say

    def run(self) -> Standing:
        """Do what is missing, or as much of it as the minutes allow."""
        told = self.told or (lambda step, standing: None)
        trials = self.trials
        if any(trial.on_card for trial in missing(trials, self.results)):
            self._card_is_here("cuda")
        with contextlib.ExitStack() as stack:
            if self.on_card and self.at_once > 1 and missing(trials, self.results):
                from hcarec import sharing

                stack.enter_context(sharing.card())
            standing = go(
                trials,
                self.results,
                workers=self.at_once,
                told=lambda now: told(self.name, now),
                minutes=self.minutes,
            )
        if standing.failed:
            first, more = next(iter(standing.failed.values())), len(standing.failed) - 1
            others = f" (and {more} more)" if more else ""
            raise HcarecError(f"{first}{others}; the other runs are finished and kept")
        return standing

    def records(self) -> list[dict[str, Any]]:
        """Return what is finished of all trials, in their order."""
        return finished(self.all_trials, self.results)

    def unclaimed(self) -> int:
        """Return how many records there are of no trial that has these settings."""
        studies = [replace(self, name=name) for name in NAMES]
        claimed = {trial.key for study in studies for trial in study.all_trials}
        return len(self.results.read().keys() - claimed)


def finished(trials: Sequence[Trial], results: Results) -> list[dict[str, Any]]:
    """Return the records of those trials that are finished, under the names that they have now."""
    known = results.read()
    records = []
    for trial in trials:
        if (record := known.get(trial.key)) is not None:
            data = {**record["data"], "name": trial.data.name}
            records.append({**record, "data": data, "method": trial.method})
    return records


def tidy(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row per trial, rule and metric; `trained` is the rule of training and selection."""
    return [
        {
            "data": record["data"]["name"], "method": record["method"], "seed": record["seed"],
            "trained": record["rule"], "rule": rule, "metric": metric, "value": value,
            "epoch": record["epoch"], "key": record["key"],
        }
        for record in records
        for rule, figures in record["figures"].items()
        for metric, value in figures.items()
    ]  # fmt: skip


def noted_data(results: Results) -> list[DataSet]:
    """Return the logs that records were made from, for a report: nothing of them is there."""
    return [
        DataSet(name, Path(), log["fingerprint"], log["users"], log["items"], log["events"])
        for name, log in noted_statistics(results).items()
    ]


def trial_results(out: Path, first_seed: int = 0, work: Path | None = None) -> Results:
    """Return where the records of trials lie in a folder of results."""
    return Results(out / FOLDER, first_seed, work)
