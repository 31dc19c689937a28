"""Show the report on a log in the terminal."""

from __future__ import annotations

from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from hcarec.data.finding import Finding, percent
from hcarec.data.inspect import Report
from hcarec.data.statistics import Distribution, Statistics
from hcarec.terminal_plots import histogram

_MARKS = {"ok": ("✓", "+", "green"), "note": ("•", "-", "cyan"), "warn": ("!", "!", "bold yellow")}
_SIDE_BY_SIDE = 100
"""Columns from which the two histograms stand beside each other."""


def render(report: Report, console: Console) -> None:
    """Print statistics, distributions and findings."""
    blocks = _shows_blocks(console)
    console.print(_table(report))
    console.print(_more(report))
    if report.statistics.events:
        console.print(_distributions(report.statistics, console.width, blocks))
    console.print(Text("Health check", style="bold"))
    for finding in sorted(report.findings, key=lambda finding: ("warn", "note", "ok").index(finding.level)):
        console.print(_finding(finding, blocks))
    console.print(_summary(report.findings))


def _shows_blocks(console: Console) -> bool:
    return (console.encoding or "").lower().replace("-", "").startswith("utf")


def _table(report: Report) -> Table:
    """Return the paper's table of data sets, one row."""
    table = Table(title=report.name, title_justify="left", title_style="bold")
    figures = report.statistics
    for heading in ("users", "items", "feedbacks", "mean length", "sparsity"):
        table.add_column(heading, justify="right")
    row = (figures.users, figures.items, figures.events)
    table.add_row(*(f"{count:,}" for count in row), f"{figures.mean_length:.2f}", f"{100 * figures.sparsity:.4f}%")
    return table


def _more(report: Report) -> Table:
    figures, popularity = report.statistics, report.statistics.popularity
    ties = next((finding.figure for finding in report.findings if finding.name == "ties"), None)
    table = Table.grid(padding=(0, 3))
    top = f"top 1% of items {percent(popularity.top(0.01))}, top 10% {percent(popularity.top(0.1))}"
    table.add_row("events in popular items", f"{top}, Gini {popularity.gini():.2f}")
    table.add_row("repeats", f"{percent(figures.repeats)}, of the event just before {percent(figures.consecutive_repeats)}")
    table.add_row("ties in time", "not known" if ties is None else percent(ties))
    return table


def _distributions(figures: Statistics, width: int, blocks: bool) -> Table | Group:
    beside = width >= _SIDE_BY_SIDE
    bar_width = max(8, min(30, (width // 2 if beside else width) - 36))
    panels = [
        _histogram("Events per user", "users", figures.lengths, bar_width, blocks),
        _histogram("Events per item", "items", figures.popularity, bar_width, blocks),
    ]
    if not beside:
        return Group(*panels)
    table = Table.grid(padding=(0, 1))
    table.add_row(*panels)
    return table


def _histogram(title: str, what: str, numbers: Distribution, width: int, blocks: bool) -> Panel:
    lines = histogram(numbers.bins(), width, blocks)
    quantiles = f"median {numbers.quantile(50):,}, 90% up to {numbers.quantile(90):,}, most {numbers.quantile(100):,}"
    body = Text("\n".join([*lines, "", quantiles]))
    return Panel(body, title=f"{title} ({what})", title_align="left", expand=False, border_style="dim")


def _finding(finding: Finding, blocks: bool) -> Table:
    mark, plain, style = _MARKS[finding.level]
    table = Table.grid(padding=(0, 1))
    table.add_column(width=1)
    table.add_column(width=17, no_wrap=True)
    table.add_column()
    table.add_row(Text(mark if blocks else plain, style=style), Text(finding.name, style=style), Text(finding.text))
    if finding.advice:
        table.add_row("", "", Text(("→ " if blocks else "-> ") + finding.advice, style="dim"))
    return table


def _summary(findings: list[Finding]) -> Text:
    counts = {level: sum(finding.level == level for finding in findings) for level in _MARKS}
    warnings = f"{counts['warn']} warning{'s' * (counts['warn'] != 1)}"
    notes = f"{counts['note']} note{'s' * (counts['note'] != 1)}"
    return Text(f"{warnings}, {notes}, {counts['ok']} fine", style="bold yellow" if counts["warn"] else "bold green")
