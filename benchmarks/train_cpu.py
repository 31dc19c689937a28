"""Measure training on one thread: events a second, share of the core's peak, growth, memory and compilation.

The data resemble the paper's Taobao: 36,986 users with 30 to 200 events, 1,640,433 in all, of which the first 80% of
each user train; items follow Zipf's law. An event here is one step that is learned from: a sequence of n events has n - 1
(BPR: n), and drawing negatives is part of the time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from hcarec.ops import bpr, cpu, parameters
from hcarec.ops.negatives import bitmap, draw, known_items
from hcarec.ops.simd import load, pointer, store
from hcarec.ops.streams import epoch_order, stream

from machine import describe

Data = tuple[np.ndarray, np.ndarray]

N_USERS, N_ITEMS, N_EVENTS, D = 36_986, 267_948, 1_640_433, 20
AUTHORS = {"gru": 8_100, "x5-h5": 3_200, "bpr": 10_500}
"""Events a second of the authors' own program on this kind of machine (issue of the engine)."""
GOALS = {"gru": 810_000, "x5-h5": 320_000, "bpr": 2_000_000}
WIDTHS = {"gru": (1, 1), "x5": (5, 1), "h5": (1, 5), "x5-h5": (5, 5)}
SGD = {"seed": 1, "learning_rate": 0.01, "lam": 0.001}


def make_data(n_users: int, n_events: int, n_items: int, lengths: tuple[int, int] = (30, 200), seed: int = 0) -> Data:
    """Make training parts: items (n,) int32 of Zipf popularity, offsets (n_users + 1,)."""
    rng = np.random.default_rng(seed)
    low, high = lengths
    mean = n_events / n_users
    n = np.minimum(low + rng.exponential(max(mean - low, 0.01), n_users).astype(np.int64), high)
    while n.sum() != n_events and low < high:  # bring the total to what was asked for, within the limits
        change = np.sign(n_events - n.sum())
        movable = np.flatnonzero((n + change >= low) & (n + change <= high))
        if len(movable) == 0:
            break
        n[rng.choice(movable, min(len(movable), abs(int(n_events - n.sum()))), replace=False)] += change
    offsets = np.concatenate([[0], np.cumsum((0.8 * n).astype(np.int64))])
    cumulated = np.cumsum(np.arange(1, n_items + 1) ** -0.8)
    ranks = np.searchsorted(cumulated, rng.random(offsets[-1]) * cumulated[-1])
    return rng.permutation(n_items)[ranks].astype(np.int32), offsets


class Speed(NamedTuple):
    """Events a second: by the clock on the wall, and by the thread's own, which other work on the machine disturbs less."""

    wall: float
    own: float


def rate(run: Callable[[int], int], rounds: int) -> Speed:
    """Return the best speeds of several rounds; `run(round)` returns its events."""
    wall = own = 0.0
    for i in range(rounds):
        begin, own_begin = time.perf_counter(), time.thread_time()
        events = run(i)
        own = max(own, events / (time.thread_time() - own_begin))
        wall = max(wall, events / (time.perf_counter() - begin))
    return Speed(wall, own)


def network_rate(data: Data, n_items: int, d: int, w_x: int, w_h: int, rounds: int) -> Speed:
    """Return the events a second of one network."""
    items, offsets = data
    theta = parameters.initialise(parameters.shapes(n_items, d, w_x, w_h), 1)

    def run(epoch: int) -> int:
        order = epoch_order(len(offsets) - 1, 1, epoch)
        return cpu.train_users(theta, items, offsets, order, epoch=epoch, w_x=w_x, w_h=w_h, **SGD).steps

    return rate(run, rounds)


def bpr_rate(data: Data, n_items: int, rounds: int) -> Speed:
    """Return the events a second of BPR."""
    items, offsets = data
    theta = parameters.initialise({"P": (len(offsets) - 1, D), "X": (n_items, D)}, 1)

    def run(epoch: int) -> int:
        order = epoch_order(len(offsets) - 1, 1, epoch)
        return bpr.train_users(theta, items, offsets, order, epoch=epoch, **SGD).steps

    return rate(run, rounds)


@njit(error_model="numpy")
def _read_all(items, offsets, order, n_items, key, seen, out, drawing):  # type: ignore[no-untyped-def]
    count = 0
    for user in order:
        begin, end = offsets[user], offsets[user + 1]
        if not known_items(items, begin, end, n_items):
            return -1
        if drawing:
            draw(items, begin, end, user, n_items, key, seen, out, end - begin)
        count += end - begin
    return count


