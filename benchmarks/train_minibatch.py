"""Measure training by mini-batches on a CPU: its speed beside other packages, its memory, and what its plan says of both.

peers: ML-1M (users and items of 5 events or more), d = 64, at most 200 events of a sequence, full cross-entropy over the
catalog: HCA-GRU-x5-h5 without a block against RecBole's GRU4Rec and RecTools' SASRec, both with their own defaults
otherwise, each installed from PyPI into an environment of its own. An event is one target trained on. All take turns, after
one round each that does not count: ours trains a whole epoch, theirs some batches drawn anew from all their samples, which
gives the rate of a whole epoch, because their batches are alike; evaluation is left out. The batch sizes are their defaults;
the ratio is the median of those of rounds.

plan: what `hcarec train` states before a run, seconds of an epoch and the peak of resident memory, over what the epochs
after the first and the whole process take, each case in a process of its own. The case of 100,000 items is one of them.

Each part can be run by itself (--only) and is merged into the results that are there.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import hcarec
from hcarec import Sequences, hardware, synthetic
from hcarec.data.split import split
from hcarec.models import make
from hcarec.settings import RunSettings
from hcarec.training.trainers import settle, trainer_of

from machine import describe
from peer import PEERS, Running, install, write_log

D, LENGTH, ROUNDS = 64, 200, 3
GOALS = {"recbole": 10.0, "rectools": 4.0}
PLAN_GOAL, MEMORY_GOAL_GIB = 0.25, 4.0
ML, BEAUTY, CHECKINS, SHOP = "ml-latest-small", "amazon_beauty", "foursquare_sg", "retailrocket"
LARGE = "synthetic:2000:100000:20"
"""Users, items and mean length of the log with a large catalog."""
CASES: list[tuple[str, dict[str, Any]]] = [
    (ML, {"model": "gru", "d": 64}),
    (ML, {"model": "hca-gru", "d": 20}),
    (ML, {"model": "hca-gru", "d": 128, "blocks": 1}),
    (ML, {"model": "hca-gru", "d": 256, "users": 300}),
    (ML, {"model": "hca-gru", "d": 64, "copy_window": 50}),
    (BEAUTY, {"model": "hca-gru", "d": 64, "users": 8000}),
    (BEAUTY, {"model": "gru", "d": 128, "users": 6000}),
    (BEAUTY, {"model": "hca-gru", "d": 256, "blocks": 1, "users": 2000}),
    (BEAUTY, {"model": "hca-gru", "d": 64, "loss": "sampled-softmax", "users": 8000}),
    (BEAUTY, {"model": "hca-gru", "d": 64, "batch_size": 1024, "users": 8000}),
    (CHECKINS, {"model": "hca-gru", "d": 64, "batches": "prefixes", "batch_size": 512, "users": 150}),
    (CHECKINS, {"model": "gru", "d": 64, "batches": "positions", "users": 500}),
    (CHECKINS, {"model": "hca-gru", "d": 64, "copy_window": 20, "blocks": 1, "scores": "cosine", "item_norm": True, "input_dropout": 0.2}),
    (SHOP, {"model": "hca-gru", "d": 64, "users": 8000}),
    (SHOP, {"model": "hca-gru", "d": 32, "loss": "sampled-softmax", "users": 20_000}),
    (SHOP, {"model": "gru", "d": 64, "loss": "bpr-max", "users": 8000}),
    (LARGE, {"model": "hca-gru", "d": 64}),
]


class Ours:
    """Our trainer on a whole log; `train` runs an epoch."""

    def __init__(self, data: Sequences, threads: int) -> None:
        part = split(data, "none").train
        model = make(model="hca-gru", preset="paper", trainer="minibatch", window_x=5, window_h=5, d=D, length=LENGTH, loss="cross-entropy")
        model.set_catalog(data, np.asarray(part.items))
        settle(model, "cpu")
        model.initialize(part.items, part.offsets, 0)
        self.settings = model.config.as_dict()
        self._trainer, self._epoch = trainer_of(model)(model, part, RunSettings(device="cpu", threads=threads)), 0

    def train(self) -> dict[str, Any]:
        """Return the targets, seconds and mean loss of an epoch."""
        self._epoch += 1
        began = time.perf_counter()
        *_, now = self._trainer.epoch(self._epoch)
        return {"targets": now.targets, "seconds": time.perf_counter() - began, "loss": now.loss / now.targets}


def measure_peers(data: Sequences, environments: Path, threads: int, rounds: int) -> dict[str, Any]:
    """Return events a second of all contenders, in turns."""
    pythons = {name: install(name, environments) for name in PEERS}
    ours, found = Ours(data, threads), {}
    ours.train()
    with tempfile.TemporaryDirectory() as folder:
        log = write_log(data, Path(folder))
        for name, peer in PEERS.items():
            turns = _turns(ours, name, pythons[name], log, threads, rounds)
            found[name] = {"title": peer.title, "goal": GOALS[name], "requirements": peer.requirements, **turns}
    return {
        "users": data.n_users, "items": data.n_items, "events": data.n_events, "d": D, "length": LENGTH, "threads": threads,
        "events_per_second": statistics.median(rate for one in found.values() for rate in one["ours_of_rounds"]),
        "settings": ours.settings, "peers": found,
    }  # fmt: skip


def _turns(ours: Ours, name: str, python: Path, log: Path, threads: int, rounds: int) -> dict[str, Any]:
    """Train both in turns; both have been warmed up."""
    with Running(name, python, log, {"d": D, "length": LENGTH, "threads": threads}) as peer:
        first, pairs = peer.train(), []
        for _ in range(rounds):
            pairs.append((ours.train(), peer.train()))
            print(f"{name}: ours {pairs[-1][0]['seconds']:.1f} s, theirs {pairs[-1][1]['seconds']:.1f} s", file=sys.stderr, flush=True)
    rates = [(mine["targets"] / mine["seconds"], theirs["targets"] / theirs["seconds"]) for mine, theirs in pairs]
    return {
        "batch_size": PEERS[name].batch_size, "batches_of_a_round": PEERS[name].batches, "about": peer.about, "first_round": first,
        "events_per_second": statistics.median(theirs for _, theirs in rates),
        "events_per_second_of_rounds": [theirs for _, theirs in rates], "ours_of_rounds": [mine for mine, _ in rates],
        "ratio": statistics.median(mine / theirs for mine, theirs in rates), "ratio_of_rounds": [mine / theirs for mine, theirs in rates],
    }  # fmt: skip


def measure_plan(cases: list[tuple[str, dict[str, Any]]], folder: Path) -> dict[str, Any]:
    """Return the cases, each with what was planned and measured."""
    rows = []
    for name, settings in cases:
        given = {"preset": "paper", "trainer": "minibatch", "epochs": 3, **settings}
        where = name if name.startswith("synthetic:") else str(folder / name)
        command = [sys.executable, str(Path(__file__).with_name("planned_runs.py")), where, json.dumps(given)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        rows.append({"log": name, "settings": settings, **json.loads(done.stdout)})
        show_case(rows[-1])
    within = [abs(row[ratio] - 1) <= PLAN_GOAL for row in rows for ratio in ("time_ratio", "memory_ratio") if row[ratio] is not None]
    large = next((row["mib"] for row in rows if row["log"] == LARGE), None)
    return {"goal": PLAN_GOAL, "within": sum(within), "of": len(within), "cases": rows, "large_catalog_mib": large, "large_goal_gib": MEMORY_GOAL_GIB}


def prepare_logs(folder: Path) -> None:
    """Prepare the logs of the cases from HCAREC_DATA."""
    for name in (ML, BEAUTY, CHECKINS, SHOP):
        if not (folder / name).exists():
            hcarec.prepare(Path(os.environ["HCAREC_DATA"]) / f"{name}.csv.xz", folder / name)


def show_case(row: dict[str, Any]) -> None:
    settings = " ".join(f"{name}={value}" for name, value in row["settings"].items())
    memory = f"{row['planned_mib']:6.0f} {row['mib']:6.0f} MiB {row['memory_ratio']:5.2f}" if row["mib"] else ""
    print(f"{row['planned_seconds']:7.2f} {row['seconds']:7.2f} s {row['time_ratio']:5.2f} {memory}   {row['log']} {settings}", flush=True)


def show_peers(result: dict[str, Any]) -> None:
    print(f"{result['users']:,} users, {result['items']:,} items, d = {D}, length {LENGTH}, {result['threads']} threads")
    print(f"hcarec HCA-GRU-x5-h5: {result['events_per_second']:,.0f} events/s")
    for one in result["peers"].values():
        print(
            f"{one['title']}: {one['events_per_second']:,.0f} events/s (batches of {one['batch_size']}), ours {one['ratio']:.1f} times, goal {one['goal']:.0f}"
        )


def quick() -> dict[str, Any]:
    """Run tiny cases that need nothing from elsewhere."""
    ours = Ours(synthetic(users=100, items=50, mean_length=10), hardware.cores())
    ours.train()
    one = ours.train()
    print(f"hcarec: {one['targets'] / one['seconds']:,.0f} events/s on 100 users; RecBole and RecTools are left out, they need PyPI")
    return {"plan": measure_plan([("synthetic:100:50:10", {"model": "hca-gru", "d": 16})], Path())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, help="write the results here as JSON")
    parser.add_argument("--quick", action="store_true", help="tiny cases without other packages; their figures mean little")
    parser.add_argument("--only", choices=("peers", "plan"), help="run this part alone and merge it into the results that are there")
    parser.add_argument("--environments", type=Path, help="folder for the other packages and prepared logs, kept; a temporary one by default")
    parser.add_argument("--threads", type=int, default=hardware.cores())
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.environments or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        parts = quick() if options.quick else full(options, folder)
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        machine = describe()
        earlier = json.loads(options.output.read_text()) if options.only and options.output.exists() else {}
        commits = earlier.get("commits", {}) | dict.fromkeys(parts, machine["commit"])
        result = earlier | {"benchmark": "train_minibatch", "quick": options.quick, "machine": machine, "commits": commits} | parts
        options.output.write_text(json.dumps(result, indent=1) + "\n")


def full(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Run the parts asked for; one that lacks something says so and is left out."""
    parts: dict[str, Any] = {}
    if options.only != "plan":
        if not (folder / "ml-1m").exists():
            hcarec.prepare("movielens-1m", folder / "ml-1m", min_user_events=5, min_item_events=5)
        parts["peers"] = measure_peers(Sequences.open(folder / "ml-1m"), folder, options.threads, ROUNDS)
        show_peers(parts["peers"])
    if options.only != "peers":
        if "HCAREC_DATA" in os.environ:
            prepare_logs(folder)
            parts["plan"] = measure_plan(CASES, folder)
        else:
            print("the plan is not compared: it needs real logs, in the folder that HCAREC_DATA names")
    return parts


if __name__ == "__main__":
    main()
