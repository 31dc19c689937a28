"""Contest and ablation: trials under both rules for seen items, in pieces that are merged, tested and reported."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from PIL import Image

import hcarec
from conftest import maker
from hcarec import HcarecError, experiments, synthetic
from hcarec.comparison import bootstrap, sign_flip
from hcarec.data.split import split
from hcarec.experiments.data_sets import noted_statistics, prepare_all
from hcarec.experiments.grid import alone
from hcarec.experiments.results import Results
from hcarec.experiments.run import DataSet
from hcarec.experiments.trials import ablation, choosing, contest, figures
from hcarec.experiments.trials.contest_report import ContestReport
from hcarec.experiments.trials.merge import merge
from hcarec.experiments.trials.paired import correct, gain, paired_test
from hcarec.experiments.trials.peers import peers
from hcarec.experiments.trials.report import write_trials
from hcarec.experiments.trials.rules import deciding_rule
from hcarec.experiments.trials.settings import TrialSettings
from hcarec.experiments.trials.study import TrialStudy, trial_results
from hcarec.experiments.trials.trial import ranks_file, ranks_of
from hcarec.training import Callback, sizing

TINY: dict[str, Any] = {"epochs": 1, "runs": 2, "changes": {"d": 8}}
REPEATS = {"repeats": 0.3, "mean_length": 50.0, "events": 9000, "items": 100}
ONCE = {"repeats": 0.0, "mean_length": 9.0, "events": 900, "items": 100}


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two small logs: people come back to items, and they do not."""
    folder = tmp_path_factory.mktemp("logs")
    for name, seed, repeats in (("back", 5, "keep"), ("once", 6, "once")):
        data = synthetic(users=40, items=30, mean_length=12, seed=seed)
        rows = [(f"u{user}", f"i{item}", step) for user in range(data.n_users) for step, item in enumerate(data[user].tolist())]
        frame = pl.DataFrame(rows, schema=["user_id", "item_id", "timestamp"], orient="row")
        hcarec.prepare(frame, folder / name, min_user_events=3, repeats=repeats)
    return {name: folder / name for name in ("back", "once")}


@pytest.fixture(scope="module")
def done(logs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pl.DataFrame]:
    """The whole contest on both."""
    out = tmp_path_factory.mktemp("contest")
    return out, experiments.contest(logs, out, workers=1, **TINY)


def study(name: str, logs: dict[str, Path], out: Path, **changes: Any) -> TrialStudy:
    results = trial_results(out)
    return TrialStudy(name, prepare_all(logs, results, least_events=3), results, TrialSettings(**{**TINY, **changes}), workers=1)


def timeless(results: Results) -> dict[str, Any]:
    """Read all records without what a clock decides."""
    ignored = ("seconds_here", "training_seconds", "machine")
    return {key: {name: value for name, value in record.items() if name not in ignored} for key, record in results.read().items()}


def log_of(**figures: Any) -> DataSet:
    return DataSet(**{"name": "log", "path": Path(), "fingerprint": "f" * 64, "users": 1, "items": 1, "events": 1, **figures})


# -- which trials there are --------------------------------------------------------------------------------------------


def test_the_rule_that_decides_follows_from_repeats() -> None:
    assert [deciding_rule({"repeats": share}) for share in (0.0, 0.0099, 0.01, 0.4)] == ["F", "F", "U", "U"]


def test_the_contest_has_all_methods_and_trains_networks_under_u_as_well_where_f_decides() -> None:
    made = contest.trials([log_of(name="back"), log_of(name="once", fingerprint="0" * 64)], {"back": REPEATS, "once": ONCE}, TrialSettings())
    assert len({trial.key for trial in made}) == len(made)
    counts = {(name, rule): {} for name in ("back", "once") for rule in "FU"}  # type: dict[tuple[str, str], dict[str, int]]
    for trial in made:
        found = counts[trial.data.name, trial.rule]
        found[trial.method] = found.get(trial.method, 0) + 1
    every = {method: 1 if method in ("POP", "Markov", "ItemKNN", contest.DEFAULT) else 3 for method in contest.names()}
    assert counts["back", "U"] == counts["once", "F"] == every and counts["back", "F"] == {}
    assert counts["once", "U"] == {"GRU": 3, "HCA-GRU": 3}
    for trial in made:
        settings = trial.config.as_dict()
        expected = (
            None if trial.method in ("POP", "Markov", "ItemKNN") else "user-sgd" if trial.method.endswith("paper") or trial.method == "BPR" else "minibatch"
        )
        assert settings.get("trainer") == expected
        assert expected != "user-sgd" or settings["epochs"] == 30


