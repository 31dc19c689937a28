"""What a network gains by learning validation events once its epoch is chosen, without a look at the test.

python benchmarks/fine_tuning.py --data FOLDER --output fine_tuning.json

FOLDER holds prepared logs. HCA-GRU is trained on each by the preset, under leave-one-out. The users are then cut in
halves: training goes on from the chosen epoch over the training events and the validation events of one half, and is
measured on those of the other. Beside it stand as many epochs over the training events alone. Both read what is counted
on the training events and the first half.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np

from machine import describe, describe_gpu

EPOCHS = (1, 2, 3)
METRIC = "ndcg@10"


def measure(path: Path, device: str, threads: int | None, epochs: int | None, changes: dict[str, Any]) -> dict[str, Any]:
    """Train on a log; return the metric of the other half, alone and with counting, by epochs and what they go over."""
    from dataclasses import replace

    from hcarec.data.split import split
    from hcarec.data.statistics import statistics
    from hcarec.evaluation import evaluate_part
    from hcarec.models.network import NetworkModel
    from hcarec.sequences import Sequences
    from hcarec.settings import MinibatchSettings, RunSettings
    from hcarec.training import checkpoint, fine_tuning, train

    began, data = time.perf_counter(), Sequences.open(path)
    hide = statistics(data).repeats < 0.01
    given = changes | ({} if epochs is None else {"epochs": epochs})
    with tempfile.TemporaryDirectory() as folder:
        model = train(
            data, folder, model="hca-gru", preset="modern", split="leave-one-out", hide_seen=hide, ks=(10,),
            compare=False, threads=threads, device=device, fine_tuning=1, **given,
        )  # fmt: skip
        chosen = checkpoint.read(Path(folder))
    assert isinstance(model, NetworkModel) and isinstance(model.config.training, MinibatchSettings)
    assert chosen is not None and chosen.chosen_trainer is not None and chosen.chosen is not None
    assert chosen.best_theta is not None
    run = RunSettings(seed=1, threads=threads, device=model.about["training"]["device"])
    parts = split(data, "leave-one-out", validation=True)
    assert parts.validation is not None
    first = np.random.default_rng(0).random(len(parts.train)) < 0.5
    learned = _join(parts.train, parts.history, first)
    counted = (learned.items, learned.offsets)

    def judge() -> dict[str, float]:
        figures = {}
        for name in ("alone", "fused"):
            model.counting_term = None
            if name == "fused":
                model.complete(counted, counted)
            target = parts.train, parts.validation, parts.validated & ~first
            metrics, _, _ = evaluate_part(model, *target, hide_seen=hide, threads=threads, device=run.device, ks=(10,))
            figures[name] = metrics[METRIC]
        return figures

    config, training = model.config, model.config.training
    model.theta = chosen.best_theta
    model.parameters_changed()
    figures: dict[str, Any] = {"chosen epoch": judge()}
    for number in EPOCHS:
        for what, part in (("training events", parts.train), ("validation events too", learned)):
            model.config = replace(config, training=replace(training, fine_tuning=number))
            fine_tuning.go_on(model, data, part, run, chosen.chosen_trainer, chosen.chosen + 1)
            figures[f"{number}, {what}"] = judge()
            model.config = config
    return {
        "log": path.name, "rule": "F" if hide else "U", "metric": METRIC, "figures": figures,
        "settings": config.as_dict(), "epoch": chosen.chosen, "epochs": len(chosen.log), "device": run.device, "seconds": round(time.perf_counter() - began, 1),
    }  # fmt: skip


def _join(train: Any, history: Any, whole: np.ndarray) -> Any:
    """Return the histories of the users of a mask and the training parts of the others."""
    from hcarec.data.split import Part

    lengths = np.where(whole, history.lengths, train.lengths)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    places = np.arange(offsets[-1]) + np.repeat(np.asarray(history.offsets)[:-1] - offsets[:-1], lengths)
    return Part(np.asarray(history.items)[places], offsets)


def main() -> None:
    """Measure every log of the folder."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, help="folder of prepared logs")
    parser.add_argument("--logs", nargs="*", help="only these")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--epochs", type=int, help="the most epochs before fine-tuning")
    parser.add_argument("--d", type=int, help="size of vectors, where that of the preset takes too long")
    parser.add_argument("--quick", action="store_true", help="a small synthetic log")
    options = parser.parse_args()

    from hcarec import sharing, synthetic

    if options.quick:
        path = Path(tempfile.mkdtemp()) / "synthetic"
        synthetic(users=200, items=80, mean_length=8).save(path)
        paths, changes, options.epochs = [path], {"d": 16}, 2
    elif options.data is None:
        parser.error("give --data FOLDER or --quick")
    else:
        paths, changes = sorted(one for one in options.data.iterdir() if one.is_dir()), {} if options.d is None else {"d": options.d}
    paths = [path for path in paths if not options.logs or path.name in options.logs]
    context = multiprocessing.get_context("spawn")
    records = []
    with sharing.card(), ProcessPoolExecutor(options.workers, mp_context=context, max_tasks_per_child=1) as pool:
        todo = [pool.submit(measure, path, options.device, options.threads, options.epochs, changes) for path in paths]
        for done in as_completed(todo):
            record = done.result()
            records.append(record)
            print(record["log"], {what: {k: round(v, 4) for k, v in each.items()} for what, each in record["figures"].items()}, flush=True)
            if options.output:
                found = {"machine": describe(), "gpu": describe_gpu(), "logs": sorted(records, key=lambda r: r["log"])}
                options.output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
