"""On logs of known order the models come out in the order they must, by margins that a broken one would miss."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from hcarec import synthetic
from hcarec.training import train

CONTENDERS: list[dict[str, Any]] = [
    {"model": "random"},
    {"model": "pop"},
    {"model": "bpr", "learning_rate": 0.05, "epochs": 60},
    {"model": "gru", "preset": "paper", "epochs": 60},
    {"model": "hca-gru", "preset": "paper", "window_x": 5, "window_h": 5, "epochs": 60},
]


def ndcg(knobs: dict[str, Any], contender: dict[str, Any], seed: int) -> float:
    """Train on a synthetic log, choose the epoch by validation, and predict each user's last event."""
    trained = train(synthetic(**knobs, seed=seed), split="leave-one-out", selection="validation", seed=seed, **contender)
    return float(trained.about["metrics"]["ndcg@10"])


def the_order_holds(seed: int) -> None:
    """Random < POP < BPR < GRU < HCA-GRU where the item three steps back decides."""
    knobs = {"users": 1500, "items": 300, "mean_length": 30, "interest": 0.7, "taste": 0.2, "lag": 3, "repeats": 0.0}
    found = [ndcg(knobs, contender, seed) for contender in CONTENDERS]
    for (worse, better), margin in zip(itertools.pairwise(found), (2.0, 1.5, 1.2, 1.15), strict=True):
        assert better > margin * worse, [round(value, 4) for value in found]


def test_the_order_of_models_where_the_deciding_item_lies_back() -> None:
    the_order_holds(seed=1)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2, 8))
def test_the_order_of_models_over_seeds(seed: int) -> None:
    the_order_holds(seed)


@pytest.mark.soak
@pytest.mark.parametrize("level", [{"window_x": 5, "window_h": 1}, {"window_x": 1, "window_h": 5}], ids=["x", "h"])
def test_either_level_alone_helps_where_the_deciding_item_lies_back(level: dict[str, int]) -> None:
    knobs = {"users": 1500, "items": 300, "mean_length": 30, "interest": 0.7, "taste": 0.2, "lag": 3, "repeats": 0.0}
    assert ndcg(knobs, {"model": "hca-gru", "preset": "paper", "epochs": 60, **level}, 1) > 1.03 * ndcg(knobs, CONTENDERS[3], 1)


def test_self_attention_finds_the_deciding_item_wherever_it_lies() -> None:
    """SASRec, whose last events are all within reach, beats a plain GRU where the item three steps back decides."""
    knobs = {"users": 1500, "items": 300, "mean_length": 30, "interest": 0.7, "taste": 0.2, "lag": 3, "repeats": 0.0}
    settings = {"model": "sasrec", "preset": "paper", "d": 32, "length": 50, "batch_size": 64, "learning_rate": 0.003, "epochs": 25}
    assert ndcg(knobs, settings, 1) > 2.5 * ndcg(knobs, CONTENDERS[3], 1)


def test_a_recurrent_network_finds_what_follows_the_last_item() -> None:
    knobs = {"users": 1500, "items": 300, "mean_length": 30, "interest": 0.6, "taste": 0.3, "lag": 1}
    bpr, gru = (ndcg(knobs, contender, 1) for contender in ({**CONTENDERS[2], "epochs": 40}, {**CONTENDERS[3], "epochs": 10}))
    assert gru > 2 * bpr