def test_the_key_says_what_a_trial_is_and_not_how_it_is_run() -> None:
    trial = contest.trials([log_of()], {"log": ONCE}, TrialSettings())[-1]
    assert dataclasses.replace(trial, device="cuda", threads=7, method="other").key == trial.key
    for changed in ({"seed": 9}, {"rule": "F"}, {"config": TrialSettings(changes={"d": 9}).modern("hca-gru", ONCE)}, {"data": log_of(fingerprint="1")}):
        assert dataclasses.replace(trial, **changed).key != trial.key


def test_the_default_of_two_cores_is_sized_for_them_on_any_machine(done: tuple[Path, pl.DataFrame], monkeypatch: pytest.MonkeyPatch) -> None:
    out, _ = done
    records = [record for record in trial_results(out).read().values() if record["method"] == contest.DEFAULT]
    assert {(record["data"]["name"], record["device"]) for record in records} == {("back", "cpu"), ("once", "cpu")}
    assert all(record["config"]["d"] == 8 and record["config"]["preset"] == "modern" for record in records)
    section = (out / "contest.md").read_text().partition("## Without a GPU")[2].partition("## ")[0]
    assert "| back, U |" in section and "| once, F |" in section
    made = contest.trials([log_of()], {"log": REPEATS}, TrialSettings(device="cuda"))
    (trial,) = (each for each in made if each.method == contest.DEFAULT)
    assert (trial.cores, trial.device) == (2, "cpu")
    assert dataclasses.replace(trial, cores=None).key != trial.key != dataclasses.replace(trial, cores=4).key
    monkeypatch.setitem(sizing.ALL, "seconds", 60.0)
    assert dataclasses.replace(trial).key != trial.key


def test_the_ablation_takes_out_what_a_log_has_and_shares_the_whole_network_with_the_contest() -> None:
    assert len(ablation.INGREDIENTS) == 10
    for log, absent in ((REPEATS, {"block", "cosine scores", "LayerNorm on items"}), (ONCE, {"copy term"})):
        made = ablation.trials([log_of()], {"log": log}, TrialSettings())
        assert set(ablation.left_out(log, TrialSettings())) == absent
        methods = {trial.method for trial in made}
        expected = {ablation.without(one) for one in ablation.INGREDIENTS if one.name not in absent}
        assert {method for method in methods if "without" in method} == expected
        assert len({trial.key for trial in made}) == len(made)
        whole = {trial.key for trial in made if trial.method == "HCA-GRU"}
        assert whole == {t.key for t in contest.trials([log_of()], {"log": log}, TrialSettings()) if t.method == "HCA-GRU" and t.rule == deciding_rule(log)}
        assert {trial.seed for trial in made if trial.method == "HCA-GRU, d 64"} == {0}


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"runs": 0}, "runs is 0"), ({"epochs": 0}, "epochs is 0"), ({"device": "tpu"}, "device 'tpu' is not known"), ({"changes": {"dd": 1}}, "no setting 'dd'")],
)
def test_settings_that_make_no_sense_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(HcarecError, match=words):
        TrialSettings(**changes)


