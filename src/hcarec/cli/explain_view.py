"""Show an explanation in the terminal: the heat strip of the paper's Table 5, then the measured effects."""

from __future__ import annotations

import textwrap

from rich.console import Console
from rich.style import Style
from rich.table import Table
from rich.text import Text

from hcarec.cli.recommend import printable
from hcarec.explanation import Explanation
from hcarec.terminal_plots import bar, heat_colour, heat_row

CELL, WIDEST, LABEL, NAME_LINES, BAR = 6, 11, 9, 3, 12
"""Characters of a cell at least and at most, of the label before a row, lines for an item's name, characters of the longest bar."""


def render(found: Explanation, console: Console) -> None:
    """Print the heat strip, the events with weight and effect, and how far the two agree."""
    one = found.recommended
    item = f" ({printable(str(one.item))})" if one.title else ""
    console.print(Text(f"{found.model} recommends {printable(one.label)}{item}, score {one.score:.4f}", style="bold"))
    blocks = (console.encoding or "").lower().replace("-", "").startswith("utf")
    if found.columns:
        _strip(found, console, blocks)
    console.print(_events(found, blocks))
    console.print("effect: how much lower the score is when that event is left out")
    console.print(Text(found.verdict, style="bold"))


def strip_rows(found: Explanation) -> list[tuple[str, list[float | None]]]:
    """Return the rows of the strip: a_h, then a_x of each step, every row over all places of the windows, None where it does not reach."""
    n = found.columns
    rows: list[tuple[str, list[float | None]]] = []
    if found.a_h is not None:
        rows.append(("a_h", [None] * (n - len(found.a_h)) + list(found.a_h)))
    for place, weights in enumerate(found.a_x or []):
        after = len(found.a_x or []) - 1 - place
        rows.append((f"a_x {step_name(after)}", [None] * (n - after - len(weights)) + list(weights) + [None] * after))
    return rows


def step_name(back: int) -> str:
    """Name a step by its distance from the last one."""
    return f"n-{back}" if back else "n"


def place_names(found: Explanation) -> list[str]:
    """Return the item's name at each place of the windows, empty before the start of the history."""
    names = [event.label for event in found.events][-found.columns :] if found.columns else []
    return [""] * (found.columns - len(names)) + [printable(name) for name in names]


def _strip(found: Explanation, console: Console, blocks: bool) -> None:
    rows, names, n = strip_rows(found), place_names(found), found.columns
    shown = max(1, min(n, (console.width - LABEL) // (CELL + 1)))
    width = min(WIDEST, (console.width - LABEL) // shown - 1)
    most = max(weight for _, weights in rows for weight in weights if weight is not None)
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(width=LABEL - 1, no_wrap=True)
    for _ in range(shown):
        table.add_column(width=width, justify="right")
    table.add_row("", *(Text(step_name(n - 1 - place), style="bold") for place in range(n - shown, n)))
    table.add_row("", *(Text(_short(name, width), style="dim") for name in names[n - shown :]))
    for label, weights in rows:
        cells = zip(heat_row(weights, most, width, blocks), weights, strict=True)
        table.add_row(label, *[Text(text, style=_style(weight, most)) for text, weight in cells][n - shown :])
    console.print(table)
    legend = {"a_h: weights of the last hidden states": found.a_h, "a_x: weights of the inputs at each of those steps": found.a_x}
    about = [text for text, level in legend.items() if level]
    cut = f"; the {n - shown} oldest places do not fit here, --json and --plot have all" if shown < n else ""
    start = ", '-' is before the start" if "" in names[n - shown :] else ""
    console.print(f"{'; '.join(about)}; darker is more{start}{cut}", style="dim", markup=False)


def _short(name: str, width: int) -> str:
    """Break a name into a few short lines; '-' stands for no event."""
    lines = textwrap.wrap(" ".join(word[:width] for word in name.split()), width)[:NAME_LINES] or ["-"]
    return "\n".join(lines)


def _style(weight: float | None, most: float) -> Style:
    if weight is None or not most:
        return Style()
    background, text = heat_colour(weight / most)
    return Style(color=text, bgcolor=background)


def _events(found: Explanation, blocks: bool) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("event")
    table.add_column("item", overflow="ellipsis", no_wrap=True)
    if found.columns:
        table.add_column("weight", justify="right")
    table.add_column("effect", justify="right")
    table.add_column("", min_width=BAR, no_wrap=True)
    most = max((abs(event.effect) for event in found.events), default=0.0)
    for back, event in zip(reversed(range(len(found.events))), found.events, strict=True):
        item = f" ({event.item})" if event.title else ""
        weight = [f"{event.weight:.2f}"] if event.weight is not None else []
        strength = bar(abs(event.effect) / most if most else 0.0, BAR, blocks)
        table.add_row(step_name(back), Text(printable(f"{event.label}{item}")), *weight, f"{event.effect:+.4f}", strength)
    return table
