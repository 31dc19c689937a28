"""Measure which windows help when it is known how far back the deciding event lies.

The logs are synthetic and differ in one thing, the lag: with a lag of 2 the item before the last decides the next one.
The networks are trained as in the paper.

python benchmarks/windows.py --output benchmarks/results/windows.json [--quick]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

import hcarec
from hcarec.models.hca_gru import HCAGRUSettings

from machine import describe

NETWORKS = ((1, 1), (2, 1), (3, 1), (5, 1), (1, 2), (1, 3), (1, 5), (5, 5))
"""Widths on inputs and on hidden states; 1 is off, so the first is plain GRU."""
LAGS = (1, 2, 3, 4)
METRIC = "ndcg@20"


def measure(users: int, epochs: int, seeds: int) -> dict[str, Any]:
    """Train every network on every log; a figure per seed."""
    found: dict[str, Any] = {}
    for lag in LAGS:
        data = hcarec.synthetic(users=users, items=100, mean_length=30, taste=0.1, interest=0.8, lag=lag)
        for window_x, window_h in NETWORKS:
            title = HCAGRUSettings(window_x=window_x, window_h=window_h).title
            settings = {"preset": "paper", "window_x": window_x, "window_h": window_h, "epochs": epochs}
            runs = [hcarec.train(data, seed=seed, **settings).about["metrics"][METRIC] for seed in range(seeds)]
            found.setdefault(title, {})[str(lag)] = runs
            print(f"lag {lag}  {title:16} {METRIC} {np.mean(runs):.4f}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", type=int, default=1000, help="users of each log")
    parser.add_argument("--epochs", type=int, default=30, help="epochs of training")
    parser.add_argument("--seeds", type=int, default=2, help="seeds of every network")
    parser.add_argument("--quick", action="store_true", help="few users, epochs and seeds, to see that it works")
    parser.add_argument("--output", type=Path, help="write the results as JSON")
    given = parser.parse_args()
    sizes = (60, 1, 1) if given.quick else (given.users, given.epochs, given.seeds)
    found = measure(*sizes)
    if given.output:
        about = dict(zip(("users", "epochs", "seeds"), sizes, strict=True))
        given.output.parent.mkdir(parents=True, exist_ok=True)
        given.output.write_text(json.dumps({"benchmark": "windows", "machine": describe(), **about, "metric": METRIC, "networks": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
