"""Evaluation by the network in torch: the same ranks as by the engine, up to rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hcarec import Sequences, evaluate, rankers, synthetic, topk
from hcarec.data.split import Split, split
from hcarec.evaluation import evaluate_by, evaluate_part
from hcarec.models import Model, make
from hcarec.models.network import NetworkModel
from hcarec.training import train

torch = pytest.importorskip("torch")

from hcarec import network_ranker  # noqa: E402 - torch may be missing
from hcarec.network_ranker import NetworkRanker  # noqa: E402

NO_CARD = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU here")
DEVICES = ["cpu", pytest.param("cuda", marks=NO_CARD)]
PLAIN: dict[str, Any] = {"preset": "paper", "trainer": "minibatch", "d": 12, "initial": "scaled", "epochs": 2, "batch_size": 32}
OPTIONS: dict[str, Any] = {**PLAIN, "blocks": 1, "padding": "masked", "fusion": "residual", "scores": "cosine", "item_norm": True, "copy_window": 5}
NETWORKS: dict[str, dict[str, Any]] = {
    "paper": PLAIN,
    "options": OPTIONS,
    "dropout": {**OPTIONS, "hidden_dropout": 0.5, "output_norm": True},
    "sasrec": {**PLAIN, "model": "sasrec", "length": 9, "scores": "cosine", "copy_window": 5},
}
CLOSE = 2e-5
"""Relative difference of scores that is rounding."""


@pytest.fixture(scope="module")
def data() -> Sequences:
    return synthetic(users=220, items=90, mean_length=14, interest=0.9, taste=0.05, seed=4)


@pytest.fixture(scope="module")
def parts(data: Sequences) -> Split:
    return split(data, "ratio", ratio=0.8, validation=False)


@pytest.fixture(scope="module", params=list(NETWORKS))
def model(request: pytest.FixtureRequest, data: Sequences) -> Model:
    return make(**NETWORKS[request.param]).fit(data, seed=1)


def asked(parts: Split, n_items: int) -> rankers.Asked:
    past, test = ((np.asarray(part.items), np.asarray(part.offsets)) for part in (parts.history, parts.test))
    drawn = np.random.default_rng(0).integers(-1, n_items, len(test[0])).astype(np.int32)
    return rankers.Asked(np.arange(len(test[1]) - 1), past, test, drawn)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("events", [1, 60, 1 << 17])
def test_queries_are_those_of_the_engine(events: int, device: str, model: Model, parts: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the batches, in any order of lengths, and for a user without a history."""
    monkeypatch.setattr(network_ranker, "EVENTS", events)
    items, offsets = np.asarray(parts.history.items), np.asarray(parts.history.offsets)
    offsets = np.concatenate([offsets[:5], offsets[4:40]])
    items = items[: offsets[-1]]
    theirs = model.encode(items, offsets)
    mine = NetworkRanker(model, device, threads=1).encode(items, offsets)
    np.testing.assert_allclose(mine.vectors, theirs.vectors, rtol=1e-4, atol=CLOSE)
    assert (mine.corrections is None) == (theirs.corrections is None)
    if mine.corrections is not None and theirs.corrections is not None:
        mine.corrections.check(len(offsets) - 1, len(model.item_ids))
        np.testing.assert_array_equal(mine.corrections.items, theirs.corrections.items)
        np.testing.assert_array_equal(mine.corrections.offsets, theirs.corrections.offsets)
        np.testing.assert_allclose(mine.corrections.values, theirs.corrections.values, rtol=1e-4, atol=CLOSE)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("hide_seen", [False, True])
@pytest.mark.parametrize("exact", [False, True])
def test_ranks_are_those_of_the_engine(exact: bool, hide_seen: bool, device: str, model: Model, parts: Split) -> None:
    """Items may change places only where their scores are as close as rounding."""
    question = asked(parts, len(model.item_ids))
    how: dict[str, Any] = {"hide_seen": hide_seen, "exact": exact}
    theirs = rankers.ModelRanker(model, 1).rank(question, 20, **how)
    mine = NetworkRanker(model, device, threads=1).rank(question, 20, **how)
    H, corrections = model.encode(*question.past)
    every = np.tile(np.arange(len(model.item_ids), dtype=np.int32), len(H))
    offsets = np.arange(len(H) + 1) * len(model.item_ids)
    table = topk.pair_scores(H, model.item_vectors, every, offsets, corrections=corrections).reshape(len(H), -1)
    scale = np.abs(table).max()
    for listed in (mine.items, theirs.items):
        assert listed.dtype == np.int32 and ((listed >= 0) == (theirs.items >= 0)).all()
    row = np.arange(len(H))[:, None]
    apart = np.abs(table[row, mine.items] - table[row, theirs.items])[theirs.items >= 0]
    assert apart.max() < CLOSE * scale
    assert (mine.items == theirs.items).mean() > 0.99
    np.testing.assert_allclose(mine.test_scores, theirs.test_scores, atol=CLOSE * scale)
    np.testing.assert_allclose(mine.negative_scores, theirs.negative_scores, atol=CLOSE * scale)
    if not exact:
        assert mine.below is None and mine.n_negatives is None
        return
    assert mine.below is not None and theirs.below is not None and mine.n_negatives is not None
    np.testing.assert_array_equal(mine.n_negatives, theirs.n_negatives)
    user = np.repeat(np.arange(len(H)), np.diff(question.test[1]))
    near = (np.abs(table[user] - theirs.test_scores[:, None]) < 2 * CLOSE * scale).sum(1) - 1
    assert (np.abs(mine.below - theirs.below) <= near).all()


