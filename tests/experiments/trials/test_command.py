"""The command `hcarec experiment contest`: dry runs, pieces, merges, and refused options."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from experiments.trials.trial_cases import Done


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
    assert "2 new records" in error
    assert {row["method"] for row in json.loads(out)} == {"POP", "Markov"}
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
    code, _, error = experiment(*arguments)
    assert code != 0 and words in error


def test_a_merge_is_no_plan(command: Any, done: Done, tmp_path: Path) -> None:
    given = ("--merge", done[0], "--dry-run", "-o", tmp_path / "out")
    code, _, error = command("experiment", "contest", *given)
    assert code == 2
    assert "--merge joins finished records and --dry-run plans runs: give one of them" in error
