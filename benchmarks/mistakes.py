"""Measure what common mistakes of evaluation do to the figures, on a real log.

Each mistake is made on purpose beside the right way, with the same data, models and seeds, so that the two differ in nothing else.

python benchmarks/mistakes.py --output benchmarks/results/mistakes.json [--data LOG] [--seeds 3] [--quick]
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import hcarec
from hcarec.data.split import Part, Split, split
from hcarec.evaluation import evaluate_part, take
from hcarec.metrics import evaluate_ranking
from hcarec.models import Model, make
from hcarec.sequences import Sequences
from hcarec.ties import tie_rank
from hcarec.topk import rank
from hcarec.training.trainers import fit

from machine import describe

METRIC = "ndcg@20"
EPOCHS = {"bpr": 60, "gru": 30, "hca-gru": 30}
NAMES = {"pop": "POP", "bpr": "BPR", "gru": "GRU", "hca-gru": "HCA-GRU-x5-h5", "constant": "a scorer that gives 0 to every item"}
SAMPLED = 100
"""Items that a test item is ranked against in sampled metrics: the usual number."""


class Study:
    """A log, how long to train, and the cases measured so far."""

    def __init__(self, data: Sequences, seeds: int, epochs: dict[str, int]) -> None:
        self.data, self.seeds, self.epochs = data, range(seeds), epochs
        self.parts = split(data, "ratio")
        self.cases: list[dict[str, Any]] = []
        self._models: dict[tuple[str, int], Model] = {}

    def note(self, mistake: str, model: str, right: list[float], wrong: list[float], metric: str = METRIC) -> None:
        """Keep the figures of the right way and of the wrong one, a value per seed."""
        self.cases.append({"mistake": mistake, "model": NAMES[model], "metric": metric, "right": right, "wrong": wrong})
        print(f"{mistake:14} {NAMES[model]:36} {metric:8} {np.mean(right):.4f} -> {np.mean(wrong):.4f}", flush=True)

    def model(self, name: str, seed: int) -> Model:
        """Return a model trained on the training part of the plain split."""
        if (name, seed) not in self._models:
            self._models[name, seed] = fitted(self.data, self.parts.train, name, seed, self.epochs)
        return self._models[name, seed]


def fitted(data: Sequences, part: Part, name: str, seed: int, epochs: dict[str, int], each: Callable[[Model], None] | None = None) -> Model:
    """Train a model on a part for its fixed number of epochs; `each` sees it after every one."""
    model = make(name, preset="paper", **({"epochs": epochs[name]} if name in epochs else {}))
    model.set_catalog(data, np.asarray(part.items))
    model.initialize(part.items, part.offsets, seed)
    if model.config.trains:
        fit(model, part, seed, lambda now: each(model) if each is not None and now.complete else None)
    model.complete((part.items, part.offsets), (part.items, part.offsets))
    return model


def figure(model: Model, parts: Split, mask: np.ndarray | None = None, metric: str = METRIC, **options: Any) -> float:
    """Return one metric of a model on the test part."""
    return evaluate_part(model, parts.history, parts.test, parts.evaluated if mask is None else mask, **options)[0][metric]


# -- the mistakes ------------------------------------------------------------------------------------------------------


def random_split(study: Study) -> None:
    """Test on a random fifth of each user's events instead of the last one."""
    rng = np.random.default_rng(0)
    data, places = study.data, []
    for begin, end in zip(data.offsets[:-1], data.offsets[1:], strict=True):
        n = int(end - begin)
        kept = np.sort(rng.permutation(n)[: int(0.8 * n)])
        places += [begin + kept, begin + np.setdiff1d(np.arange(n), kept)]
    mixed = reordered(data, np.concatenate(places))
    parts = split(mixed, "ratio")
    for name in ("bpr", "gru"):
        wrong = [figure(fitted(mixed, parts.train, name, seed, study.epochs), parts) for seed in study.seeds]
        study.note("random split", name, [figure(study.model(name, seed), study.parts) for seed in study.seeds], wrong)


def future_of_others(study: Study) -> None:
    """Let half of the users train with what they did after the date that the other half is tested from."""
    parts = split(study.data, "time")
    half = np.arange(study.data.n_users) % 2 == 0
    ends = np.where(half, parts.history.lengths, study.data.lengths)
    whole = Part(np.concatenate([study.data[user][: ends[user]] for user in range(study.data.n_users)]), np.concatenate([[0], np.cumsum(ends)]))
    tested = parts.evaluated & half
    for name in ("pop", "gru"):
        seeds = study.seeds if name != "pop" else range(1)
        right = [figure(fitted(study.data, parts.history, name, seed, study.epochs), parts, tested) for seed in seeds]
        study.note("future", name, right, [figure(fitted(study.data, whole, name, seed, study.epochs), parts, tested) for seed in seeds])


def counted_on_everything(study: Study) -> None:
    """Count popularity on the whole log, the test part among it."""
    whole = Part(np.asarray(study.data.items), np.asarray(study.data.offsets))
    study.note("whole log", "pop", [figure(study.model("pop", 0), study.parts)], [figure(fitted(study.data, whole, "pop", 0, study.epochs), study.parts)])


def ties_in_time(study: Study) -> None:
    """Order events of one time by item id instead of as they stand in the log."""
    assert study.data.times is not None
    users = np.repeat(np.arange(study.data.n_users), study.data.lengths)
    ids = np.array([study.data.item_ids.text(item) for item in range(study.data.n_items)])
    by_id = np.argsort(np.argsort(ids))[np.asarray(study.data.items)]
    sorted_ = reordered(study.data, np.lexsort((by_id, np.asarray(study.data.times), users)))
    parts = split(sorted_, "ratio")
    wrong = [figure(fitted(sorted_, parts.train, "gru", seed, study.epochs), parts) for seed in study.seeds]
    study.note("tied times", "gru", [figure(study.model("gru", seed), study.parts) for seed in study.seeds], wrong)