def test_a_method_that_is_not_known_is_refused(logs: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(HcarecError, match=r"method 'SASRek' is not known.*did you mean 'SASRec'"):
        study("contest", logs, tmp_path, methods=("SASRek",)).run()


# -- what a trial finds ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("log", "method"), [("back", "GRU"), ("once", "SASRec"), ("once", "BPR"), ("back", "Markov")])
def test_a_record_holds_what_training_and_evaluation_say_under_both_rules(
    log: str, method: str, done: tuple[Path, pl.DataFrame], logs: dict[str, Path]
) -> None:
    results = trial_results(done[0])
    record = next(r for r in results.read().values() if r["data"]["name"] == log and r["method"] == method)
    data = hcarec.Sequences.open(logs[log])
    model = hcarec.train(data, split="leave-one-out", hide_seen=log == "once", seed=record["seed"], compare=False, **record["config"])
    assert record["rule"] == {"back": "U", "once": "F"}[log]
    with np.load(ranks_file(results, record["key"])) as stored:
        ranks = dict(stored)
    for rule in "FU":
        found = hcarec.evaluate(model, data, hide_seen=rule == "F")
        for metric in ("ndcg@10", "recall@10", "coverage@10", "popularity@10"):
            assert record["figures"][rule][metric] == pytest.approx(found.metrics[metric])
        assert gain(ranks[rule]).mean() == pytest.approx(found.metrics["ndcg@10"])
        np.testing.assert_array_equal((ranks[rule] > 0) & (ranks[rule] <= 10), found.users["hits@10"])
    tuned = model.about["training"].get("fine_tuning")
    assert (tuned is not None) == (record["config"].get("preset") == "modern" and record["config"]["trainer"] == "minibatch")
    assert record.get("without_validation") == (tuned and {name: tuned["without"][name] for name in ("ndcg@10", "recall@10")})
    assert model.about["protocol"]["seen"] == ("hidden" if log == "once" else "kept")
    assert record["best"]["ndcg@10"]["value"] == record["figures"][record["rule"]]["ndcg@10"]


def test_ranks_are_kept_to_a_depth() -> None:
    np.testing.assert_array_equal(ranks_of(np.array([1.0, 1 / 3, 1 / 100, 0.0])), [1, 3, 100, 0])
    np.testing.assert_allclose(gain(np.array([0, 1, 10, 11], np.uint8)), [0, 1, 1 / np.log2(11), 0])


# -- pieces ------------------------------------------------------------------------------------------------------------


class Once(Callback):
    """Ask for an end after the first piece of the first epoch."""

    def stops(self) -> bool:
        return True


def test_a_trial_that_is_ended_goes_on_with_the_same_bits(logs: dict[str, Path], done: tuple[Path, pl.DataFrame], tmp_path: Path) -> None:
    mine = study("contest", logs, tmp_path, epochs=2)
    mine.results.make()
    trial = next(trial for trial in mine.trials if trial.method == "HCA-GRU" and trial.data.name == "back")
    assert trial.perform(mine.results, Once()) is None
    assert (mine.results.running / trial.key / "checkpoint").is_dir() and mine.results.read() == {}
    assert trial.perform(mine.results, Callback()) is not None and list(mine.results.running.iterdir()) == []
    other = study("contest", logs, tmp_path / "other", epochs=2)
    other.results.make()
    trial.perform(other.results, Callback())
    assert timeless(mine.results) == timeless(other.results)
    assert ranks_file(mine.results, trial.key).read_bytes() == ranks_file(other.results, trial.key).read_bytes()


def test_time_that_is_up_ends_a_grid_and_the_next_call_goes_on(logs: dict[str, Path], tmp_path: Path) -> None:
    first = study("contest", logs, tmp_path, methods=("POP",))
    first.minutes = 1e-9
    standing = first.run()
    assert standing.stopped and standing.out_of_time and first.results.read() == {}
    first.minutes = 100
    standing = first.run()
    assert not standing.stopped and len(standing.done) == 2


def test_pieces_of_two_places_are_the_whole(logs: dict[str, Path], done: tuple[Path, pl.DataFrame], tmp_path: Path) -> None:
    halves = contest.names()[:4], contest.names()[4:]
    for number, half in enumerate(halves):
        assert experiments.run_trials("contest", logs, tmp_path / str(number), workers=1, methods=tuple(half), **TINY) == 0
    frame = experiments.merge("contest", [tmp_path / "0", tmp_path / "1"], tmp_path / "all", **TINY)
    merged = trial_results(tmp_path / "all")
    assert timeless(merged) == timeless(trial_results(done[0]))
    columns = ["data", "method", "seed", "trained", "rule", "metric", "value"]
    assert frame.select(columns).sort(columns).equals(done[1].select(columns).sort(columns))
    assert merge(merged, [tmp_path / "0"]) == 0
    report, whole = ((out / "contest.md").read_text().partition("## Who leads")[2] for out in (tmp_path / "all", done[0]))
    assert report == whole  # tests as well: the ranks came along


def copy_of(done: tuple[Path, pl.DataFrame], target: Path, change: Any) -> Path:
    """Return a folder with one changed record, under another key."""
    results = trial_results(target)
    results.make()
    record = json.loads(json.dumps(next(r for r in trial_results(done[0]).read().values() if r["method"] == "GRU" and r["data"]["name"] == "back")))
    record["key"] = "another"
    change(record)
    results.write("back", record)
    return target


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda r: r["data"].update(fingerprint="0" * 64), "the data is '000000000000' there"),
        (lambda r: r["protocols"].update(U="0" * 64), "the protocol under U is '000000000000' there"),
        (lambda r: r["config"].update(d=9), "GRU on 'back' the d is 9 there and 8 here"),
    ],
)
def test_records_that_differ_are_not_merged(change: Any, words: str, done: tuple[Path, pl.DataFrame], tmp_path: Path) -> None:
    shutil.copytree(done[0] / "contest", tmp_path / "ours" / "contest", ignore=shutil.ignore_patterns("work"))
    before = timeless(trial_results(tmp_path / "ours"))
    with pytest.raises(HcarecError, match=words):
        merge(trial_results(tmp_path / "ours"), [copy_of(done, tmp_path / "theirs", change)])
    assert timeless(trial_results(tmp_path / "ours")) == before
    assert merge(trial_results(tmp_path / "ours"), [copy_of(done, tmp_path / "fine", lambda r: r.update(seed=7))]) == 1


