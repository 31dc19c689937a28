"""Figures as PNG or SVG files; matplotlib is loaded when one is drawn."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hcarec import atomic
from hcarec.errors import ConfigError

if TYPE_CHECKING:
    from hcarec.data.inspect import Report
    from hcarec.data.statistics import Distribution

FORMATS = ("png", "svg")
BLUE, ORANGE, BLACK = "#0072B2", "#E69F00", "#333333"
"""Colours that stay apart for the colour-blind (Okabe and Ito)."""


def length_and_popularity(report: Report, path: str | Path) -> Path:
    """Draw how long users' histories are and how popularity falls with rank; the file's ending gives the format."""
    target = Path(path)
    kind = target.suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise ConfigError(f"cannot draw '{target}': name a file that ends in .{', .'.join(FORMATS)}")
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figures = report.statistics
    style: dict[Any, Any] = {"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "hcarec"}
    with rc_context(style):
        figure = Figure(figsize=(10, 4), layout="constrained")
        FigureCanvasAgg(figure)
        left, right = figure.subplots(1, 2)
        _lengths(left, figures.lengths)
        _popularity(right, figures.popularity)
        figure.suptitle(f"{report.name}: {figures.users:,} users, {figures.items:,} items, {figures.events:,} events")
        out = io.BytesIO()
        # No date or version inside, so that the same data gives the same file.
        figure.savefig(out, format=kind, dpi=150, metadata={"Software": None} if kind == "png" else {"Date": None})
    atomic.write_bytes(target, out.getvalue())
    return target


def _lengths(axes: Any, lengths: Distribution) -> None:
    """Draw users by the number of their events, in bins that double: 1, 2-3, 4-7, .. are equally wide on a log scale."""
    axes.set(title="Events per user", xlabel="events of a user", ylabel="users")
    if not lengths.total:
        return
    values, counts = lengths.values[lengths.values > 0], lengths.counts[lengths.values > 0]
    powers = np.arange(int(values[0]).bit_length() - 1, int(values[-1]).bit_length() + 1)
    edges = 2.0**powers
    heights, _ = np.histogram(values, edges, weights=counts)
    axes.bar(edges[:-1], heights, np.diff(edges), align="edge", color=BLUE, edgecolor="white", linewidth=1)
    axes.set_xscale("log", base=2)
    axes.set_xticks(edges[:: 1 + len(edges) // 12])
    _thousands(axes.xaxis)
    _thousands(axes.yaxis)
    median = lengths.quantile(50)
    axes.axvline(median, color=ORANGE, linewidth=2, label=f"median {median:,}")
    axes.axvline(lengths.mean, color=BLACK, linewidth=2, linestyle="--", label=f"mean {lengths.mean:,.1f}")
    axes.legend(framealpha=0.9, edgecolor="none", loc="upper right")


def _popularity(axes: Any, popularity: Distribution) -> None:
    """Draw the events of an item against its rank in popularity, both on a log scale."""
    axes.set(title="Events per item", xlabel="rank of the item in popularity", ylabel="events of the item")
    values, counts = popularity.values[::-1], popularity.counts[::-1]
    values, counts = values[values > 0], counts[values > 0]
    if not len(values):
        return
    last = np.cumsum(counts)
    ranks = np.column_stack([last - counts + 1, last]).ravel()  # items of equal popularity are a level stretch
    axes.plot(ranks, np.repeat(values, 2), color=BLUE, linewidth=2)
    axes.set(xscale="log", yscale="log", xlim=(0.8, 1.25 * last[-1]), ylim=(0.8, 1.5 * values[0]))
    _thousands(axes.xaxis)
    _thousands(axes.yaxis)
    axes.grid(alpha=0.25)
    axes.axvspan(0.8, np.ceil(popularity.n / 10) + 0.5, color=ORANGE, alpha=0.15, linewidth=0)
    share = f"{100 * popularity.top(0.1):.0f}%"
    axes.text(0.04, 0.06, f"top tenth of items:\n{share} of events", transform=axes.transAxes, color=BLACK)


def _thousands(axis: Any) -> None:
    axis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value >= 1 or value == 0 else "")
    axis.set_minor_formatter(lambda value, _: "")
