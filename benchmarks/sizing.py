"""Measure what a service takes: disk per event and user, memory by catalogue, seconds to start and to import a log.

python benchmarks/sizing.py --output benchmarks/results/sizing.json [--quick]
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import hcarec

from machine import describe

CASES = (
    {"users": 2_000, "length": 40, "items": 1_000, "d": 20},
    {"users": 20_000, "length": 40, "items": 1_000, "d": 20},
    {"users": 20_000, "length": 40, "items": 1_000, "d": 64},
    {"users": 2_000, "length": 40, "items": 100_000, "d": 20},
    {"users": 2_000, "length": 40, "items": 100_000, "d": 64},
)
QUICK = ({"users": 100, "length": 10, "items": 50, "d": 8},)


def measure(case: dict[str, int], folder: Path) -> dict[str, Any]:
    """Serve a model of one epoch and look at the store and the process."""
    data = hcarec.synthetic(users=case["users"], items=case["items"], mean_length=case["length"])
    data.save(folder / "data")
    hcarec.HCAGRU(preset="paper", d=case["d"]).fit(data, epochs=1).save(folder / "model")
    begun = time.perf_counter()
    command = [
        sys.executable,
        "-m",
        "hcarec",
        "serve",
        folder / "model",
        "--data",
        folder / "data",
        "--store",
        folder / "store.sqlite",
        "--port",
        "0",
        "--log",
        "errors",
    ]
    service = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert service.stdout is not None
        address = next(found[0] for line in service.stdout if (found := re.search(r"http://\S+", line)))
        first = time.perf_counter() - begun
        figures = settled(address)
        taken = resident(service.pid)
    finally:
        service.send_signal(signal.SIGTERM)
        service.communicate(timeout=60)
    model = sum(path.stat().st_size for path in (folder / "model").iterdir())
    found = {"events": data.n_events, "model_bytes": model, "store_bytes": int(figures["hcarec_bytes"]), "states": int(figures["hcarec_states"])}
    return case | found | {"start_seconds": first, "resident_bytes": taken}


def resident(pid: int) -> int:
    """Return the memory of a process and of those that it started; what they share is counted in each."""
    children = [int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()]
    own = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(own[1] if own else 0) * 1024 + sum(resident(child) for child in children)


def settled(address: str) -> dict[str, float]:
    """Wait until every user has a state, and return the figures of the service."""
    while True:
        with urllib.request.urlopen(f"{address}/metrics", timeout=60) as answer:
            lines = answer.read().decode().splitlines()
        figures = {re.sub(r"\{.*", "", line.split()[0]): float(line.split()[-1]) for line in lines if not line.startswith("#")}
        if figures.get("hcarec_states", 0) >= figures["hcarec_users"] > 0:
            return figures
        time.sleep(0.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one small case, to see that it works")
    parser.add_argument("--output", type=Path, help="write the results as JSON")
    given = parser.parse_args()
    found = []
    for case in QUICK if given.quick else CASES:
        with tempfile.TemporaryDirectory() as folder:
            found.append(measure(case, Path(folder)))
        one = found[-1]
        size = f"{one['users']:>7,} users {one['events']:>9,} events {one['items']:>8,} items d {one['d']:>3}"
        taken = f"store {one['store_bytes'] / 1e6:8.1f} MB, model {one['model_bytes'] / 1e6:6.1f} MB, memory {one['resident_bytes'] / 1e6:6.0f} MB"
        print(f"{size}: {taken}, start {one['start_seconds']:5.1f} s", flush=True)
    if given.output:
        given.output.parent.mkdir(parents=True, exist_ok=True)
        given.output.write_text(json.dumps({"benchmark": "sizing", "machine": describe(), "cases": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