def test_logs_of_one_name_and_different_data_are_not_merged(logs: dict[str, Path], done: tuple[Path, pl.DataFrame], tmp_path: Path) -> None:
    study("contest", {"back": logs["once"]}, tmp_path / "theirs")
    with pytest.raises(HcarecError, match="of its log 'back' the data is"):
        merge(trial_results(done[0]), [tmp_path / "theirs"])
    with pytest.raises(HcarecError, match="holds no records of a contest"):
        merge(trial_results(done[0]), [tmp_path / "nowhere"])


def test_estimates_come_from_earlier_trials_where_there_are_any(done: tuple[Path, pl.DataFrame], logs: dict[str, Path]) -> None:
    mine = study("contest", logs, done[0])
    records = [{**record, "seconds_here": 5.0, "planned_seconds": 2.5} for record in mine.results.read().values()]
    trial = next(trial for trial in mine.trials if trial.method == "HCA-GRU")
    assert trial.seconds(records) == 5.0
    unknown = dataclasses.replace(trial, method="new")
    assert unknown.seconds(records) == pytest.approx(2 * unknown.planned_seconds) and unknown.seconds([]) == unknown.planned_seconds > 3


def test_logs_with_users_that_cannot_be_split_are_refused(tmp_path: Path) -> None:
    raw = tmp_path / "log.csv"
    raw.write_text("user,item,time\n" + "".join(f"u{user},i{step % 5},{step}\n" for user in range(9) for step in range(2 + user)))
    results = trial_results(tmp_path / "out")
    assert prepare_all({"shop": raw}, results, least_events=3)[0].users == 8
    hcarec.prepare(raw, tmp_path / "prepared")
    with pytest.raises(HcarecError, match=r"fewer than 3 events \(1 of them\).*--min-user-events 3"):
        prepare_all({"shop": tmp_path / "prepared"}, results, least_events=3)


# -- tests and reports -------------------------------------------------------------------------------------------------


def of_method(results: Results, log: str, method: str, rule: str) -> list[dict[str, Any]]:
    return [r for r in results.read().values() if (r["data"]["name"], r["method"], r["rule"]) == (log, method, rule)]


