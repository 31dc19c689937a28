from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from hcarec.cli.inspect_view import render
from hcarec.data.inspect import Report, inspect
from hcarec.data.synthetic import synthetic
from hcarec.errors import ConfigError
from hcarec.ids import Ids
from hcarec.plots import length_and_popularity
from hcarec.sequences import Sequences
from hcarec.terminal_plots import bar, histogram


@pytest.fixture(scope="module")
def report() -> Report:
    return inspect(synthetic(users=200))


def small(users: list[list[int]]) -> Report:
    items = np.array([item for user in users for item in user], np.int32)
    offsets = np.cumsum([0, *map(len, users)]).astype(np.int64)
    return inspect(Sequences(items, offsets, Ids.of(range(len(users))), Ids.of(range(int(items.max(initial=0)) + 1))))


def test_bars_to_an_eighth() -> None:
    assert bar(1, 4) == "████"
    assert bar(0.5, 1) == "▌"
    assert bar(1 / 8, 10) == "█▎"
    assert bar(0, 10) == ""
    assert bar(1e-9, 10) == "▏"  # something never looks like nothing
    assert bar(0.3, 10, blocks=False) == "###"


def test_a_histogram_lines_up() -> None:
    lines = histogram([(1, 1, 2), (2, 4, 0), (1000, 1999, 4000)], width=8)
    assert lines == [
        "          1  ▏             2",
        "        2-4                0",
        "1,000-1,999  ████████  4,000",
    ]
    assert histogram([]) == []


def test_a_png_and_an_svg_that_are_the_same_every_time(report: Report, tmp_path: Path) -> None:
    for ending, start in ((".PNG", b"\x89PNG"), (".svg", b"<?xml")):
        one, two = length_and_popularity(report, tmp_path / f"one{ending}"), length_and_popularity(report, tmp_path / f"two{ending}")
        assert one.read_bytes().startswith(start)
        assert one.read_bytes() == two.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.PNG", "one.svg", "two.PNG", "two.svg"]


def test_a_png_has_a_palette_and_its_resolution(report: Report, tmp_path: Path) -> None:
    from PIL import Image

    with Image.open(length_and_popularity(report, tmp_path / "plot.png")) as image:
        assert image.mode == "P" and image.size == (1500, 600) and round(image.info["dpi"][0]) == 150


def test_the_figure_shows_the_data(report: Report, tmp_path: Path) -> None:
    text = length_and_popularity(report, tmp_path / "plot.svg").read_text()
    assert f"{report.statistics.events:,} events" in text
    assert f"median {report.statistics.lengths.quantile(50):,}" in text


@pytest.mark.parametrize("users", [[], [[]], [[0]], [[0, 0, 0]], [[0], [1] * 5000]])
def test_next_to_nothing_is_drawn_too(users: list[list[int]], tmp_path: Path) -> None:
    assert length_and_popularity(small(users), tmp_path / "plot.png").stat().st_size > 0


def test_an_ending_that_is_no_picture(report: Report, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"ends in \.png"):
        length_and_popularity(report, tmp_path / "plot.txt")
    assert not list(tmp_path.iterdir())


def shown(report: Report, width: int, encoding: str = "utf-8") -> str:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding)
    render(report, Console(file=stream, width=width))
    stream.flush()
    return raw.getvalue().decode(encoding)


@pytest.mark.parametrize("width", [50, 80, 110, 200])
def test_the_report_fits_the_terminal(report: Report, width: int) -> None:
    text = shown(report, width)
    assert max(map(len, text.splitlines())) <= width
    assert "Events per user" in text
    assert "Events per item" in text
    joined = " ".join(text.split())
    for finding in report.findings:
        assert finding.name in joined


def test_warnings_come_first(report: Report) -> None:
    text = shown(report, 120)
    places = [text.index(f" {finding.name} ") for finding in sorted(report.findings, key=lambda f: ("warn", "note", "ok").index(f.level))]
    assert places == sorted(places)


def test_a_terminal_without_block_characters_gets_plain_ones(report: Report) -> None:
    text = shown(report, 100, "ascii")
    assert "###" in text


@pytest.mark.parametrize("users", [[], [[]], [[0]]])
def test_an_empty_log_is_shown_too(users: list[list[int]]) -> None:
    assert "Health check" in shown(small(users), 80)
