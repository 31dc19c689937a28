"""Paired tests of trials, user by user, from the ranks of their test items."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hcarec.comparison import LEVEL, holm
from hcarec.errors import DataError
from hcarec.experiments.results import TESTS, Results, read_json, write_json
from hcarec.experiments.significance import compared
from hcarec.experiments.trials.trial import K, ranks_file
from hcarec.models import MODELS

METRIC = f"ndcg@{K}"
Record = dict[str, Any]


def paired_test(
    results: Results, first: Sequence[Record], second: Sequence[Record], rule: str
) -> Record | None:
    """Test one method against another on a log: `value` is of the first, `base` of the second.

    A user's figure is the mean over seeds: those that both have, or all where one has no seeds.
    None where a method has not been run, or ranks are gone and there is no earlier test.
    """
    mine, others = _shared(first, second)
    if not mine or not others:
        return None
    keys = [sorted(record["key"] for record in part) for part in (mine, others)]
    head = mine[0]
    name = f"{head['method']} against {others[0]['method']}, {rule}"
    path = results.folder / TESTS / f"{head['data']['name']}.json"
    noted = read_json(path) if path.exists() else {}
    earlier: Record | None = noted.get(name)
    if earlier is not None and earlier["runs"] == keys:
        return earlier
    if not all(ranks_file(results, key).exists() for part in keys for key in part):
        return None
    columns = [_mean_columns(results, part, rule) for part in keys]
    entry = {"runs": keys, "users": len(columns[0][METRIC])}
    entry |= compared(columns[1], columns[0], [METRIC])[METRIC]
    write_json(path, dict(sorted({**noted, name: entry}.items())))
    return entry


def correct(tests: Mapping[Any, Record]) -> dict[Any, Record]:
    """Return tests that answer one question, corrected together after Holm, with a verdict."""
    adjusted = holm(np.array([test["p"] for test in tests.values()]))
    corrected = {}
    for (name, test), p in zip(tests.items(), adjusted, strict=True):
        shown = "higher" if test["difference"] > 0 else "lower"
        verdict = shown if p < LEVEL else "none shown"
        corrected[name] = {**test, "p_holm": float(p), "verdict": verdict}
    return corrected


def _shared(first: Sequence[Record], second: Sequence[Record]) -> tuple[list[Record], list[Record]]:
    """Return the records with seeds that both have; a method that is run once meets all seeds."""
    records = (*first, *second)
    if not all(MODELS[record["config"]["model"]].seeded for record in records):
        return list(first), list(second)
    seeds = {record["seed"] for record in first} & {record["seed"] for record in second}
    mine, others = (
        sorted((record for record in part if record["seed"] in seeds), key=lambda r: r["seed"])
        for part in (first, second)
    )
    return mine, others


def _mean_columns(results: Results, keys: Sequence[str], rule: str) -> dict[str, np.ndarray]:
    """Return what users have of the metric, (users,), averaged over runs."""
    gains = []
    for key in keys:
        path = ranks_file(results, key)
        try:
            with np.load(path, allow_pickle=False) as stored:
                gains.append(gain(stored[rule]))
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            raise DataError(f"'{path}' is damaged: remove it, and its test is left out") from None
    if len({len(users) for users in gains}) > 1:
        raise DataError(
            f"'{results.users}' holds ranks of different users: merge into a new folder"
        )
    return {METRIC: np.mean(gains, axis=0), "n_test": np.ones(len(gains[0]))}


def gain(ranks: np.ndarray) -> np.ndarray:
    """Return NDCG@10 of each user's one test item by its rank, 0 where it is not in the list."""
    ranks = ranks.astype(np.float64)
    return np.where((ranks >= 1) & (ranks <= K), 1 / np.log2(np.maximum(ranks, 1) + 1), 0.0)