def test_tests_are_paired_by_user_on_the_mean_over_seeds(done: tuple[Path, pl.DataFrame]) -> None:
    results = trial_results(done[0])
    mine, others = of_method(results, "back", "HCA-GRU", "U"), of_method(results, "back", "Markov", "U")
    found = paired_test(results, mine, others, "U")
    assert found is not None and len(mine) == 2 and len(others) == 1
    gains = [np.mean([gain(np.load(ranks_file(results, r["key"]))["U"]) for r in part], axis=0) for part in (mine, others)]
    d = (gains[0] - gains[1])[:, None]
    low, high = bootstrap(d, np.ones_like(d))
    assert found["difference"] == pytest.approx(d.mean()) and (found["low"], found["high"]) == pytest.approx((low[0], high[0]))
    assert found["p"] == pytest.approx(sign_flip(d)[0]) and found["users"] == len(d)
    assert paired_test(results, mine, [], "U") is None


def test_holm_corrects_over_the_logs() -> None:
    tests = {log: {"p": p, "difference": d} for log, p, d in (("a", 0.01, 1.0), ("b", 0.03, -1.0), ("c", 0.04, 1.0))}
    found = correct(tests)
    assert [test["p_holm"] for test in found.values()] == pytest.approx([0.03, 0.06, 0.06])
    assert [test["verdict"] for test in found.values()] == ["higher", "none shown", "none shown"]
    assert correct({"a": {"p": 0.01, "difference": -1.0}})["a"]["verdict"] == "lower"


def test_the_report_has_every_part_and_is_made_from_the_records_alone(done: tuple[Path, pl.DataFrame], logs: dict[str, Path], tmp_path: Path) -> None:
    out, frame = done
    text = (out / "contest.md").read_text()
    for words in ("| back, U", "once, F |", "**NDCG@10**", "**Recall@10**", "**Coverage@10**", "**Popularity@10**", "HCA-GRU against SASRec",
                  "95% interval", "the levels", "GRU, trained and selected under U", "figures/contest.png"):  # fmt: skip
        assert words in text, words
    means = frame.filter(pl.col("metric") == "ndcg@10", pl.col("rule") == "U", pl.col("data") == "back").group_by("method").agg(pl.col("value").mean())
    best = means.sort("value", descending=True).row(0)
    row = next(line for line in text.splitlines() if line.startswith(f"| {best[0]} "))
    assert f"**{best[1]:.4f}**" in row
    record = next(iter(trial_results(out).read().values()))
    assert record["protocols"][record["rule"]][:12] in text and record["data"]["fingerprint"][:12] in text
    shutil.copytree(out / "contest", tmp_path / "contest", ignore=shutil.ignore_patterns("work"))
    write_trials(study("contest", logs, tmp_path))
    assert (tmp_path / "contest.md").read_text() == text
    assert (tmp_path / "contest.html").read_bytes() == (out / "contest.html").read_bytes()


def test_the_readme_shows_what_the_report_shows(done: tuple[Path, pl.DataFrame]) -> None:
    part, report = maker("make_parts").contest(done[0]), (done[0] / "contest.md").read_text()
    table = report.partition("**NDCG@10**")[2].partition("**NDCG@10 by log")[0].splitlines()
    columns = table[2].split("|")
    methods = [cell.strip() for cell in part.splitlines()[0].split("|")[5:-1]]
    assert methods == contest.names()
    for row in part.splitlines()[2:4]:
        log, rule, *figures = (cell.strip(" `") for cell in row.split("|")[1:-1] if not cell.strip().isdecimal())
        place = next(number for number, column in enumerate(columns) if column.strip() == f"{log}, {rule}")
        for method, figure in zip(methods, figures, strict=True):
            written = next(line.split("|")[place] for line in table if line.startswith(f"| {method} "))
            assert written.partition("±")[0].strip() == figure


def test_seeds_are_counted_as_they_are(done: tuple[Path, pl.DataFrame], tmp_path: Path) -> None:
    assert f"over seeds, 2 each (1 for {contest.DEFAULT}); the best" in (done[0] / "contest.md").read_text()
    records = list(trial_results(done[0]).read().values())

    def fewer(dropped: Any) -> str:
        return ContestReport(trial_results(tmp_path), noted_statistics(trial_results(done[0])), [r for r in records if not dropped(r)]).seeds()

    assert fewer(lambda r: r["method"] == "SASRec" and r["seed"]) == f"2 each (1 for SASRec; 1 for {contest.DEFAULT})"
    assert fewer(lambda r: r["method"] == "GRU" and r["seed"] and r["data"]["name"] == "back") == f"2 each (1 to 2 for GRU; 1 for {contest.DEFAULT})"
    assert fewer(lambda r: r["seed"]) == "1 each"
    assert fewer(lambda r: r["method"] not in ("POP", "Markov")) == "of which none of these methods has any"


