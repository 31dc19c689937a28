"""The trials behind the preset `modern`: six one-seed runs per model and log, judged by validation alone.

python benchmarks/recipe_trials.py --data FOLDER --output trials.jsonl

FOLDER holds prepared logs (movielens-1m, amazon_beauty, foursquare_sg; nowplaying, retailrocket,
tmall and online_retail are explored too). Every trial changes the preset by a few settings.
All trials of a model on a log are trained for a few epochs; the best third of them goes on to the
end. A line of the output is a trial: its settings, the epoch chosen, and NDCG@10 on validation,
alone and with the counting term. Figures of the test part are not written.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

GOES_ON = 2
"""Trials of a model on a log that are trained to the end."""
MODELS = ("hca-gru", "gru", "sasrec")
Changes = dict[str, dict[str, Any]]

ONCE: Changes = {
    "preset": {},
    "dropout .3": {"input_dropout": 0.3, "output_dropout": 0.3},
    "dropout .5": {"input_dropout": 0.5, "output_dropout": 0.5},
    "hidden dropout .2": {"hidden_dropout": 0.2},
    "3 blocks": {"blocks": 3},
    "rate 2e-3": {"learning_rate": 2e-3},
}
RARE: Changes = {
    "preset": {},
    "d 128": {"d": 128},
    "dropout .4": {"input_dropout": 0.4, "output_dropout": 0.4},
    "hidden dropout .4": {"hidden_dropout": 0.4},
    "1 block": {"blocks": 1},
    "rate 2e-3": {"learning_rate": 2e-3},
}
REPEATS: Changes = {
    "preset": {},
    "d 128": {"d": 128},
    "dropout .5": {"input_dropout": 0.5, "output_dropout": 0.5},
    "item norm": {"item_norm": True},
    "rate 1e-3": {"learning_rate": 1e-3},
    "sequences": {"batches": "sequences", "batch_size": 64, "learning_rate": 1e-3},
}
DECAY: dict[str, Any] = {"input_dropout": 0.5, "output_dropout": 0.5, "weight_decay": 0.1}
BLOCK: dict[str, Any] = {"blocks": 1, "hidden_dropout": 0.2}
COSINE: dict[str, Any] = {"scores": "cosine", "item_norm": True}
EXPLORED: dict[str, tuple[int, Changes]] = {
    "nowplaying": (16, {
        "preset": {}, "dropout .5, decay .1": DECAY, "1 block": BLOCK,
        "2 blocks, cosine": DECAY | COSINE | {"blocks": 2, "hidden_dropout": 0.3, "output_norm": False},
    }),
    "retailrocket": (16, {
        "preset": {}, "dropout .5, decay .1": DECAY, "decay .1": {"weight_decay": 0.1}, "1 block": BLOCK,
        "cosine scores": COSINE, "batches of 256": {"batch_size": 256, "learning_rate": 1e-3},
    }),
    "tmall": (16, {"preset": {}, "dropout .5, decay .1": DECAY, "decay .1": {"weight_decay": 0.1}, "1 block": BLOCK}),
}  # fmt: skip
"""Beyond the trials: the most epochs, and what is tried of hca-gru."""


class Trial(NamedTuple):
    """A run: the settings that differ from the preset's on a log."""

    log: str
    model: str
    name: str
    changes: dict[str, Any]
    rule: str


class Log(NamedTuple):
    """A log of the trials: what is tried, the rule that decides, epochs before and after the cut."""

    trials: dict[str, dict[str, Any]]
    rule: str
    first: int
    most: int


LOGS = {
    "movielens-1m": Log(ONCE, "F", 24, 90),
    "amazon_beauty": Log(RARE, "F", 16, 40),
    "foursquare_sg": Log(REPEATS, "U", 10, 60),
}


def train_trial(trial: Trial, data: Path, work: Path, epochs: int, resume: bool, device: str, deadline: float) -> dict[str, Any] | None:
    """Train a trial for some epochs and return its record; after the deadline, of what there is, or None."""
    from hcarec.data.statistics import statistics
    from hcarec.experiments.trials.modern import modern
    from hcarec.sequences import Sequences
    from hcarec.training import Callback, train

    class Deadline(Callback):
        def stops(self) -> bool:
            return time.time() >= deadline

    if time.time() >= deadline:
        return None
    began, log = time.perf_counter(), Sequences.open(data / trial.log)
    settings = modern(trial.model, vars(statistics(log))) | trial.changes
    folder = work / f"{trial.log}-{trial.model}-{trial.name}".replace(" ", "_")
    model = train(
        log, folder, model=trial.model, split="leave-one-out", selection="validation", hide_seen=trial.rule == "F",
        seed=0, threads=1, device=device, ks=(10,), compare=False, keep_model=False, resume=resume, callback=Deadline(),
        **settings | {"epochs": epochs, "fine_tuning": 0},
    )  # fmt: skip
    about, took = model.about, model.about["training"]
    if "counting" not in took:  # ended before its first epoch
        return None
    best, counting = about["selection"]["best"]["ndcg@10"], took["counting"]
    return {
        "log": trial.log, "name": trial.name, "model": trial.model, "rule": trial.rule,
        "settings": model.config.as_dict(), "seed": 0, "epoch": about["selection"]["epoch"],
        "epochs": took["epochs"], "finished": about["finished"],
        "validation": {trial.rule: {"ndcg@10": best["value"]}},
        "fused": {trial.rule: {"scale": counting["scale"], "floor": counting["floor"], "alone": counting["alone"], "ndcg@10": counting["fused"]}},
        "round": 5, "seconds": round(time.perf_counter() - began, 1),
        "seconds_per_epoch": round(took["training_seconds"] / took["epochs"], 3),
        "evaluation_seconds": took["evaluation_seconds"], "fusing_seconds": took["fusing_seconds"],
    }  # fmt: skip


