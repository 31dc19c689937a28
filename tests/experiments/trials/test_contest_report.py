"""The report of a contest, from its records alone."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import polars as pl

from conftest import maker
from experiments.trials.trial_cases import Done, copy_records, study
from hcarec.experiments.data_sets import noted_statistics
from hcarec.experiments.document import Table
from hcarec.experiments.trials import contest
from hcarec.experiments.trials.contest_report import ContestReport
from hcarec.experiments.trials.report import write_trials
from hcarec.experiments.trials.study import trial_results

PARTS = (
    "| back, U", "once, F |", "**NDCG@10**", "**Recall@10**", "**Coverage@10**",
    "**Popularity@10**", "HCA-GRU against SASRec", "95% interval", "the levels",
    "GRU, trained and selected under U", "figures/contest.png", "without and with validation",
)  # fmt: skip
"""Words of every part of the report."""


def test_the_report_has_every_part_and_is_made_from_the_records_alone(
    done: Done, logs: dict[str, Path], tmp_path: Path
) -> None:
    out, frame = done
    text = (out / "contest.md").read_text()
    for words in PARTS:
        assert words in text, words
    asked = {"metric": "ndcg@10", "rule": "U", "data": "back"}
    means = frame.filter(**asked).group_by("method").agg(pl.col("value").mean())
    best = means.sort("value", descending=True).row(0)
    row = next(line for line in text.splitlines() if line.startswith(f"| {best[0]} "))
    assert f"**{best[1]:.4f}**" in row
    record = next(iter(trial_results(out).read().values()))
    assert record["protocols"][record["rule"]][:12] in text
    assert record["data"]["fingerprint"][:12] in text
    copy_records(done, tmp_path)
    write_trials(study("contest", logs, tmp_path))
    assert (tmp_path / "contest.md").read_text() == text
    assert (tmp_path / "contest.html").read_bytes() == (out / "contest.html").read_bytes()


def test_tests_that_lack_ranks_are_named(done: Done, tmp_path: Path) -> None:
    copy_records(done, tmp_path)
    shutil.rmtree(tmp_path / "contest" / "tests")
    results = trial_results(tmp_path)
    report = ContestReport(results, noted_statistics(results), list(results.read().values()))
    assert report.words() == [
        f"Not tested: HCA-GRU against {other} on back, once, because the ranks of runs are not in"
        " `users`."
        for other in contest.AGAINST
    ]


def test_what_was_not_trained_under_the_other_rule_is_not_told(done: Done) -> None:
    results = trial_results(done[0])
    records = [r for r in results.read().values() if r["method"] in ("POP", "Markov")]
    report = ContestReport(results, noted_statistics(results), records)
    (table, _) = report._other_rule().blocks
    assert isinstance(table, Table)
    assert table.note == "The same models as above, evaluated under the other rule."


def test_the_readme_shows_what_the_report_shows(done: Done) -> None:
    part, report = maker("make_parts").contest(done[0]), (done[0] / "contest.md").read_text()
    table = report.partition("**NDCG@10**")[2].partition("**NDCG@10 by log")[0].splitlines()
    columns = [column.strip() for column in table[2].split("|")]
    methods = [cell.strip() for cell in part.splitlines()[0].split("|")[5:-1]]
    assert methods == contest.names()
    for row in part.splitlines()[2:4]:
        cells = [cell.strip(" `") for cell in row.split("|")[1:-1]]
        log, rule, *figures = (cell for cell in cells if not cell.isdecimal())
        place = columns.index(f"{log}, {rule}")
        for method, figure in zip(methods, figures, strict=True):
            line = next(line for line in table if line.startswith(f"| {method} "))
            assert line.split("|")[place].partition("±")[0].strip() == figure


def test_seeds_are_counted_as_they_are(done: Done, tmp_path: Path) -> None:
    text = (done[0] / "contest.md").read_text()
    assert f"over seeds, 2 each (1 for {contest.DEFAULT}); the best" in text
    logs = noted_statistics(trial_results(done[0]))
    records = list(trial_results(done[0]).read().values())

    def fewer(dropped: Any) -> str:
        kept = [record for record in records if not dropped(record)]
        return ContestReport(trial_results(tmp_path), logs, kept).seeds()

    said = fewer(lambda r: r["method"] == "SASRec" and r["seed"])
    assert said == f"2 each (1 for SASRec; 1 for {contest.DEFAULT})"
    said = fewer(lambda r: r["method"] == "GRU" and r["seed"] and r["data"]["name"] == "back")
    assert said == f"2 each (1 to 2 for GRU; 1 for {contest.DEFAULT})"
    assert fewer(lambda r: r["seed"]) == "1 each"
    said = fewer(lambda r: r["method"] not in ("POP", "Markov"))
    assert said == "of which none of these methods has any"


def test_what_validation_events_add_is_the_mean_over_seeds(done: Done) -> None:
    results = trial_results(done[0])
    records = list(results.read().values())
    mine = [r for r in records if r["method"] == "SASRec" and r["data"]["name"] == "back"]
    for record, before, after in zip(mine, (0.1, 0.2), (0.25, 0.5), strict=True):
        record["without_validation"]["ndcg@10"] = before
        record["figures"]["U"]["ndcg@10"] = after
    report = ContestReport(results, noted_statistics(results), records)
    sections = {section.heading: section for section in report.document().sections}
    (table,) = sections["What the validation events add"].blocks
    assert isinstance(table, Table)
    row = next(row for row in table.rows if row[0].text == "back, U")
    assert row[table.columns.index("SASRec")].text == "0.1500 → 0.3750"
