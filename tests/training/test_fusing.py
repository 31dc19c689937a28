"""The counting term is chosen on validation data, counted anew for the test, and kept."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from hcarec import Sequences, evaluate, load, synthetic
from hcarec.data.split import Split, split
from hcarec.errors import ConfigError, ModelError
from hcarec.evaluation import evaluate_part
from hcarec.models import make
from hcarec.models.counting_term import FLOOR, MOST_ENTRIES, SCALE, CountingTerm, count_table
from hcarec.models.markov import count_followers
from hcarec.models.network import NetworkModel
from hcarec.tables import Table
from hcarec.training import Callback, fusing, train
from hcarec.training.fusing import GRID, Judged, fuse, sample_users

Command = Callable[..., tuple[int, str, str]]
QUICK: dict[str, Any] = {
    "preset": "paper",
    "trainer": "minibatch",
    "d": 8,
    "batch_size": 32,
    "warmup": 10,
    "learning_rate": 0.02,
    "initial": "scaled",
    "epochs": 2,
    "compare": False,
    "threads": 1,
    "counting": True,
}
NETWORKS: dict[str, dict[str, Any]] = {
    "gru": {"model": "gru"},
    "options": {"model": "hca-gru", "copy_window": 4, "scores": "cosine", "blocks": 1},
    "sasrec": {"model": "sasrec", "length": 6, "copy_window": 3},
}


@pytest.fixture(scope="module")
def data() -> Sequences:
    return synthetic(users=150, items=70, mean_length=12, interest=0.9, taste=0.05, seed=4)


@pytest.fixture(scope="module")
def parts(data: Sequences) -> Split:
    return split(data, "leave-one-out", validation=True)


@pytest.fixture(params=NETWORKS)
def network(request: pytest.FixtureRequest, data: Sequences) -> NetworkModel:
    """A trained network without its counting term."""
    settings = {name: value for name, value in QUICK.items() if name not in ("compare", "threads")}
    model = make(**settings, **NETWORKS[request.param]).fit(data)
    assert isinstance(model, NetworkModel)
    model.counting_term = None
    return model


def judged(parts: Split) -> Judged:
    assert parts.validation is not None
    return Judged(parts.train, parts.validation, parts.validated)


def same_tables(one: Table, two: Table) -> bool:
    return all(a.tobytes() == b.tobytes() for a, b in zip(one, two, strict=True))


# -- choosing --------------------------------------------------------------------------------------


@pytest.mark.parametrize("hide_seen", [False, True])
@pytest.mark.parametrize("metric", ["ndcg@10", "ndcg@100"])
def test_every_pair_is_tried_as_a_whole_evaluation_would(
    metric: str,
    hide_seen: bool,
    network: NetworkModel,
    parts: Split,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fusing, "USERS_AT_ONCE", 64)
    chosen = fuse(network, judged(parts), metric, hide_seen=hide_seen, seed=0, threads=2)
    assert [tuple(pair) for *pair, _ in chosen["grid"]] == list(GRID)
    k, values = int(metric.partition("@")[2]), [value for *_, value in chosen["grid"]]
    table = count_table(parts.train.items, parts.train.offsets, len(network.item_ids))
    for place in (0, 3, len(GRID) - 1):
        network.counting_term = CountingTerm(table, *GRID[place])
        metrics, _, _ = evaluate_part(network, *judged(parts), hide_seen=hide_seen, ks=(k,))
        assert metrics[metric] == pytest.approx(values[place], rel=1e-12)
    assert (chosen["alone"], chosen["fused"]) == (values[0], max(values))
    assert (chosen["scale"], chosen["floor"]) == GRID[values.index(max(values))]
    assert chosen["users"] == parts.validated.sum()


def test_where_counting_says_nothing_the_network_stays_alone(
    network: NetworkModel, parts: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = Table(np.zeros(71, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32))
    monkeypatch.setattr(fusing, "count_table", lambda *log: empty)
    chosen = fuse(network, judged(parts), "ndcg@10", hide_seen=False, seed=0)
    assert chosen["scale"] == 0 and chosen["fused"] == chosen["alone"]


def test_a_sample_of_users_depends_on_the_seed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fusing, "MOST_USERS", 40)
    mask = np.random.default_rng(0).random(500) < 0.5
    chosen, again, other = (sample_users(mask, seed) for seed in (1, 1, 2))
    assert len(np.unique(chosen)) == 40 and mask[chosen].all() and (np.diff(chosen) > 0).all()
    assert chosen.tolist() == again.tolist() != other.tolist()
    np.testing.assert_array_equal(
        sample_users(mask & (np.arange(500) < 60), 1), np.flatnonzero(mask[:60])
    )


# -- a run -----------------------------------------------------------------------------------------


class Listener(Callback):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_run_chooses_on_validation_and_counts_again_for_the_test(
    name: str, data: Sequences, parts: Split, tmp_path: Path
) -> None:
    heard = Listener()
    settings = QUICK | NETWORKS[name] | {"split": "leave-one-out", "hide_seen": True}
    model = train(data, tmp_path / "m", callback=heard, **settings)
    chosen, stored = model.about["training"]["counting"], load(tmp_path / "m")
    assert isinstance(stored, NetworkModel) and isinstance(model, NetworkModel)
    term = stored.counting_term
    assert term is not None and (chosen["scale"], chosen["by"]) == (term.scale, "validation")
    assert term.floor == np.float32(chosen["floor"]) and chosen["metric"] == "ndcg@10"
    history = parts.history.items, parts.history.offsets
    assert same_tables(term.table, count_table(*history, data.n_items))
    network = train(data, **settings | {"counting": False})
    if name != "gru":  # whose engine is the paper's, which rounds otherwise
        assert network.about["selection"] == model.about["selection"]
    for letter, value in network.theta.items():
        assert value.tobytes() == model.theta[letter].tobytes(), letter
    if name != "gru":
        best = model.about["selection"]["best"]["ndcg@10"]["value"]
        assert chosen["alone"] == pytest.approx(best, rel=1e-12)
    assert evaluate(stored, data).metrics["ndcg@10"] == model.about["metrics"]["ndcg@10"]
    assert chosen["scale"] > 0
    assert model.about["metrics"]["ndcg@10"] > network.about["metrics"]["ndcg@10"]
    assert heard.notes == [fusing.words(chosen)]
    line = f"counting: scale {chosen['scale']:g}, floor {chosen['floor']:g}, validation NDCG@10 "
    assert heard.notes[0] == f"{line}{chosen['fused']:.2%} instead of {chosen['alone']:.2%}"


@pytest.mark.parametrize(
    "rules", [{"split": "none"}, {"selection": "best-epoch-on-test", "split": "leave-one-out"}]
)
def test_without_validation_data_the_defaults_are_taken(
    rules: dict[str, Any], data: Sequences, parts: Split
) -> None:
    heard = Listener()
    model = train(data, callback=heard, model="gru", **QUICK, **rules)
    assert isinstance(model, NetworkModel) and model.counting_term is not None
    assert (model.counting_term.scale, model.counting_term.floor) == (SCALE, FLOOR)
    log = (
        (data.items, data.offsets)
        if rules["split"] == "none"
        else (parts.history.items, parts.history.offsets)
    )
    assert same_tables(model.counting_term.table, count_table(*map(np.asarray, log), data.n_items))
    assert model.about["training"]["counting"]["by"] == "default"
    assert heard.notes == [
        f"counting: scale {SCALE:g}, floor {FLOOR:g} (the defaults, without validation data)"
    ]


def test_a_run_on_everything_takes_over_what_was_chosen(
    data: Sequences, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fusing, "GRID", ((0.0, FLOOR), (2.5, 0.03)))
    data.save(tmp_path / "data")
    settings = [f"--set={name}={json.dumps(value).strip(chr(34))}" for name, value in QUICK.items()
                if name not in ("compare", "threads", "preset", "trainer", "epochs")]  # fmt: skip
    options = ["--model", "gru", "--preset", "paper", "--trainer", "minibatch"]
    options += ["--epochs", "2", *settings]
    train_it = ["train", tmp_path / "data", "-o"]
    assert command(*train_it, tmp_path / "m", *options, "--refit")[0] == 0
    refitted = load(tmp_path / "m")
    assert isinstance(refitted, NetworkModel) and refitted.counting_term is not None
    assert (refitted.counting_term.scale, refitted.counting_term.floor) == (2.5, np.float32(0.03))
    assert refitted.about["training"]["counting"]["by"] == "evaluated model"
    more = ["--split", "none", "--epochs-from", tmp_path / "m"]
    code, _, said = command(*train_it, tmp_path / "n", *options, *more)
    assert code == 0 and "counting: scale 2.5, floor 0.03 (as the evaluated model chose)" in said
    assert load(tmp_path / "n").tensors["count_scale"].tolist() == [2.5]
    code, out, _ = command("info", tmp_path / "n")
    assert code == 0 and "scale 2.5, floor 0.03 (as the evaluated model chose)" in out
    plain = [option for option in options if "counting" not in option]
    assert command(*train_it, tmp_path / "plain", *plain)[0] == 0
    more[-1] = tmp_path / "plain"
    code, _, said = command(*train_it, tmp_path / "o", *options, *more)
    assert code == 2 and said.count("\n") == 1 and "was trained without the counting term" in said
    path = tmp_path / "m" / "model.json"
    path.write_text(path.read_text().replace('"scale": 2.5', '"scale": -2.5'))
    more[-1] = tmp_path / "m"
    code, _, said = command(*train_it, tmp_path / "o", *options, *more)
    assert code == 2 and said.count("\n") == 1 and "training.counting has -2.5" in said


def test_interrupted_while_fusing_it_goes_on_bit_for_bit(
    data: Sequences, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = QUICK | NETWORKS["options"]
    whole = train(data, tmp_path / "whole", **settings)
    with monkeypatch.context() as patched:

        def stop(*_: Any, **__: Any) -> None:
            raise KeyboardInterrupt

        patched.setattr(fusing, "fuse", stop)
        with pytest.raises(KeyboardInterrupt):
            train(data, tmp_path / "cut", **settings)
    assert not (tmp_path / "cut" / "model.json").exists()
    resumed = train(data, tmp_path / "cut", resume=True, **settings)
    assert resumed.about["training"]["counting"] == whole.about["training"]["counting"]
    files = [tmp_path / name / "model.safetensors" for name in ("whole", "cut")]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_what_was_taken_over_belongs_to_the_run(data: Sequences, tmp_path: Path) -> None:
    train(data, tmp_path / "m", model="gru", **QUICK)
    everything = QUICK | {"model": "gru", "split": "none", "epochs_from": tmp_path / "m"}
    train(data, tmp_path / "n", **everything)
    with pytest.raises(ConfigError, match="--resume cannot go on: counting"):
        train(data, tmp_path / "n", resume=True, **everything | {"epochs_from": None})


# -- beside ----------------------------------------------------------------------------------------


def test_rows_are_bounded_and_otherwise_those_of_markov() -> None:
    many = synthetic(users=400, items=300, mean_length=60, interest=0.1, taste=0.1, seed=1)
    log = np.asarray(many.items), np.asarray(many.offsets)
    whole, cut = count_followers(*log, 300), count_table(*log, 300)
    sizes = np.diff(whole.indptr)
    assert sizes.max() > MOST_ENTRIES
    np.testing.assert_array_equal(np.diff(cut.indptr), np.minimum(sizes, MOST_ENTRIES))
    assert set(cut.values.tolist()) <= set(whole.values.tolist())


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("count_indices", np.full(3, 70, np.int32), "are 3 indices and"),
        ("count_indptr", np.zeros(3, np.int64), "indptr has 3 entries"),
        ("count_scale", np.array([np.nan], np.float32), "count_scale is"),
        ("count_scale", np.array([-1], np.float32), "count_scale is"),
        ("count_floor", np.zeros(1, np.float32), "count_floor is"),
        ("count_floor", np.ones(2, np.float32), "count_floor is"),
        ("count_values", None, "count_values is missing"),
        ("count_values", -1.0, "values are not all 0 or more"),
    ],
)
def test_a_term_that_no_training_gives_is_refused(
    name: str, value: Any, says: str, network: NetworkModel, data: Sequences, tmp_path: Path
) -> None:
    log = np.asarray(data.items), np.asarray(data.offsets)
    network.complete(log, log)
    network.save(tmp_path / "m")
    path = tmp_path / "m" / "model.safetensors"
    tensors = {letter: array.copy() for letter, array in load_file(path).items()}
    if value is None:
        del tensors[name]
    else:
        tensors[name] = value * tensors[name] if isinstance(value, float) else value
    save_file(tensors, path)
    manifest = tmp_path / "m" / "model.json"
    content = json.loads(manifest.read_text())
    content["files"][path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
    manifest.write_text(json.dumps(content))
    with pytest.raises(ModelError, match=says):
        load(tmp_path / "m")


def test_a_term_of_a_network_without_one_is_refused(network: NetworkModel, data: Sequences) -> None:
    log = np.asarray(data.items), np.asarray(data.offsets)
    network.complete(log, log)
    plain = make(**network.config.as_dict() | {"counting": False})
    plain.set_catalog(data, log[0])
    plain.set_tensors(network.tensors)
    with pytest.raises(ModelError, match="it holds"):
        plain.check_parameters()


def test_without_numba_it_is_said_before_the_first_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    data = synthetic(users=30, items=20, mean_length=8)
    words = (
        "the counting term needs the package numba, which is not installed: pip install numba, or"
    )
    with pytest.raises(ConfigError, match=words):
        train(data, model="gru", preset="paper", trainer="minibatch", counting=True, epochs=1)