def sampler_rate(data: Data, n_items: int, rounds: int) -> Speed:
    """Return the negatives drawn a second: what drawing adds to the reading of a user's items, which training does in any case."""
    items, offsets = data
    out = np.empty(int(np.diff(offsets).max()), np.int32)
    seen, order = bitmap(n_items), epoch_order(len(offsets) - 1, 1, 0)

    def run(epoch: int, drawing: bool) -> int:
        return int(_read_all(items, offsets, order, n_items, stream(1, epoch), seen, out, drawing))

    run(0, True)
    reading, both = rate(lambda epoch: run(epoch, False), 10 * rounds), rate(lambda epoch: run(epoch, True), 10 * rounds)
    return Speed(*(1 / (1 / with_draws - 1 / without) for with_draws, without in zip(both, reading, strict=True)))


@njit(error_model="numpy")
def _multiply_add(space, rounds):  # type: ignore[no-untyped-def]
    S = pointer(space)
    x, y = load(S, 0), load(S, 8)
    a, b, c, d, e = load(S, 16), load(S, 24), load(S, 32), load(S, 40), load(S, 48)
    f, g, h, i, j = load(S, 56), load(S, 64), load(S, 72), load(S, 80), load(S, 88)
    for _ in range(rounds):  # ten chains: enough to keep two units of latency four busy
        a, b, c, d, e = a * x + y, b * x + y, c * x + y, d * x + y, e * x + y
        f, g, h, i, j = f * x + y, g * x + y, h * x + y, i * x + y, j * x + y
    store(S, 0, a + b + c + d + e + f + g + h + i + j)


def peak_gflops(rounds: int = 3_000_000) -> float:
    """Return the core's peak of multiply-adds on float32, in 10^9 operations a second (two each)."""
    values = np.random.default_rng(0).random(96).astype(np.float32)
    _multiply_add(values.copy(), 10)

    def run(_: int) -> int:
        _multiply_add(values.copy(), rounds)
        return rounds * 10 * 8 * 2

    return rate(run, 5).own / 1e9


def flops(d: int, w_x: int, w_h: int) -> int:
    """Count the multiplications and additions of the matrix products of one step, forward and backward (three times)."""
    matrices = 6 + (4 if w_x > 1 else 0) + (3 if w_h > 1 else 0)  # of d x d: U and W, V and Q_x, Q_h, E and F
    windows = 2 * d * ((w_x if w_x > 1 else 0) + (w_h if w_h > 1 else 0))
    return 3 * (2 * matrices * d * d + windows)


def extra_memory(data: Data) -> float:
    """Return the most memory, in MiB, that an epoch takes above parameters and data."""
    items, offsets = data
    theta = parameters.initialise(parameters.shapes(N_ITEMS, D, 5, 5), 1)
    order = epoch_order(len(offsets) - 1, 1, 0)
    tracemalloc.start()
    cpu.train_users(theta, items, offsets, order, epoch=0, w_x=5, w_h=5, **SGD)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 2**20


def compile_seconds() -> dict[str, dict[str, float]]:
    """Return the seconds from a fresh process to a compiled kernel, imports included, without and with a cache."""
    results = {}
    for name in ("cpu", "bpr"):
        code = f"import time; t = time.perf_counter(); from hcarec.ops import {name}; {name}.warm(); print(time.perf_counter() - t)"
        with tempfile.TemporaryDirectory() as folder:
            environment = os.environ | {"NUMBA_CACHE_DIR": folder}
            command = [sys.executable, "-c", code]
            runs = [subprocess.run(command, env=environment, capture_output=True, text=True, check=True) for _ in range(3)]
        seconds = [float(run.stdout) for run in runs]
        results[name] = {"first": seconds[0], "afterwards": min(seconds[1:])}
    return results