def test_published_figures_stand_beside_the_very_same_log_alone() -> None:
    beauty = {"users": 22_363, "items": 12_101, "events": 198_502}
    known = peers(beauty)
    assert known is not None and max(one.ndcg for one in known.figures if one.rule == "U") == 0.0438
    assert peers({**beauty, "items": 12_100}) is None
    movies = peers({"users": 6_040, "items": 3_416, "events": 999_611})
    assert movies is not None and {one.rule for one in movies.figures} == {"F"} and movies.figures[0].ndcg == 0.1904


def test_the_report_sets_our_networks_beside_published_figures(
    done: tuple[Path, pl.DataFrame], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logs: dict[str, Path]
) -> None:
    from hcarec.experiments.trials import peers as module

    shutil.copytree(done[0] / "contest", tmp_path / "contest", ignore=shutil.ignore_patterns("work"))
    counts = {"items": noted_statistics(trial_results(tmp_path))["once"]["items"], "users": noted_statistics(trial_results(tmp_path))["once"]["users"]}
    monkeypatch.setattr(module, "LOGS", (module.LOGS[1]._replace(counts=counts),))
    write_trials(study("contest", {"once": logs["once"]}, tmp_path))
    text = (tmp_path / "contest.md").read_text()
    section = text.partition("## Beside published figures")[2].partition("## ")[0]
    rows = [line.split("|")[1:-1] for line in section.splitlines() if line.startswith(("| F", "| U"))]
    assert {row[1].strip(" *") for row in rows if row[0].strip() == "U" and "here" in row[4]} == {"GRU", "HCA-GRU"}
    assert {row[1].strip(" *") for row in rows if row[0].strip() == "F" and "here" in row[4]} == {"GRU", "HCA-GRU", "SASRec", contest.DEFAULT}
    # As others', ours are of networks that have not learned the validation events.
    networks = [r for r in trial_results(tmp_path).read().values() if r["data"]["name"] == "once" and r["method"] == "SASRec"]
    value = np.mean([record["without_validation"]["ndcg@10"] for record in networks])
    assert value != np.mean([record["figures"]["F"]["ndcg@10"] for record in networks])
    assert next(row[2].strip(" *") for row in rows if row[1].strip(" *") == "SASRec" and "here" in row[4]) == f"{value:.4f}"
    assert any("WEARec" in row[1] for row in rows) and [row[0].strip() for row in rows] == sorted(row[0].strip() for row in rows)


def test_the_ablation_reports_what_each_ingredient_adds(logs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ablation, "CURVES", (ablation.Curve("d", ("d",), (4, 8)),))
    monkeypatch.setattr("hcarec.experiments.trials.ablation_report.CURVES", ablation.CURVES)
    names = ("HCA-GRU", "HCA-GRU without x-level", "HCA-GRU without averaged weights", "HCA-GRU, d 4")
    frame = experiments.ablation(logs, tmp_path, workers=1, methods=names, **TINY)
    assert set(frame["method"]) == set(names) and frame.filter(pl.col("method") == "HCA-GRU, d 4")["seed"].unique().to_list() == [0]
    text = (tmp_path / "ablation.md").read_text()
    for words in ("The x-level", "| averaged weights ", "95% interval", "do not have: ", "copy term", "| log ", "d 4", "ablation-curves.png"):
        assert words in text, words
    results = trial_results(tmp_path)
    test = paired_test(results, of_method(results, "back", "HCA-GRU", "U"), of_method(results, "back", "HCA-GRU without averaged weights", "U"), "U")
    assert test is not None and f"{test['difference']:+.4f}" in next(line for line in text.splitlines() if line.startswith("| averaged weights "))


