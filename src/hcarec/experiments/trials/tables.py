"""Records of trials as tables: a row for each method, a column for each log."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import mean, stdev
from typing import Any

from hcarec.experiments.document import Cell, Table

Record = dict[str, Any]
Values = Mapping[tuple[str, str], Sequence[float]]
"""The figures of all seeds, by log and method."""


def fraction(value: float) -> str:
    """Write NDCG and Recall as others publish them."""
    return f"{value:.4f}"


def percent(value: float) -> str:
    """Write a share; a small one keeps two digits."""
    return f"{100 * value:.1f}%" if value >= 0.01 else f"{100 * value:.2g}%"


def values_of(records: Sequence[Record], metric: str, rule: Callable[[Record], str]) -> Values:
    """Return a metric of records under the rule that is asked of each, by log and method."""
    values: dict[tuple[str, str], list[float]] = {}
    for record in records:
        place = record["data"]["name"], record["method"]
        values.setdefault(place, []).append(record["figures"][rule(record)][metric])
    return values


def by_method(
    title: str,
    values: Values,
    methods: Sequence[str],
    logs: Mapping[str, str],
    written: Callable[[float], str] = fraction,
    best: bool = True,
    note: str = "",
) -> Table:
    """Lay out means over seeds; `logs` are headings by name.

    Where the best is what one looks for, it is bold, and the spread over seeds stands beside.
    """
    highest = {
        log: max((mean(seeds) for (name, _), seeds in values.items() if name == log), default=None)
        for log in logs
    }
    rows = []
    for method in methods:
        if not any((log, method) in values for log in logs):
            continue
        cells = [Cell(method)]
        for log in logs:
            seeds = values.get((log, method))
            if not seeds:
                cells.append(Cell("-"))
                continue
            spread = f"± {written(stdev(seeds))}" if best and len(seeds) > 1 else ""
            strong = best and mean(seeds) == highest[log]
            cells.append(Cell(written(mean(seeds)), strong, spread))
        rows.append(cells)
    return Table(title, ["method", *logs.values()], rows, note)


def difference_cells(test: Record | None) -> list[Cell]:
    """Return both figures of a test, their difference with its interval, p and verdict."""
    if test is None:
        return [Cell("-") for _ in range(7)]
    base = test["base"]
    texts = (
        fraction(test["value"]), fraction(base), f"{test['difference']:+.4f}",
        f"{test['low']:+.4f} to {test['high']:+.4f}",
        f"{test['difference'] / base:+.1%}" if base else "-",
        f"{test['p_holm']:.2g}", test["verdict"],
    )  # fmt: skip
    return [Cell(text, strong=text in ("higher", "lower")) for text in texts]
