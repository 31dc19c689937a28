"""Train every method of the paper once, under its protocol, on one log, and write figures and a table.

    HCAREC_DATA=folder python benchmarks/paper_methods.py --output benchmarks/results/paper_methods.json --table docs/methods-tmall.md

The log is tmall.csv.xz of that folder, users with 10 to 200 events. Runs go on side by side, one process each.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from machine import describe

METHODS: dict[str, dict[str, Any]] = {
    "Random": {"model": "random"},
    "POP": {"model": "pop"},
    "HCA-GRU-x5-h5": {"model": "hca-gru", "window_x": 5, "window_h": 5},
    "HCA-GRU-x3": {"model": "hca-gru", "window_x": 3, "window_h": 1},
    "HCA-GRU-h5": {"model": "hca-gru", "window_x": 1, "window_h": 5},
    "GRU": {"model": "gru"},
    "BPR": {"model": "bpr"},
}
ORDER = ("Random", "POP", "BPR", "GRU", "HCA-GRU-x3", "HCA-GRU-h5", "HCA-GRU-x5-h5")


def run(name: str, data: Path, epochs: int, seed: int) -> dict[str, Any]:
    """Train one method and return the best of each metric over the epochs, on the test part, as the paper does."""
    from hcarec import Sequences
    from hcarec.training import train

    began = time.perf_counter()
    settings = METHODS[name] | ({} if name in ("Random", "POP") else {"epochs": epochs})
    model = train(Sequences.open(data), selection="best-epoch-on-test", seed=seed, threads=1, **settings)
    best = model.about["selection"].get("best") or {metric: {"value": value, "epoch": 0} for metric, value in model.about["metrics"].items()}
    return {"method": name, "seed": seed, "seconds": time.perf_counter() - began, "training_seconds": model.about["training"]["seconds"], "best": best,
            "protocol_fingerprint": model.about["protocol_fingerprint"], "events": model.about["training"]["events"]}  # fmt: skip


def table(results: dict[str, dict[str, Any]], epochs: int, data: dict[str, int], machine: dict[str, Any]) -> str:
    """Write the figures as a page."""
    names = [f"{metric}@{k}" for k in (5, 10, 15, 20) for metric in ("recall", "map", "ndcg")] + ["auc"]
    lines = [
        "# Every method once, on tmall\n",
        f"Users with 10 to 200 events: {data['users']:,} users, {data['items']:,} items, {data['events']:,} events. "
        "The paper's protocol: ratio split, nothing seen is hidden, "
        f"best epoch of {epochs} on the test part for each metric (optimistic, as in the paper). One seed; percent. "
        "Made by `benchmarks/paper_methods.py`, which also wrote `benchmarks/results/paper_methods.json`.\n",
        "| method | " + " | ".join(names) + " | best epoch (ndcg@20) | training s | with evaluation s |",
        "|---|" + "---:|" * (len(names) + 3),
    ]
    for name in ORDER:
        one = results[name]
        figures = " | ".join(f"{100 * one['best'][metric]['value']:.3f}" for metric in names)
        lines.append(f"| {name} | {figures} | {one['best']['ndcg@20']['epoch'] or ''} | {one['training_seconds']:.0f} | {one['seconds']:.0f} |")
    gru, hca = (results[name]["best"]["ndcg@20"]["value"] for name in ("GRU", "HCA-GRU-x5-h5"))
    lines += ["", f"HCA-GRU-x5-h5 over GRU in NDCG@20: {100 * (hca / gru - 1):+.1f}% (the paper: about +50% on its two data sets). One seed proves little.", ""]
    lines += [f"Machine: {machine['processor']}, {machine['cores']} cores, Python {machine['python']}, commit {machine['commit']}.", ""]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="one epoch, to see that it works")
    parser.add_argument("--output", type=Path, help="write the results as JSON")
    parser.add_argument("--table", type=Path, help="write the table as Markdown")
    given = parser.parse_args()
    folder = os.environ.get("HCAREC_DATA")
    if not folder:
        print("HCAREC_DATA is not set: no tmall.csv.xz to train on")
        return
    from hcarec import prepare

    epochs = 1 if given.quick else given.epochs
    with tempfile.TemporaryDirectory() as work:
        data = prepare(Path(folder) / "tmall.csv.xz", Path(work) / "data", min_user_events=10, max_user_events=200)
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(len(os.sched_getaffinity(0)), mp_context=context) as pool:
            running = {name: pool.submit(run, name, Path(work) / "data", epochs, given.seed) for name in METHODS}
            results = {name: future.result() for name, future in running.items()}
    for name in ORDER:
        best = results[name]["best"]
        print(f"{name:14} recall@20 {100 * best['recall@20']['value']:.3f}  map@20 {100 * best['map@20']['value']:.3f}  "
              f"ndcg@20 {100 * best['ndcg@20']['value']:.3f}  auc {100 * best['auc']['value']:.3f}  {results[name]['seconds']:.0f} s")  # fmt: skip
    size = {"users": data.n_users, "items": data.n_items, "events": data.n_events}
    if given.output:
        given.output.parent.mkdir(parents=True, exist_ok=True)
        given.output.write_text(
            json.dumps({"benchmark": "paper_methods", "machine": describe(), "data": size, "results": list(results.values())}, indent=1) + "\n"
        )
    if given.table:
        given.table.write_text(table(results, epochs, size, describe()))


if __name__ == "__main__":
    main()