def test_logs_that_only_the_contest_has_seen_are_not_in_the_ablation(logs: dict[str, Path], done: tuple[Path, pl.DataFrame], tmp_path: Path) -> None:
    shutil.copytree(done[0] / "contest", tmp_path / "contest", ignore=shutil.ignore_patterns("work"))
    study("ablation", {"back": logs["back"]}, tmp_path, methods=("HCA-GRU without averaged weights",)).run()
    write_trials(study("ablation", logs, tmp_path))
    text = (tmp_path / "ablation.md").read_text()
    assert "(back U;" in text and "once" not in text


def test_figures_are_drawn_from_whatever_there_is(tmp_path: Path) -> None:
    few = figures.contest({(log, "GRU"): [0.1] for log in "abcde"}, contest.names(), dict.fromkeys("abcde", "log, F"), tmp_path / "few.png")
    with Image.open(few) as drawn:
        assert drawn.height < drawn.width / 3, "methods without records have no rows, and five logs stand in rows of three"
    made = [
        figures.contest({}, contest.names(), {}, tmp_path / "a.png"),
        figures.contest({("log", "GRU"): [0.1, 0.2]}, contest.names(), {"log": "log, $F$", "other": "other, U"}, tmp_path / "b.png"),
        figures.ablation({}, ["block"], tmp_path / "c.png"),
        figures.ablation({"log": {}}, ["block"], tmp_path / "d.png"),
        figures.curves({"d": {}}, tmp_path / "e.png"),
        figures.curves({"d": {"log": {8: 0.1}}}, tmp_path / "f.png"),
    ]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in made)


# -- the command -------------------------------------------------------------------------------------------------------


def command(*arguments: object) -> tuple[int, str, str]:
    from typer.testing import CliRunner

    from hcarec.cli.app import app

    done = CliRunner().invoke(app, ["experiment", *map(str, arguments)])
    return done.exit_code, done.stdout, f"{done.stderr}{done.exception or ''}"


def test_a_dry_run_lists_the_pieces_and_writes_nothing(logs: dict[str, Path], tmp_path: Path) -> None:
    code, out, error = command("contest", "--data", f"once={logs['once']}", "-o", tmp_path / "out", "--dry-run")
    assert code == 0, error
    assert "28 runs, 0 finished" in out and "HCA-GRU, paper" in out and not (tmp_path / "out").exists()


def test_the_command_runs_pieces_and_merges_them(logs: dict[str, Path], tmp_path: Path) -> None:
    given = ("--data", f"back={logs['back']}", "--workers", 1, "--epochs", 1, "--runs", 1, "--set", "d=8")
    for name in ("POP", "Markov"):
        code, _, error = command("contest", *given, "--methods", name, "-o", tmp_path / name, "--minutes", 10)
        assert code == 0, error
    code, out, error = command("contest", "--merge", tmp_path / "POP", "--merge", tmp_path / "Markov", "-o", tmp_path / "all", "--json", "-", "--runs", 1)
    assert code == 0, error
    assert "2 new records" in error and {row["method"] for row in json.loads(out)} == {"POP", "Markov"}
    assert "| Markov " in (tmp_path / "all" / "contest.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("contest", "--widths", "3", "--data", "a=b"), "--widths means nothing"),
        (("methods", "--merge", "x", "--data", "a=b"), "--merge means nothing"),
        (("contest",), "no data set given"),
        (("contest", "--data", "a=b", "--minutes", "0"), "minutes is 0"),
    ],
)
def test_options_that_make_no_sense_are_refused(arguments: tuple[str, ...], words: str) -> None:
    code, _, error = command(*arguments)
    assert code != 0 and words in error


def test_running_trials_needs_neither_polars_nor_plots(logs: dict[str, Path], tmp_path: Path) -> None:
    """A machine that lends its GPU may have little beside torch and NumPy; here mini-batches are computed by Numba as well."""
    import subprocess
    import sys

    absent = ("polars", "msgspec", "matplotlib", "rich", "typer", "PIL")
    settings = "epochs=1, runs=1, workers=1, methods=('GRU',), changes={'d': 8}"
    code = f"import sys; sys.modules.update(dict.fromkeys({absent!r}))\nfrom hcarec import experiments\n"
    code += f"print(experiments.run_trials('contest', {{'back': {str(logs['back'])!r}}}, {str(tmp_path)!r}, {settings}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "0" and len(trial_results(tmp_path).read()) == 1, done.stderr