def ties_in_score(study: Study) -> None:
    """Give a scorer that knows nothing the benefit of equal scores: by the row of the item, and by counting only higher scores as better."""
    users = np.flatnonzero(study.parts.evaluated)
    test = take(study.parts.test, users)
    n_items = study.data.n_items
    by_hash = tie_rank(study.data.item_ids.blob, study.data.item_ids.offsets)

    def ndcg(order: np.ndarray) -> float:
        top = rank(np.zeros((len(users), 1), np.float32), np.zeros((n_items, 1), np.float32), order, 20).items
        return evaluate_ranking(top, *test, n_items)[0][METRIC]

    right = [ndcg(by_hash)]
    study.note("ties by row", "constant", right, [ndcg(np.arange(n_items, dtype=np.int32))])
    mine = np.full((len(users), 20), -1)  # nothing scores higher, so every test item stands first
    for row, (begin, end) in enumerate(zip(test[1][:-1], test[1][1:], strict=True)):
        mine[row, : min(20, end - begin)] = test[0][begin:end][:20]
    study.note("ties as hits", "constant", right, [evaluate_ranking(mine, *test, n_items)[0][METRIC]])


def seen_items(study: Study) -> None:
    """Hide the items of the history for one model and not for the other."""
    for name in ("bpr", "gru"):
        models = [study.model(name, seed) for seed in study.seeds]
        study.note("seen items", name, [figure(one, study.parts) for one in models], [figure(one, study.parts, hide_seen=True) for one in models])


def epoch_on_test(study: Study) -> None:
    """Choose the epoch by the test part instead of a validation part; each metric would choose its own."""
    parts = split(study.data, "ratio", validation=True)
    assert parts.validation is not None
    for name in ("gru", "hca-gru"):
        right, wrong = [], []
        for seed in study.seeds:
            judged: list[tuple[float, float]] = []

            def judge(model: Model, judged: list[tuple[float, float]] = judged) -> None:
                on_validation = evaluate_part(model, parts.train, parts.validation, parts.validated)[0][METRIC]  # type: ignore[arg-type]
                judged.append((on_validation, figure(model, parts)))

            fitted(study.data, parts.train, name, seed, study.epochs, judge)
            right.append(max(judged, key=lambda one: one[0])[1])
            wrong.append(max(one[1] for one in judged))
        study.note("epoch on test", name, right, wrong)


def best_seed(study: Study) -> None:
    """Report the best of several seeds instead of their mean."""
    found = [figure(study.model("gru", seed), study.parts) for seed in study.seeds]
    study.note("best seed", "gru", found, [max(found)])


def sampled_items(study: Study) -> None:
    """Rank the next item among a hundred drawn items instead of the whole catalogue."""
    parts = split(study.data, "leave-one-out")
    users = np.flatnonzero(parts.evaluated)
    past, (test, _) = take(parts.history, users), take(parts.test, users)
    order = tie_rank(study.data.item_ids.blob, study.data.item_ids.offsets)
    drawn = np.random.default_rng(0).integers(0, study.data.n_items, (len(users), 4 * SAMPLED))
    for name in ("pop", "bpr", "gru", "hca-gru"):
        right, wrong = [], []
        for seed in study.seeds if name != "pop" else range(1):
            model = fitted(study.data, parts.train, name, seed, study.epochs)
            H = model.encode(*past, users=users).vectors
            full, sampled = [], []
            for row, item in enumerate(test):
                scores = model.item_vectors @ H[row]
                better = (scores > scores[item]) | ((scores == scores[item]) & (order < order[item]))
                own = past[0][past[1][row] : past[1][row + 1]]
                others = drawn[row][~np.isin(drawn[row], own) & (drawn[row] != item)][:SAMPLED]
                full.append(gain(int(better.sum())))
                sampled.append(gain(int(better[others].sum())))
            right.append(float(np.mean(full)))
            wrong.append(float(np.mean(sampled)))
        study.note("sampled", name, right, wrong, "ndcg@10")


def gain(better: int) -> float:
    """Return the NDCG@10 of one item with so many before it."""
    return 1 / float(np.log2(better + 2)) if better < 10 else 0.0


MISTAKES = (random_split, future_of_others, counted_on_everything, ties_in_time, ties_in_score, seen_items, epoch_on_test, best_seed, sampled_items)


def reordered(data: Sequences, places: np.ndarray) -> Sequences:
    """Return the log with its events in another order, without their times."""
    return dataclasses.replace(data, items=np.asarray(data.items)[places], times=None, time_unit=None, about={})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="online-retail", help="a log, or the name of a known data set")
    parser.add_argument("--seeds", type=int, default=3, help="seeds of every model")
    parser.add_argument("--quick", action="store_true", help="a small synthetic log and few epochs, to see that it works")
    parser.add_argument("--output", type=Path, help="write the results as JSON")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        data = hcarec.synthetic(users=150, items=80, mean_length=20) if given.quick else hcarec.prepare(given.data, scratch + "/data")
        study = Study(data, 1 if given.quick else given.seeds, dict.fromkeys(EPOCHS, 2) if given.quick else EPOCHS)
        for make_it in MISTAKES:
            make_it(study)
    if given.output:
        about = {"name": given.data, "users": data.n_users, "items": data.n_items, "events": data.n_events, "fingerprint": data.fingerprint}
        found = {"benchmark": "mistakes", "machine": describe(), "data": about, "seeds": given.seeds, "epochs": study.epochs, "cases": study.cases}
        given.output.parent.mkdir(parents=True, exist_ok=True)
        given.output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
