"""The figures of contest and ablation."""

from __future__ import annotations

from pathlib import Path

from PIL import Image

from hcarec.experiments.trials import contest, figures


def test_figures_are_drawn_from_whatever_there_is(tmp_path: Path) -> None:
    names, values = contest.names(), {(log, "GRU"): [0.1] for log in "abcde"}
    few = figures.contest(values, names, dict.fromkeys("abcde", "log, F"), tmp_path / "few.png")
    with Image.open(few) as drawn:
        # Methods without records have no rows, and five logs stand in rows of three.
        assert drawn.height < drawn.width / 3
    values, labels = {("log", "GRU"): [0.1, 0.2]}, {"log": "log, $F$", "other": "other, U"}
    made = [
        figures.contest({}, names, {}, tmp_path / "a.png"),
        figures.contest(values, names, labels, tmp_path / "b.png"),
        figures.ablation({}, ["block"], tmp_path / "c.png"),
        figures.ablation({"log": {}}, ["block"], tmp_path / "d.png"),
        figures.curves({"d": {}}, tmp_path / "e.png"),
        figures.curves({"d": {"log": {8: 0.1}}}, tmp_path / "f.png"),
    ]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in made)