def test_predictions_from_the_last_events_hide_the_whole_history(logs: dict[str, Path], tmp_path: Path) -> None:
    """What is beyond the length of training samples is not read, and stays hidden."""
    mine = study("contest", {"back": logs["back"]}, tmp_path, methods=("GRU",), runs=1, changes={"d": 8, "length": 5, "copy_window": 2})
    mine.run()
    record = next(iter(mine.results.read().values()))
    data = hcarec.Sequences.open(logs["back"])
    model = hcarec.train(data, split="leave-one-out", seed=0, compare=False, **record["config"])
    parts = hcarec.split(data, "leave-one-out", validation=True)
    assert record["last_events"] == 5 and parts.history.lengths.max() > 5
    for rule in "FU":
        hits, users = 0, np.flatnonzero(parts.evaluated)
        for user in users:
            history = np.asarray(parts.history[user])
            hidden = (np.unique(history), np.array([0, len(np.unique(history))])) if rule == "F" else None
            items, _ = model.top(model.encode(history[-5:], np.array([0, len(history[-5:])])), 10, hidden)
            hits += int(parts.test[user][0] in items[0])
        assert record["figures_from_last"][rule]["recall@10"] == pytest.approx(hits / len(users))
    write_trials(mine)
    assert "| method | back, U, last 5 |" in (tmp_path / "contest.md").read_text()


def test_methods_that_count_choose_their_numbers_on_validation(done: tuple[Path, pl.DataFrame]) -> None:
    records = {(record["data"]["name"], record["method"]): record for record in trial_results(done[0]).read().values()}
    for log in ("back", "once"):
        for method, model in (("Markov", "markov"), ("ItemKNN", "item-knn")):
            tried = records[log, method]["candidates"]
            assert [one["config"] for one in tried] == json.loads(json.dumps([config.as_dict() for config in choosing.candidates(model)]))
            assert records[log, method]["config"] == max(tried, key=lambda one: one["ndcg@10"])["config"]
        assert "candidates" not in records[log, "POP"] and "candidates" not in records[log, "HCA-GRU"]


def test_a_choice_is_that_of_validation_and_not_of_the_test() -> None:
    data = synthetic(users=60, items=25, mean_length=12, seed=8)
    parts, configs = split(data, "leave-one-out", validation=True), choosing.candidates("markov")
    chosen, values = choosing.choose(configs, data, parts, "ndcg@10", hide_seen=False, threads=1)
    assert len(set(values)) > 1 and chosen == configs[int(np.argmax(values))]
    without_test = dataclasses.replace(parts, test=parts.train, history=parts.train)
    assert choosing.choose(configs, data, without_test, "ndcg@10", hide_seen=False, threads=1) == (chosen, values)


def test_ranks_that_were_left_behind_come_with_a_second_merge(done: tuple[Path, pl.DataFrame], tmp_path: Path) -> None:
    shutil.copytree(done[0] / "contest", tmp_path / "bare" / "contest", ignore=shutil.ignore_patterns("users"))
    ours = trial_results(tmp_path / "ours")
    assert merge(ours, [tmp_path / "bare"]) == len(ours.read()) > 0
    assert not any(ranks_file(ours, key).exists() for key in ours.read())
    assert merge(ours, [done[0]]) == 0
    assert all(ranks_file(ours, key).exists() for key in ours.read())


def test_merging_waits_for_nobody_and_meets_nobody(done: tuple[Path, pl.DataFrame], tmp_path: Path) -> None:
    ours = trial_results(tmp_path / "ours")
    ours.make()
    with alone(ours), pytest.raises(HcarecError, match="another experiment is running"):
        merge(ours, [done[0]])
    assert not ours.read() and merge(ours, [done[0]]) > 0


def test_a_merge_is_no_plan(command: Any, done: tuple[Path, pl.DataFrame], tmp_path: Path) -> None:
    code, _, err = command("experiment", "contest", "--merge", done[0], "--dry-run", "-o", tmp_path / "out")
    assert code == 2 and "--merge joins finished records and --dry-run plans runs: give one of them" in err
