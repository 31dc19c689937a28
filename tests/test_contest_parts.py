"""The parts of README and docs/choosing.md that are made from the contest's records: here from a few that are made by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from conftest import maker
from hcarec.experiments.data_sets import FILE
from hcarec.experiments.results import SCHEMA, TESTS, Results, write_json
from hcarec.experiments.trials.contest import DEFAULT, METHODS
from hcarec.experiments.trials.study import trial_results

LOGS = {"again": (0.25, 40.0), "never": (0.0, 9.0)}
"""Repeats and mean length of two logs."""
FIGURES: dict[tuple[str, str], list[float]] = {
    ("again", "POP"): [0.01], ("again", "Markov"): [0.1], ("again", "HCA-GRU"): [0.11, 0.13], ("again", "GRU"): [0.115],
    ("never", "Markov"): [0.06], ("never", "ItemKNN"): [0.08], ("never", "HCA-GRU"): [0.05, 0.06], ("never", DEFAULT): [0.03],
}  # fmt: skip
"""NDCG@10 of each seed under the rule that decides."""


def record(log: str, method: str, seed: int, value: float) -> dict[str, Any]:
    rule = "U" if LOGS[log][0] else "F"
    figures = {each: {"ndcg@10": value if each == rule else 0.9} for each in "FU"}
    model = next(each.model for each in METHODS if each.name == method)
    return {
        "schema": SCHEMA, "key": f"{log}-{method}-{seed}-{rule}", "data": {"name": log}, "method": method, "config": {"model": model}, "seed": seed,
        "selection": "validation", "rule": rule, "best": {}, "figures": figures, "curves": {}, "training_events": 1,
        "seconds_here": 750.0, "run_seconds": 720.0, "threads": 2, "machine": {},
    }  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of results: two logs, some methods, and one test; there are no ranks."""
    results = trial_results(tmp_path)
    for (log, method), values in FIGURES.items():
        for seed, value in enumerate(values):
            results.write(log, record(log, method, seed, value))
    shared = {"schema": SCHEMA, "seed": 0}
    other_rule = record("never", "HCA-GRU", 0, 0.5) | shared | {"rule": "U", "key": "under-u"}
    ablated = record("again", "GRU", 0, 0.7) | shared | {"method": "HCA-GRU without x-level", "key": "ablated"}
    for extra in (other_rule, ablated):
        results.write(extra["data"]["name"], extra)
    counts = {"users": 1234, "items": 50, "events": 10_000, "sparsity": 0.9, "filters": {}, "fingerprint": "f"}
    write_json(results.folder / FILE, {log: {**counts, "repeats": repeats, "mean_length": length} for log, (repeats, length) in LOGS.items()})
    note_test(results, ["again-HCA-GRU-0-U"], ["again-GRU-0-U"])
    return tmp_path


def note_test(results: Results, mine: list[str], others: list[str], p: float = 0.01) -> None:
    test = {"runs": [mine, others], "users": 1234, "value": 0.11, "base": 0.115, "difference": -0.005, "low": -0.009, "high": -0.001, "p": p}
    write_json(results.folder / TESTS / "again.json", {"HCA-GRU against GRU, U": test})


def rows(part: str) -> dict[str, dict[str, str]]:
    """Return the first table of a part, by the name of the row and of the column."""
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in part.partition("\n\n")[0].splitlines()]
    return {line[0]: dict(zip(lines[0], line, strict=True)) for line in lines[2:]}


def test_the_table_of_the_readme_has_every_log_and_every_method_that_was_run(folder: Path) -> None:
    part = maker("make_parts").contest(folder)
    found = rows(part)
    assert list(found) == ["`never`", "`again`"]
    assert list(found["`never`"]) == ["log", "users", "items", "rule", "POP", "Markov", "ItemKNN", "GRU", "HCA-GRU", DEFAULT]
    assert list(found["`never`"].values()) == ["`never`", "1,234", "50", "F", "-", "0.0600", "**0.0800**", "-", "0.0550", "0.0300"]
    assert list(found["`again`"].values()) == ["`again`", "1,234", "50", "U", "0.0100", "0.1000", "-", "0.1150", "**0.1200**", "-"]
    assert f"mean over seeds, 2 each (1 for GRU; 1 for {DEFAULT})" in part
    assert "GRU, its own recipe without the two levels, on 0 and lower on 1 of 1 logs." in part and "than Markov" not in part


def test_the_page_on_choosing_says_which_model_is_best_and_what_is_gained(folder: Path) -> None:
    part = maker("make_parts").choosing(folder)
    kinds, gains = rows(part), rows(part.partition("they may be listed.\n\n")[2])
    assert list(kinds["again, U"].values())[1:3] == ["25.0%", "40, 200"]
    assert list(kinds["again, U"].values())[3:] == ["HCA-GRU 0.1200", "GRU, 96%", "Markov, 83%"]
    assert list(kinds["never, F"].values())[3:] == ["ItemKNN 0.0800", "Markov, 75%", "ItemKNN 0.0800"]
    assert list(gains["again, U"].values())[1:] == ["+20.0%", "-0.0050 (-0.0090 to -0.0010)", "-", "-"]
    assert list(gains["never, F"].values())[1:] == ["-8.3%", "-", "-50.0%", "12, 2"]
    assert "the levels do harm on again (-0.0050)." in part


def test_a_difference_that_no_test_shows_is_called_so(folder: Path) -> None:
    note_test(trial_results(folder), ["again-HCA-GRU-0-U"], ["again-GRU-0-U"], p=0.2)
    assert "| -0.0050 (-0.0090 to -0.0010), not shown |" in maker("make_parts").choosing(folder)


def test_without_a_test_the_difference_stands_alone(folder: Path) -> None:
    (trial_results(folder).folder / TESTS / "again.json").unlink()
    part = maker("make_parts").choosing(folder)
    assert "| again, U | +20.0% | +0.0050 |" in part and "- Against" not in part


@pytest.mark.parametrize("part", ["contest", "choosing"])
def test_without_records_a_part_says_so(part: str, tmp_path: Path) -> None:
    parts = maker("make_parts")
    assert getattr(parts, part)(tmp_path) == parts.NO_RECORDS and list(tmp_path.iterdir()) == []


def test_a_log_on_which_only_counting_was_run_is_left_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LOGS, "counted", (0.5, 9.0))
    results = trial_results(folder)
    statistics = json.loads((results.folder / FILE).read_text())
    write_json(results.folder / FILE, statistics | {"counted": statistics["again"] | {"repeats": 0.5}})
    results.write("counted", record("counted", "Markov", 0, 0.2))
    assert set(rows(maker("make_parts").contest(folder))) == {"`again`", "`never`"}
    assert "Logs on which only counting was run are left out." in maker("make_parts").contest(folder)
    assert "counted" not in maker("make_parts").choosing(folder)
