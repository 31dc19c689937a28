"""Experiments that meet what goes wrong: Ctrl-C, lost and foreign files, logs that change, several settings in one folder."""

from __future__ import annotations

import dataclasses
import json
import lzma
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from hcarec import HcarecError, synthetic, train
from hcarec.experiments import grids
from hcarec.experiments.data_sets import prepare_all
from hcarec.experiments.document import Verdicts
from hcarec.experiments.frames import figures
from hcarec.experiments.report import Report
from hcarec.experiments.results import Results, write_json
from hcarec.experiments.run import DataSet, Run, perform
from hcarec.experiments.settings import TEST, Settings
from hcarec.experiments.significance import paired_tests
from hcarec.experiments.study import Study
from hcarec.sequences import Sequences

ONE_EPOCH = Settings(epochs=1, runs=1)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "small"
    synthetic(users=40, items=30, mean_length=12, seed=5).save(path)
    return path


@pytest.fixture
def results(tmp_path: Path) -> Results:
    found = Results(tmp_path / "results")
    found.make()
    return found


def one(log: Path) -> DataSet:
    data = Sequences.open(log)
    return DataSet("small", log, data.fingerprint, data.n_users, data.n_items, data.n_events)


# -- keys --------------------------------------------------------------------------------------------------------------


def test_one_run_has_one_key_however_its_settings_are_written(log: Path) -> None:
    written: Any = {"ks": [20, 5, 15, 10], "widths": [3, 2], "l2": 0, "learning_rate": 1}
    same, usual = Settings(**written), Settings(widths=(2, 3), l2=0.0, learning_rate=1.0)
    assert same == usual
    assert Run(one(log), same.config("gru"), 0, TEST, same.ks).key == Run(one(log), usual.config("gru"), 0, TEST).key


def test_pop_is_one_run_whatever_the_first_seed(log: Path) -> None:
    keys = {run.key for first in (0, 2) for run in grids.runs_of([one(log)], [ONE_EPOCH.config("pop")], Settings(first_seed=first), TEST)}
    assert len(keys) == 1


def test_runs_with_other_k_are_not_counted_as_seeds_and_break_no_report(log: Path, results: Results) -> None:
    for ks in ((3, 7), ONE_EPOCH.ks):
        for config in (ONE_EPOCH.config("gru"), ONE_EPOCH.config("hca-gru", 2)):
            assert perform(Run(one(log), config, 0, TEST, ks), results)
    perform(Run(one(log), Settings(epochs=2).config("gru"), 0, TEST, (3, 7)), results)
    prepare_all({"small": log}, results)
    few = Study([one(log)], results, Settings(epochs=1, ks=(5, 10)))
    assert few.records(one(log)) == []
    usual = Study([one(log)], results, ONE_EPOCH)
    assert usual.frame(one(log)).filter(pl.col("method") == "GRU", pl.col("metric") == "auc").height == 1
    assert Report(results, ONE_EPOCH).document().sections


def test_results_carry_the_name_that_the_log_has_now(log: Path, results: Results) -> None:
    perform(Run(one(log), ONE_EPOCH.config("gru"), 0, TEST), results)
    renamed = dataclasses.replace(one(log), name="shop")
    assert set(Study([renamed], results, ONE_EPOCH).frame(renamed)["data"]) == {"shop"}


# -- logs that change --------------------------------------------------------------------------------------------------


def test_a_raw_log_that_has_changed_is_prepared_again(tmp_path: Path, results: Results) -> None:
    raw = tmp_path / "log.csv"
    rows = [f"u{user},i{(user + step) % 7},{step}" for user in range(5) for step in range(6)]
    raw.write_text("\n".join(["user,item,time", *rows]) + "\n")
    before = prepare_all({"shop": raw}, results)[0]
    assert prepare_all({"shop": raw}, results)[0] == before
    raw.write_text("\n".join(["user,item,time", *rows, "u9,i1,3"]) + "\n")
    after = prepare_all({"shop": raw}, results)[0]
    assert after.fingerprint != before.fingerprint and after.users == before.users + 1


def test_data_replaced_under_a_grid_is_noticed(log: Path, results: Results) -> None:
    stale = dataclasses.replace(one(log), fingerprint="0" * 64)
    with pytest.raises(HcarecError, match="replaced by other data"):
        perform(Run(stale, ONE_EPOCH.config("gru"), 0, TEST), results)
    assert results.read() == {}


def test_looking_at_data_for_a_plan_writes_nothing(log: Path, tmp_path: Path) -> None:
    results = Results(tmp_path / "nowhere")
    found = prepare_all({"small": log}, results, note=False)
    assert [run.config.title for run in Study(found, results, ONE_EPOCH).runs("attention")] == ["HCA-GRU-x5-h5"]
    assert not results.folder.exists()


# -- lost, damaged and foreign files -----------------------------------------------------------------------------------


