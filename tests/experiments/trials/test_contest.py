"""Which trials a contest has, what their keys hold, and which settings and logs are refused."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import hcarec
from experiments.trials.trial_cases import ONCE, REPEATS, Done, log_of, study
from hcarec import HcarecError
from hcarec.experiments.data_sets import prepare_all
from hcarec.experiments.trials import contest
from hcarec.experiments.trials.rules import deciding_rule
from hcarec.experiments.trials.settings import TrialSettings
from hcarec.experiments.trials.study import trial_results
from hcarec.training import sizing

COUNTING = ("POP", "Markov", "ItemKNN")


def test_the_rule_that_decides_follows_from_repeats() -> None:
    rules = {share: deciding_rule({"repeats": share}) for share in (0.0, 0.0099, 0.01, 0.4)}
    assert rules == {0.0: "F", 0.0099: "F", 0.01: "U", 0.4: "U"}


def test_the_contest_has_all_methods_and_trains_networks_under_u_as_well_where_f_decides() -> None:
    data = [log_of(name="back"), log_of(name="once", fingerprint="0" * 64)]
    made = contest.trials(data, {"back": REPEATS, "once": ONCE}, TrialSettings())
    assert len({trial.key for trial in made}) == len(made)
    counts: dict[tuple[str, str], Counter[str]]
    counts = {(name, rule): Counter() for name in ("back", "once") for rule in "FU"}
    for trial in made:
        counts[trial.data.name, trial.rule][trial.method] += 1
    single = (*COUNTING, contest.DEFAULT)
    every = {method: 1 if method in single else 3 for method in contest.names()}
    assert counts["back", "U"] == counts["once", "F"] == every and counts["back", "F"] == {}
    assert counts["once", "U"] == {"GRU": 3, "HCA-GRU": 3}
    for trial in made:
        settings = trial.config.as_dict()
        by_user = trial.method.endswith("paper") or trial.method == "BPR"
        trained = "user-sgd" if by_user else "minibatch"
        assert settings.get("trainer") == (None if trial.method in COUNTING else trained)
        assert not by_user or settings["epochs"] == 30


def test_the_key_says_what_a_trial_is_and_not_how_it_is_run() -> None:
    trial = contest.trials([log_of()], {"log": ONCE}, TrialSettings())[-1]
    assert replace(trial, device="cuda", threads=7, method="other").key == trial.key
    config = TrialSettings(changes={"d": 9}).modern("hca-gru", ONCE)
    changes: dict[str, Any] = {"seed": 9, "rule": "F", "config": config}
    changes["data"] = log_of(fingerprint="1")
    for name, value in changes.items():
        assert replace(trial, **{name: value}).key != trial.key


def test_the_default_of_two_cores_is_sized_for_them_on_any_machine(
    done: Done, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, _ = done
    records = [r for r in trial_results(out).read().values() if r["method"] == contest.DEFAULT]
    run_on = {(record["data"]["name"], record["device"]) for record in records}
    assert run_on == {("back", "cpu"), ("once", "cpu")}
    assert all(record["config"]["d"] == 8 for record in records)
    assert all(record["config"]["preset"] == "modern" for record in records)
    section = (out / "contest.md").read_text().partition("## Without a GPU")[2].partition("## ")[0]
    assert "| back, U |" in section and "| once, F |" in section
    made = contest.trials([log_of()], {"log": REPEATS}, TrialSettings(device="cuda"))
    (trial,) = (each for each in made if each.method == contest.DEFAULT)
    assert (trial.cores, trial.device) == (2, "cpu")
    assert replace(trial, cores=None).key != trial.key != replace(trial, cores=4).key
    monkeypatch.setitem(sizing.ALL, "seconds", 60.0)
    assert replace(trial).key != trial.key


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"runs": 0}, "runs is 0"),
        ({"epochs": 0}, "epochs is 0"),
        ({"device": "tpu"}, "device 'tpu' is not known"),
        ({"changes": {"dd": 1}}, "no setting 'dd'"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(HcarecError, match=words):
        TrialSettings(**changes)


def test_a_method_that_is_not_known_is_refused(logs: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(HcarecError, match=r"method 'SASRek' is not known.*did you mean 'SASRec'"):
        study("contest", logs, tmp_path, methods=("SASRek",)).run()


def test_logs_with_users_that_cannot_be_split_are_refused(tmp_path: Path) -> None:
    raw = tmp_path / "log.csv"
    rows = [f"u{user},i{step % 5},{step}\n" for user in range(9) for step in range(2 + user)]
    raw.write_text("user,item,time\n" + "".join(rows))
    results = trial_results(tmp_path / "out")
    assert prepare_all({"shop": raw}, results, least_events=3)[0].users == 8
    hcarec.prepare(raw, tmp_path / "prepared")
    words = r"fewer than 3 events \(1 of them\).*--min-user-events 3"
    with pytest.raises(HcarecError, match=words):
        prepare_all({"shop": tmp_path / "prepared"}, results, least_events=3)
