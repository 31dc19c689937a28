"""The paper's tables from tidy figures: mean and spread over runs, the best in bold, the gain over GRU, the paper's figure beside ours."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hcarec.experiments import published
from hcarec.experiments.document import Cell, Table
from hcarec.experiments.frames import gains, summary

if TYPE_CHECKING:
    import polars as pl

EARLY, COLLAPSE = 5, 0.3
"""From which epoch on, and by what share, a fall of NDCG is called a collapse."""
NAMES = {"recall": "Recall", "map": "MAP", "ndcg": "NDCG", "auc": "AUC"}


def figures_table(title: str, frame: pl.DataFrame, methods: Sequence[str], ks: Sequence[int], data: str, note: str = "") -> Table:
    """Lay out methods against Recall, MAP, NDCG at each k and AUC, in percent; `frame` holds one data set under one selection."""
    columns = [*((metric, k) for k in ks for metric in ("recall", "map", "ndcg")), ("auc", None)]
    known = {(row["method"], row["metric"], row["k"]): row for row in summary(frame).iter_rows(named=True)}
    present = [method for method in methods if (method, "auc", None) in known]
    best = {column: max((known[method, *column]["mean"] for method in present), default=None) for column in columns}
    rows = []
    for method in present:
        paper = published.figures(data, method) or {}
        cells = []
        for metric, k in columns:
            figure = known[method, metric, k]
            spread = f"± {100 * figure['sd']:.3f}" if figure["sd"] is not None else ""
            said = paper.get(f"{metric}@{k}" if k else metric)
            cells.append(Cell(f"{100 * figure['mean']:.3f}", figure["mean"] == best[metric, k], spread, f"paper {said:g}" if said is not None else ""))
        runs = known[method, "auc", None]["runs"]
        rows.append([Cell(method), *cells, Cell(str(runs))])
    groups = [*((f"@{k}", 3) for k in ks), ("", 2)]
    return Table(title, ["method", *(NAMES[metric] for metric, _ in columns), "runs"], rows, note, groups)


def gains_table(title: str, frame: pl.DataFrame, methods: Sequence[str], ks: Sequence[int], note: str = "") -> Table:
    """Lay out the relative gain over GRU: of the means, and from the least to the most when runs are paired by seed."""
    import polars as pl

    columns = [*((metric, k) for metric in ("recall", "map", "ndcg") for k in ks), ("auc", None)]
    means = {(row["method"], row["metric"], row["k"]): row["mean"] for row in summary(frame).iter_rows(named=True)}
    by_seed = (
        gains(frame).filter(pl.col("gain").is_not_null()).group_by("method", "metric", "k").agg(low=pl.col("gain").min(), high=pl.col("gain").max(), n=pl.len())
    )
    span = {(row["method"], row["metric"], row["k"]): (row["low"], row["high"]) for row in by_seed.iter_rows(named=True) if row["n"] > 1}
    rows = []
    for method in methods:
        if (method, "auc", None) not in means or ("GRU", "auc", None) not in means:
            continue
        cells = []
        for column in columns:
            base, low_high = means["GRU", *column], span.get((method, *column))
            between = f"({100 * low_high[0]:+.0f} to {100 * low_high[1]:+.0f})" if low_high else ""
            cells.append(Cell(f"{100 * (means[method, *column] / base - 1):+.1f}" if base else "-", spread=between))
        rows.append([Cell(method), *cells])
    headings = [f"@{k}" if k else "" for _, k in columns]
    groups = [*((NAMES[metric], len(ks)) for metric in ("recall", "map", "ndcg")), (NAMES["auc"], 1)]
    return Table(title, ["gain over GRU, %", *headings], rows, note, groups)


def data_table(noted: Mapping[str, Mapping[str, Any]]) -> Table:
    """Lay out the paper's Table 3: its own two data sets as printed, then ours."""
    columns = ["data set", "users", "items", "feedbacks", "mean length", "sparsity, %", "repeats, %", "users kept"]
    rows = []
    for name, (users, items, events, length, sparsity) in published.DATA_SETS.items():
        figures = (f"{users:,}", f"{items:,}", f"{events:,}", f"{length:.2f}", f"{sparsity:.4f}", "", "")
        rows.append([Cell(f"{name.capitalize()} in the paper"), *map(Cell, figures)])
    for name, one in noted.items():
        kept = one["filters"]
        words = f"{kept.get('min_user_events', 1)}..{kept.get('max_user_events', '')} events" if kept else "all"
        plain = (f"{one['users']:,}", f"{one['items']:,}", f"{one['events']:,}", f"{one['mean_length']:.2f}", f"{100 * one['sparsity']:.4f}")
        rows.append([Cell(name), *map(Cell, plain), Cell(f"{100 * one['repeats']:.1f}"), Cell(words)])
    return Table("Data sets (Table 3)", columns, rows, "Repeats: events whose item the user had before.")


def collapses_table(records: Mapping[str, Sequence[Mapping[str, Any]]]) -> Table:
    """Lay out how many runs, of those with epochs, lose much of their NDCG from one epoch to the next: a row per data set, a column per kind of method."""
    kinds = {"BPR": "BPR", "GRU": "GRU", "x": "input level alone", "h": "hidden level alone", "xh": "both levels"}
    rows = []
    for data, found in records.items():
        counts = dict.fromkeys(kinds, (0, 0))
        for record in found:
            kind = _kind(record)
            if kind in counts and record["curves"]:
                lost, runs = counts[kind]
                counts[kind] = lost + _collapses(record), runs + 1
        rows.append([Cell(data), *(Cell(f"{lost} of {runs}" if runs else "-", strong=lost > 0) for lost, runs in counts.values())])
    note = f"A run counts where, after epoch {EARLY}, NDCG falls by more than {COLLAPSE:.0%} from one epoch to the next; all widths together."
    return Table("Runs that collapse in training", ["data set", *kinds.values()], rows, note)


def _kind(record: Mapping[str, Any]) -> str:
    if not record["method"].startswith("HCA-GRU"):
        return str(record["method"])
    return "x" * (record["config"]["window_x"] > 1) + "h" * (record["config"]["window_h"] > 1)


def _collapses(record: Mapping[str, Any]) -> bool:
    values = next(curve for name, curve in record["curves"].items() if name.startswith("ndcg"))[EARLY:]
    return any(after < (1 - COLLAPSE) * before for before, after in itertools.pairwise(values) if before is not None and after is not None)


def epochs_table(title: str, frame: pl.DataFrame, methods: Sequence[str], last_k: int) -> Table:
    """Lay out how runs differ: from the least to the most over seeds, and the epochs at which they were best."""
    import polars as pl

    rows = []
    for method in methods:
        cells = []
        for metric, k in (("recall", min(frame["k"].drop_nulls().to_list())), ("ndcg", last_k)):
            one = frame.filter((pl.col("method") == method) & (pl.col("metric") == metric) & (pl.col("k") == k))
            if one.is_empty():
                break
            low, high, mean = (100 * float(value) for value in (one["value"].min(), one["value"].max(), one["value"].mean()))  # type: ignore[arg-type]
            cells += [Cell(f"{low:.2f} to {high:.2f}"), Cell(f"{(high - low) / mean:.0%}" if mean else "-")]
            cells.append(Cell(", ".join(str(epoch) for epoch in sorted(one["epoch"].to_list()))))
        if cells:
            rows.append([Cell(method), *cells])
    headings = [f"{name} {word}" for name in ("Recall@first k", f"NDCG@{last_k}") for word in ("over seeds", "range / mean", "best epochs")]
    return Table(title, ["method", *headings], rows)
