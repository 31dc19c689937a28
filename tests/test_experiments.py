"""The paper's experiments: grids of runs, done once, killed and continued; figures, choices and tests made from them."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from hcarec import HcarecError, experiments, synthetic
from hcarec.comparison import Parts, _rows
from hcarec.experiments import grids, published
from hcarec.experiments.claims import verdicts
from hcarec.experiments.data_sets import prepare_all
from hcarec.experiments.estimate import estimate
from hcarec.experiments.frames import curves, figures, gains, summary
from hcarec.experiments.grid import go, missing
from hcarec.experiments.results import Results, read_json
from hcarec.experiments.run import DataSet, Run, perform
from hcarec.experiments.settings import BOTH, TEST, VALIDATION, Settings
from hcarec.experiments.significance import paired_tests
from hcarec.experiments.study import Study
from hcarec.sequences import Sequences

EPOCHS = 2


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "small"
    synthetic(users=60, items=40, mean_length=14, seed=5).save(path)
    return path


@pytest.fixture(scope="module")
def done(log: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pl.DataFrame, Study]:
    """All experiments once, on a small log."""
    out = tmp_path_factory.mktemp("results")
    frame = experiments.everything({"small": log}, out, epochs=EPOCHS, runs=2, widths=(2, 3), selection=BOTH, workers=1)
    settings = Settings(epochs=EPOCHS, runs=2, widths=(2, 3), selection=BOTH)
    results = Results(out)
    return out, frame, Study(prepare_all({"small": log}, results), results, settings)


def one(log: Path, **changes: Any) -> DataSet:
    data = Sequences.open(log)
    return dataclasses.replace(DataSet("small", log, data.fingerprint, data.n_users, data.n_items, data.n_events), **changes)


# -- runs --------------------------------------------------------------------------------------------------------------


def test_a_key_says_what_decides_the_figures_and_nothing_else(log: Path) -> None:
    settings, data = Settings(), one(log)
    run = Run(data, settings.config("gru"), 0, TEST)
    assert run.key == Run(dataclasses.replace(data, name="other", path=Path("elsewhere")), settings.config("gru"), 0, TEST).key
    others = [
        Run(data, settings.config("gru"), 1, TEST),
        Run(data, settings.config("gru"), 0, VALIDATION),
        Run(data, settings.config("hca-gru", 3), 0, TEST),
        Run(data, Settings(d=21).config("gru"), 0, TEST),
        Run(dataclasses.replace(data, fingerprint="0" * 64), settings.config("gru"), 0, TEST),
        Run(data, settings.config("gru"), 0, TEST, (5, 10)),
    ]
    assert len({run.key, *(other.key for other in others)}) == 1 + len(others)
    assert Run(data, settings.config("bpr", 2, 3), 0, TEST).key == Run(data, settings.config("bpr"), 0, TEST).key  # windows mean nothing to BPR
    assert Run(data, Settings(d=50).config("pop"), 0, TEST).key == Run(data, settings.config("pop"), 0, TEST).key


def test_a_record_holds_what_training_and_evaluation_say(log: Path, tmp_path: Path) -> None:
    from hcarec import evaluate, train

    run = Run(one(log), Settings(epochs=EPOCHS).config("hca-gru", 2, 3), 7, TEST)
    results = Results(tmp_path, first_seed=7)
    results.make()
    record = perform(run, results)
    assert record is not None
    model = train(Sequences.open(log), model="hca-gru", preset="paper", window_x=2, window_h=3, epochs=EPOCHS, seed=7, selection=TEST, threads=1)
    assert record["best"]["ndcg@20"] == model.about["selection"]["best"]["ndcg@20"]
    assert record["metrics"]["map@5"] == evaluate(model, Sequences.open(log)).metrics["map@5"]
    assert len(record["curves"]["loss"]) == EPOCHS and record["method"] == "HCA-GRU-x2-h3"
    assert results.read() == {run.key: json.loads(json.dumps(record))}
    assert (results.models / run.key / "model.json").exists() and not (results.running / run.key).exists()
    users = pl.read_parquet(results.users / f"{run.key}.parquet")
    for name, column in (("recall@20", users["hits@20"].sum() / users["n_test"].sum()), ("ndcg@5", users["ndcg@5"].mean())):
        assert column == pytest.approx(record["best"][name]["value"])


# -- grids -------------------------------------------------------------------------------------------------------------


def test_nothing_is_done_twice(done: tuple[Path, pl.DataFrame, Study], log: Path) -> None:
    out, frame, study = done
    before = {path: path.stat().st_mtime_ns for path in (out / "runs").rglob("*.*")}
    assert list(before) == [out / "runs" / "small.jsonl.xz"]
    assert missing([run for step in ("widths", "complete", "methods") for run in study.runs(step)], study.results) == []
    again = experiments.everything({"small": log}, out, epochs=EPOCHS, runs=2, widths=(2, 3), selection=BOTH, workers=1)
    assert {path: path.stat().st_mtime_ns for path in (out / "runs").rglob("*.*")} == before
    assert again.equals(frame)


def test_all_has_the_runs_of_the_paper(done: tuple[Path, pl.DataFrame, Study]) -> None:
    _, frame, study = done
    main = frame.filter(pl.col("selection") == TEST)
    chosen = study.widths(study.data[0])
    assert chosen.measured
    expected = {"Random", "POP", "BPR", "GRU", *(f"HCA-GRU-{level}{w}" for level in "xh" for w in (2, 3))}
    expected |= {f"HCA-GRU-x{chosen.x}-h{w}" for w in (2, 3)} | {f"HCA-GRU-x{w}-h{chosen.h}" for w in (2, 3)}
    assert set(main["method"]) == expected
    runs = main.filter(pl.col("metric") == "auc").group_by("method").len()
    assert dict(runs.iter_rows()) == {method: 1 if method == "POP" else 2 for method in expected}
    validated = set(frame.filter(pl.col("selection") == VALIDATION)["method"])
    assert validated == {"Random", "POP", "BPR", "GRU", *(config.title for config in grids.methods(study.settings, chosen)[4:])}


def test_a_failing_run_stops_no_other(log: Path, tmp_path: Path) -> None:
    wild = Run(one(log), Settings(epochs=3, learning_rate=1e6).config("gru"), 0, TEST)
    fine = Run(one(log), Settings(epochs=1).config("bpr"), 0, TEST)
    standing = go([wild, fine], Results(tmp_path), workers=2)
    assert standing.done == {fine.key} and list(standing.failed) == [wild.key]
    assert "diverged" in standing.failed[wild.key] and "small GRU seed 0" in standing.failed[wild.key]


def run_command(log: Path, out: Path) -> list[str]:
    options = ["--data", f"small={log}", "-o", str(out), "--runs", "1", "--epochs", "60", "--workers", "2"]
    return [sys.executable, "-m", "hcarec", "experiment", "methods", *options]


def records_of(out: Path) -> dict[str, Any]:
    """Read all records without what a clock decides."""
    ignored = ("seconds_here", "training_seconds", "machine")
    return {key: {name: value for name, value in record.items() if name not in ignored} for key, record in Results(out).read().items()}


@pytest.fixture(scope="module")
def whole(log: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The records of a grid that nobody disturbed."""
    out = tmp_path_factory.mktemp("whole")
    experiments.methods({"small": log}, out, runs=1, epochs=60, workers=1)
    return records_of(out)


