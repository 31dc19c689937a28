"""Paired tests, user by user: the networks of Table 2 against GRU, and the complete one against either level alone.

A user's figure is the mean over the seeds that all methods share. All questions about one data set under one selection are
corrected together (Holm). The outcome is a small JSON, so that a report can be made without the figures of every user.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hcarec.comparison import LEVEL, bootstrap, holm, sign_flip
from hcarec.errors import DataError
from hcarec.experiments.results import TESTS, Results, read_json, write_json

AGAINST = "GRU"
_FIELDS = ("tests", "complete_against", "recall_gain_change", "by_length")
Columns = dict[str, np.ndarray]
RESAMPLES = 2_000
"""Draws for the interval of how a gain in Recall changes with k."""


def paired_tests(
    results: Results, records: Sequence[dict[str, Any]], methods: Sequence[str], ks: Sequence[int], data: Path | None = None
) -> dict[str, Any] | None:
    """Test the networks `methods` (x*, h*, x*-h*) on one data set under one selection, or read an earlier test of the very same runs.

    With the folder of the prepared `data` the gain is also given by length of the history.
    Where the figures per user of some seeds are gone, the others are tested, or an earlier test of as many seeds stands; None where there is neither.
    """
    keys = {(record["method"], record["seed"]): record["key"] for record in records}
    networks = (AGAINST, *methods)
    shared = [seed for seed in sorted({seed for _, seed in keys}) if all((method, seed) in keys for method in networks)]
    kept = [seed for seed in shared if all((results.users / f"{keys[method, seed]}.parquet").exists() for method in networks)]
    if not shared:
        return None
    first = records[0]
    path = results.folder / TESTS / first["data"]["name"] / f"{first['selection']}.json"
    used = {method: sorted(keys[method, seed] for seed in kept) for method in networks}
    if path.exists() and _stands(found := read_json(path, "runs", *_FIELDS), {method: {keys[method, seed] for seed in shared} for method in networks}, used):
        return found
    if not kept:
        return None
    columns = {method: _mean_columns([results.users / f"{key}.parquet" for key in own]) for method, own in used.items()}
    outcome = {"data": first["data"]["name"], "selection": first["selection"], "against": AGAINST, "runs": used} | _tests(columns, methods, ks)
    outcome["by_length"] = _by_length(columns[AGAINST], columns[methods[-1]], f"ndcg@{max(ks)}", data) if data is not None else None
    write_json(path, outcome)
    return outcome


def _stands(found: Mapping[str, Any], known: Mapping[str, set[str]], used: Mapping[str, list[str]]) -> bool:
    """Say whether an earlier test is about these methods and runs, and about no fewer seeds than could be tested now."""
    tested = found["runs"]
    return tested == used or (tested.keys() == known.keys() and all(known[m] >= set(tested[m]) and len(tested[m]) > len(used[m]) for m in known))


def _tests(columns: dict[str, Columns], methods: Sequence[str], ks: Sequence[int]) -> dict[str, Any]:
    names = [*(f"{metric}@{k}" for k in ks for metric in ("recall", "map", "ndcg")), "auc"]
    base, complete, singles = columns[AGAINST], methods[-1], methods[:-1]
    found: dict[str, dict[str, Any]] = {method: compared(base, columns[method], names) for method in methods}
    beside = {single: compared(columns[single], columns[complete], [f"map@{max(ks)}", f"ndcg@{max(ks)}"]) for single in singles if single != complete}
    questions = [entry for tests in (*found.values(), *beside.values()) for entry in tests.values()]
    for entry, adjusted in zip(questions, holm(np.array([entry["p"] for entry in questions])), strict=True):
        entry["p_holm"] = float(adjusted)
        entry["verdict"] = "none shown" if adjusted >= LEVEL else "higher" if entry["difference"] > 0 else "lower"
    changes = {method: _change(base, columns[method], min(ks), max(ks)) for method in methods}
    return {"tests": found, "complete_against": beside, "recall_gain_change": changes}


def compared(base: Columns, other: Columns, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Compare two methods in some metrics: both figures, their difference with its interval, and the p-value."""
    test = base["n_test"].astype(np.float64)
    parts = [_parts(base, other, name, test) for name in names]
    d, below = np.stack([b - a for a, b, _ in parts], 1), np.stack([w for _, _, w in parts], 1)
    (low, high), p = bootstrap(d, below), sign_flip(d)
    found = {}
    for place, name in enumerate(names):
        a, b, w = (float(part.sum()) for part in parts[place])
        entry: dict[str, Any] = {"base": a / w, "value": b / w, "difference": float(d[:, place].sum() / w)}
        entry |= {"low": float(low[place]), "high": float(high[place]), "p": float(p[place])}
        found[name] = entry | {"relative": entry["difference"] / entry["base"] if entry["base"] else None}
    return found


