"""Figures as PNG or SVG files; matplotlib is loaded when one is drawn."""

from __future__ import annotations

import contextlib
import io
import textwrap
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hcarec import atomic
from hcarec.errors import ConfigError

if TYPE_CHECKING:
    from hcarec.data.inspect import Report
    from hcarec.data.statistics import Distribution
    from hcarec.explanation import Explanation

FORMATS = ("png", "svg")
COLORS = 128
"""Colors of a PNG file: as good to the eye as all of them, at a third of the size."""
BLUE, ORANGE, BLACK = "#0072B2", "#E69F00", "#333333"
"""Colours that stay apart for the colour-blind (Okabe and Ito)."""


def length_and_popularity(report: Report, path: str | Path) -> Path:
    """Draw how long users' histories are and how popularity falls with rank; the file's ending gives the format."""
    figures = report.statistics
    with figure(path, (10, 4)) as drawn:
        left, right = drawn.subplots(1, 2)
        _lengths(left, figures.lengths)
        _popularity(right, figures.popularity)
        drawn.suptitle(f"{report.name}: {figures.users:,} users, {figures.items:,} items, {figures.events:,} events")
    return Path(path)


def attention(found: Explanation, path: str | Path) -> Path:
    """Draw an explanation: the attention weights as a heat strip over the last events, and the measured effect of each below."""
    n = max(found.columns, len(found.events))
    n_rows = (len(found.a_x) if found.a_x else 0) + (1 if found.a_h else 0)
    names = ["(before the start)"] * (n - len(found.events)) + [short(event.label) for event in found.events]
    effects = np.array([np.nan] * (n - len(found.events)) + [event.effect for event in found.events])
    size = (max(6.0, 1.2 + 0.95 * n), 4.2 + 0.42 * n_rows)
    with figure(path, size) as drawn:
        drawn.suptitle(f"{found.model} recommends {short(found.recommended.label, 60)}", parse_math=False)
        if n_rows:
            strip, below = drawn.subplots(2, 1, sharex=True, height_ratios=(0.42 * n_rows, 1.6))
            heat_strip(strip, found.a_x, found.a_h, n)
        else:
            below = drawn.subplots(1, 1)
        colours = [BLUE if effect >= 0 else ORANGE for effect in np.nan_to_num(effects)]
        below.bar(np.arange(n), np.nan_to_num(effects), 0.7, color=colours)
        below.axhline(0, color=BLACK, linewidth=1)
        below.set(ylabel="score lost when\nleft out", xlabel="events, oldest to newest", xlim=(-0.5, n - 0.5))
        below.set_xticks(np.arange(n), names, rotation=40, ha="right", rotation_mode="anchor", parse_math=False)
        below.set_title(_wrapped(found.verdict, int(11 * size[0])), fontsize=9, loc="left")
    return Path(path)


@contextlib.contextmanager
def figure(path: str | Path, size: tuple[float, float], dots: int = 150) -> Iterator[Any]:
    """Yield an empty figure that is written when the block ends; the file's ending gives the format, `dots` the resolution of a PNG (per inch)."""
    target = Path(path)
    kind = target.suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise ConfigError(f"cannot draw '{target}': name a file that ends in .{', .'.join(FORMATS)}")
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    style: dict[Any, Any] = {"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "hcarec"}
    with rc_context(style), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # a name in a script that the font lacks is drawn as boxes
        drawn = Figure(figsize=size, layout="constrained")
        FigureCanvasAgg(drawn)
        yield drawn
        out = io.BytesIO()
        # No date or version inside, so that the same data gives the same file.
        drawn.savefig(out, format=kind, dpi=dots, metadata={"Software": None} if kind == "png" else {"Date": None})
    atomic.write_bytes(target, _few_colors(out, dots) if kind == "png" else out.getvalue())


def _few_colors(image: io.BytesIO, dots: int) -> bytes:
    """Return a PNG file whose colors are a palette."""
    from PIL import Image

    out = io.BytesIO()
    with Image.open(image) as drawn:
        palette = drawn.convert("RGB").quantize(COLORS, dither=Image.Dither.NONE)
    palette.save(out, "png", optimize=True, dpi=(dots, dots))
    return out.getvalue()


def heat_strip(axes: Any, a_x: list[list[float]] | None, a_h: list[float] | None, n: int) -> None:
    """Draw a_h and then a_x of each step as rows of cells with their numbers; cells that a window does not reach stay white."""
    steps = len(a_x or [])
    labels = ["hidden states"] * bool(a_h) + [f"inputs at n{-after or ''}" for after in reversed(range(steps))]
    grid = np.full((len(labels), n), np.nan)
    if a_h:
        grid[0, n - len(a_h) :] = a_h
    for row, weights in enumerate(a_x or []):
        end = n - (steps - 1 - row)
        grid[len(labels) - steps + row, end - len(weights) : end] = weights
    most = float(np.nanmax(grid))
    axes.pcolormesh(np.arange(n + 1) - 0.5, np.arange(len(labels) + 1) - 0.5, np.ma.masked_invalid(grid), cmap="Blues", vmin=0, vmax=most,
                    edgecolors="white", linewidth=2)  # fmt: skip
    for row, column in np.argwhere(~np.isnan(grid)):
        weight = grid[row, column]
        axes.text(column, row, f"{weight:.2f}", ha="center", va="center", fontsize=9, color="white" if weight > 0.7 * most else "black")
    axes.set_yticks(np.arange(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.tick_params(length=0, labelbottom=False)
    axes.spines[:].set_visible(False)
    axes.set_title("attention weights", fontsize=9, loc="left")


def short(name: str, most: int = 26) -> str:
    """Cut a name that would take the room of others, and what is not printable."""
    text = "".join(character if character.isprintable() else " " for character in name)
    return text if len(text) <= most else text[: most - 1] + "…"


def _wrapped(text: str, width: int) -> str:
    return "\n".join(textwrap.wrap(text, width))


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
