"""Measure the search for items by name, over the lists of results that somebody typing goes through.

python benchmarks/search.py [--names N] [--output FILE]
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import time
from pathlib import Path
from typing import Any

import numpy as np

from hcarec import Pop
from hcarec.ids import Ids
from hcarec.models import Model
from hcarec.serve.search import Names

from machine import describe

LETTERS = "etaoinshrdlucmfwypvbgkqjxz"
GOAL_MS = 50.0
REPEATS = 5


def catalogue(n: int, draw: random.Random) -> tuple[Model, list[str]]:
    """Make a catalogue of n names of two to seven words, in the frequencies that words have."""
    words = ["".join(draw.choices(LETTERS, weights=range(26, 0, -1), k=draw.randint(2, 9))) for _ in range(20_000)]
    weights = list(itertools.accumulate(1 / rank for rank in range(1, len(words) + 1)))
    model = Pop()
    model.item_ids = Ids.of([f"{number:07}A" for number in range(n)])
    model.titles = Ids.of([" ".join(draw.choices(words, cum_weights=weights, k=draw.randint(2, 7))).title() + " é" * (number % 7 == 0) for number in range(n)])
    model.item_events = np.random.default_rng(0).integers(0, 1000, n)
    return model, words


def typed(words: list[str], draw: random.Random) -> list[str]:
    """Return what is typed: words letter by letter, two words, an id, what is not there."""
    some = [words[draw.randrange(2000)] for _ in range(8)]
    letters = [word[:length] for word in some for length in range(1, len(word) + 1)]
    return ["", *letters, *(f"{a[:2]} {b}" for a, b in itertools.pairwise(some)), "e t a", "0001234a", "nothing-of-the-kind"]


def measure(n: int) -> dict[str, Any]:
    """Build an index of n names and search it."""
    draw = random.Random(0)
    model, words = catalogue(n, draw)
    began = time.perf_counter()
    names = Names(model, np.argsort(-model.item_events, kind="stable").astype(np.int32))
    built = time.perf_counter() - began
    names.search("a", 20)  # compile
    times = []
    for text in typed(words, draw):
        best = float("inf")
        for _ in range(REPEATS):
            began = time.perf_counter()
            names.search(text, 20)
            best = min(best, time.perf_counter() - began)
        times.append(1000 * best)
    return {"names": n, "searches": len(times), "build_seconds": built, "median_ms": float(np.median(times)), "worst_ms": max(times), "goal_ms": GOAL_MS}


def main() -> None:
    """Print a table and write the figures."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--names", type=int, nargs="+", default=[100_000, 1_000_000])
    options.add_argument("--output", type=Path)
    options.add_argument("--quick", action="store_true", help="10,000 names only")
    given = options.parse_args()
    sizes = [measure(n) for n in ([10_000] if given.quick else given.names)]
    print(f"{'names':>10} {'built in s':>11} {'median ms':>10} {'worst ms':>9}")
    for one in sizes:
        print(f"{one['names']:>10,} {one['build_seconds']:>11.2f} {one['median_ms']:>10.1f} {one['worst_ms']:>9.1f}")
    if given.output:
        given.output.write_text(json.dumps({"machine": describe(), "sizes": sizes}, indent=1) + "\n")


if __name__ == "__main__":
    main()
