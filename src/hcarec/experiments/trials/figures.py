"""Figures of contest and ablation: dots for methods and ingredients, a panel for each log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hcarec.experiments.looks import FAINT, GREY, Look, look
from hcarec.experiments.trials.tables import Values
from hcarec.plots import BLACK, BLUE, ORANGE, figure, short

ACROSS = 4
"""Panels in a row."""
_OURS = Look("#007556", "D", "solid")
_OTHERS = {
    "GRU, paper": Look(GREY, "x", "solid"),
    "HCA-GRU, paper": Look("#009E73", "d", "solid"),
    "HCA-GRU, two cores": Look("#007556", "D", "solid", False),
}


def method_look(method: str) -> Look:
    """Return how a method of the contest is drawn."""
    return _OURS if method == "HCA-GRU" else _OTHERS.get(method) or look(method)


def contest(
    values: Values, methods: Sequence[str], logs: Mapping[str, str], path: str | Path
) -> Path:
    """Draw NDCG@10 of every method, a panel for each log: seeds as small dots, means as markers.

    `logs` are headings by name. The line is the best mean.
    """
    methods = [method for method in methods if any((log, method) in values for log in logs)]
    down = max(1, -(-len(logs) // ACROSS))
    across = max(1, -(-len(logs) // down))
    with figure(path, (1.6 + 2.7 * across, 0.4 + (0.55 + 0.24 * len(methods)) * down)) as drawn:
        drawn.get_layout_engine().set(wspace=0.05)
        grid = drawn.subplots(down, across, sharey=True, squeeze=False)
        for axes, (log, heading) in zip(grid.ravel(), logs.items(), strict=False):
            _stripes(axes, len(methods))
            axes.set_title(short(heading, 34), loc="left", fontweight="bold", fontsize=10,
                           parse_math=False)  # fmt: skip
            means = {m: float(np.mean(values[log, m])) for m in methods if (log, m) in values}
            if means:
                axes.axvline(max(means.values()), color=BLACK, linewidth=0.8, linestyle="dotted")
            for place, method in enumerate(methods):
                if method in means:
                    _seeds(axes, values[log, method], place, method_look(method))
            axes.locator_params(axis="x", nbins=4)
            axes.set_xlim(0, 1.08 * max((max(values[log, m]) for m in means), default=1))
        for axes in grid.ravel()[len(logs) :]:
            axes.set_visible(False)
        for axes in grid.ravel()[max(0, len(logs) - across) : len(logs)]:  # the lowest of a column
            axes.set_xlabel("NDCG@10")
        grid[0][0].set_yticks(range(len(methods)), methods, parse_math=False)
        grid[0][0].set_ylim(max(1, len(methods)) - 0.5, -0.5)
    return Path(path)


def ablation(
    tests: Mapping[str, Mapping[str, Mapping[str, Any]]],
    ingredients: Sequence[str],
    path: str | Path,
) -> Path:
    """Draw what each ingredient adds to NDCG@10, with 95% intervals, a panel for each log.

    `tests` by log and ingredient; one that a log does not have leaves an empty row.
    """
    across = max(1, len(tests))
    with figure(path, (2.4 + 3.0 * across, 0.9 + 0.3 * len(ingredients))) as drawn:
        row = drawn.subplots(1, across, sharey=True, squeeze=False)[0]
        for axes, (log, of_log) in zip(row, tests.items(), strict=False):
            _stripes(axes, len(ingredients))
            axes.axvline(0, color=BLACK, linewidth=1.2)
            axes.set_title(short(log, 34), loc="left", fontweight="bold", fontsize=10,
                           parse_math=False)  # fmt: skip
            axes.set_xlabel("added to NDCG@10")
            axes.locator_params(axis="x", nbins=5)
            for place, name in enumerate(ingredients):
                if (test := of_log.get(name)) is not None:
                    color = {"higher": BLUE, "lower": ORANGE}.get(test["verdict"], GREY)
                    axes.hlines(place, test["low"], test["high"], color=color, linewidth=1.8)
                    filled = test["verdict"] != "none shown"
                    axes.plot(test["difference"], place, linestyle="none",
                              **Look(color, "o", "solid", filled).marks(6))  # fmt: skip
        row[0].set_yticks(range(len(ingredients)), ingredients, parse_math=False)
        row[0].set_ylim(len(ingredients) - 0.5, -0.5)
    return Path(path)


def curves(points: Mapping[str, Mapping[str, Mapping[int, float]]], path: str | Path) -> Path:
    """Draw NDCG@10 against each size, a panel for each; `points` by curve, log and value."""
    styles = (
        Look(BLUE, "o", "solid"),
        Look(ORANGE, "s", "dashed", False),
        Look(GREY, "^", "dotted"),
    )
    across = max(1, len(points))
    with figure(path, (1.2 + 3.1 * across, 3.2)) as drawn:
        row = drawn.subplots(1, across, squeeze=False)[0]
        for axes, (name, logs) in zip(row, points.items(), strict=False):
            for (log, values), style in zip(logs.items(), styles * len(logs), strict=False):
                axes.plot(list(values), list(values.values()), linestyle=style.line, linewidth=1.4,
                          label=short(log), **style.marks(5))  # fmt: skip
            ticks = sorted({value for values in logs.values() for value in values})
            axes.set_xscale("log", base=2)
            axes.set_xticks(ticks, [str(tick) for tick in ticks])
            axes.minorticks_off()
            highest = max((max(values.values()) for values in logs.values()), default=1.0)
            axes.set_ylim(0, 1.12 * highest)
            axes.set_xlabel(name)
            axes.grid(alpha=0.25)
        row[0].set_ylabel("NDCG@10")
        if any(points.values()):
            row[-1].legend(frameon=False, fontsize=9, loc="lower right")
    return Path(path)


def _stripes(axes: Any, n: int) -> None:
    """Prepare a panel of n bands that the eye can follow."""
    for place in range(0, n, 2):
        axes.axhspan(place - 0.5, place + 0.5, color=FAINT, alpha=0.6, linewidth=0)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", alpha=0.25)


def _seeds(axes: Any, values: Sequence[float], place: int, style: Look) -> None:
    if len(values) > 1:
        axes.plot(values, [place] * len(values), "o", markersize=3.2, color=style.colour, alpha=0.5,
                  markeredgewidth=0)  # fmt: skip
    axes.plot(np.mean(values), place, linestyle="none", zorder=4, **style.marks(6.5))
