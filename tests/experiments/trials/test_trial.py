"""What a trial finds: figures and ranks under both rules, and settings chosen on validation."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

import hcarec
from experiments.trials.trial_cases import Done, study
from hcarec import synthetic
from hcarec.data.split import split
from hcarec.experiments.trials import choosing
from hcarec.experiments.trials.paired import gain
from hcarec.experiments.trials.report import write_trials
from hcarec.experiments.trials.study import trial_results
from hcarec.experiments.trials.trial import ranks_file, ranks_of


@pytest.mark.parametrize(
    ("log", "method"), [("back", "GRU"), ("once", "SASRec"), ("once", "BPR"), ("back", "Markov")]
)
def test_a_record_holds_what_training_and_evaluation_say_under_both_rules(
    log: str, method: str, done: Done, logs: dict[str, Path]
) -> None:
    results = trial_results(done[0])
    of_log = [record for record in results.read().values() if record["data"]["name"] == log]
    record = next(record for record in of_log if record["method"] == method)
    config, data = record["config"], hcarec.Sequences.open(logs[log])
    given = {**config, "seed": record["seed"], "hide_seen": log == "once"}
    model = hcarec.train(data, split="leave-one-out", compare=False, **given)
    assert record["rule"] == {"back": "U", "once": "F"}[log]
    with np.load(ranks_file(results, record["key"])) as stored:
        ranks = dict(stored)
    for rule in "FU":
        found = hcarec.evaluate(model, data, hide_seen=rule == "F")
        for metric in ("ndcg@10", "recall@10", "coverage@10", "popularity@10"):
            assert record["figures"][rule][metric] == pytest.approx(found.metrics[metric])
        assert gain(ranks[rule]).mean() == pytest.approx(found.metrics["ndcg@10"])
        listed = (ranks[rule] > 0) & (ranks[rule] <= 10)
        np.testing.assert_array_equal(listed, found.users["hits@10"])
    tuned = model.about["training"].get("fine_tuning")
    modern = config.get("preset") == "modern" and config["trainer"] == "minibatch"
    assert (tuned is not None) == modern
    without = tuned and {name: tuned["without"][name] for name in ("ndcg@10", "recall@10")}
    assert record.get("without_validation") == without
    assert model.about["protocol"]["seen"] == ("hidden" if log == "once" else "kept")
    assert record["best"]["ndcg@10"]["value"] == record["figures"][record["rule"]]["ndcg@10"]


def test_ranks_are_kept_to_a_depth() -> None:
    np.testing.assert_array_equal(ranks_of(np.array([1.0, 1 / 3, 1 / 100, 0.0])), [1, 3, 100, 0])
    np.testing.assert_allclose(gain(np.array([0, 1, 10, 11], np.uint8)), [0, 1, 1 / np.log2(11), 0])


def test_predictions_from_the_last_events_hide_the_whole_history(
    logs: dict[str, Path], tmp_path: Path
) -> None:
    """Events before the last ones, as many as training samples hold, are hidden but not read."""
    short = {"d": 8, "length": 5, "copy_window": 2}
    given = {"back": logs["back"]}
    mine = study("contest", given, tmp_path, methods=("GRU",), runs=1, changes=short)
    mine.run()
    record = next(iter(mine.results.read().values()))
    data = hcarec.Sequences.open(logs["back"])
    model = hcarec.train(data, split="leave-one-out", seed=0, compare=False, **record["config"])
    parts = hcarec.split(data, "leave-one-out", validation=True)
    assert record["last_events"] == 5 and parts.history.lengths.max() > 5
    for rule in "FU":
        hits, users = 0, np.flatnonzero(parts.evaluated).tolist()
        for user in users:
            history = np.asarray(parts.history[user])
            seen, last = np.unique(history), history[-5:]
            hidden = (seen, np.array([0, len(seen)])) if rule == "F" else None
            items, _ = model.top(model.encode(last, np.array([0, len(last)])), 10, hidden)
            hits += int(parts.test[user][0] in items[0])
        assert record["figures_from_last"][rule]["recall@10"] == pytest.approx(hits / len(users))
    write_trials(mine)
    assert "| method | back, U, last 5 |" in (tmp_path / "contest.md").read_text()


def test_methods_that_count_choose_their_numbers_on_validation(done: Done) -> None:
    found = trial_results(done[0]).read().values()
    records = {(record["data"]["name"], record["method"]): record for record in found}
    for log in ("back", "once"):
        for method, model in (("Markov", "markov"), ("ItemKNN", "item-knn")):
            tried = records[log, method]["candidates"]
            configs = [config.as_dict() for config in choosing.candidates(model)]
            assert [one["config"] for one in tried] == json.loads(json.dumps(configs))
            best = max(tried, key=lambda one: one["ndcg@10"])
            assert records[log, method]["config"] == best["config"]
        for method in ("POP", "HCA-GRU"):
            assert "candidates" not in records[log, method]


def test_a_choice_is_that_of_validation_and_not_of_the_test() -> None:
    data = synthetic(users=60, items=25, mean_length=12, seed=8)
    parts, configs = split(data, "leave-one-out", validation=True), choosing.candidates("markov")
    chosen, values = choosing.choose(configs, data, parts, "ndcg@10", hide_seen=False, threads=1)
    assert len(set(values)) > 1 and chosen == configs[int(np.argmax(values))]
    untested = dataclasses.replace(parts, test=parts.train, history=parts.train)
    again = choosing.choose(configs, data, untested, "ndcg@10", hide_seen=False, threads=1)
    assert again == (chosen, values)