def growth(n_users: int, n_items: int, rounds: int) -> dict[str, list[dict[str, float]]]:
    """Return how the time of one event grows with size, width, length and items, all else as in the main run.

    By the thread's own clock.
    """
    data = make_data(n_users, int(n_users * 44.35), n_items)

    def microseconds(chosen: Data, items: int, d: int, w: int) -> float:
        return 1e6 / network_rate(chosen, items, d, w, w, rounds).own

    by_length = {n: make_data(max(2, n_users * 44 // n), max(2, n_users * 44 // n) * n, n_items, (n, n)) for n in (20, 50, 100, 200, 400, 800)}
    by_items = {n: make_data(n_users, int(n_users * 44.35), n) for n in (10_000, 100_000, 267_948, 1_000_000, 3_000_000) if n <= 12 * n_items}
    sizes = []
    for d in (20, 32, 48, 64, 96, 128):
        gru = network_rate(data, n_items, d, 1, 1, rounds).own
        sizes.append({"d": d, "microseconds": microseconds(data, n_items, d, 5), "microseconds_gru": 1e6 / gru})
    return {
        "d": sizes,
        "w": [{"w": w, "microseconds": microseconds(data, n_items, D, w)} for w in range(1, 11)],
        "length": [{"length": n, "microseconds": microseconds(chosen, n_items, D, 5)} for n, chosen in by_length.items()],
        "items": [{"items": n, "microseconds": microseconds(chosen, n, D, 5)} for n, chosen in by_items.items()],
    }


def measure(quick: bool, rounds: int) -> dict[str, Any]:
    """Run everything; quick takes seconds and says little."""
    n_users, n_items = (1_000, 20_000) if quick else (N_USERS, N_ITEMS)
    data = make_data(n_users, N_EVENTS * n_users // N_USERS, n_items)
    cpu.warm()
    bpr.warm()
    peak, drawn = peak_gflops(), [sampler_rate(data, n_items, rounds).own]
    models: dict[str, dict[str, float]] = {}
    for name in (*WIDTHS, "bpr"):
        speed = bpr_rate(data, n_items, rounds) if name == "bpr" else network_rate(data, n_items, D, *WIDTHS[name], rounds)
        drawn.append(sampler_rate(data, n_items, rounds).own)  # the machine's own speed wanders: compare with what lies just before and after
        models[name] = {"events_per_second": speed.wall, "events_per_cpu_second": speed.own, "sampler_share": speed.own / max(drawn[-2:])}
        if name in WIDTHS:
            models[name]["share_of_peak"] = speed.own * flops(D, *WIDTHS[name]) / 1e9 / peak
    for name, known in AUTHORS.items():
        models[name] |= {"times_authors": models[name]["events_per_second"] / known, "goal": GOALS[name]}
    return {
        "users": n_users, "items": n_items, "training_events": len(data[0]), "d": D, "models": models,
        "peak_gflops": peak, "negatives_per_second": max(drawn), "extra_memory_mib": None if quick else extra_memory(data),
        "growth": growth(300 if quick else 6_000, n_items, 1 if quick else 3), "compile_seconds": None if quick else compile_seconds(),
    }  # fmt: skip


def show(result: dict[str, Any]) -> None:
    """Print the results as tables."""
    print(f"{result['users']:,} users, {result['items']:,} items, {result['training_events']:,} training events, d = {result['d']}, one thread")
    print("model     events/s  by cpu time   x authors'        goal   share of peak   sampler's share of time")
    for name, row in result["models"].items():
        times, goal = (f"{row['times_authors']:.0f}", f"{row['goal']:,}") if "goal" in row else ("-", "-")
        peak = f"{row['share_of_peak']:.1%}" if "share_of_peak" in row else "-"
        print(
            f"{name:6s} {row['events_per_second']:11,.0f} {row['events_per_cpu_second']:12,.0f} {times:>12} {goal:>11} {peak:>15} {row['sampler_share']:>12.1%}"
        )
    print(f"peak {result['peak_gflops']:.0f} GFLOP/s, {result['negatives_per_second']:,.0f} negatives/s")
    for what, rows in result["growth"].items():
        print(f"microseconds an event by {what}: " + "  ".join(f"{row[what]:,}: {row['microseconds']:.2f}" for row in rows))
    if result["extra_memory_mib"] is not None:
        print(f"memory above parameters and data: {result['extra_memory_mib']:.1f} MiB")
    for name, seconds in (result["compile_seconds"] or {}).items():
        print(f"compile {name}: {seconds['first']:.1f} s the first time, {seconds['afterwards']:.2f} s afterwards, imports included")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, help="write the results here as JSON")
    parser.add_argument("--quick", action="store_true", help="a small case that takes seconds; its figures mean little")
    parser.add_argument("--rounds", type=int, default=5, help="epochs timed of each model, of which the best counts")
    options = parser.parse_args()
    result = measure(options.quick, 2 if options.quick else options.rounds)
    show(result)
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        full = {"benchmark": "train_cpu", "quick": options.quick, "machine": describe()} | result
        options.output.write_text(json.dumps(full, indent=1) + "\n")


if __name__ == "__main__":
    main()
