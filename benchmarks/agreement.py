"""Measure how far attention weights agree with what leaving events out does, over many users, and keep one example in full.

For each log HCA-GRU-x5-h5 is trained on the training part and its best recommendation explained for users spread over the log. Beside
the rank correlation of weights and effects stand two others: that of plain recency, and that of the same weights dealt out at random.

python benchmarks/agreement.py --output benchmarks/results/agreement.json [--data LOG ..] [--users 500] [--quick]
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import hcarec
from hcarec.data.split import split
from hcarec.explanation import Explanation, explain, spearman
from hcarec.models import HCAGRU
from hcarec.sequences import Sequences
from hcarec.training.trainers import fit

from machine import describe

WIDTH = 5
REACH = 2 * WIDTH - 1
"""Events that the windows reach back over, which are the ones that an explanation lists."""


def measure(data: Sequences, epochs: int, n_users: int, seed: int = 0) -> dict[str, Any]:
    """Train on a log and explain the best recommendation of some of its users."""
    parts = split(data, "ratio")
    model = HCAGRU(preset="paper", window_x=WIDTH, window_h=WIDTH, epochs=epochs)
    model.set_catalog(data, np.asarray(parts.history.items))
    model.initialize(parts.history.items, parts.history.offsets, seed)
    fit(model, parts.history, seed)
    model.about = {}
    full = np.flatnonzero(parts.evaluated & (parts.history.lengths >= REACH))
    users = full[np.unique(np.linspace(0, len(full) - 1, n_users).astype(np.int64))]
    found = [explain(model, [data.item_ids[item] for item in parts.history[user]]) for user in users]
    ordinary = int(np.argmin(np.abs(parts.history.lengths - np.median(parts.history.lengths[full])) + 10**9 * ~np.isin(np.arange(data.n_users), full)))
    example = explain(model, [data.item_ids[item] for item in parts.history[ordinary]])
    return {"model": model.config.title, "epochs": epochs, "users": len(found), **summary(found), "example": kept(data, ordinary, example)}


def summary(found: list[Explanation]) -> dict[str, Any]:
    """Return how weights, recency and chance go with the effects."""
    rng = np.random.default_rng(0)
    weights = np.array([[event.weight for event in one.events] for one in found], float)
    effects = np.array([[event.effect for event in one.events] for one in found])
    ages = np.arange(weights.shape[1], dtype=float)
    kinds = {"weights": weights, "recency": np.broadcast_to(ages, weights.shape), "chance": rng.permuted(weights, axis=1)}
    result = {name: _agreement(values, effects) for name, values in kinds.items()}
    agreement = np.array([one.agreement if one.agreement is not None else np.nan for one in found])
    edges = {"well": (0.7, 9), "in part": (0.3, 0.7), "little": (-0.3, 0.3), "the other way": (-9, -0.3)}
    verdicts = {name: float(np.mean((agreement >= low) & (agreement < high))) for name, (low, high) in edges.items()}
    return {"events": weights.shape[1], "agreement": result, "verdicts": verdicts, "against": float((effects < 0).mean())}


def _agreement(values: np.ndarray, effects: np.ndarray) -> dict[str, float]:
    """Return the mean rank correlation with the effects and with their sizes, and how often the highest value marks the largest effect."""
    signed = [spearman(a, b) for a, b in zip(values, effects, strict=True)]
    sizes = [spearman(a, np.abs(b)) for a, b in zip(values, effects, strict=True)]
    top = values.argmax(1) == effects.argmax(1)
    return {
        "mean": float(np.mean([one for one in signed if one is not None])),
        "mean_of_sizes": float(np.mean([one for one in sizes if one is not None])),
        "top_is_top": float(top.mean()),
    }


def kept(data: Sequences, user: int, found: Explanation) -> dict[str, Any]:
    """Return one explanation, to be shown."""
    return {"user": data.user_ids.text(user), "history": int(data.lengths[user]), **found.as_dict()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", action="append", help="a log, a prepared folder or the name of a known data set; may be repeated")
    parser.add_argument("--users", type=int, default=500, help="users explained in each log")
    parser.add_argument("--epochs", type=int, default=20, help="epochs of training")
    parser.add_argument("--quick", action="store_true", help="a small synthetic log, to see that it works")
    parser.add_argument("--output", type=Path, help="write the results as JSON")
    given = parser.parse_args()
    logs = {}
    with tempfile.TemporaryDirectory() as scratch:
        for n, source in enumerate(["synthetic"] if given.quick else given.data or ["online-retail"]):
            data = hcarec.synthetic(users=60, items=50) if given.quick else open_(source, f"{scratch}/{n}")
            name = Path(source).name.partition(".")[0].replace("_", "-")
            logs[name] = measure(data, 2 if given.quick else given.epochs, 20 if given.quick else given.users)
            mean = {kind: round(one["mean"], 3) for kind, one in logs[name]["agreement"].items()}
            print(f"{name:20} rank correlation with the effects: {mean}; verdicts {logs[name]['verdicts']}", flush=True)
    if given.output:
        given.output.parent.mkdir(parents=True, exist_ok=True)
        given.output.write_text(json.dumps({"benchmark": "agreement", "machine": describe(), "logs": logs}, indent=1, ensure_ascii=False) + "\n")


def open_(source: str, scratch: str) -> Sequences:
    """Open a prepared folder, or prepare a log, with its names where a file of them lies beside it."""
    path = Path(source)
    if (path / "sequences.json").exists():
        return Sequences.open(path)
    titles = path.with_name(path.name.replace(".csv", "_titles.csv"))
    return hcarec.prepare(source, scratch, titles=titles if path.exists() and titles.exists() else None)


if __name__ == "__main__":
    main()
