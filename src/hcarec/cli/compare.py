"""`hcarec compare`: two results side by side, with tests."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from hcarec.cli.console import console, emit_json, working

if TYPE_CHECKING:
    from rich.table import Table

    from hcarec.comparison import Comparison, Row

WIDE = 104
"""Columns that the whole table needs; a narrower terminal gets short verdicts and no relative differences."""
SHORT = {"B is higher": "B", "A is higher": "A", "no difference shown": "-"}


def compare(
    a: Annotated[Path, Argument(metavar="A.json", help="Result of 'hcarec evaluate -o'; its per-user file lies beside it.")],
    b: Annotated[Path, Argument(metavar="B.json", help="The other result, made under the same protocol.")],
    seed: Annotated[int, Option(help="Seed of the draws of the tests.")] = 0,
    json: Annotated[str | None, Option(metavar="FILE", help="Write everything as JSON to a file, or to standard output with '-'.")] = None,
) -> None:
    """Compare two results user by user: differences (B - A), 95% intervals, p-values; unequal protocols are refused."""
    with working("comparing"):
        from hcarec.comparison import compare as compare_results

        found = compare_results(a, b, seed=seed)
    if json is not None:
        emit_json(json, found.as_dict())
    if json == "-":
        return
    shown = console()
    shown.print(f"A: {a} ({found.a})", markup=False)
    shown.print(f"B: {b} ({found.b})", markup=False)
    shown.print(_table(found, shown.width >= WIDE))
    shown.print(found.summary, style="bold", markup=False)
    shown.print("the tests ask whether other users would give the same; another training seed is another matter: train several")


def _table(found: Comparison, wide: bool) -> Table:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("metric", no_wrap=True)
    for heading in ("A", "B", "B - A", "95% interval", *["relative"] * wide, "p (Holm)"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for row in found.rows:
        cells = list(_cells(row))
        if not wide:
            cells = [*cells[:5], cells[6], SHORT[row.verdict]]
        table.add_row(*cells, style=None if row.verdict == "no difference shown" else "bold")
    return table


def _cells(row: Row) -> tuple[str, ...]:
    interval = f"{row.low:+.4f} .. {row.high:+.4f}"
    relative = "" if row.relative is None else f"{row.relative:+.1%}"
    p = "< 0.001" if row.p_holm < 0.001 else f"{row.p_holm:.3f}"
    return row.metric, f"{row.a:.4f}", f"{row.b:.4f}", f"{row.difference:+.4f}", interval, relative, p, row.verdict
