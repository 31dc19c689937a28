"""The contest's report, from its records: docs pages contest.md and contest.html."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hcarec.experiments.data_sets import noted_statistics
from hcarec.experiments.document import Block, Bullets, Cell, Document, Figure, Paragraph, Section
from hcarec.experiments.document import Table as TableOf
from hcarec.experiments.pages import FIGURES, facts, write_document
from hcarec.experiments.results import Results
from hcarec.experiments.trials import contest, figures, tables
from hcarec.experiments.trials.paired import correct, paired_test
from hcarec.experiments.trials.peers import peers
from hcarec.experiments.trials.rules import RULES, F, U, deciding_rule
from hcarec.experiments.trials.study import TrialStudy
from hcarec.experiments.trials.trial import WITHOUT, K
from hcarec.models import MODELS
from hcarec.training.recipe import FEW_REPEATS

NDCG, RECALL = f"ndcg@{K}", f"recall@{K}"
UNDER_U = ", trained and selected under U"
Record = dict[str, Any]
_MODELS = {method.name: method.model for method in contest.METHODS}


def write_contest(study: TrialStudy, folder: Path) -> list[Path]:
    """Write contest.md, contest.html and the figure; return what was written."""
    report = ContestReport(study.results, study.logs, study.records())
    drawn = folder / FIGURES / "contest.png"
    figures.contest(report.main(NDCG), contest.names(), report.headings, drawn)
    return [*write_document(folder, "contest", report.document()), drawn]


def noted_contest(results: Results) -> ContestReport:
    """Return the report of all records that lie in a folder, whatever their settings were."""
    records = [r for r in results.read().values() if r["method"] in contest.names()]
    return ContestReport(results, noted_statistics(results), records)


class ContestReport:
    """Collects what the trials have found and turns it into a document."""

    def __init__(
        self, results: Results, logs: Mapping[str, Record], records: Sequence[Record]
    ) -> None:
        self.results, self.records = results, records
        met = {_log(record) for record in self.records}
        self.logs = {name: log for name, log in logs.items() if name in met}
        self.rule = {name: deciding_rule(log) for name, log in self.logs.items()}
        self.headings = {name: f"{name}, {rule}" for name, rule in self.rule.items()}
        self.deciding = [r for r in self.records if r["rule"] == self.rule[_log(r)]]
        self.untested: dict[str, list[str]] = {other: [] for other in contest.AGAINST}
        self.tests = {other: self._tests(other) for other in contest.AGAINST}

    def document(self) -> Document:
        """Put the report together."""
        methods = len({record["method"] for record in self.deciding})
        lead = (
            f"{methods} methods on {len(self.logs)} logs: leave-one-out, users with at"
            " least three events and nothing else filtered here, every item ranked, predictions"
            f" from the whole history, the epoch chosen on validation. F: {RULES[F]};"
            f" U: {RULES[U]}. F decides on logs with less than {FEW_REPEATS:.0%} repeats,"
            " U elsewhere. Figures are fractions, mean ± standard deviation over seeds,"
            f" {self.seeds()}; the best is bold."
        )
        sections = [
            self._main(), self._tested(), self._default(), self._validation_events(),
            self._published(), self._lists(), self._other_rule(), self._last_events(), self._data(),
        ]  # fmt: skip
        clock = "by the clock on the wall, added up over runs that shared a machine"
        kept = [section for section in sections if section.blocks]
        return Document("The contest", lead, kept, facts(self.records, clock))

    def main(self, metric: str) -> tables.Values:
        """Return a metric under the deciding rule of each log, by log and method."""
        return tables.values_of(self.deciding, metric, lambda r: self.rule[_log(r)])

    def seeds(self) -> str:
        """Say over how many seeds the means are, with the methods that have more or fewer."""
        counts: dict[str, list[int]] = {}
        for (_, method), values in self.main(NDCG).items():
            if MODELS[_MODELS[method]].seeded:
                counts.setdefault(method, []).append(len(values))
        if not counts:
            return "of which none of these methods has any"
        found = Counter(n for several in counts.values() for n in several)
        usual = max(found, key=lambda n: (found[n], n))
        others = [
            f"{_span(several)} for {method}"
            for method in contest.names()
            if (several := counts.get(method)) and set(several) != {usual}
        ]
        return f"{usual} each" + (f" ({'; '.join(others)})" if others else "")

    # -- sections --------------------------------------------------------------------------------

    def _main(self) -> Section:
        names = contest.names()
        note = (
            "GRU and HCA-GRU with “paper”, and BPR, have the paper's trainer (at most"
            f" {contest.PAPER_EPOCHS} epochs); all other networks are trained by mini-batches and"
            " learn the validation events in the end, as what counts does."
        )
        drawing = Figure(
            "NDCG@10 by log and method",
            "contest",
            "Small dots are seeds, markers their means; the dotted line is the best mean.",
            "Dot plot of NDCG@10 for every method, a panel for each log.",
        )
        blocks: list[Block] = [
            tables.by_method(f"NDCG@{K}", self.main(NDCG), names, self.headings, note=note),
            drawing,
            tables.by_method(f"Recall@{K}", self.main(RECALL), names, self.headings),
        ]
        return Section("Who leads", blocks if self.deciding else [])

    def _tested(self) -> Section:
        blocks: list[Block] = [Bullets(said)] if (said := self.words()) else []
        columns = [
            "log", contest.MAIN, "the other", "difference", "95% interval", "relative",
            "p after Holm", "verdict",
        ]  # fmt: skip
        for other, tests in self.tests.items():
            if tests:
                rows = [
                    [Cell(self.headings[log]), *tables.difference_cells(test)]
                    for log, test in tests.items()
                ]
                blocks.append(TableOf(f"{contest.MAIN} against {other}, NDCG@{K}", columns, rows))
        if blocks:
            text = (
                "Paired by user on the mean over seeds, under the deciding rule: interval by"
                " bootstrap, p by sign flips, corrected after Holm over the logs of a table."
            )
            blocks.append(Paragraph(text))
        return Section("Is it chance?", blocks)

    def _default(self) -> Section:
        """Set what a small machine trains without options beside counting."""
        rows = []
        for log, heading in self.headings.items():
            both = [self.of(log, method) for method in (contest.DEFAULT, "Markov")]
            if not all(both):
                continue
            mine, theirs = (records[0]["figures"][self.rule[log]][NDCG] for records in both)
            record = both[0][0]
            config, minutes = record["config"], record["run_seconds"] / 60
            size = f"d {config['d']}, {config['batches']}, epoch {record['epoch']}"
            texts = (
                tables.fraction(mine), tables.fraction(theirs), f"{mine / theirs - 1:+.1%}", size,
                f"{minutes:.0f}", str(record["threads"]),
            )  # fmt: skip
            rows.append([Cell(heading), *map(Cell, texts)])
        columns = ["log", contest.DEFAULT, "Markov", "relative", "size", "minutes", "threads"]
        note = (
            "One seed. The preset sized for two cores; minutes of the whole run, evaluation too, on"
            " so many threads, beside whatever else ran there."
        )
        table = TableOf(f"The default on two cores, NDCG@{K}", columns, rows, note)
        return Section("Without a GPU", [table] if rows else [])

    def _validation_events(self) -> Section:
        """Say what it adds that networks and their tables take in the validation events."""
        learned = [r for r in self.deciding if WITHOUT in r]
        of_method = {r["method"] for r in learned}
        methods = [name for name in contest.names() if name in of_method]
        rows = []
        for log, heading in self.headings.items():
            mine = {name: [r for r in self.of(log, name) if WITHOUT in r] for name in methods}
            if any(mine.values()):
                rows.append([Cell(heading), *(Cell(self._added(mine[name])) for name in methods)])
        note = (
            "Left: the network of the chosen epoch, its counting table without validation events"
            " too. Right: both have learned them, as POP, Markov and ItemKNN have."
        )
        title = f"NDCG@{K} without and with validation events"
        table = TableOf(title, ["log", *methods], rows, note)
        return Section("What the validation events add", [table] if rows else [])

    def _added(self, records: Sequence[Record]) -> str:
        """Return NDCG without and with the validation events, the means over seeds."""
        if not records:
            return "-"
        figures = (
            [record[WITHOUT][NDCG] for record in records],
            [record["figures"][record["rule"]][NDCG] for record in records],
        )
        return " → ".join(tables.fraction(sum(each) / len(each)) for each in figures)

    def _published(self) -> Section:
        blocks: list[Block] = []
        for name, log in self.logs.items():
            known = peers(log)
            if known is None:
                continue
            rows = [
                [Cell(peer.rule), Cell(peer.model), Cell(tables.fraction(peer.ndcg)),
                 Cell(tables.fraction(peer.recall)), Cell(peer.source)]
                for peer in known.figures
            ]  # fmt: skip
            rows += [
                [Cell(rule), Cell(words, True), Cell(tables.fraction(ndcg), True),
                 Cell(tables.fraction(recall), True), Cell("here")]
                for rule, words, ndcg, recall in self._ours(name)
            ]  # fmt: skip
            order = {rule: place for place, rule in enumerate(RULES)}
            rows.sort(key=lambda row: (order[row[0].text], -float(row[2].text)))
            columns = ["rule", "model", f"NDCG@{K}", f"Recall@{K}", "source"]
            note = (
                "F and U are different protocols: compare within one of them. Ours are of networks"
                " that have not learned the validation events, as those of others have not."
            )
            blocks.append(TableOf(f"{name} ({known.name})", columns, rows, note))
        return Section("Beside published figures", blocks)

    def _ours(self, log: str) -> list[tuple[str, str, float, float]]:
        """Return rule, name, NDCG and Recall of our networks, each trained under the rule."""
        figures = []
        for method in (each.name for each in contest.METHODS if each.modern):
            for rule in RULES:
                mine = [
                    record[WITHOUT]
                    for record in self.records
                    if _log(record) == log and record["method"] == method
                    if record["rule"] == rule and WITHOUT in record
                ]
                if mine:
                    means = (sum(values[m] for values in mine) / len(mine) for m in (NDCG, RECALL))
                    ndcg, recall = means
                    figures.append((rule, method, ndcg, recall))
        return figures

    def _lists(self) -> Section:
        names = contest.names()
        covered, popular = self.main(f"coverage@{K}"), self.main(f"popularity@{K}")
        blocks: list[Block] = [
            tables.by_method(
                f"Coverage@{K}", covered, names, self.headings, tables.percent, False,
                "Share of the catalog that appears in anyone's list.",
            ),
            tables.by_method(
                f"Popularity@{K}", popular, names, self.headings, tables.percent, False,
                "Mean share of the training events that the listed items have.",
            ),
        ]  # fmt: skip
        return Section("What the lists are like", blocks if self.deciding else [])

    def _other_rule(self) -> Section:
        headings = {name: f"{name}, {_other(rule)}" for name, rule in self.rule.items()}
        second = [
            {**record, "method": record["method"] + UNDER_U}
            for record in self.records
            if record["rule"] != self.rule[_log(record)]
        ]
        rows = [*self.deciding, *second]
        names = [*contest.names(), *(name + UNDER_U for name in contest.BOTH_WAYS)]
        note = "The same models as above, evaluated under the other rule"
        if second:
            both = {record["method"].removesuffix(UNDER_U) for record in second}
            named = " and ".join(name for name in contest.BOTH_WAYS if name in both)
            note += f"; where F decides, {named} of mini-batches also trained and selected under U"
        note += "."
        blocks: list[Block] = []
        for metric, title in ((NDCG, f"NDCG@{K}"), (RECALL, f"Recall@{K}")):
            values = tables.values_of(rows, metric, lambda r: _other(self.rule[_log(r)]))
            blocks.append(tables.by_method(title, values, names, headings, note=note))
            note = ""
        return Section("Under the other rule", blocks if rows else [])

    def _last_events(self) -> Section:
        """Set predictions from the last events beside those from the whole history."""
        cut = [
            {**record, "figures": record["figures_from_last"]}
            for record in self.deciding
            if "figures_from_last" in record
        ]
        values = tables.values_of(cut, NDCG, lambda r: self.rule[_log(r)])
        lengths = {_log(record): record["last_events"] for record in cut}
        headings = {n: f"{self.headings[n]}, last {length}" for n, length in lengths.items()}
        note = (
            "Where histories are longer than the samples of training: the same models, given the"
            " last events of a history alone. SASRec never reads more."
        )
        table = tables.by_method(f"NDCG@{K}", values, contest.names(), headings, note=note)
        return Section("From the last events alone", [table] if cut else [])

    def _data(self) -> Section:
        rows = []
        for name, log in self.logs.items():
            protocols = {r["protocols"][self.rule[name]] for r in self.records if _log(r) == name}
            counts = (f"{log[key]:,}" for key in ("users", "items", "events"))
            shown = ", ".join(sorted(protocol[:12] for protocol in protocols)) or "-"
            texts = [*counts, f"{log['mean_length']:.1f}", tables.percent(log["repeats"]),
                     self.rule[name], log["fingerprint"][:12], shown]  # fmt: skip
            rows.append([Cell(name), *map(Cell, texts)])
        columns = ["log", "users", "items", "events", "mean length", "repeats", "decides", "data",
                   "protocol"]  # fmt: skip
        note = "Fingerprints of the data, and of the protocol under the deciding rule."
        return Section("Logs", [TableOf("What they hold", columns, rows, note)])

    # -- tests -----------------------------------------------------------------------------------

    def _tests(self, other: str) -> dict[str, Record]:
        """Test the main method against another on every log, corrected over the logs.

        Logs on which both have run, but whose ranks are not there, are noted.
        """
        tests = {}
        for log in self.logs:
            mine, theirs = (self.of(log, method) for method in (contest.MAIN, other))
            test = paired_test(self.results, mine, theirs, self.rule[log])
            if test is not None:
                tests[log] = test
            elif mine and theirs:
                self.untested[other].append(log)
        return correct(tests) if tests else {}

    def of(self, log: str, method: str) -> list[Record]:
        """Return the records of a method on a log under the deciding rule."""
        return [r for r in self.deciding if _log(r) == log and r["method"] == method]

    def words(self) -> list[str]:
        """Say in words what the tests show."""
        said = []
        for other, tests in self.tests.items():
            if not tests:
                continue
            by = {word: [log for log, test in tests.items() if test["verdict"] == word]
                  for word in ("higher", "lower", "none shown")}  # fmt: skip
            if other == "GRU":
                said.append(_levels(by, tests))
                continue
            text = f"Against {other}, {contest.MAIN} is higher on {len(by['higher'])} of"
            text += f" {len(tests)} logs{_listed(by['higher'])}"
            if by["lower"]:
                text += f", lower on {len(by['lower'])}{_listed(by['lower'])}"
            if by["none shown"]:
                text += f", and no difference is shown on {len(by['none shown'])}"
                text += _listed(by["none shown"])
            said.append(f"{text}.")
        for other, logs in self.untested.items():
            if logs:
                said.append(
                    f"Not tested: {contest.MAIN} against {other} on {', '.join(logs)}, because the"
                    f" ranks of runs are not in `{self.results.users.name}`."
                )
        return said


def _levels(by: dict[str, list[str]], tests: dict[str, Record]) -> str:
    """Say where the two contextual levels help, harm, or add nothing."""
    words = {"higher": "help on", "lower": "do harm on", "none shown": "add nothing on"}
    parts = []
    for verdict, text in words.items():
        if by[verdict]:
            listed = ", ".join(f"{log} ({tests[log]['difference']:+.4f})" for log in by[verdict])
            shown = " that a test could show" if verdict == "none shown" else ""
            parts.append(f"{text} {listed}{shown}")
    return f"Against GRU, the same recipe with both levels off, the levels {'; they '.join(parts)}."


def _span(counts: Sequence[int]) -> str:
    least, most = min(counts), max(counts)
    return f"{most}" if least == most else f"{least} to {most}"


def _log(record: Record) -> str:
    return str(record["data"]["name"])


def _other(rule: str) -> str:
    return U if rule == F else F


def _listed(names: list[str]) -> str:
    return f" ({', '.join(names)})" if names else ""
