"""Trials run in pieces: a trial resumes, time runs out, and earlier trials give estimates."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments.trials.trial_cases import Done, study, timeless
from hcarec.errors import HcarecError
from hcarec.experiments.trials.study import trial_results
from hcarec.experiments.trials.trial import Trial, ranks_file
from hcarec.training import Callback


class Once(Callback):
    """Ask for an end after the first piece of the first epoch."""

    def stops(self) -> bool:
        return True


def test_a_trial_that_is_ended_goes_on_with_the_same_bits(
    logs: dict[str, Path], tmp_path: Path
) -> None:
    mine = study("contest", logs, tmp_path, epochs=2)
    mine.results.make()
    networks = (trial for trial in mine.trials if trial.method == "HCA-GRU")
    trial = next(trial for trial in networks if trial.data.name == "back")
    assert trial.perform(mine.results, Once()) is None
    assert (mine.results.running / trial.key / "checkpoint").is_dir() and mine.results.read() == {}
    assert trial.perform(mine.results, Callback()) is not None
    assert list(mine.results.running.iterdir()) == []
    other = study("contest", logs, tmp_path / "other", epochs=2)
    other.results.make()
    trial.perform(other.results, Callback())
    assert timeless(mine.results) == timeless(other.results)
    ranks = [ranks_file(each.results, trial.key).read_bytes() for each in (mine, other)]
    assert ranks[0] == ranks[1]


def test_time_that_is_up_ends_a_grid_and_the_next_call_goes_on(
    logs: dict[str, Path], tmp_path: Path
) -> None:
    first = study("contest", logs, tmp_path, methods=("POP",))
    first.minutes = 1e-9
    standing = first.run()
    assert standing.stopped and standing.out_of_time and first.results.read() == {}
    first.minutes = 100
    standing = first.run()
    assert not standing.stopped and len(standing.done) == 2


@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_that_fails_in_an_unforeseen_way_ends_no_other(
    workers: int, logs: dict[str, Path], tmp_path: Path
) -> None:
    mine = study("contest", logs, tmp_path, methods=("POP",))
    mine.workers = workers
    broken = next(trial for trial in mine.trials if trial.data.name == "back")
    ranks_file(mine.results, broken.key).mkdir(parents=True)  # nothing can be written there
    with pytest.raises(HcarecError, match=r"^back POP seed 0 .*other runs are finished and kept$"):
        mine.run()
    assert [record["data"]["name"] for record in mine.results.read().values()] == ["once"]


def test_the_traceback_of_an_unforeseen_failure_is_kept(
    logs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise ZeroDivisionError("unforeseen")

    mine = study("contest", logs, tmp_path, methods=("POP",))
    monkeypatch.setattr(Trial, "_record", fail)
    with pytest.raises(HcarecError, match=r"ZeroDivisionError: unforeseen; '.*' .* \(and 1 more"):
        mine.run()
    assert len(kept := list(mine.results.work.glob("failed-*.txt"))) == 2
    assert "in fail" in kept[0].read_text()


def test_a_trial_that_is_ended_is_not_judged(
    logs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = study("contest", logs, tmp_path, epochs=2)
    mine.results.make()
    trial = next(trial for trial in mine.trials if trial.method == "HCA-GRU")
    monkeypatch.setattr("hcarec.training.finishing.evaluate_part", None)
    monkeypatch.setattr("hcarec.training.fusing.fuse", None)
    assert trial.perform(mine.results, Once()) is None


def test_estimates_come_from_earlier_trials_where_there_are_any(
    done: Done, logs: dict[str, Path]
) -> None:
    mine = study("contest", logs, done[0])
    took = {"seconds_here": 5.0, "planned_seconds": 2.5}
    records = [{**record, **took} for record in mine.results.read().values()]
    trial = next(trial for trial in mine.trials if trial.method == "HCA-GRU")
    assert trial.seconds(records) == 5.0
    unknown = replace(trial, method="new")
    assert unknown.seconds(records) == pytest.approx(2 * unknown.planned_seconds)
    assert unknown.seconds([]) == unknown.planned_seconds > 3
    on_card = replace(trial, device="cuda")
    assert on_card.seconds(records) == trial.planned_seconds
    fast = {**records[0], **took, "device": "NVIDIA H200", "config": trial.config.as_dict()}
    fast |= {"seconds_here": 1.0, "planned_seconds": 50.0, "method": "GRU"}
    assert on_card.seconds([*records, fast]) == pytest.approx(trial.planned_seconds / 50)
    assert trial.seconds([*records, fast]) == 5.0


def test_running_trials_needs_neither_polars_nor_plots(
    logs: dict[str, Path], tmp_path: Path
) -> None:
    """A lent machine may have little beside torch and NumPy.

    Here Numba computes mini-batches as well.
    """
    absent = ("polars", "msgspec", "matplotlib", "rich", "typer", "PIL")
    given = ("contest", {"back": str(logs["back"])}, str(tmp_path))
    settings = {"epochs": 1, "runs": 1, "workers": 1, "methods": ("GRU",), "changes": {"d": 8}}
    code = f"import sys; sys.modules.update(dict.fromkeys({absent!r}))\n"
    code += "from hcarec import experiments\n"
    code += f"print(experiments.run_trials(*{given!r}, **{settings!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "0" and len(trial_results(tmp_path).read()) == 1, done.stderr
