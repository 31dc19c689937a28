"""`hcarec demo`: the main job, end to end, on the default data set."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from hcarec.cli.console import console
from hcarec.errors import DownloadError

if TYPE_CHECKING:
    from hcarec.sequences import Sequences

DEFAULT = "online-retail"


def demo(
    out: Annotated[Path, Option("--out", "-o", metavar="FOLDER", help="Folder for everything that the demo makes.")] = Path("hcarec-demo"),
) -> None:
    """Do the main job, end to end, on real data."""
    from hcarec.cli.inspect import draw, look
    from hcarec.cli.inspect_view import render

    shown = console()
    data = prepare_default(out / "data")
    shown.print()
    report = look(data)
    render(report, shown)
    shown.print(f"distributions drawn in {draw(report, out / 'inspect.png')}")


def prepare_default(target: Path) -> Sequences:
    """Prepare the default data set, or the synthetic log where that cannot be had."""
    from hcarec.cli.prepare import run, show

    shown = console()
    try:
        shown.print(f"[bold]1. hcarec prepare {DEFAULT} -o {target}[/bold]")
        data = run(DEFAULT, target)
    except DownloadError as error:
        shown.print(f"{error}")
        shown.print("[bold]so the synthetic log serves instead: made here, of no real shop[/bold]")
        data = run("synthetic", target)
    show(data, target)
    return data
