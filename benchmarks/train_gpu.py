"""Measure mini-batch training on a GPU: seconds of an epoch, and of several runs that share a card.

movielens: ML-1M with at least 5 events per user and item, sequences of at most 200 events, batches of 128. beauty: Amazon
Beauty (5-core), every prefix of at most 50 events as a sample of its own, batches of 256. Both train on what leave-one-out
leaves: HCA-GRU-x5-h5 at d = 256 in a block, masked padding, residual fusion, cosine scores, dropout, full cross-entropy,
AdamW and averaged weights. An epoch is timed from making its batches to the last step done, without evaluation, after one
that is not counted.

The arrays are made from prepared data on any machine, and carried to that with the GPU:

    hcarec prepare movielens-1m --min-user-events 5 --min-item-events 5 -o ML1M
    hcarec prepare amazon_beauty.csv.xz -o BEAUTY
    python benchmarks/train_gpu.py --make-arrays arrays --movielens ML1M --beauty BEAUTY
    python benchmarks/train_gpu.py --arrays arrays --output train_gpu.json
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from machine import describe, describe_gpu

NETWORK: dict[str, Any] = {
    "window_x": 5, "window_h": 5, "d": 256, "blocks": 1, "padding": "masked", "fusion": "residual", "scores": "cosine",
    "initial": "scaled", "output_norm": True,
}  # fmt: skip
TRAINER: dict[str, Any] = {"preset": "paper", "trainer": "minibatch", "loss": "cross-entropy", "schedule": "cosine", "epochs": 100}
CASES: dict[str, dict[str, Any]] = {
    "movielens": {"batches": "sequences", "length": 200, "batch_size": 128, "input_dropout": 0.4, "output_dropout": 0.4},
    "beauty": {"batches": "prefixes", "length": 50, "batch_size": 256, "input_dropout": 0.5, "output_dropout": 0.5},
}
GOALS = {"movielens": 0.3, "beauty": 2.0}
"""Seconds of an epoch."""
SHARING = 3.0
"""Goal: 8 runs side by side take at most so many times as long as one."""
PRECISIONS = ("float32", "tf32", "bfloat16")


def make_arrays(folder: Path, prepared: dict[str, Path]) -> None:
    """Write the training part of leave-one-out of prepared data: NAME.npz with items, offsets, n_items."""
    from hcarec import Sequences
    from hcarec.data.split import split

    folder.mkdir(parents=True, exist_ok=True)
    for name, path in prepared.items():
        data = Sequences.open(path)
        part = split(data, "leave-one-out", validation=True).train
        np.savez(folder / f"{name}.npz", items=part.items, offsets=part.offsets, n_items=data.n_items)


def make_trainer(folder: Path, name: str, precision: str, seed: int = 0) -> Any:
    """Return a trainer on the card that has not begun."""
    from hcarec.data.split import Part
    from hcarec.models.hca_gru import HCAGRU
    from hcarec.ops.hca.parameters import initialize
    from hcarec.settings import RunSettings
    from hcarec.training.minibatch import Minibatch

    arrays = np.load(folder / f"{name}.npz")
    part, n_items = Part(arrays["items"], arrays["offsets"]), int(arrays["n_items"])
    model = HCAGRU(**NETWORK, **TRAINER, **CASES[name], precision=precision)
    model.item_events = np.bincount(part.items, minlength=n_items)
    model.theta = initialize(model.network, n_items, seed)
    return Minibatch(model, part, RunSettings(seed=seed, threads=1, device="cuda"))


def time_epochs(trainer: Any, first: int, epochs: int) -> list[float]:
    """Return the seconds of each epoch."""
    import torch

    found = []
    for number in range(first, first + epochs):
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in trainer.epoch(number):
            pass
        torch.cuda.synchronize()
        found.append(time.perf_counter() - began)
    return found


def measure(folder: Path, name: str, precision: str, epochs: int) -> dict[str, Any]:
    """Time a case by itself."""
    import torch

    torch.cuda.reset_peak_memory_stats()
    trainer = make_trainer(folder, name, precision)
    first, *seconds = time_epochs(trainer, 1, 1 + epochs)
    now, median = trainer.progress, statistics.median(seconds)
    return {
        "case": name, "precision": precision, "device": trainer.describe_device("cuda", trainer.model),
        "settings": trainer.model.config.as_dict(), "steps": now.size, "targets": now.targets, "loss": now.loss / now.targets,
        "seconds": median, "seconds_of_epochs": seconds, "first_epoch_seconds": first, "milliseconds_a_step": 1e3 * median / now.size,
        "targets_per_second": now.targets / median, "peak_memory_gib": torch.cuda.max_memory_allocated() / (1 << 30), "goal": GOALS[name],
    }  # fmt: skip


def _share(folder: Path, precision: str, seed: int, epochs: int, ready: Any, seconds: Any) -> None:
    trainer = make_trainer(folder, "movielens", precision, seed)
    time_epochs(trainer, 1, 1)
    ready.wait()
    seconds.put(sum(time_epochs(trainer, 2, epochs)))


def share(folder: Path, precision: str, runs: int, epochs: int) -> float:
    """Return the seconds that `runs` processes side by side take for an epoch each, until the last one is done."""
    context = multiprocessing.get_context("spawn")
    ready, seconds = context.Barrier(runs), context.Queue()
    jobs = [context.Process(target=_share, args=(folder, precision, seed, epochs, ready, seconds)) for seed in range(runs)]
    for job in jobs:
        job.start()
    found = [seconds.get(timeout=300) for _ in jobs]
    for job in jobs:
        job.join()
    return max(found) / epochs


def measure_sharing(folder: Path, precision: str, runs: int, epochs: int) -> dict[str, Any]:
    """Compare runs of movielens side by side with one alone, each in a process of its own, as `hcarec train --runs` has them."""
    from hcarec import sharing

    with sharing.card() as how:
        one, many = (share(folder, precision, n, epochs) for n in (1, runs))
    return {"case": "movielens", "precision": precision, "runs": runs, "how": how, "one": one, "many": many, "ratio": many / one, "goal": SHARING}


def show(cases: list[dict[str, Any]], shared: list[dict[str, Any]]) -> None:
    print("case        precision   steps   ms/step   epoch s   goal   first   GiB   targets/s   loss")
    for one in cases:
        print(
            f"{one['case']:11} {one['precision']:9} {one['steps']:7} {one['milliseconds_a_step']:9.2f} {one['seconds']:9.3f} {one['goal']:6.1f}"
            f" {one['first_epoch_seconds']:7.2f} {one['peak_memory_gib']:5.2f} {one['targets_per_second']:11,.0f} {one['loss']:6.3f}"
        )
    for one in shared:
        print(
            f"{one['runs']} runs side by side ({one['how']}), {one['precision']}: {one['many']:.3f} s an epoch, one alone {one['one']:.3f},"
            f" ratio {one['ratio']:.2f}; goal {SHARING}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, help="write the results here as JSON")
    parser.add_argument("--quick", action="store_true", help="one epoch of each case, no runs side by side")
    parser.add_argument("--arrays", type=Path, help="folder with movielens.npz and beauty.npz")
    parser.add_argument("--make-arrays", type=Path, help="write them there, from --movielens and --beauty, and end")
    parser.add_argument("--movielens", type=Path, help="folder made by hcarec prepare")
    parser.add_argument("--beauty", type=Path, help="folder made by hcarec prepare")
    parser.add_argument("--case", action="append", choices=CASES, help="only this one; may be repeated")
    parser.add_argument("--precision", action="append", choices=PRECISIONS, help="only this one; may be repeated")
    parser.add_argument("--epochs", type=int, default=5, help="epochs that are timed")
    parser.add_argument("--runs", type=int, default=8, help="runs side by side; 0 measures none")
    parser.add_argument("--commit", help="the commit, where this is not a checkout")
    options = parser.parse_args()
    if options.make_arrays:
        given = {"movielens": options.movielens, "beauty": options.beauty}
        return make_arrays(options.make_arrays, {name: path for name, path in given.items() if path})
    gpu = describe_gpu()
    if gpu is None or options.arrays is None:
        lacks = "a GPU that torch can use" if gpu is None else "--arrays FOLDER, made by --make-arrays"
        print(f"train_gpu: nothing measured, it lacks {lacks}")
        return None
    precisions, epochs = options.precision or PRECISIONS, 1 if options.quick else options.epochs
    cases = [measure(options.arrays, name, precision, epochs) for name in options.case or CASES for precision in precisions]
    runs = 0 if options.quick else options.runs
    shared = [measure_sharing(options.arrays, precisions[-1], runs, epochs)] if runs else []
    show(cases, shared)
    if options.output:
        machine = describe() | {"gpu": gpu} | ({"commit": options.commit} if options.commit else {})
        result = {"benchmark": "train_gpu", "quick": options.quick, "machine": machine, "cases": cases, "shared": shared}
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(result, indent=1) + "\n")
    return None


if __name__ == "__main__":
    sys.exit(main())
