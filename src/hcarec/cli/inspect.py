"""`hcarec inspect`: statistics and a health check of a prepared data set."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from hcarec.cli.console import console, emit_json, working
from hcarec.errors import ConfigError

if TYPE_CHECKING:
    from hcarec.data.inspect import Report
    from hcarec.sequences import Sequences


def inspect(
    data: Annotated[Path, Argument(metavar="DATA", help="Folder made by 'hcarec prepare'.")],
    plot: Annotated[Path | None, Option(metavar="FILE", help="Where to draw the distributions, PNG or SVG; inspect.png in DATA by default.")] = None,
    seed: Annotated[int, Option(help="Seed of the shuffles that ask whether order matters.")] = 0,
    json: Annotated[str | None, Option(metavar="FILE", help="Write everything as JSON to a file, or to standard output with '-'.")] = None,
) -> None:
    """Show what a data set is like, what is doubtful about it, and what to do about that."""
    from hcarec.sequences import Sequences

    sequences = Sequences.open(data)
    report = look(sequences, seed)
    if json is not None:
        emit_json(json, report.as_dict())
    if json == "-" and plot is None:
        return
    if json != "-":
        from hcarec.cli.inspect_view import render

        render(report, console())
    drawn = draw(report, plot or data / "inspect.png")
    if json != "-":
        console().print(f"distributions drawn in {drawn}")


def look(sequences: Sequences, seed: int = 0) -> Report:
    """Inspect with a word on what is being done."""
    with working("looking at the data"):
        from hcarec.data.inspect import inspect as look_over

        return look_over(sequences, seed)


def draw(report: Report, target: Path) -> Path:
    """Draw the distributions into a file."""
    from hcarec.plots import length_and_popularity

    try:
        length_and_popularity(report, target)
    except OSError as error:
        raise ConfigError(f"cannot write '{target}': {error.strerror}; give another file with --plot") from None
    return target
