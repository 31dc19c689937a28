"""The report: everything in a folder of results, as Markdown, as one HTML page and as figures."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from hcarec.experiments import claims, figures, grids, published, tables
from hcarec.experiments.attention_weights import FIELDS
from hcarec.experiments.data_sets import noted_statistics
from hcarec.experiments.document import Block, Bullets, Cell, Document, Figure, Paragraph, Section, Table, Verdict, Verdicts
from hcarec.experiments.frames import curves
from hcarec.experiments.frames import figures as tidy
from hcarec.experiments.pages import FIGURES, facts, write_document
from hcarec.experiments.results import ATTENTION, Results, read_json
from hcarec.experiments.run import DataSet
from hcarec.experiments.settings import TEST, VALIDATION, Settings
from hcarec.experiments.significance import paired_tests
from hcarec.experiments.study import Study
from hcarec.models import HCAGRU, MODELS

SELECTIONS = {
    TEST: "Each metric at its best epoch on the test part, as in the paper: optimistic, for comparison with its tables.",
    VALIDATION: "The epoch is chosen on a validation part: what one would get in use, but for widths, where `widths` chose them by test figures.",
}


def write_report(results: Results, settings: Settings) -> list[Path]:
    """Make report.md, report.html and the figures of all runs in a folder; return what was written."""
    made = Report(results, settings)
    document = made.document()
    written = write_document(results.folder, "report", document)
    return [*written, *(results.folder / FIGURES / f"{name}.png" for name in made.drawn)]


class Report:
    """Collects what a folder of results holds and turns it into a document."""

    def __init__(self, results: Results, settings: Settings) -> None:
        self.results, self.settings = results, settings
        self.noted = noted_statistics(results)
        self.data = [DataSet(name, Path(), one["fingerprint"], one["users"], one["items"], one["events"]) for name, one in self.noted.items()]
        self.study = Study(self.data, results, settings)
        self.all_records = list(results.read().values())
        self.drawn: list[str] = []
        main = settings.main_selection
        self.records = {one.name: self.study.records(one, main) for one in self.data}
        self.frames = {name: tidy(found) for name, found in self.records.items() if found}
        self.chosen = {one.name: self._trio(one) for one in self.data}
        self.tests = {one.name: self._tests(one, main) for one in self.data}

    def document(self) -> Document:
        """Put the report together; what has not been run is left out."""
        sections = [self._verdicts(), self._data(), self._methods(), self._widths(), self._complete(), self._attention(), self._learning(), self._why()]
        hours = sum(record["seconds_here"] for record in self.all_records) / 3600
        lead = (
            f"The experiments of the HCA-GRU paper on {len(self.data)} data sets: {len(self.all_records)} runs of training, {hours:.1f} hours of one core. "
            f"d = {self.settings.d}, learning rate {self.settings.learning_rate:g}, lambda {self.settings.l2:g}, {self.settings.epochs} epochs, each evaluated "
            "over the whole catalogue. Figures are percent: mean ± standard deviation over runs that differ in the seed."
        )
        return Document(
            "The paper's experiments",
            lead,
            [one for one in sections if one is not None and one.blocks],
            facts(self.all_records, "of one core by the clock on the wall (of interrupted runs the last attempt)"),
        )

    # -- sections ------------------------------------------------------------------------------------------------

    def _verdicts(self) -> Section | None:
        rows: list[Verdict] = []
        for one in self.data:
            if one.name in self.frames and {"GRU", *self.chosen[one.name]} <= set(self.frames[one.name]["method"]):
                rows += claims.verdicts(one.name, self.chosen[one.name], self.tests[one.name], self._weights(one.name), self.settings.ks)
        if not rows:
            return None
        seeds = "; ".join(f"{name} {len(found['runs']['GRU'])}" for name, found in self.tests.items() if found is not None) or "none"
        epoch = "each metric at its own best epoch, as in the tables" if self.settings.main_selection == TEST else "at the epoch chosen on the validation part"
        note = (
            "Each network is compared with GRU user by user (sign-flip test on the mean over seeds, corrected after Holm over all questions about a data set), "
            f"{epoch}. Seeds tested: {seeds}. The intervals and p-values are about users; how far seeds alone move a figure stands under Learning and seeds."
        )
        return Section("The paper's claims", [Verdicts(rows), Paragraph(note)])

    def _data(self) -> Section:
        return Section("Data sets (Table 3)", [tables.data_table(self.noted)])

    def _methods(self) -> Section | None:
        blocks: list[Block] = []
        compared = {name: frame.filter(pl.col("method").is_in(["GRU", *self.chosen[name]])) for name, frame in self.frames.items()}
        if any("GRU" in frame["method"] and frame["method"].n_unique() > 1 for frame in compared.values()):
            blocks.append(self._draw("gains", "Gain over GRU", lambda path: figures.gains(pl.concat(compared.values()), path)))
        for one in self.data:
            names = [config.title for config in grids.baselines(self.settings)] + list(self.chosen[one.name])
            for selection in (TEST, VALIDATION):
                found = tidy(self.study.records(one, selection))
                if not found.is_empty() and "GRU" in found["method"]:
                    title = f"{one.name}, {selection}"
                    blocks.append(tables.figures_table(title, found, names, self.settings.ks, one.name, SELECTIONS[selection]))
                    blocks.append(
                        tables.gains_table(f"{title}: gain over GRU", found, names[4:], self.settings.ks, "Small: least to most over pairs of equal seed.")
                    )
        return Section("Methods (Table 2)", blocks) if blocks else None

    def _widths(self) -> Section | None:
        names = [config.title for config in grids.single_levels(self.settings)]
        shown = {name: frame for name, frame in self.frames.items() if set(names) <= set(frame["method"])}
        if not shown:
            return None
        blocks: list[Block] = [self._draw("widths", "Widths of either level alone", lambda path: figures.widths(shown, path))]
        for name, frame in shown.items():
            chosen = self.study.widths(next(one for one in self.data if one.name == name))
            note = f"Chosen by MAP and NDCG: x{chosen.x} and h{chosen.h}."
            blocks.append(tables.figures_table(name, frame, ["GRU", *names], self.settings.ks, name, note))
        return Section("Widths of either level (Figure 2)", blocks)

    def _complete(self) -> Section | None:
        blocks: list[Block] = []
        for one in self.data:
            if one.name not in self.frames:
                continue
            chosen = self.study.widths(one)
            names = [config.title for config in grids.complete_networks(self.settings, chosen.x, chosen.h)]
            if chosen.measured and set(names) <= set(self.frames[one.name]["method"]):
                note = f"x{chosen.x} and h{chosen.h} fixed in turn; best by MAP and NDCG: {self.chosen[one.name][2]}."
                blocks.append(tables.figures_table(one.name, self.frames[one.name], names, self.settings.ks, one.name, note))
        return Section("Complete networks (Table 4)", blocks) if blocks else None

    def _attention(self) -> Section | None:
        blocks: list[Block] = []
        weights: list[dict[str, Any]] = []
        for one in self.data:
            found = self._weights(one.name)
            if found is not None:
                weights += [{"data": one.name, "method": found["method"], "level": level, **found[level]} for level in ("hidden", "input") if found[level]]
                blocks.append(self._draw(f"attention-{one.name}", f"{one.name}: one user's last steps", partial(_draw_weights, found)))
                blocks.append(_behaviour_table(one.name, found))
        if weights:
            frame = pl.DataFrame(weights).select("data", "method", "level", "width", "rising", "falling")
            blocks.insert(0, self._draw("monotony", "Are weights monotonic in time?", lambda path: figures.monotony(frame, path)))
        return Section("Attention weights (Table 5)", blocks) if blocks else None

    def _learning(self) -> Section | None:
        blocks: list[Block] = []
        trained = {name: [config.title for config in grids.baselines(self.settings)[2:]] + list(self.chosen[name]) for name in self.frames}
        records = [record for name, found in self.records.items() for record in found if record["method"] in trained.get(name, ())]
        if records and any(record["curves"] for record in records):
            blocks.append(self._draw("losses", "Loss and NDCG by epoch", lambda path: figures.losses(curves(records), path, self.settings.last_k)))
        for name, frame in self.frames.items():
            blocks.append(tables.epochs_table(f"{name}: spread over seeds and best epochs", frame, trained[name], self.settings.last_k))
        if blocks:
            blocks.append(tables.collapses_table(self.records))
        low, high = published.GRU_RECALL_5_SPREAD
        share = f"a range of {2 * (high - low) / (high + low):.0%} of its middle"
        note = f"For comparison: over the authors' four runs GRU's Recall@5 on Outbrain lay between {low} and {high}, {share}."
        return Section("Learning and seeds", [*blocks, Paragraph(note)]) if blocks else None

    def _why(self) -> Section | None:
        blocks: list[Block] = []
        rows = [row for one in self.data for row in self._variations(one)]
        k = self.settings.last_k
        if rows:
            columns = ["data set", "setting", f"GRU, NDCG@{k}", "network", f"its NDCG@{k}", "gain", "runs"]
            note = "The same comparison with one setting changed: more capacity (d), another learning rate, another lambda, more epochs."
            blocks.append(Table("Other settings", columns, rows, note))
        lengths = [row for one in self.data for row in _length_rows(one.name, self.tests[one.name], self.chosen[one.name][2])]
        if lengths:
            columns = ["data set", "events in the history", "users", f"GRU, NDCG@{k}", f"HCA-GRU, NDCG@{k}", "gain", "95% interval"]
            note = "Windows reach back a few events only: were it for want of events to fill them, short histories would gain least."
            blocks.append(Table("Gain by length of the history", columns, lengths, note))
        notes = self.results.folder / "findings.md"
        if notes.exists():
            points = [line.removeprefix("- ").strip() for line in notes.read_text(encoding="utf-8").splitlines() if line.startswith("- ")]
            blocks.insert(0, Bullets(points))
        return Section("Where the gain comes from, and where it does not", blocks) if blocks else None

    # -- parts ---------------------------------------------------------------------------------------------------

    def _trio(self, one: DataSet) -> tuple[str, str, str]:
        chosen = self.study.widths(one)
        x, h, both = (config.title for config in grids.methods(self.settings, chosen)[4:])
        return x, h, both

    def _tests(self, one: DataSet, selection: str) -> dict[str, Any] | None:
        return paired_tests(self.results, self.study.records(one, selection), self.chosen[one.name], self.settings.ks)

    def _weights(self, name: str) -> dict[str, Any] | None:
        """Return the attention weights on a data set, unless they are of other data or other settings."""
        path = self.results.folder / ATTENTION / f"{name}.json"
        found = read_json(path, *FIELDS) if path.exists() else None
        return found if found and found["run"] in {record["key"] for record in self.records[name]} else None

    def _variations(self, one: DataSet) -> list[list[Cell]]:
        """Compare GRU and the best-known network under every other setting that has been run on a data set."""
        names = ("d", "learning_rate", "l2", "epochs")
        groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for record in self.all_records:
            here = record["data"]["fingerprint"] == one.fingerprint and record["selection"] == self.settings.main_selection
            if here and issubclass(MODELS[record["config"]["model"]], HCAGRU) and self.settings.same_ks(record):
                groups.setdefault(tuple(record["config"][name] for name in names), []).append(record)
        if len(groups) < 2:
            return []
        rows = []
        usual = tuple(getattr(self.settings, name) for name in names)
        ours = "the paper's" if usual == tuple(getattr(Settings, name) for name in names) else "as above"
        for setting in sorted(groups, key=lambda values: (values != usual, values)):
            changed = [f"{name} {value:g}" for name, value, own in zip(names, setting, usual, strict=True) if value != own]
            values: dict[str, list[float]] = {}
            for record in groups[setting]:
                values.setdefault(record["method"], []).append(record["best"][f"ndcg@{self.settings.last_k}"]["value"])
            gru = values.pop("GRU", None)
            wanted = (
                self.chosen[one.name][2] if self.chosen[one.name][2] in values else max(values, key=lambda m: sum(values[m]) / len(values[m]), default=None)
            )
            if gru is None or wanted is None:
                continue
            base, figure = sum(gru) / len(gru), sum(values[wanted]) / len(values[wanted])
            cells = [", ".join(changed) or ours, f"{100 * base:.2f}", wanted, f"{100 * figure:.2f}", f"{figure / base - 1:+.1%}" if base else "-"]
            rows.append([Cell(one.name), *map(Cell, cells), Cell(f"{len(gru)}, {len(values[wanted])}")])
        return rows

    def _draw(self, name: str, title: str, draw: Callable[[Path], object]) -> Figure:
        """Draw a figure."""
        draw(self.results.folder / FIGURES / f"{name}.png")
        self.drawn.append(name)
        return Figure(title, name, *_CAPTIONS[name.partition("-")[0]])


_CAPTIONS = {
    "gains": ("Each small dot is a run against GRU of its seed, the large marker their mean.", "Dot plot of the gains over GRU by data set and metric."),
    "widths": (
        "Markers are means over runs, bars reach from the least to the most; grey is GRU.",
        "Recall, MAP and NDCG against k, and AUC, for every width of the input level and of the hidden level alone.",
    ),
    "losses": ("Mean over runs, the band from the least to the most; markers are best epochs.", "Training loss and NDCG against the epoch for every method."),
    "attention": (
        "Weights over the last hidden states, and for each of these steps over its last inputs, oldest to newest.",
        "Heat map of attention weights over the last items of one user.",
    ),
    "monotony": ("Windows whose weights only fall or only rise with time; the black lines are what chance gives.", "Stacked bars of the shares of windows."),
}


def _draw_weights(found: dict[str, Any], path: Path) -> None:
    title = f"{found['method']}, seed {found['seed']}, user {found['user']}"
    figures.attention(found["a_x"], found["a_h"], [one["title"] or str(one["item"]) for one in found["items"]], path, title)


def _behaviour_table(name: str, found: dict[str, Any]) -> Table:
    columns = [
        "level",
        "mean weights, oldest to newest",
        "only rise, %",
        "only fall, %",
        "either by chance, %",
        "newest highest, %",
        "highest / lowest, median",
    ]
    rows = []
    for level, words in (("hidden", "hidden states, last step"), ("input", "inputs, last step")):
        one = found.get(level)
        if one is not None:
            shares = (f"{100 * one['rising']:.1f}", f"{100 * one['falling']:.1f}", f"{200 * one['chance']:.1f}", f"{100 * one['newest_highest']:.1f}")
            rows.append([Cell(words), Cell(" ".join(f"{value:.3f}" for value in one["mean"])), *map(Cell, shares), Cell(f"{one['median_ratio']:.2f}")])
    return Table(f"{name}: weights over {found['users']:,} users", columns, rows)


def _length_rows(name: str, tests: dict[str, Any] | None, method: str) -> list[list[Cell]]:
    rows = []
    for part in (tests or {}).get("by_length") or []:
        base = part["base"]
        cells = [f"{part['from']} to {part['to']}", f"{part['users']:,}", f"{100 * base:.2f}", f"{100 * part['value']:.2f}"]
        gain = [f"{part['difference'] / base:+.1%}", f"{part['low'] / base:+.1%} to {part['high'] / base:+.1%}"] if base else ["-", "-"]
        rows.append([Cell(name), *map(Cell, [*cells, *gain])])
    return rows
