"""Measure `prepare` against the same steps written in good pandas: time, memory, and growth from 1 to 20 million events.

    python benchmarks/prepare.py --output benchmarks/results/prepare.json

Each measurement runs in a process of its own, ours and pandas in turn, so that peak memory is each one's own.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from machine import describe

PANDAS_ENGINES = ("c", "pyarrow")


def make_log(path: Path, events: int, strings: bool, seed: int = 0) -> None:
    """Write a CSV of `events` rows in random order: Zipf items, lognormal users, second time stamps."""
    import polars as pl

    rng = np.random.default_rng(seed)
    users, items = max(10, events // 20), max(10, events // 100)
    weight = 1.0 / np.arange(1, items + 1) ** 1.0
    item = rng.permutation(items)[np.searchsorted(np.cumsum(weight) / weight.sum(), rng.random(events)).clip(max=items - 1)]
    activity = np.cumsum(rng.lognormal(0, 1, users))
    user = np.searchsorted(activity / activity[-1], rng.random(events)).clip(max=users - 1)
    when = rng.integers(1_500_000_000, 1_600_000_000, events)
    frame = pl.DataFrame({"user_id": user, "item_id": item, "timestamp": when})
    if strings:
        frame = frame.with_columns(pl.format("user-{}", pl.col("user_id")).alias("user_id"), pl.format("SKU{}x", pl.col("item_id")).alias("item_id"))
    frame.write_csv(path)


def run_ours(path: Path, out: Path) -> dict[str, Any]:
    """Prepare with hcarec; compiled code is warm, as on any run but the very first."""
    from hcarec import Sequences
    from hcarec.data.prepare import prepare

    started = time.perf_counter()
    data = prepare(path, out)
    seconds = time.perf_counter() - started
    started = time.perf_counter()
    data = Sequences.open(out)
    opened = time.perf_counter() - started
    return {"seconds": seconds, "open_seconds": opened, "events": data.n_events, "users": data.n_users, "items": data.n_items}


def run_pandas(path: Path, out: Path, engine: str) -> dict[str, Any]:
    """Take the same steps in pandas: read, number ids, sort stably by user and time, offsets, write arrays and tables."""
    import pandas as pd

    started = time.perf_counter()
    frame = pd.read_csv(path, engine=engine)
    frame = frame.dropna()
    user, user_ids = pd.factorize(frame["user_id"])
    item, item_ids = pd.factorize(frame["item_id"])
    numbered = pd.DataFrame({"user": user.astype(np.int32), "item": item.astype(np.int32), "time": frame["timestamp"].to_numpy()})
    del frame
    order = np.lexsort((numbered["time"].to_numpy(), numbered["user"].to_numpy()))
    numbered = numbered.iloc[order]
    out.mkdir(parents=True, exist_ok=True)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(numbered["user"], minlength=len(user_ids)))])
    np.save(out / "items.npy", numbered["item"].to_numpy())
    np.save(out / "times.npy", numbered["time"].to_numpy())
    np.save(out / "offsets.npy", offsets)
    pd.DataFrame({"user_id": user_ids}).to_parquet(out / "users.parquet")
    pd.DataFrame({"item_id": item_ids}).to_parquet(out / "items.parquet")
    return {"seconds": time.perf_counter() - started, "events": len(numbered), "users": len(user_ids), "items": len(item_ids)}


def measure(kind: str, path: Path, out: Path) -> dict[str, Any]:
    """Run one measurement in its own process."""
    done = subprocess.run([sys.executable, __file__, "--one", kind, str(path), str(out)], check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def one(kind: str, path: Path, out: Path) -> None:
    result = run_ours(path, out) if kind == "hcarec" else run_pandas(path, out, kind.partition("-")[2])
    result["peak_gib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)
    print(json.dumps(result))


def line(row: dict[str, Any], kinds: list[str]) -> str:
    """Say in one line what one size gave."""
    parts = [f"{kind} {row[kind]['seconds']:6.2f} s ({row[kind]['peak_gib']:.2f} GiB)" for kind in kinds]
    each = row["hcarec"]["seconds"] / row["events"] * 1e9
    size = f"{row['ids']:>8} ids {row['events'] / 1e6:5.1f} M events"
    return f"{size}: {', '.join(parts)}; {each:4.0f} ns an event, {row['times_faster']:.1f} times the faster pandas"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=float, nargs="+", default=[1e6, 5e6, 20e6], help="sizes to measure")
    parser.add_argument("--repeat", type=int, default=2, help="runs of each, the fastest counts")
    parser.add_argument("--quick", action="store_true", help="one small size, to see that it works")
    parser.add_argument("--output", type=Path, help="write the results as JSON")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        return one(given.one[0], Path(given.one[1]), Path(given.one[2]))
    sizes = [100_000] if given.quick else [int(size) for size in given.events]
    kinds = ["hcarec", *(f"pandas-{engine}" for engine in PANDAS_ENGINES)]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for strings in (False, True):
            for size in sizes:
                log = Path(folder) / "log.csv"
                make_log(log, size, strings)
                if not rows:
                    measure("hcarec", log, Path(folder) / "warm")  # compiles, once
                runs: dict[str, list[dict[str, Any]]] = {kind: [] for kind in kinds}
                for _ in range(1 if given.quick else given.repeat):
                    for kind in kinds:
                        runs[kind].append(measure(kind, log, Path(folder) / kind))
                best = {kind: min(results, key=lambda result: result["seconds"]) for kind, results in runs.items()}
                fastest = min(best[kind]["seconds"] for kind in kinds[1:])
                row = {
                    "ids": "string" if strings else "integer",
                    "events": size,
                    "mib": log.stat().st_size / (1 << 20),
                    **best,
                    "times_faster": fastest / best["hcarec"]["seconds"],
                }
                assert all(best[kind][what] == best["hcarec"][what] for kind in kinds for what in ("events", "users", "items"))
                rows.append(row)
                print(line(row, kinds), flush=True)
    if given.output:
        given.output.parent.mkdir(parents=True, exist_ok=True)
        given.output.write_text(json.dumps({"benchmark": "prepare", "machine": describe(), "results": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
