"""The command `hcarec experiment contest`: dry runs, pieces, merges, and refused options."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from experiments.trials.trial_cases import Done, copy_records, study


def experiment(*arguments: object) -> tuple[int, str, str]:
    """Run `hcarec experiment` and return its code, its output and its errors."""
    from typer.testing import CliRunner

    from hcarec.cli.app import app

    done = CliRunner().invoke(app, ["experiment", *map(str, arguments)])
    return done.exit_code, done.stdout, f"{done.stderr}{done.exception or ''}"


def test_a_dry_run_lists_the_pieces_and_writes_nothing(
    logs: dict[str, Path], tmp_path: Path
) -> None:
    given = ("--data", f"once={logs['once']}", "-o", tmp_path / "out")
    code, out, error = experiment("contest", *given, "--dry-run")
    assert code == 0, error
    assert "28 runs, 0 finished" in out and "HCA-GRU, paper" in out
    assert not (tmp_path / "out").exists()


def test_the_command_runs_pieces_and_merges_them(logs: dict[str, Path], tmp_path: Path) -> None:
    given: tuple[object, ...] = ("--data", f"back={logs['back']}", "--workers", 1, "--epochs", 1)
    given += ("--runs", 1, "--set", "d=8", "--minutes", 10)
    for name in ("POP", "Markov"):
        code, _, error = experiment("contest", *given, "--methods", name, "-o", tmp_path / name)
        assert code == 0, error
    merged = ("--merge", tmp_path / "POP", "--merge", tmp_path / "Markov", "-o", tmp_path / "all")
    code, out, error = experiment("contest", *merged, "--json", "-", "--runs", 1)
    assert code == 0, error
    assert "2 new records" in error and "of other settings" not in error
    assert {row["method"] for row in json.loads(out)} == {"POP", "Markov"}
    assert "| Markov " in (tmp_path / "all" / "contest.md").read_text()


def test_a_merge_names_records_that_it_does_not_report(done: Done, tmp_path: Path) -> None:
    copy_records(done, tmp_path / "in")
    given = ("--merge", tmp_path / "in", "-o", tmp_path / "out")
    code, _, error = experiment("contest", *given)
    assert code == 0 and "30 records are of other settings than these" in " ".join(error.split())
    options = ("--epochs", 1, "--runs", 2, "--set", "d=8")
    code, _, error = experiment("contest", *given, *options)
    assert code == 0 and "of other settings" not in error


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
    code, _, error = experiment(*arguments)
    assert code != 0 and words in error


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("contest", ("--dry-run",), "--merge joins finished records and --dry-run plans runs"),
        ("contest", ("--minutes", 5), "--merge runs nothing .*: leave out --minutes"),
        ("contest", ("--methods", "GRU"), "--merge runs nothing .*: leave out --methods"),
        ("ablation", (), "none of the records that were joined is of the ablation"),
    ],
)
def test_a_merge_only_joins_what_it_reports(
    name: str, options: tuple[Any, ...], words: str, command: Any, logs: dict[str, Path],
    tmp_path: Path,
) -> None:  # fmt: skip
    study("contest", {"back": logs["back"]}, tmp_path / "pop", methods=("POP",)).run()
    given = ("--merge", tmp_path / "pop", *options, "-o", tmp_path / "out")
    code, _, error = command("experiment", name, *given)
    assert code == 2 and re.search(words, error.splitlines()[-1])


def test_a_plan_for_a_card_goes_by_what_ran_on_one(
    done: Done, logs: dict[str, Path], tmp_path: Path
) -> None:
    """Records of a CPU say nothing of the card's times, and the other way round."""
    copy_records(done, tmp_path / "out")
    given = ("--data", f"new={logs['once']}", "-o", tmp_path / "out", "--dry-run", "--epochs", 3)
    code, out, error = experiment("contest", *given, "--device", "cuda")
    assert code == 0, error
    assert " on the GPU and " in out and "the times of the GPU are those of one core" in out
    code, out, _ = experiment("contest", *given, "--device", "cpu")
    assert code == 0 and " on the CPU one after the other" in out and "GPU" not in out
