"""Compare two results, user by user: how large is the difference, how sure is it, and could it be chance?

Every metric is a ratio of sums over users: a mean has 1 below for each user, a pooled metric the number of test items. Both results
share what is below, so the difference is sum(d) / sum(below), with d the difference of what a user has above. The interval comes
from drawing users anew (bootstrap), the p-value from swapping the two results of random users (sign flips), both for all metrics at once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hcarec.errors import InputError, ProtocolError
from hcarec.protocol import check_equal

RESAMPLES, FLIPS = 2_000, 10_000
"""How often users are drawn anew for the interval, and how often results are swapped for the p-value."""
LEVEL = 0.05
"""One minus the confidence of the intervals, and the p-value (after Holm) from which a difference counts as shown."""
ROOM = 4_000_000
"""Numbers held in memory at a time; more users mean fewer draws at a time, never more memory."""

MEANS = {"ndcg": "ndcg", "map": "ap", "mrr": "rr"}
"""Metrics that are means over users, and the per-user column each is the mean of."""
ORDER = ("recall", "map", "ndcg", "mrr", "user_recall", "auc", "auc_exact")
"""How metrics are listed."""


class Row(NamedTuple):
    """One metric: both figures, their difference (b - a) with its interval, and how likely chance alone gives as much."""

    metric: str
    a: float
    b: float
    difference: float
    low: float
    high: float
    relative: float | None
    p: float
    p_holm: float
    verdict: str


class Comparison(NamedTuple):
    """Two results side by side."""

    a: str
    b: str
    users: int
    rows: list[Row]

    @property
    def summary(self) -> str:
        """Say in a sentence what the rows show."""
        higher, lower = (sum(row.verdict == word for row in self.rows) for word in ("B is higher", "A is higher"))
        rest = len(self.rows) - higher - lower
        parts = [f"B ({self.b}) is higher than A ({self.a}) in {higher}", f"lower in {lower}", f"no difference is shown in {rest}"]
        return f"of {len(self.rows)} metrics over {self.users:,} users, {', '.join(parts)}"

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        method = {"interval": f"paired bootstrap over users, {RESAMPLES:,} draws, {1 - LEVEL:.0%}", "p": f"paired sign-flip test, {FLIPS:,} flips, two-sided"}
        rows = {row.metric: {name: value for name, value in row._asdict().items() if name != "metric"} for row in self.rows}
        return {"a": self.a, "b": self.b, "users": self.users, "summary": self.summary, "metrics": rows, "method": method | {"correction": "Holm"}}


class Parts(NamedTuple):
    """What metrics are made of, per user: `above` of both results and the shared `below`, each (n_users, n_metrics)."""

    names: list[str]
    above_a: np.ndarray
    above_b: np.ndarray
    below: np.ndarray


def compare(a: str | Path, b: str | Path, *, seed: int = 0) -> Comparison:
    """Compare two results of `hcarec evaluate -o`; unequal protocols are refused, naming the difference."""
    first, second = _read(Path(a)), _read(Path(b))
    check_equal(first["protocol"], second["protocol"], (str(a), str(b)))
    columns_a, columns_b = _users(Path(a), first), _users(Path(b), second)
    if not np.array_equal(columns_a["user_id"], columns_b["user_id"]):
        raise ProtocolError(f"'{a}' and '{b}' have not the same users: evaluate both again on the same data")
    if not np.array_equal(columns_a["n_test"], columns_b["n_test"]):
        raise ProtocolError(f"the users of '{a}' and '{b}' have not the same test items: evaluate both again on the same data")
    parts = _parts(columns_a, columns_b)
    return Comparison(str(first.get("model")), str(second.get("model")), len(columns_a["user_id"]), _rows(parts, seed))


def _rows(parts: Parts, seed: int) -> list[Row]:
    below = parts.below.sum(0)
    figures_a, figures_b = parts.above_a.sum(0) / below, parts.above_b.sum(0) / below
    d = parts.above_b - parts.above_a
    low, high = bootstrap(d, parts.below, seed=seed)
    p = sign_flip(d, seed=seed)
    adjusted = holm(p)
    rows = []
    for n, name in enumerate(parts.names):
        x, y = float(figures_a[n]), float(figures_b[n])
        difference = float(d[:, n].sum() / below[n])
        verdict = "no difference shown" if adjusted[n] >= LEVEL else "B is higher" if difference > 0 else "A is higher"
        relative = difference / x if x else None
        rows.append(Row(name, x, y, difference, float(low[n]), float(high[n]), relative, float(p[n]), float(adjusted[n]), verdict))
    return rows


# -- statistics --------------------------------------------------------------------------------------------------------


def bootstrap(d: np.ndarray, below: np.ndarray, *, resamples: int = RESAMPLES, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return the ends of the percentile interval of sum(d) / sum(below) when users are drawn anew; d, below (n_users, m) -> (m,), (m,)."""
    n, m = d.shape
    random = np.random.Generator(np.random.PCG64([seed, 1]))
    values, both = np.empty((resamples, m)), np.concatenate([d, below], axis=1)
    size = max(1, ROOM // max(n, 1))
    for begin in range(0, resamples, size):
        count = min(size, resamples - begin)
        times = np.stack([np.bincount(random.integers(n, size=n), minlength=n) for _ in range(count)]).astype(np.float64)
        sums = times @ both
        with np.errstate(invalid="ignore"):  # a draw without any user that the metric is defined for
            values[begin : begin + count] = sums[:, :m] / sums[:, m:]
    low, high = np.nanquantile(values, (LEVEL / 2, 1 - LEVEL / 2), axis=0)
    return low, high


def sign_flip(d: np.ndarray, *, flips: int = FLIPS, seed: int = 0) -> np.ndarray:
    """Return two-sided p-values of sum(d) when the signs of users' differences are thrown like coins; d (n_users, m) -> (m,)."""
    d = d[(d != 0).any(1)]  # who is equal in everything stays so under any swap
    random = np.random.Generator(np.random.PCG64([seed, 2]))
    found = np.abs(d.sum(0)) - 1e-12 * np.abs(d).sum(0)  # sums in another order may differ in their last bits
    reached = np.zeros(d.shape[1], np.int64)
    size = max(1, ROOM // max(len(d), 1))
    for begin in range(0, flips, size):
        count = min(size, flips - begin)
        thrown = np.frombuffer(random.bytes(8 * count * -(-len(d) // 64)), np.uint8)  # whole words, so that `size` changes nothing
        coins = np.unpackbits(thrown.reshape(count, -1), axis=1)[:, : len(d)]
        sums = d.sum(0) - 2 * (coins.astype(np.float64) @ d)
        reached += (np.abs(sums) >= found).sum(0)
    return (reached + 1) / (flips + 1)  # what was found is one of the ways that the coins can fall


def holm(p: np.ndarray) -> np.ndarray:
    """Adjust p-values for having asked several questions (Holm's step-down), (m,) -> (m,)."""
    order = np.argsort(p, kind="stable")
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)))
    return adjusted


# -- reading -----------------------------------------------------------------------------------------------------------


def _read(path: Path) -> dict[str, Any]:
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read '{path}': {error.strerror}; make it with 'hcarec evaluate MODEL DATA -o {path}'") from None
    except (ValueError, RecursionError):
        raise InputError(f"'{path}' is not JSON: give a result of 'hcarec evaluate MODEL DATA -o R.json'") from None
    if not isinstance(result, dict) or not isinstance(result.get("protocol"), dict):
        raise InputError(f"'{path}' is not a result (it has no protocol): give one of 'hcarec evaluate MODEL DATA -o R.json'")
    return result


def _users(path: Path, result: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Read the figures per user of a result, in the order of user ids, and check that they belong to it."""
    import polars as pl

    file = path.with_suffix(".users.parquet")
    try:
        frame = pl.read_parquet(file)
        frame = frame.with_columns(pl.col("user_id").cast(pl.String)) if "user_id" in frame.columns else frame
    except FileNotFoundError:
        raise InputError(f"'{file}' is missing: it is written beside '{path}' by 'hcarec evaluate MODEL DATA -o {path}'") from None
    except Exception as error:
        raise InputError(f"'{file}' is not a Parquet file ({str(error).splitlines()[0][:80]}): evaluate again") from None
    if not {"user_id", "n_test"} <= set(frame.columns) or not frame.height:
        raise InputError(f"'{file}' holds no users with their figures: evaluate again")
    columns = {name: frame.sort("user_id")[name].to_numpy() for name in frame.columns}
    parts = _parts(columns, columns)
    for name, figure in zip(parts.names, parts.above_a.sum(0) / parts.below.sum(0), strict=True):
        stated = result.get(name)
        if not isinstance(stated, (int, float)) or abs(stated - figure) > 1e-6:
            raise InputError(f"'{file}' does not belong to '{path}': {name} is {figure:.6f} in one and {stated} in the other; evaluate again")
    return columns


def _parts(a: Mapping[str, np.ndarray], b: Mapping[str, np.ndarray]) -> Parts:
    """Return above and below of every metric that both results have."""
    ks = sorted(int(name[5:]) for name in a if re.fullmatch(r"ndcg@\d+", name))
    test = a["n_test"].astype(np.float64)
    made: dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}
    for k in ks:
        hits = f"hits@{k}"
        made[f"recall@{k}"] = a[hits], b[hits], test
        for metric, column in MEANS.items():
            made[f"{metric}@{k}"] = a[f"{column}@{k}"], b[f"{column}@{k}"], np.ones(len(test))
        made[f"user_recall@{k}"] = a[hits] / np.maximum(test, 1), b[hits] / np.maximum(test, 1), np.ones(len(test))
    for metric in ("auc", "auc_exact"):
        if metric in a and metric in b:
            made[metric] = a[metric] * test, b[metric] * test, test
    order = sorted(made, key=lambda name: ORDER.index(name.partition("@")[0]))
    columns = [_defined(*made[name], test) for name in order]
    above_a, above_b, below = (np.stack(part, axis=1) for part in zip(*columns, strict=True))
    keep = below.sum(0) > 0
    return Parts([name for name, kept in zip(order, keep, strict=True) if kept], above_a[:, keep], above_b[:, keep], below[:, keep])


def _defined(a: np.ndarray, b: np.ndarray, below: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Leave users out of a metric that is not defined for them: nothing above, nothing below."""
    fine = (test > 0) & ~np.isnan(a) & ~np.isnan(b)
    return np.where(fine, a, 0.0), np.where(fine, b, 0.0), np.where(fine, below, 0.0)