def trials_of(log: str, model: str) -> list[Trial]:
    """Return the trials of a model on a log."""
    return [Trial(log, model, name, changed, LOGS[log].rule) for name, changed in LOGS[log].trials.items()]


def main() -> None:
    """Run all trials that the folder has logs for, and write a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of prepared logs")
    parser.add_argument("--output", type=Path, required=True, help="file of records, a line each")
    parser.add_argument("--workers", type=int, default=10)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="end after so long, with what there is")
    parser.add_argument("--quick", action="store_true", help="two epochs of two trials a model")
    options = parser.parse_args()

    from hcarec import sharing

    known = [json.loads(line) for line in options.output.read_text().splitlines()] if options.output.exists() else []
    context, deadline = multiprocessing.get_context("spawn"), time.time() + 60 * options.minutes
    with sharing.card(), TemporaryDirectory() as work, options.output.open("a") as out:
        # A process each: a GPU that has failed in one stays behind with it.
        pool = ProcessPoolExecutor(options.workers, mp_context=context, max_tasks_per_child=1)

        def submit(trial: Trial, epochs: int, resume: bool = False) -> Future[dict[str, Any] | None]:
            return pool.submit(train_trial, trial, options.data, Path(work), epochs, resume, options.device, deadline)

        def write(record: dict[str, Any]) -> None:
            out.write(json.dumps(record) + "\n")
            out.flush()
            alone, fused = (record[part][record["rule"]]["ndcg@10"] for part in ("validation", "fused"))
            print(
                f"{record['log']:14} {record['model']:8} {record['name']:28} {record['epoch']:3}/{record['epochs']:3}"
                f" {alone:.4f} {fused:.4f} {record['seconds']:6.1f} s, an epoch {record['seconds_per_epoch']:.2f},"
                f" evaluated {record['evaluation_seconds']:.1f}, fused {record['fusing_seconds']:.1f}",
                flush=True,
            )

        def go_on(log: str, model: str) -> None:
            """Submit the best of a group whose trials are all done."""
            group = groups[log, model]
            if options.quick or len(group) < len(trials_of(log, model)):
                return
            done = [(one, tried) for one, tried in group if one]
            done.sort(key=lambda pair: -pair[0]["fused"][pair[1].rule]["ndcg@10"])
            for _, best in done[:GOES_ON]:
                pending[submit(best, LOGS[log].most, resume=True)] = (best, False)

        earlier = {(one["log"], one["model"], one["name"]): one for one in known}
        groups: dict[tuple[str, str], list[tuple[dict[str, Any], Trial]]] = {}
        pending: dict[Future[dict[str, Any] | None], tuple[Trial, bool]] = {}
        for log, (most, explored) in EXPLORED.items():
            if (options.data / log).exists() and not options.quick:
                for name, changes in explored.items():
                    trial = Trial(log, "hca-gru", name, changes, "U")
                    pending[submit(trial, most)] = (trial, False)
        for log, about in LOGS.items():
            if not (options.data / log).exists():
                continue
            for model in MODELS:
                some = trials_of(log, model)[: 2 if options.quick else None]
                for trial in some:
                    if record := earlier.get((log, model, trial.name)):
                        groups.setdefault((log, model), []).append((record, trial))
                    else:
                        pending[submit(trial, 2 if options.quick else about.first)] = (trial, True)
        for log, model in list(groups):
            go_on(log, model)
        while pending:
            future = next(as_completed(pending))
            trial, is_first = pending.pop(future)
            try:
                record = future.result()
            except Exception as error:  # a trial that fails is told, and ends no other
                print(f"{trial.log} {trial.model} {trial.name}: {error}", flush=True)
                record = None
            if record is not None:
                write(record)  # those that go on are written again, and the last line of a trial counts
            if not is_first:
                continue
            groups.setdefault((trial.log, trial.model), []).append((record or {}, trial))
            go_on(trial.log, trial.model)
        pool.shutdown()


if __name__ == "__main__":
    main()
