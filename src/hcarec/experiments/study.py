"""An experiment from beginning to end: which runs it needs, the widths they choose, and what it returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hcarec.errors import ConfigError, HcarecError, nearest
from hcarec.experiments import grids, published
from hcarec.experiments.attention_weights import FIELDS, measure_attention, tidy_weights
from hcarec.experiments.data_sets import frame as statistics_frame
from hcarec.experiments.data_sets import noted_statistics
from hcarec.experiments.frames import figures
from hcarec.experiments.grid import Standing, go
from hcarec.experiments.grids import Widths, runs_of
from hcarec.experiments.results import ATTENTION, Results, read_json
from hcarec.experiments.run import DataSet, Run
from hcarec.experiments.settings import NAMES, TEST, VALIDATION, Settings
from hcarec.experiments.significance import paired_tests

if TYPE_CHECKING:
    import polars as pl

Told = Callable[[str, Standing], None]


class Stopped(HcarecError):
    """Ctrl-C: what is finished is kept, the rest has its checkpoints."""


@dataclass
class Study:
    """Experiments on some data sets with some settings, kept in a folder of results. `told` hears of every step of a grid."""

    data: Sequence[DataSet]
    results: Results
    settings: Settings
    workers: int | None = None
    told: Told | None = None
    user: str | None = None

    def run(self, name: str) -> None:
        """Do one experiment, with whatever it builds upon."""
        if name not in NAMES:
            raise ConfigError(f"experiment '{name}' is not known: give one of {', '.join(NAMES)}{nearest(name, NAMES)}")
        for step in _STEPS[name]:
            runs = self.runs(step)
            self._grid(step, runs)
            for run in runs if step == "attention" else ():
                measure_attention(run, self.results, self.user)
        self._tests()

    def runs(self, step: str) -> list[Run]:
        """Return the runs of a step; those of `complete` and `methods` depend on what `widths` and `complete` have shown."""
        main = self.settings.main_selection
        if step == "attention":
            return [Run(one, self.settings.config("hca-gru", *self.widths(one).both), self.settings.first_seed, main, self.settings.ks) for one in self.data]
        if step == "widths":
            return runs_of(self.data, [self.settings.config("gru"), *grids.single_levels(self.settings)], self.settings, main)
        by_data = []
        for one in self.data:
            chosen = self.widths(one)
            if step == "complete":
                by_data += runs_of([one], grids.complete_networks(self.settings, chosen.x, chosen.h), self.settings, main)
            else:
                configs = grids.methods(self.settings, chosen)
                by_data += [run for selection in self.settings.selections for run in runs_of([one], configs, self.settings, selection)]
        return sorted(by_data, key=lambda run: run.seed)

    def widths(self, one: DataSet) -> Widths:
        """Choose widths for a data set: as asked, else the best measured, else the paper's (those of Taobao for data that it has not)."""
        frame = self.frame(one)
        singles = [config.title for config in grids.single_levels(self.settings)]
        half, known = len(self.settings.widths), set(frame["method"])
        x, h, both = published.BEST_WIDTHS.get(one.name, published.BEST_WIDTHS["taobao"])
        measured = known.issuperset(singles)
        if measured:
            x = _width(grids.best(frame, singles[:half]), "x")
            h = _width(grids.best(frame, singles[half:]), "h")
        x, h = self.settings.window_x or x, self.settings.window_h or h
        complete = [config.title for config in grids.complete_networks(self.settings, x, h)]
        if measured and known.issuperset(complete):
            name = grids.best(frame, complete)
            both = _width(name, "x"), _width(name, "h")
        return Widths(x, h, self.settings.window_both or both, measured)

    def frame(self, one: DataSet, selection: str | None = None) -> pl.DataFrame:
        """Return the figures of all finished runs on a data set under these settings, whatever their seeds."""
        return figures(self.records(one, selection))

    def tidy(self, name: str) -> pl.DataFrame:
        """Return what an experiment has found: a row per data set, per weight, or per run and metric."""
        import polars as pl

        if name == "datasets":
            noted = noted_statistics(self.results)
            return statistics_frame({one.name: noted[one.name] for one in self.data})
        if name == "attention":
            found = (read_json(self.results.folder / ATTENTION / f"{one.name}.json", *FIELDS) for one in self.data)
            return pl.DataFrame([row for record in found for row in tidy_weights(record)])
        selections = self.settings.selections if name in ("methods", "all") else (self.settings.main_selection,)
        frames = []
        for one in self.data:
            wanted = pl.lit(True) if name == "all" else pl.col("method").is_in(self.titles(name, one))
            frames += [self.frame(one, selection).filter(wanted) for selection in selections]
        return pl.concat(frames)

    def titles(self, name: str, one: DataSet) -> list[str]:
        """Return the methods that the table of an experiment compares on a data set."""
        chosen, gru = self.widths(one), self.settings.config("gru")
        listed = {
            "widths": [gru, *grids.single_levels(self.settings)],
            "complete": [gru, *grids.complete_networks(self.settings, chosen.x, chosen.h)],
            "attention": [self.settings.config("hca-gru", *chosen.both)],
        }.get(name, grids.methods(self.settings, chosen))
        return [config.title for config in listed]

    def records(self, one: DataSet, selection: str | None = None) -> list[dict[str, Any]]:
        """Return these runs whole."""
        selection = selection or self.settings.main_selection
        found = self.results.read().values()
        ours = [r for r in found if r["data"]["fingerprint"] == one.fingerprint and r["selection"] == selection and self.settings.matches(r)]
        return [{**record, "data": {**record["data"], "name": one.name}} for record in ours]  # the log may have had another name then

    def _grid(self, step: str, runs: list[Run]) -> None:
        told = self.told or (lambda step, standing: None)
        standing = go(runs, self.results, workers=self.workers, told=lambda standing: told(step, standing))
        if standing.stopped:
            raise Stopped(f"stopped: {len(standing.done)} of {len(standing.runs)} runs were finished; the same command goes on from here")
        if standing.failed:
            more = f" (and {len(standing.failed) - 1} more)" if len(standing.failed) > 1 else ""
            raise HcarecError(f"{next(iter(standing.failed.values()))}{more}; the other runs are finished and kept")

    def _tests(self) -> None:
        """Test the networks of Table 2 wherever they have been run; the outcome is kept for the report."""
        for one in self.data:
            methods = [config.title for config in grids.methods(self.settings, self.widths(one))[4:]]
            for selection in (TEST, VALIDATION):
                if found := self.records(one, selection):
                    paired_tests(self.results, found, methods, self.settings.ks, one.path)


_STEPS: dict[str, tuple[str, ...]] = {
    "datasets": (),
    "methods": ("methods",),
    "widths": ("widths",),
    "complete": ("widths", "complete"),
    "attention": ("attention",),
    "all": ("widths", "complete", "methods", "attention"),
}


def steps_of(name: str) -> tuple[str, ...]:
    """Return the steps of an experiment, in order."""
    return _STEPS[name]


def _width(name: str | None, level: str) -> int:
    assert name is not None, "the networks that are chosen from have been run"
    return next(int(part[1:]) for part in name.split("-") if part.startswith(level))
