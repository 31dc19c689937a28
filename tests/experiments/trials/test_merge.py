"""Records of several folders are merged, or refused where they differ."""

from __future__ import annotations

import copy
import shutil
from pathlib import Path
from typing import Any

import pytest

from experiments.trials.trial_cases import TINY, Done, copy_records, of_method, study, timeless
from hcarec import HcarecError, experiments
from hcarec.experiments.grid import alone
from hcarec.experiments.trials import contest
from hcarec.experiments.trials.merge import merge
from hcarec.experiments.trials.study import trial_results
from hcarec.experiments.trials.trial import ranks_file


def copy_of(done: Done, target: Path, change: Any) -> Path:
    """Return a folder with one changed record, under another key."""
    results = trial_results(target)
    results.make()
    record = copy.deepcopy(of_method(trial_results(done[0]), "back", "GRU", "U")[0])
    record["key"] = "another"
    change(record)
    results.write("back", record)
    return target


def test_pieces_of_two_places_are_the_whole(
    logs: dict[str, Path], done: Done, tmp_path: Path
) -> None:
    folders = [tmp_path / "0", tmp_path / "1"]
    halves = contest.names()[:4], contest.names()[4:]
    for folder, half in zip(folders, halves, strict=True):
        settings = {**TINY, "methods": tuple(half)}
        assert experiments.run_trials("contest", logs, folder, workers=1, **settings) == 0
    frame = experiments.merge("contest", folders, tmp_path / "all", **TINY)
    merged = trial_results(tmp_path / "all")
    assert timeless(merged) == timeless(trial_results(done[0]))
    columns = ["data", "method", "seed", "trained", "rule", "metric", "value"]
    assert frame.select(columns).sort(columns).equals(done[1].select(columns).sort(columns))
    assert merge(merged, [folders[0]]) == 0
    report, whole = (
        (out / "contest.md").read_text().partition("## Who leads")[2]
        for out in (tmp_path / "all", done[0])
    )
    assert report == whole  # tests as well: the ranks came along


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda r: r["data"].update(fingerprint="0" * 64), "the data is '000000000000' there"),
        (
            lambda r: r["protocols"].update(U="0" * 64),
            "the protocol under U is '000000000000' there",
        ),
        (lambda r: r["config"].update(d=9), "GRU on 'back' the d is 9 there and 8 here"),
    ],
)
def test_records_that_differ_are_not_merged(
    change: Any, words: str, done: Done, tmp_path: Path
) -> None:
    copy_records(done, tmp_path / "ours")
    ours = trial_results(tmp_path / "ours")
    before = timeless(ours)
    with pytest.raises(HcarecError, match=words):
        merge(ours, [copy_of(done, tmp_path / "theirs", change)])
    assert timeless(ours) == before
    assert merge(ours, [copy_of(done, tmp_path / "fine", lambda r: r.update(seed=7))]) == 1


def test_logs_of_one_name_and_different_data_are_not_merged(
    logs: dict[str, Path], done: Done, tmp_path: Path
) -> None:
    study("contest", {"back": logs["once"]}, tmp_path / "theirs")
    with pytest.raises(HcarecError, match="of its log 'back' the data is"):
        merge(trial_results(done[0]), [tmp_path / "theirs"])
    with pytest.raises(HcarecError, match="holds no records of a contest"):
        merge(trial_results(done[0]), [tmp_path / "nowhere"])
    study("contest", {"back": logs["back"]}, tmp_path / "begun")
    with pytest.raises(HcarecError, match="begun' holds no finished run: leave it out"):
        merge(trial_results(done[0]), [tmp_path / "begun"])


def test_ranks_that_were_left_behind_come_with_a_second_merge(done: Done, tmp_path: Path) -> None:
    bare, without_ranks = tmp_path / "bare", shutil.ignore_patterns("users")
    shutil.copytree(done[0] / "contest", bare / "contest", ignore=without_ranks)
    ours = trial_results(tmp_path / "ours")
    assert merge(ours, [bare]) == len(ours.read()) > 0
    assert not any(ranks_file(ours, key).exists() for key in ours.read())
    assert merge(ours, [done[0]]) == 0
    assert all(ranks_file(ours, key).exists() for key in ours.read())


def test_merging_waits_for_nobody_and_meets_nobody(done: Done, tmp_path: Path) -> None:
    ours = trial_results(tmp_path / "ours")
    ours.make()
    with alone(ours), pytest.raises(HcarecError, match="another experiment is running"):
        merge(ours, [done[0]])
    assert not ours.read() and merge(ours, [done[0]]) > 0