@pytest.mark.parametrize("hide_seen", [False, True])
def test_metrics_are_those_of_the_engine(hide_seen: bool, model: Model, parts: Split) -> None:
    given = parts.history, parts.test, parts.evaluated
    theirs, columns, users = evaluate_part(model, *given, hide_seen=hide_seen, exact=True)
    ranker = NetworkRanker(model, "cpu", threads=1)
    mine, my_columns, my_users = evaluate_by(ranker, *given, hide_seen=hide_seen, exact=True, item_events=model.item_events)
    assert mine.keys() == theirs.keys() and my_columns.keys() == columns.keys()
    np.testing.assert_array_equal(my_users, users)
    for name, value in theirs.items():
        assert mine[name] == pytest.approx(value, abs=2e-3), name


def test_a_run_is_judged_by_the_network_of_its_device(data: Sequences, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run on another device evaluates there, with the averaged parameters, and chooses as a run that does not."""
    made: list[NetworkRanker] = []

    def elsewhere(model: Model, device: str = "cpu", threads: int | None = None) -> NetworkRanker:
        made.append(NetworkRanker(model, device, threads))
        return made[-1]

    how: dict[str, Any] = {**OPTIONS, "epochs": 3, "ema": 0.9, "compare": False, "threads": 1, "device": "cpu"}
    by_engine = train(data, **how)
    monkeypatch.setattr("hcarec.evaluation.ranker", elsewhere)
    by_network = train(data, **how)
    assert len(made) == 4  # each epoch, and the test part
    assert by_network.about["selection"]["epoch"] == by_engine.about["selection"]["epoch"]
    for name, value in by_engine.about["metrics"].items():
        assert by_network.about["metrics"][name] == pytest.approx(value, abs=2e-3), name
    assert all((by_network.theta[name] == array).all() for name, array in by_engine.theta.items())


def test_with_counting_all_of_a_run_may_be_judged_by_the_network(data: Sequences, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[NetworkRanker] = []

    def elsewhere(model: NetworkModel, device: str = "cpu", threads: int | None = None) -> rankers.Ranker:
        made.append(NetworkRanker(model, "cpu", threads))
        return made[-1]

    how: dict[str, Any] = {**OPTIONS, "epochs": 3, "counting": True, "compare": False, "threads": 1, "device": "cpu"}
    by_engine = train(data, **how)
    monkeypatch.setattr("hcarec.evaluation.ranker", elsewhere)
    monkeypatch.setattr("hcarec.rankers.ranker", elsewhere)
    by_network = train(data, **how)
    assert len(made) == 5  # each epoch, the choice of the scale, and the test part
    ours, theirs = (run.about["training"]["counting"] for run in (by_network, by_engine))
    assert [ours[name] for name in ("scale", "floor")] == [theirs[name] for name in ("scale", "floor")]
    assert ours["scale"] > 0
    for name, value in by_engine.about["metrics"].items():
        assert by_network.about["metrics"][name] == pytest.approx(value, abs=2e-3), name


@NO_CARD
def test_a_run_with_counting_on_a_card_is_what_is_served(data: Sequences) -> None:
    model = train(data, **OPTIONS, counting=True, compare=False, device="cuda")
    assert evaluate(model, data).metrics["ndcg@20"] == pytest.approx(model.about["metrics"]["ndcg@20"], abs=2e-3)


@NO_CARD
def test_a_run_on_a_card_needs_no_engine(data: Sequences, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("the engine of the CPU was asked")

    monkeypatch.setattr("hcarec.models.hca_gru.engine", refuse)
    model = train(data, **OPTIONS, compare=False, device="cuda")
    assert model.about["metrics"]["auc_exact"] > 0.5