def test_lost_figures_per_user_are_made_again(log: Path, results: Results) -> None:
    """A checkpoint may outlive the figures of best epochs (they are not forced to the disk)."""
    run = Run(one(log), Settings(epochs=4).config("gru"), 0, TEST)
    train(Sequences.open(log), results.running / run.key, model="gru", preset="paper", epochs=4, selection=TEST, threads=1)  # keeps no figures per user
    (results.running / f"{run.key}.users").mkdir()
    (results.running / f"{run.key}.users" / "hits@5.npy").write_bytes(b"")
    record = perform(run, results)
    assert record is not None
    users = pl.read_parquet(results.users / f"{run.key}.parquet")
    assert users["hits@5"].sum() / users["n_test"].sum() == pytest.approx(record["best"]["recall@5"]["value"])
    assert users["ap@5"].mean() == pytest.approx(record["best"]["map@5"]["value"])
    assert list(results.running.iterdir()) == []


@pytest.mark.parametrize("content", ["[]", "{}", '{"key": "k"}', "{", "7"])
def test_a_foreign_file_among_the_runs_is_one_clear_line(content: str, results: Results) -> None:
    path = results.folder / "runs" / "small" / "notes.json"
    path.parent.mkdir(parents=True)
    path.write_text(content)
    with pytest.raises(HcarecError, match=r"notes\.json.*remove it"):
        results.read()


def test_runs_of_another_schema_are_left_alone(log: Path, results: Results) -> None:
    run = Run(one(log), ONE_EPOCH.config("pop"), 0, TEST)
    record = perform(run, results)
    assert record is not None
    results.write("small", {**record, "schema": 0, "key": "old"})
    assert set(results.read()) == {run.key}
    results.pack()
    assert set(results.read()) == {run.key} and len(lzma.decompress((results.folder / "runs" / "small.jsonl.xz").read_bytes()).splitlines()) == 2


# -- packed runs -------------------------------------------------------------------------------------------------------


def perform_two(log: Path, results: Results) -> dict[str, dict[str, Any]]:
    for name in ("pop", "gru"):
        perform(Run(one(log), ONE_EPOCH.config(name), 0, TEST), results)
    return results.read()


def test_packing_changes_no_run_and_gives_the_same_bytes(log: Path, results: Results, tmp_path: Path) -> None:
    before = perform_two(log, results)
    shutil.copytree(results.folder, tmp_path / "copy", ignore=shutil.ignore_patterns("work"))
    results.pack()
    packed = results.folder / "runs" / "small.jsonl.xz"
    assert list((results.folder / "runs").rglob("*")) == [packed]
    assert results.read() == before and list(results.read()) == list(before)
    content = packed.read_bytes()
    results.pack()
    Results(tmp_path / "copy").pack()
    assert content == packed.read_bytes() == (tmp_path / "copy" / "runs" / "small.jsonl.xz").read_bytes()


