"""Finished runs as tidy frames: one row per figure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl

PAPER = ("recall", "map", "ndcg", "auc")
"""The metrics of the paper, in its order."""


def figures(records: Iterable[Mapping[str, Any]]) -> pl.DataFrame:
    """Return a row per run and metric: data, method, window_x, window_h, seed, selection, metric, k, value, epoch, key.

    `value` is a fraction: under best-epoch-on-test each metric at its own best epoch, as in the paper; under validation that of the
    chosen epoch. `k` is null for AUC.
    """
    import polars as pl

    rows = []
    for record in records:
        config = record["config"]
        network = record["method"].startswith("HCA-GRU")
        for name, entry in record["best"].items():
            metric, _, k = name.partition("@")
            rows.append(
                (record["data"]["name"], record["method"], config["window_x"] if network else 1, config["window_h"] if network else 1, record["seed"],
                 record["selection"], metric, int(k) if k else None, entry["value"], entry["epoch"], record["key"])
            )  # fmt: skip
    schema = {
        "data": pl.String, "method": pl.String, "window_x": pl.Int32, "window_h": pl.Int32, "seed": pl.Int64, "selection": pl.String, "metric": pl.String,
        "k": pl.Int32, "value": pl.Float64, "epoch": pl.Int32, "key": pl.String,
    }  # fmt: skip
    return pl.DataFrame(rows, schema=schema, orient="row")


def curves(records: Iterable[Mapping[str, Any]]) -> pl.DataFrame:
    """Return a row per run and epoch: data, method, seed, selection, epoch, loss, l2, recall, map, ndcg, auc, steps.

    Metrics are those that the epochs were judged by, at the largest k; `steps` is the number of losses that `loss` sums, about.
    """
    import polars as pl

    parts = []
    for record in records:
        if not record["curves"]:
            continue
        columns = {name.partition("@")[0]: pl.Series(values, dtype=pl.Float64) for name, values in record["curves"].items()}
        head = {"data": record["data"]["name"], "method": record["method"], "seed": record["seed"], "selection": record["selection"]}
        frame = pl.DataFrame(columns).with_row_index("epoch", offset=1)
        steps = record["training_events"]
        parts.append(frame.select(*(pl.lit(value).alias(name) for name, value in head.items()), pl.all(), pl.lit(steps).alias("steps")))
    return pl.concat(parts) if parts else pl.DataFrame()


def summary(frame: pl.DataFrame) -> pl.DataFrame:
    """Return mean, standard deviation, least, most and number of runs of every figure; the deviation is null for a single run."""
    import polars as pl

    by = ["data", "selection", "method", "window_x", "window_h", "metric", "k"]
    value = pl.col("value")
    return frame.group_by(by, maintain_order=True).agg(mean=value.mean(), sd=value.std(), low=value.min(), high=value.max(), runs=pl.len())


def gains(frame: pl.DataFrame, over: str = "GRU") -> pl.DataFrame:
    """Return for every figure of a run its relative gain over that of the same seed of another method: columns of `frame` and `gain`."""
    import polars as pl

    by = ["data", "selection", "seed", "metric", "k"]
    base = frame.filter(pl.col("method") == over).select(*by, base="value")
    joined = frame.filter(pl.col("method") != over).join(base, on=by, how="inner", nulls_equal=True)
    return joined.with_columns(gain=pl.when(pl.col("base") > 0).then(pl.col("value") / pl.col("base") - 1))
