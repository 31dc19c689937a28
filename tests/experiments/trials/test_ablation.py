"""The ablation: its trials, and its report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from conftest import maker
from experiments.trials.trial_cases import (
    ONCE,
    REPEATS,
    TINY,
    Done,
    copy_records,
    log_of,
    of_method,
    study,
)
from hcarec import experiments
from hcarec.experiments.trials import ablation, contest
from hcarec.experiments.trials.paired import paired_test
from hcarec.experiments.trials.report import write_trials
from hcarec.experiments.trials.rules import deciding_rule
from hcarec.experiments.trials.settings import TrialSettings
from hcarec.experiments.trials.study import trial_results
from hcarec.training.recipe import Log, settings_for

ABSENT = (
    (REPEATS, {"block", "cosine scores", "LayerNorm on items"}),
    (ONCE, {"copy term"}),
)
"""Statistics of a log, and the ingredients that its network does not have."""
PARTS = ("The x-level", "| averaged weights ", "95% interval", "do not have: ", "copy term",
         "| log ", "d 4", "ablation-curves.png")  # fmt: skip
"""Words of every part of the report."""


def test_the_ablation_takes_out_what_a_log_has_and_shares_the_whole_network_with_the_contest() -> (
    None
):
    settings = TrialSettings()
    assert len(ablation.INGREDIENTS) == 11
    for log, absent in ABSENT:
        made = ablation.trials([log_of()], {"log": log}, settings)
        assert set(ablation.left_out(log, settings)) == absent
        methods = {trial.method for trial in made}
        present = [one for one in ablation.INGREDIENTS if one.name not in absent]
        expected = {ablation.without(one) for one in present}
        assert {method for method in methods if "without" in method} == expected
        assert len({trial.key for trial in made}) == len(made)
        whole = {trial.key for trial in made if trial.method == "HCA-GRU"}
        contested = contest.trials([log_of()], {"log": log}, settings)
        deciding = [trial for trial in contested if trial.rule == deciding_rule(log)]
        assert whole == {trial.key for trial in deciding if trial.method == "HCA-GRU"}
        assert {trial.seed for trial in made if trial.method == "HCA-GRU, d 64"} == {0}


@pytest.mark.parametrize("log", [REPEATS, ONCE])
def test_without_its_samples_a_network_has_what_goes_with_sequences(log: dict[str, Any]) -> None:
    """Else samples would be held against sequences in batches and at a rate made for samples."""
    samples = next(one for one in ablation.INGREDIENTS if "samples" in one.name)
    config = ablation.changed(samples, log, TrialSettings())
    assert config is not None
    expected = settings_for("hca-gru", Log.of(log), "sequences")
    assert expected["batches"] == "sequences" and expected.items() <= config.as_dict().items()


def test_the_ablation_reports_what_each_ingredient_adds(
    logs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ablation, "CURVES", (ablation.Curve("d", ("d",), (4, 8)),))
    monkeypatch.setattr("hcarec.experiments.trials.ablation_report.CURVES", ablation.CURVES)
    without = "HCA-GRU without averaged weights"
    names = ("HCA-GRU", "HCA-GRU without x-level", without, "HCA-GRU, d 4")
    frame = experiments.ablation(logs, tmp_path, workers=1, methods=names, **TINY)
    assert set(frame["method"]) == set(names)
    assert set(frame.filter(pl.col("method") == "HCA-GRU, d 4")["seed"]) == {0}
    text = (tmp_path / "ablation.md").read_text()
    for words in PARTS:
        assert words in text, words
    results = trial_results(tmp_path)
    whole, lacking = (of_method(results, "back", name, "U") for name in ("HCA-GRU", without))
    test = paired_test(results, whole, lacking, "U")
    row = next(line for line in text.splitlines() if line.startswith("| averaged weights "))
    assert test is not None and f"{test['difference']:+.4f}" in row
    page = maker("make_parts").departures(tmp_path, **TINY)
    row = next(
        line for line in page.splitlines() if line.startswith("| averaged weights | `ema` |")
    )
    assert f"{test['difference']:+.4f} ({test['low']:+.4f} to " in row


def test_logs_that_only_the_contest_has_seen_are_not_in_the_ablation(
    logs: dict[str, Path], done: Done, tmp_path: Path
) -> None:
    copy_records(done, tmp_path)
    methods = ("HCA-GRU without averaged weights",)
    study("ablation", {"back": logs["back"]}, tmp_path, methods=methods).run()
    write_trials(study("ablation", logs, tmp_path))
    text = (tmp_path / "ablation.md").read_text()
    assert "(back U;" in text and "once" not in text
