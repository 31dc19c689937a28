"""Figures of the experiments, drawn from the tidy frames of `frames`; values are fractions there and percent here."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from hcarec.experiments import frames as tidy
from hcarec.experiments.grids import best
from hcarec.experiments.looks import FAINT, GREY, LINES, Look, legend, look, of_family, windows
from hcarec.plots import BLACK, BLUE, ORANGE, figure, heat_strip, short

FAMILIES = {"x": "input level alone", "h": "hidden level alone", "xh": "both levels"}
LEVELS = {"input": "inputs", "hidden": "hidden states"}
TITLES = {"recall": "Recall", "map": "MAP", "ndcg": "NDCG", "auc": "AUC"}


def widths(frames: Mapping[str, pl.DataFrame], path: str | Path) -> Path:
    """Draw the paper's Figure 2, a row of four panels per data set: the networks with one level at each k, GRU behind them.

    Points are means over the runs; bars, and the band of GRU, reach from the least run to the best. `frames`: by data set, as `frames.figures` gives them.
    """
    with figure(path, (13, 0.6 + 2.7 * max(1, len(frames)))) as drawn:
        grid = drawn.subplots(max(1, len(frames)), 4, squeeze=False, width_ratios=(1, 1, 1, 0.5))
        methods: set[str] = set()
        for (name, frame), row in zip(frames.items(), grid, strict=False):
            _one_selection(frame)
            methods |= set(_networks(frame, ("x", "h")))
            for metric, axes in zip(TITLES, row, strict=True):
                _clusters(axes, frame.filter(pl.col("metric") == metric))
                axes.set_title(TITLES[metric], loc="left", fontweight="bold", fontsize=10)
            row[0].set_ylabel(f"{short(name)}, %", parse_math=False)
        legend(drawn, {method.removeprefix("HCA-GRU-"): look(method) for method in sorted(methods, key=_family_first)}, "GRU")
    return Path(path)


def losses(frame: pl.DataFrame, path: str | Path, k: int = 20) -> Path:
    """Draw loss per event and NDCG against the epoch, a row per data set: the mean over runs and a band from the least to the greatest.

    The best epoch of every run is marked. `frame`: as `frames.curves` gives it; `k` is that of its NDCG.
    """
    _one_selection(frame)
    names = _in_order(frame, "data")
    with figure(path, (11, 0.4 + 2.8 * max(1, len(names))), dots=110) as drawn:  # long: many curves
        grid = drawn.subplots(max(1, len(names)), 2, squeeze=False, sharex="row")
        for name, (left, right) in zip(names, grid, strict=False):
            own = frame.filter(pl.col("data") == name)
            for method in sorted(_in_order(own, "method"), key=_family_first):
                runs = own.filter(pl.col("method") == method)
                _curve(left, runs.with_columns(value=pl.col("loss") / pl.col("steps")), method)
                _curve(right, runs.with_columns(value=100 * pl.col("ndcg")), method, best=True)
            left.set_title(short(name, 40), loc="left", fontweight="bold", fontsize=10, parse_math=False)
            left.set(ylabel="loss per event", xlabel="epoch")
            right.set(ylabel=f"NDCG@{k}, %", xlabel="epoch")
            left.legend(loc="upper right", frameon=False, handlelength=3.2, fontsize=9)
        for axes in grid.ravel():
            axes.grid(alpha=0.25)
    return Path(path)


def gains(frame: pl.DataFrame, path: str | Path) -> Path:
    """Draw the gain over GRU of a network of each family, a panel per metric and a band per data set.

    Small dots are runs, each against GRU of its seed; the large one is their mean. Of several widths of a family the best on the data set is
    drawn, by the paper's rule. `frame`: as `frames.figures` gives it.
    """
    _one_selection(frame)
    names, ks = _in_order(frame, "data"), sorted(frame["k"].drop_nulls().unique())
    wanted = [("ndcg", ks[-1]), ("map", ks[-1]), *(("recall", k) for k in sorted({ks[0], ks[-1]}))] if ks else []
    chosen = {name: _chosen(frame.filter(pl.col("data") == name)) for name in names}
    paired = tidy.gains(frame).filter(pl.col("gain").is_finite())
    with figure(path, (12, 1.3 + 0.85 * max(1, len(names)))) as drawn:
        row = drawn.subplots(1, max(1, len(wanted)), sharex=True, sharey=True, squeeze=False)[0]
        for (metric, k), axes in zip(wanted, row, strict=False):
            _stripes(axes, len(names))
            axes.set_title(f"{TITLES[metric]}@{k}", loc="left", fontweight="bold", fontsize=10)
            axes.set(xlabel="gain over GRU, %")
            for place, name in enumerate(names):
                here = paired.filter((pl.col("data") == name) & (pl.col("metric") == metric) & (pl.col("k") == k))
                for shift, family in zip((-0.27, 0, 0.27), FAMILIES, strict=True):
                    values = here.filter(pl.col("method") == chosen[name].get(family, ""))["gain"].to_numpy()
                    _dots(axes, 100 * values, place + shift, of_family(family))
        labels = [f"{short(name)}\n{', '.join(method.removeprefix('HCA-GRU-') for method in chosen[name].values())}" for name in names]
        row[0].set_yticks(range(len(names)), labels, parse_math=False)
        row[0].set_ylim(max(1, len(names)) - 0.5, -0.5)
        legend(drawn, {words: of_family(family) for family, words in FAMILIES.items()})
    return Path(path)


def attention(a_x: list[list[float]] | None, a_h: list[float] | None, names: Sequence[str], path: str | Path, title: str = "") -> Path:
    """Draw the paper's Table 5: the weights of one user's last steps over the last items, oldest to newest, which `names` names."""
    reach = max(len(a_x) + len(a_x[0]) - 1 if a_x else 0, len(a_h or []))
    assert reach, "a network without attention has nothing to draw"
    known = [short(name) for name in names][-reach:]
    labels = ["(before the start)"] * (reach - len(known)) + known
    with figure(path, (max(6.0, 1.8 + 0.95 * reach), 2.4 + 0.42 * (len(a_x or []) + bool(a_h)))) as drawn:
        drawn.suptitle(short(title, 90), parse_math=False)
        axes = drawn.subplots(1, 1)
        heat_strip(axes, a_x, a_h, reach)
        axes.tick_params(labelbottom=True)
        axes.set_xticks(np.arange(reach), labels, rotation=40, ha="right", rotation_mode="anchor", parse_math=False)
    return Path(path)


def monotony(frame: pl.DataFrame, path: str | Path) -> Path:
    """Draw which share of the windows has weights that only fall with time, only rise, or neither, and what chance gives: one in w! each way.

    `frame`: a row per bar with `data`, `method`, `level` (input, hidden), `width` and the fractions `rising` and `falling`.
    """
    rows = frame.drop_nulls(["rising", "falling"]).drop_nans(["rising", "falling"]).to_dicts()
    places = np.arange(len(rows))
    falling, rising = (np.array([100 * row[kind] for row in rows], float) for kind in ("falling", "rising"))
    chance = np.array([100 / math.factorial(row["width"]) for row in rows])
    with figure(path, (9, 1.2 + 0.42 * max(1, len(rows)))) as drawn:
        axes = drawn.subplots(1, 1)
        shared: dict[str, Any] = {"height": 0.6, "edgecolor": "white", "linewidth": 0}
        axes.barh(places, falling, color=ORANGE, hatch="\\\\\\", label="only falling with time", **shared)
        axes.barh(places, 100 - falling - rising, left=falling, color=FAINT, label="neither", **shared)
        axes.barh(places, rising, left=100 - rising, color=BLUE, hatch="///", label="only rising with time", **shared)
        for label, at in (("by chance", chance), ("_", 100 - chance)):
            axes.vlines(at, places - 0.42, places + 0.42, color="black", linewidth=2, label=label)
        axes.set_yticks(places, [f"{short(row['data'])}: {row['width']} {LEVELS[row['level']]}" for row in rows], parse_math=False)
        axes.set(xlim=(0, 100), ylim=(max(1, len(rows)) - 0.4, -0.6), xlabel="share of windows, %")
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        drawn.legend(loc="outside upper center", ncols=4, frameon=False, handlelength=1.6)
    return Path(path)


def _clusters(axes: Any, own: pl.DataFrame) -> None:
    """Draw one metric on one data set: at each k a cluster of points, the x-family before the h-family, narrow windows before wide ones."""
    ks = sorted(own["k"].drop_nulls().unique())
    for place, k in enumerate(ks or [None]):
        at_k = own.filter(pl.col("k").eq_missing(k))
        _reference(axes, _values(at_k, "GRU"), place)
        for family, middle in (("x", -0.22), ("h", 0.22)):
            runs = [(method, values) for method in _networks(own, (family,)) if len(values := _values(at_k, method))]
            places = [place + middle + 0.36 * ((number + 0.5) / len(runs) - 0.5) for number in range(len(runs))]
            means = [values.mean() for _, values in runs]
            axes.plot(places, means, color=look(f"HCA-GRU-{family}4").colour, linestyle=LINES[family], linewidth=1, alpha=0.6)
            for x, (method, values), mean in zip(places, runs, means, strict=True):
                axes.vlines(x, values.min(), values.max(), color=look(method).colour, linewidth=1.3)
                axes.plot(x, mean, linestyle="none", **look(method).marks(4.6))
    axes.set_xticks(range(len(ks)), [f"@{k}" for k in ks])
    axes.tick_params(axis="x", length=0)
    axes.set_xlim(-0.55, max(1, len(ks)) - 0.45)
    axes.grid(axis="y", alpha=0.25)


def _reference(axes: Any, values: np.ndarray, place: float) -> None:
    if len(values):
        axes.fill_between([place - 0.45, place + 0.45], values.min(), values.max(), color=GREY, alpha=0.15, linewidth=0)
        axes.hlines(values.mean(), place - 0.45, place + 0.45, color=GREY, linestyle=look("GRU").line, linewidth=1.4)


def _curve(axes: Any, runs: pl.DataFrame, method: str, best: bool = False) -> None:
    """Draw `value` against the epoch, and the greatest of each run (the first where several are equal) as a marker."""
    style, kept = look(method), runs.filter(pl.col("value").is_finite()).sort("seed", "epoch")
    found = kept.group_by("epoch").agg(mean=pl.col("value").mean(), low=pl.col("value").min(), high=pl.col("value").max()).sort("epoch")
    axes.fill_between(found["epoch"], found["low"], found["high"], color=style.colour, alpha=0.15, linewidth=0)
    axes.plot(found["epoch"], found["mean"], color=style.colour, linestyle=style.line, linewidth=1.5)
    axes.plot([], [], linestyle=style.line, linewidth=1.5, label=method, **style.marks(5.5))  # for the legend, line and marker
    for _, run in kept.group_by("seed", maintain_order=True) if best else ():
        top = int(np.argmax(run["value"].to_numpy()))
        axes.plot(run["epoch"][top], run["value"][top], linestyle="none", clip_on=False, zorder=4, **style.marks(5.5))


def _stripes(axes: Any, n: int) -> None:
    """Prepare a panel of n bands that the eye can follow, and the line of no gain."""
    for place in range(0, n, 2):
        axes.axhspan(place - 0.5, place + 0.5, color=FAINT, alpha=0.6, linewidth=0)
    axes.axvline(0, color=BLACK, linewidth=1.2)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", alpha=0.25)


def _dots(axes: Any, values: np.ndarray, y: float, style: Look) -> None:
    if len(values):
        axes.hlines(y, 0, values.mean(), color=style.colour, linewidth=1.6, alpha=0.5)
        axes.plot(values, np.full(len(values), y), "o", markersize=3.4, color=style.colour, alpha=0.55, markeredgewidth=0)
        axes.plot(values.mean(), y, linestyle="none", zorder=4, **style.marks(6.5))


def _values(frame: pl.DataFrame, method: str) -> np.ndarray:
    """Return the figures of a method in percent, one a run, without those that are missing."""
    values: np.ndarray = frame.filter((pl.col("method") == method) & pl.col("value").is_finite())["value"].to_numpy()
    return 100 * values


def _networks(frame: pl.DataFrame, families: Sequence[str]) -> list[str]:
    """Return the networks of some families that a frame has, in order."""
    return sorted((method for method in _in_order(frame, "method") if (found := windows(method)) and found[0] in families), key=_family_first)


def _family_first(method: str) -> tuple[int, int, str]:
    """Order methods: baselines, then family by family, narrow before wide."""
    family, width = windows(method) or ("", 0)
    return ("", *FAMILIES).index(family), width, method


def _chosen(frame: pl.DataFrame) -> dict[str, str]:
    """Return the network to draw of each family that the runs on a data set have."""
    found = {family: best(frame, _networks(frame, (family,))) for family in FAMILIES}
    return {family: method for family, method in found.items() if method}


def _in_order(frame: pl.DataFrame, column: str) -> list[str]:
    return frame[column].unique(maintain_order=True).to_list()


def _one_selection(frame: pl.DataFrame) -> None:
    assert frame["selection"].n_unique() <= 1, "runs of two selections of the epoch are never drawn as one"