def test_a_kill_while_runs_are_packed_loses_none_and_doubles_none(log: Path, results: Results, monkeypatch: pytest.MonkeyPatch) -> None:
    before = perform_two(log, results)
    monkeypatch.setattr(Path, "unlink", lambda path, missing_ok=False: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        results.pack()
    monkeypatch.undo()
    assert len(list((results.folder / "runs").glob("*/*.json"))) == 2 and (results.folder / "runs" / "small.jsonl.xz").exists()
    assert results.read() == before
    results.pack()
    assert results.read() == before and not list((results.folder / "runs").glob("*/*.json"))


def test_runs_are_added_to_packed_ones(log: Path, results: Results) -> None:
    before = perform_two(log, results)
    results.pack()
    run = Run(one(log), ONE_EPOCH.config("bpr"), 0, TEST)
    perform(run, results)
    results.pack()
    assert {key: record for key, record in results.read().items() if key != run.key} == before and run.key in results.read()


@pytest.mark.parametrize("content", [b"", b"no xz", lzma.compress(b"[]\n"), lzma.compress(b'{"key": "k"}\n'), lzma.compress(b"{")])
def test_packed_runs_that_are_damaged_are_one_clear_line(content: bytes, results: Results) -> None:
    (results.folder / "runs" / "small.jsonl.xz").write_bytes(content)
    with pytest.raises(HcarecError, match=r"small\.jsonl\.xz' is damaged"):
        results.read()


def test_statistics_that_are_not_ours_are_one_clear_line(log: Path, results: Results) -> None:
    (results.folder / "datasets.json").write_text(json.dumps({"small": {"users": 1}}))
    with pytest.raises(HcarecError, match=r"datasets\.json"):
        prepare_all({"small": log}, results)


def test_a_disk_that_refuses_is_one_clear_line(log: Path, results: Results) -> None:
    results.users.rmdir()
    results.users.write_text("in the way")
    with pytest.raises(HcarecError, match="cannot use"):
        perform(Run(one(log), ONE_EPOCH.config("pop"), 0, TEST), results)


def test_attention_of_other_data_or_settings_is_not_shown(log: Path, results: Results) -> None:
    prepare_all({"small": log}, results)
    perform(Run(one(log), ONE_EPOCH.config("gru"), 0, TEST), results)
    level = {"width": 2, "mean": [0.5, 0.5], "rising": 0.5, "falling": 0.5, "chance": 0.5, "newest_highest": 0.5, "median_ratio": 1.0}
    head = {"data": "small", "method": "HCA-GRU-h2", "seed": 0, "user": "u", "items": [], "a_x": None, "a_h": [0.5, 0.5]}
    write_json(results.folder / "attention" / "small.json", {"run": "of other settings", **head, "users": 1, "hidden": level, "input": None})
    assert Report(results, ONE_EPOCH)._weights("small") is None


def test_claims_without_tests_are_said_to_be_untested(log: Path, results: Results) -> None:
    prepare_all({"small": log}, results)
    settings = Settings(epochs=1, runs=1, window_x=2, window_h=2, window_both=(2, 2))
    for config in grids.methods(settings, grids.Widths(2, 2, (2, 2), False))[3:]:
        perform(Run(one(log), config, 0, TEST), results)
    shutil.rmtree(results.users)
    claims = Report(results, settings).document().sections[0].blocks[0]
    assert isinstance(claims, Verdicts) and {row.holds for row in claims.rows} == {"not tested"}


# -- seeds added over time ---------------------------------------------------------------------------------------------

METHODS = ("HCA-GRU-x2", "HCA-GRU-h2", "HCA-GRU-x2-h2")


def record_of(method: str, seed: int, value: float = 0.1) -> dict[str, Any]:
    config = {"window_x": 2, "window_h": 2}
    best = {name: {"value": value, "epoch": 1} for name in ("map@5", "ndcg@5")}
    return {"data": {"name": "d"}, "selection": TEST, "method": method, "seed": seed, "key": f"{method}-{seed}", "config": config, "best": best}


def write_users(results: Results, record: dict[str, Any]) -> None:
    random = np.random.default_rng([len(record["method"]), record["seed"]])
    figures_ = {name: random.random(20) for name in ("ap@5", "ndcg@5", "auc")}
    pl.DataFrame({"n_test": np.full(20, 4), "hits@5": random.integers(0, 4, 20), **figures_}).write_parquet(results.users / f"{record['key']}.parquet")


def test_widths_are_chosen_from_the_seeds_that_all_have() -> None:
    """A lucky seed that only one network has had so far chooses nothing."""
    frame = figures([record_of("a", 0, 0.10), record_of("b", 0, 0.11), record_of("a", 1, 0.50)])
    assert grids.best(frame, ["a", "b"]) == "b"


def test_tests_are_about_the_seeds_that_all_methods_share(results: Results) -> None:
    records = [record_of(method, seed) for method in ("GRU", *METHODS) for seed in (0, 1)] + [record_of("GRU", 2)]
    for record in records:
        write_users(results, record)
    found = paired_tests(results, records, METHODS, (5,))
    assert found is not None and found["runs"]["GRU"] == ["GRU-0", "GRU-1"]


def test_seeds_can_be_added_where_figures_per_user_are_gone(results: Results) -> None:
    first = [record_of(method, seed) for method in ("GRU", *METHODS) for seed in (0, 1)]
    for record in first:
        write_users(results, record)
    both = paired_tests(results, first, METHODS, (5,))
    shutil.rmtree(results.users)
    results.make()
    more = [*first, *(record_of(method, 2) for method in ("GRU", *METHODS))]
    assert paired_tests(results, more, METHODS, (5,)) == both  # an earlier test stands, rather than none
    for record in more[-4:]:
        write_users(results, record)
    assert paired_tests(results, more, METHODS, (5,)) == both  # of two seeds, against one
    (results.folder / "tests" / "d" / f"{TEST}.json").unlink()
    found = paired_tests(results, more, METHODS, (5,))
    assert found is not None and found["runs"]["GRU"] == ["GRU-2"]


# -- Ctrl-C ------------------------------------------------------------------------------------------------------------


def test_ctrl_c_begins_no_further_run(log: Path, tmp_path: Path) -> None:
    """Workers have been handed their next runs already when it comes."""
    out = tmp_path / "out"
    options = ["--data", f"small={log}", "-o", str(out), "--runs", "2", "--epochs", "1000000", "--workers", "2"]
    running = subprocess.Popen([sys.executable, "-m", "hcarec", "experiment", "widths", *options], stderr=subprocess.PIPE, start_new_session=True)
    try:
        deadline = time.monotonic() + 120
        while len(list(out.glob("work/running/*.users/*.npy"))) < 2 * 13 and time.monotonic() < deadline:
            time.sleep(0.1)
        os.killpg(running.pid, signal.SIGINT)
        _, said = running.communicate(timeout=120)
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
    assert running.returncode == 130 and b"Traceback" not in said
    assert len([path for path in out.glob("work/running/*") if not path.suffix]) == 2
