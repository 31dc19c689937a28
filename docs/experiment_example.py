"""Ask a question of one's own: does the attention help where the deciding item lies a few steps back?

    python docs/experiment_example.py [FOLDER]

Two synthetic logs differ in one thing: how far back the item lies that decides the next one. GRU and the networks with attention are trained on
both, and the gain over GRU of the same seed is printed. Takes a minute or two.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import polars as pl

import hcarec
from hcarec import experiments
from hcarec.experiments.frames import gains

LAGS = {"next-to-last": 2, "three-back": 3}


def main(folder: Path, users: int = 1000, epochs: int = 15, runs: int = 2, workers: int | None = None) -> pl.DataFrame:
    """Run the comparison and return the mean gain in NDCG@20 over GRU, a row per log and network."""
    for name, lag in LAGS.items():
        hcarec.synthetic(users=users, items=100, mean_length=30, taste=0.1, interest=0.8, lag=lag).save(folder / name)
    logs = {name: folder / name for name in LAGS}
    frame = experiments.methods(logs, folder / "results", epochs=epochs, runs=runs, workers=workers)
    ndcg = gains(frame).filter(pl.col("metric") == "ndcg", pl.col("k") == 20, pl.col("method").str.starts_with("HCA-GRU"))
    return ndcg.group_by("data", "method", maintain_order=True).agg(gain_percent=100 * pl.col("gain").mean(), runs=pl.len())


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(main(Path(sys.argv[1])))
    else:
        with tempfile.TemporaryDirectory() as scratch:
            print(main(Path(scratch)))
