"""The ablation's report, from its records: docs pages ablation.md and ablation.html."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hcarec.experiments.document import Block, Bullets, Cell, Document, Figure, Paragraph, Section
from hcarec.experiments.document import Table as TableOf
from hcarec.experiments.pages import FIGURES, facts, write_document
from hcarec.experiments.trials import ablation, figures, tables
from hcarec.experiments.trials.ablation import CURVES, INGREDIENTS, WHOLE
from hcarec.experiments.trials.paired import correct, paired_test
from hcarec.experiments.trials.rules import RULES, deciding_rule
from hcarec.experiments.trials.study import TrialStudy
from hcarec.experiments.trials.trial import K

NDCG = f"ndcg@{K}"
Record = dict[str, Any]


def write_ablation(study: TrialStudy, folder: Path) -> list[Path]:
    """Write ablation.md, ablation.html and the figures; return what was written."""
    report = AblationReport(study)
    drawn = [folder / FIGURES / f"{name}.png" for name in ("ablation", "ablation-curves")]
    figures.ablation(report.tests, [ingredient.name for ingredient in INGREDIENTS], drawn[0])
    figures.curves(report.curves, drawn[1])
    return [*write_document(folder, "ablation", report.document()), *drawn]


class AblationReport:
    """Collects what the trials have found and turns it into a document."""

    def __init__(self, study: TrialStudy) -> None:
        self.study, self.records = study, study.records()
        # The whole network alone may have been run for the contest.
        taken_apart = {r["data"]["name"] for r in self.records if r["method"] != WHOLE}
        self.logs = {name: log for name, log in study.logs.items() if name in taken_apart}
        self.rule = {name: deciding_rule(log) for name, log in self.logs.items()}
        self.tests = {name: self._tests(name) for name in self.logs}
        self.curves = {curve.name: self._curve(curve) for curve in CURVES}

    def document(self) -> Document:
        """Put the report together."""
        rules = ", ".join(f"{name} {rule}" for name, rule in self.rule.items())
        lead = (
            f"{WHOLE} without one ingredient at a time: what each adds to NDCG@{K}. Leave-one-out"
            f" as in the contest, under the rule that decides on a log ({rules};"
            f" F: {RULES['F']}, U: {RULES['U']})."
        )
        clock = "by the clock on the wall, added up over runs that shared a machine"
        sections = [self._ingredients(), self._sizes()]
        kept = [section for section in sections if section.blocks]
        ours = [record for record in self.records if record["data"]["name"] in self.logs]
        return Document("The ablation", lead, kept, facts(ours, clock))

    # -- sections --------------------------------------------------------------------------------

    def _ingredients(self) -> Section:
        blocks: list[Block] = [Bullets(said)] if (said := self._words()) else []
        blocks.append(
            Figure(
                "What each ingredient adds",
                "ablation",
                "Difference in NDCG@10 with its 95% interval over users; open circles are not shown"
                " to differ from zero.",
                "Differences in NDCG@10 with intervals for every ingredient, a panel for each log.",
            )
        )
        columns = [
            "ingredient", "with it", "without", "it adds", "95% interval", "relative",
            "p after Holm", "verdict",
        ]  # fmt: skip
        for name, tests in self.tests.items():
            rows = [
                [Cell(ingredient.name), *tables.difference_cells(tests[ingredient.name])]
                for ingredient in INGREDIENTS
                if ingredient.name in tests
            ]
            if rows:
                title = f"{name}, {self.rule[name]}, NDCG@{K}"
                blocks.append(TableOf(title, columns, rows, self._note(name)))
        text = (
            "Paired by user on the mean over seeds: interval by bootstrap, p by sign flips,"
            " corrected after Holm over the ingredients of a log."
        )
        return Section(
            "Ingredients", [*blocks, Paragraph(text)] if any(self.tests.values()) else []
        )

    def _sizes(self) -> Section:
        blocks: list[Block] = [
            Figure(
                "Sizes", "ablation-curves", "One seed each.",
                "NDCG@10 against d, length and windows, a line for each log.",
            )
        ]  # fmt: skip
        for name, logs in self.curves.items():
            values = sorted({value for points in logs.values() for value in points})
            rows = []
            for log, points in logs.items():
                best = max(points.values(), default=None)
                row = [Cell(f"{log}, {self.rule[log]}")]
                for value in values:
                    point = points.get(value)
                    text = "-" if point is None else tables.fraction(point)
                    row.append(Cell(text, point is not None and point == best))
                rows.append(row)
            if values:
                columns = ["log", *(f"{name} {value}" for value in values)]
                blocks.append(TableOf(f"NDCG@{K} by {name}", columns, rows))
        return Section("Sizes, one seed", blocks if len(blocks) > 1 else [])

    # -- parts -----------------------------------------------------------------------------------

    def _tests(self, log: str) -> dict[str, Record]:
        """Test the whole network against those without an ingredient, corrected over these."""
        whole, tests = self._of(log, WHOLE), {}
        for ingredient in INGREDIENTS:
            others = self._of(log, ablation.without(ingredient))
            test = paired_test(self.study.results, whole, others, self.rule[log])
            if test is not None:
                tests[ingredient.name] = test
        return correct(tests) if tests else {}

    def _of(self, log: str, method: str) -> list[Record]:
        return [r for r in self.records if r["data"]["name"] == log and r["method"] == method]

    def _curve(self, curve: ablation.Curve) -> dict[str, dict[int, float]]:
        """Return NDCG@10 of the first seed by log and value."""
        first, settings = self.study.settings.first_seed, self.study.settings
        points: dict[str, dict[int, float]] = {}
        for name, log in self.logs.items():
            for value, (method, _) in ablation.sizes(curve, log, settings).items():
                for record in self._of(name, method):
                    if record["seed"] == first:
                        figure = record["figures"][self.rule[name]][NDCG]
                        points.setdefault(name, {})[value] = figure
        return points

    def _note(self, log: str) -> str:
        absent = ablation.left_out(self.logs[log], self.study.settings)
        if not absent:
            return ""
        return f"The settings of this log do not have: {', '.join(absent)}."

    def _words(self) -> list[str]:
        """Say by how much the two contextual levels earn their place."""
        said = []
        for level in ("x-level", "h-level"):
            parts = []
            for log, tests in self.tests.items():
                if (test := tests.get(level)) is not None:
                    adds = {"higher": "adds", "lower": "costs"}.get(test["verdict"])
                    words = adds or "adds nothing that a test could show"
                    interval = f"{test['low']:+.4f} to {test['high']:+.4f}"
                    figure = f"{test['difference']:+.4f}, 95% interval {interval}"
                    parts.append(f"{words} on {log} ({figure})")
            if parts:
                said.append(f"The {level} {'; '.join(parts)}.")
        return said