def cut_short(kind: signal.Signals, log: Path, out: Path, of: int) -> bool:
    """Run a grid and end it by a signal once there are two records; say whether it had not finished before, which a busy machine may see too late."""
    running = subprocess.Popen(run_command(log, out), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)
    deadline = time.monotonic() + 60
    while len(list((out / "runs").glob("*/*.json"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(running.pid, kind)
    _, said = running.communicate(timeout=60)
    if len(records_of(out)) == of:
        return False
    assert running.returncode == (130 if kind == signal.SIGINT else -kind) and b"Traceback" not in said
    return True


@pytest.mark.parametrize("kind", [signal.SIGKILL, signal.SIGINT])
def test_a_grid_killed_and_continued_equals_one_that_was_not(kind: signal.Signals, log: Path, whole: dict[str, Any], tmp_path: Path) -> None:
    assert len(whole) == 7
    out = next(out for out in (tmp_path / str(n) for n in range(10)) if cut_short(kind, log, out, len(whole)))
    assert 2 <= len(records_of(out)) < len(whole)
    experiments.methods({"small": log}, out, runs=1, epochs=60, workers=1)
    assert records_of(out) == whole


# -- what is made of runs ----------------------------------------------------------------------------------------------


def made_up(values: dict[str, dict[str, float]]) -> pl.DataFrame:
    rows = [("d", m, 1, 1, 0, TEST, metric, 5, value, 1, m) for m, figures_ in values.items() for metric, value in figures_.items()]
    return pl.DataFrame(rows, schema=figures([]).schema, orient="row")


def test_the_best_width_is_chosen_by_map_and_ndcg_alone() -> None:
    frame = made_up({"a": {"map": 0.10, "ndcg": 0.20, "recall": 0.9}, "b": {"map": 0.11, "ndcg": 0.21, "recall": 0.1}, "c": {"map": 0.12, "ndcg": 0.15}})
    assert grids.best(frame, ["a", "b", "c"]) == "b"
    assert grids.best(frame, ["c", "a"]) == "a"
    assert grids.best(made_up({"a": {"map": 0.1}, "b": {"map": 0.1}}), ["b", "a"]) == "b"  # the first on ties
    assert grids.best(frame, ["unknown"]) is None


def test_the_rule_chooses_what_the_paper_chose() -> None:
    for data, table in published.COMPLETE.items():
        rows = [
            ("d", method, 1, 1, 0, TEST, *name.split("@"), value, 1, method)
            for method, values in table.items()
            for name, value in zip(published.COLUMNS, values, strict=True)
            if "@" in name
        ]
        rows = [(*row[:7], int(row[7]), *row[8:]) for row in rows]
        frame = pl.DataFrame(rows, schema=figures([]).schema, orient="row")
        x, h = published.BEST_WIDTHS[data][2]
        assert grids.best(frame, list(table)) == f"HCA-GRU-x{x}-h{h}"


def test_gains_pair_runs_of_equal_seed() -> None:
    records = [
        {
            "data": {"name": "d"},
            "config": {"window_x": 1, "window_h": 1},
            "method": method,
            "seed": seed,
            "selection": TEST,
            "best": {"auc": {"value": v, "epoch": 1}},
            "key": "k",
        }
        for method, values in (("GRU", (0.5, 0.4)), ("HCA-GRU-x2", (0.6, 0.3)))
        for seed, v in enumerate(values)
    ]
    frame = figures(records)
    assert gains(frame).sort("seed")["gain"].to_list() == pytest.approx([0.2, -0.25])
    row = summary(frame).filter(pl.col("method") == "GRU").row(0, named=True)
    assert row["mean"] == pytest.approx(0.45) and row["sd"] == pytest.approx(np.std([0.5, 0.4], ddof=1)) and row["runs"] == 2


def test_paired_tests_equal_those_of_compare(done: tuple[Path, pl.DataFrame, Study]) -> None:
    """With one seed the test of a metric is the very one that `hcarec compare` makes."""
    _, _, study = done
    data = study.data[0]
    methods = [config.title for config in grids.methods(study.settings, study.widths(data))[4:]]
    records = [record for record in study.records(data) if record["seed"] == 0 and record["method"] in ("GRU", *methods)]
    other = Results(study.results.folder / "other", work_folder=study.results.work)
    found = paired_tests(other, records, methods, study.settings.ks, data.path)
    assert found is not None
    keys = {record["method"]: record["key"] for record in records}
    a, b = (pl.read_parquet(study.results.users / f"{keys[method]}.parquet") for method in ("GRU", methods[0]))
    ndcg = [frame["ndcg@20"].to_numpy().astype(float)[:, None] for frame in (a, b)]
    expected = _rows(Parts(["ndcg@20"], ndcg[0], ndcg[1], np.ones_like(ndcg[0])), 0)[0]
    entry = found["tests"][methods[0]]["ndcg@20"]
    assert entry["difference"] == pytest.approx(expected.difference) and entry["relative"] == pytest.approx(expected.relative)
    assert 0 < entry["p"] <= entry["p_holm"] <= 1
    assert sum(part["users"] for part in found["by_length"]) == len(a)
    assert paired_tests(other, records, methods, study.settings.ks) == read_json(other.folder / "tests" / "small" / f"{TEST}.json")


def test_verdicts_follow_the_figures() -> None:
    def tests_with(gain: float, word: str, change: float) -> dict[str, Any]:
        entry = {
            "base": 0.1,
            "value": 0.1 * (1 + gain),
            "difference": 0.1 * gain,
            "low": 0.0,
            "high": 0.2,
            "p": 0.01,
            "p_holm": 0.02,
            "relative": gain,
            "verdict": word,
        }
        names = [*(f"{metric}@{k}" for k in (5, 20) for metric in ("recall", "map", "ndcg")), "auc"]
        beside = {"x": {"ndcg@20": entry}, "h": {"ndcg@20": entry}}
        return {
            "tests": {"xh": dict.fromkeys(names, entry)},
            "complete_against": beside,
            "recall_gain_change": {"xh": {"value": change, "low": change, "high": change}},
        }

    words = lambda gain, word, change: [v.holds for v in verdicts("d", ("x", "h", "xh"), tests_with(gain, word, change), None, (5, 20))]  # noqa: E731
    assert words(0.5, "higher", 0.1) == ["holds", "holds", "holds", "does not hold", "holds", "not tested"]
    assert words(0.3, "higher", -0.1) == ["holds", "holds in part", "does not hold", "does not hold", "holds", "not tested"]
    assert words(0.1, "none shown", 0.1) == ["does not hold", "does not hold", "does not hold", "not tested", "does not hold", "not tested"]
    assert words(-0.1, "lower", 0.1)[:3] == ["does not hold", "does not hold", "does not hold"]
    assert {v.holds for v in verdicts("d", ("x", "h", "xh"), None, None, (5, 20))} == {"not tested"}
    level = {"width": 5, "rising": 0.01, "falling": 0.02, "chance": 1 / 120, "newest_highest": 0.2, "median_ratio": 1.5}
    shown = {"method": "xh", "users": 9, "hidden": level, "input": {**level, "rising": 0.9}}
    assert verdicts("d", ("x", "h", "xh"), None, shown, (5, 20))[-1].holds == "holds in part"


def test_the_report_is_whole_and_the_same_when_made_again(done: tuple[Path, pl.DataFrame, Study]) -> None:
    from hcarec.experiments.report import write_report

    out, _, study = done
    first = {path.name: path.read_bytes() for path in write_report(study.results, study.settings)}
    assert {path.name: path.read_bytes() for path in write_report(study.results, study.settings)} == first
    text = first["report.md"].decode()
    for heading in ("claims", "Table 3", "Table 2", "Figure 2", "Table 4", "Table 5", "Learning and seeds"):
        assert f"{heading}" in text
    assert "small, validation" in text and "±" in text and str(out) not in text
    assert {"widths.png", "gains.png", "losses.png", "attention-small.png", "monotony.png"} <= set(first)


def test_a_report_needs_only_the_small_files(done: tuple[Path, pl.DataFrame, Study], tmp_path: Path) -> None:
    """What is kept in version control (not the work folder) is enough."""
    import shutil

    from hcarec.experiments.report import write_report

    out, _, study = done
    write_report(study.results, study.settings)
    shutil.copytree(out, tmp_path / "copy", ignore=shutil.ignore_patterns("work", "figures", "report*"))
    write_report(Results(tmp_path / "copy"), study.settings)
    assert (tmp_path / "copy" / "report.md").read_bytes() == (out / "report.md").read_bytes()


def test_attention_is_that_of_the_chosen_network(done: tuple[Path, pl.DataFrame, Study], log: Path) -> None:
    out, _, study = done
    found = read_json(out / "attention" / "small.json")
    w_x, w_h = study.widths(study.data[0]).both
    assert found["method"] == f"HCA-GRU-x{w_x}-h{w_h}" and len(found["items"]) == w_x + w_h - 1
    assert len(found["a_h"]) == w_h and [len(row) for row in found["a_x"]] == [w_x] * w_h
    assert all(sum(row) == pytest.approx(1) for row in [found["a_h"], *found["a_x"]])
    frame = experiments.attention({"small": log}, out, epochs=EPOCHS, runs=2, widths=(2, 3))
    assert frame.filter(pl.col("level") == "hidden").sort("lag", descending=True)["weight"].to_list() == found["a_h"]
    newest = frame.filter((pl.col("level") == "input") & (pl.col("step") == 0)).sort("lag", descending=True)
    assert newest["weight"].to_list() == found["a_x"][-1] and newest["item"].to_list()[-1] == found["items"][-1]["item"]
    with pytest.raises(HcarecError, match="is not among"):
        experiments.attention({"small": log}, out, epochs=EPOCHS, runs=2, widths=(2, 3), user="nobody")


def test_an_estimate_learns_from_earlier_runs(done: tuple[Path, pl.DataFrame, Study]) -> None:
    _, _, study = done
    run = study.runs("widths")[0]
    records = [{**record, "seconds_here": 100.0} for record in study.results.read().values()]
    assert estimate(run, records, False).seconds == 100.0
    planned = estimate(run, [], True)
    assert 0 < planned.seconds < 60 and planned.memory > 1 << 20 and planned.disk > estimate(run, [], False).disk


def test_frames_of_other_experiments(done: tuple[Path, pl.DataFrame, Study], log: Path) -> None:
    out, frame, study = done
    table = experiments.datasets({"small": log}, out)
    data = Sequences.open(log)
    assert table.row(0, named=True)["events"] == data.n_events and table["data"].to_list() == ["small"]
    assert experiments.load_runs(out).height >= frame.height
    lines = curves(study.records(study.data[0]))
    assert set(lines["epoch"]) == {1, 2} and lines.filter(pl.col("loss").is_null()).is_empty()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"runs": 0}, "runs is 0"),
        ({"widths": (1, 2)}, "at least 2"),
        ({"selection": "validatoin"}, "did you mean"),
        ({"epochs": 0}, "epochs is 0"),
        ({"d": 0}, "d is 0"),
        ({"ks": (0,)}, "k is"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(HcarecError, match=words):
        Settings(**changes)


def test_other_k_are_possible(log: Path, tmp_path: Path) -> None:
    frame = experiments.methods({"small": log}, tmp_path, epochs=1, runs=1, ks=(3, 7), workers=1)
    assert set(frame["k"].drop_nulls()) == {3, 7}
    assert "NDCG@7" in (tmp_path / "report.md").read_text()


def test_the_example_of_the_docs_runs(tmp_path: Path) -> None:
    import importlib.util

    from conftest import REPOSITORY

    specification = importlib.util.spec_from_file_location("experiment_example", REPOSITORY / "docs" / "experiment_example.py")
    assert specification is not None
    assert specification.loader is not None
    example = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(example)
    table = example.main(tmp_path, users=60, epochs=1, runs=1, workers=1)
    assert table.height == 6 and table["gain_percent"].null_count() == 0


def test_two_grids_in_one_folder_are_refused_and_workers_end_with_their_parent(log: Path, tmp_path: Path) -> None:
    running = subprocess.Popen([*run_command(log, tmp_path / "out"), "--epochs", "5000"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while not list((tmp_path / "out" / "work").glob("running/*")) and time.monotonic() < deadline:
            time.sleep(0.05)
        with pytest.raises(HcarecError, match="another experiment is running"):
            experiments.methods({"small": log}, tmp_path / "out", runs=1, epochs=1, workers=1)
        children = subprocess.run(["pgrep", "-P", str(running.pid)], capture_output=True, text=True).stdout.split()
        assert children
    finally:
        running.kill()
        running.wait()
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{child}").exists() for child in children) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [child for child in children if Path(f"/proc/{child}").exists()]