def _parts(a: Columns, b: Columns, name: str, test: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return what a metric sums above, for both methods, and below: a pooled one over test items, a mean over users."""
    metric, _, k = name.partition("@")
    if metric == "recall":
        above, below = (a[f"hits@{k}"], b[f"hits@{k}"]), test
    elif metric == "auc":
        above, below = (a["auc"] * test, b["auc"] * test), test
    else:
        column = f"{'ap' if metric == 'map' else metric}@{k}"
        above, below = (a[column], b[column]), np.ones(len(test))
    fine = ~np.isnan(above[0]) & ~np.isnan(above[1]) & (test > 0)
    return np.where(fine, above[0], 0.0), np.where(fine, above[1], 0.0), np.where(fine, below, 0.0)


def _change(a: Columns, b: Columns, first: int, last: int) -> dict[str, float] | None:
    """Return how much larger the relative gain in Recall is at the first k than at the last, with its interval over users."""
    hits = np.stack([one[f"hits@{k}"] for k in (first, last) for one in (a, b)], 1).astype(np.float64)
    if (hits.sum(0) == 0).any():
        return None

    def change(sums: np.ndarray) -> np.ndarray:
        return sums[..., 1] / sums[..., 0] - sums[..., 3] / sums[..., 2]

    random = np.random.Generator(np.random.PCG64([0, 3]))
    n = len(hits)
    drawn = np.stack([np.bincount(random.integers(n, size=n), minlength=n) @ hits for _ in range(RESAMPLES)])
    with np.errstate(divide="ignore", invalid="ignore"):
        low, high = np.nanquantile(change(drawn), (LEVEL / 2, 1 - LEVEL / 2))
    return {"value": float(change(hits.sum(0))), "low": float(low), "high": float(high)}


def _by_length(base: Columns, other: Columns, name: str, data: Path) -> list[dict[str, Any]]:
    """Compare two methods in one metric among users with short, middling and long histories, about a third of the users each."""
    from hcarec.data.split import split
    from hcarec.sequences import Sequences

    parts = split(Sequences.open(data), "ratio")
    lengths = parts.history.lengths[parts.evaluated]
    edges = np.unique(np.quantile(lengths, (0, 1 / 3, 2 / 3, 1), method="nearest"))
    found = []
    for place, (low, high) in enumerate(itertools.pairwise(edges.tolist())):
        group = (lengths >= low if place == 0 else lengths > low) & (lengths <= high)
        if group.sum() > 1:
            users = [{column: values[group] for column, values in one.items()} for one in (base, other)]
            outcome = compared(users[0], users[1], [name])[name]
            found.append({"from": int(lengths[group].min()), "to": int(high), "users": int(group.sum()), **outcome})
    return found


def _mean_columns(paths: list[Path]) -> Columns:
    """Return the figures per user, averaged over runs."""
    import polars as pl

    frames = []
    for path in paths:
        try:
            frames.append(pl.read_parquet(path))
        except (OSError, pl.exceptions.PolarsError):
            raise DataError(f"'{path}' is damaged: remove it, and its seed is left out of the tests") from None
    return {name: np.mean([frame[name].to_numpy().astype(np.float64) for frame in frames], axis=0) for name in frames[0].columns}
