"""What every model must do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hcarec import BPR, GRU, HCAGRU, ItemKNN, Markov, Pop, Random, SASRec, Sequences, load, synthetic
from hcarec.errors import ConfigError, DataError, ModelError
from hcarec.models import Model, make
from hcarec.models.hca_gru import HCAGRUOptions
from hcarec.models.sasrec import SASRecOptions
from hcarec.ops import cpu_kernels
from hcarec.topk import Queries

D = 8
KINDS: dict[str, Callable[[], Model]] = {
    "random": lambda: Random(d=D),
    "pop": lambda: Pop(),
    "markov": lambda: Markov(),
    "item-knn": lambda: ItemKNN(neighbors=15, history=6),
    "bpr": lambda: BPR(d=D, learning_rate=0.05),
    "gru": lambda: GRU(preset="paper", d=D),
    "x-only": lambda: HCAGRU(preset="paper", d=D, window_x=4, window_h=1),
    "h-only": lambda: HCAGRU(preset="paper", d=D, window_x=1, window_h=3),
    "both": lambda: HCAGRU(preset="paper", d=D, window_x=4, window_h=3),
    "mini-batches": lambda: GRU(preset="paper", d=D, trainer="minibatch", batch_size=16, warmup=5, learning_rate=0.02),
    "options": lambda: HCAGRU(**OPTIONS),
    "sasrec": lambda: SASRec(preset="paper", d=D, batch_size=16, warmup=5, learning_rate=0.02),
    "sasrec-options": lambda: SASRec(**SAS_OPTIONS),
    "counting": lambda: GRU(preset="paper", d=D, trainer="minibatch", batch_size=16, warmup=5, learning_rate=0.02, counting=True),
    "options-counting": lambda: HCAGRU(**OPTIONS, counting=True),
    "sasrec-counting": lambda: SASRec(**SAS_OPTIONS, counting=True),
}
OPTIONS: HCAGRUOptions = {
    "preset": "paper", "trainer": "minibatch", "batch_size": 16, "warmup": 5, "learning_rate": 0.01, "d": D, "window_x": 4, "window_h": 3, "blocks": 2,
    "padding": "masked", "fusion": "residual", "attention_h": "dot", "item_norm": True, "output_norm": True, "scores": "cosine",
    "copy_window": 6, "input_dropout": 0.1, "hidden_dropout": 0.1, "output_dropout": 0.1,
}  # fmt: skip
SAS_OPTIONS: SASRecOptions = {
    "preset": "paper", "batch_size": 16, "warmup": 5, "learning_rate": 0.02, "d": 12, "heads": 3, "blocks": 3, "ffn": 2, "item_norm": True,
    "output_norm": False, "scores": "cosine", "copy_window": 6, "output_dropout": 0.1, "length": 7,
}  # fmt: skip
COUNTING = ["pop", "markov", "item-knn"]
LEARNING = [name for name in KINDS if name not in ("random", *COUNTING)]
PERSONAL = [name for name in KINDS if name not in ("random", "pop")]
STATEFUL = [name for name in KINDS if name not in ("random", "pop", "bpr")]
NETWORKS = ["gru", "x-only", "h-only", "both", "mini-batches"]
Trained = dict[str, Model]


@pytest.fixture(scope="module")
def data() -> Sequences:
    return synthetic(users=80, items=60, mean_length=20)


@pytest.fixture(scope="module")
def trained(data: Sequences) -> Trained:
    return {name: kind().fit(data, epochs=2, seed=1) for name, kind in KINDS.items()}


@pytest.fixture(params=KINDS)
def model(request: pytest.FixtureRequest, trained: Trained) -> Model:
    return trained[request.param]


@pytest.fixture(params=STATEFUL)
def stateful(request: pytest.FixtureRequest, trained: Trained) -> Model:
    return trained[request.param]


@pytest.fixture(params=NETWORKS)
def network(request: pytest.FixtureRequest, trained: Trained) -> HCAGRU:
    found = trained[request.param]
    assert isinstance(found, HCAGRU)
    return found


def same_bits(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    return a.keys() == b.keys() and all(a[name].tobytes() == b[name].tobytes() and a[name].shape == b[name].shape for name in a)


def assert_same(a: Queries, b: Queries) -> None:
    """Two queries have the same bits."""
    assert a.vectors.tobytes() == b.vectors.tobytes()
    assert (a.corrections is None) == (b.corrections is None)
    for mine, theirs in zip(a.corrections or (), b.corrections or (), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def history(data: Sequences, user: int = 3) -> list[str | int]:
    return [data.item_ids[item] for item in data[user]]


# -- learning --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KINDS)
def test_the_same_seed_gives_the_same_bits(name: str, data: Sequences, trained: Trained) -> None:
    assert same_bits(KINDS[name]().fit(data, epochs=2, seed=1).tensors, trained[name].tensors)


@pytest.mark.parametrize("name", [name for name in KINDS if name not in COUNTING])
def test_another_seed_gives_others(name: str, data: Sequences, trained: Trained) -> None:
    assert not same_bits(KINDS[name]().fit(data, epochs=2, seed=2).theta, trained[name].theta)


@pytest.mark.parametrize("name", LEARNING)
def test_learning_lowers_the_loss_and_changes_every_parameter(name: str, data: Sequences, trained: Trained) -> None:
    losses: dict[int, float] = {}
    KINDS[name]().fit(data, epochs=12, seed=1, progress=lambda now: losses.__setitem__(now.epoch, now.loss))
    assert losses[12] < 0.95 * losses[1]
    untrained = KINDS[name]().fit(data, epochs=0, seed=1).theta
    for letter, value in trained[name].theta.items():
        assert not np.array_equal(value, untrained[letter]), letter


@pytest.mark.parametrize("name", ["bpr", "gru", "hca-gru"])
def test_a_model_that_is_trained_again_answers_by_what_it_has_learnt_last(name: str, data: Sequences) -> None:
    other = synthetic(users=60, items=700, mean_length=12, seed=3)
    answers: list[Any] = []

    def look(_: Any) -> None:
        answers.append(again.recommend([again.item_ids[0]], 5))

    again = make(name, preset="paper", d=6).fit(data, epochs=1)
    look(None)
    again.fit(other, epochs=2, progress=look)  # whose answers on the way must not last
    fresh = make(name, preset="paper", d=6).fit(other, epochs=2)
    past = [other.item_ids[0], other.item_ids[5]]
    assert answers[0] != answers[1] != answers[-1]
    assert again.recommend(past, 20) == fresh.recommend(past, 20)
    assert again.similar_items(past[0], 20) == fresh.similar_items(past[0], 20)


def test_pop_counts(data: Sequences, trained: Trained) -> None:
    assert np.array_equal(trained["pop"].theta["X"][:, 0], np.bincount(data.items, minlength=data.n_items))


# -- shapes ----------------------------------------------------------------------------------------------------------


def test_tensors_have_the_names_and_shapes_of_the_contract(trained: Trained, data: Sequences) -> None:
    n, d = data.n_items, D
    x_level = {"V": (3, d, d), "Q_x": (d, d), "r_x": (d,)}
    h_level = {"Q_h": (d, d), "r_h": (d,), "E": (d, d), "F": (d, d)}
    gru = {"X": (n, d), "U": (3, d, d), "W": (3, d, d), "b": (3, d)}
    norms: dict[str, tuple[int, ...]] = {"norm_1": (2, d), "norm_2": (2, d)}
    block = dict.fromkeys("QKVO", (d, d)) | norms | {"A_1": (4 * d, d), "a_1": (4 * d,), "A_2": (d, 4 * d), "a_2": (d,)}
    expected = {
        "random": {"X": (n, d)},
        "pop": {"X": (n, 1)},
        "markov": {"X": (n, 1), "indptr": (n + 1,), "indices": (-1,), "values": (-1,)},
        "item-knn": {"X": (n, 1), "indptr": (n + 1,), "indices": (-1,), "values": (-1,)},
        "bpr": {"P": (data.n_users, d), "X": (n, d)},
        "gru": gru,
        "x-only": gru | x_level,
        "h-only": gru | h_level,
        "both": gru | x_level | h_level,
        "mini-batches": gru,
        "sasrec": {"X": (n, d), "P": (200, d)} | block | {f"2.{name}": shape for name, shape in block.items()} | {"norm_out": (2, d)},
    }
    for name in expected:
        found = trained[name]
        assert found.shapes(n, data.n_users) == expected[name]
        sizes = {letter: (-1,) if -1 in expected[name][letter] else value.shape for letter, value in found.theta.items()}
        assert sizes == expected[name], name
        types = {"indptr": np.int64, "indices": np.int32}
        assert all(value.dtype == types.get(letter, np.float32) for letter, value in found.theta.items())


def test_vectors_of_histories_fit_those_of_items(model: Model, data: Sequences) -> None:
    queries = model.encode(np.asarray(data.items), np.asarray(data.offsets))
    assert queries.vectors.shape == (data.n_users, model.item_vectors.shape[1])
    assert np.isfinite(queries.vectors).all()
    items, scores = model.top(queries, 7)
    assert items.shape == scores.shape == (data.n_users, 7)
    assert all(len(set(row)) == 7 for row in items.tolist())
    assert (np.diff(scores, axis=1) <= 0).all()


def test_a_batch_equals_one_at_a_time(model: Model, data: Sequences) -> None:
    whole = model.encode(np.asarray(data.items), np.asarray(data.offsets), threads=2)
    for user in (0, 1, 17, data.n_users - 1):
        alone = model.encode(np.asarray(data[user]), np.array([0, len(data[user])]), threads=1)
        assert_same(alone, whole.take(np.array([user])))
        assert np.array_equal(model.top(alone, 5)[0][0], model.top(whole, 5)[0][user])


# -- one event at a time -----------------------------------------------------------------------------------------------


def after(model: Model, items: Any) -> np.ndarray:
    """Return the state after a history."""
    state = model.start()
    model.advance(state, np.asarray(items, np.int32), np.array([0, len(items)]))
    return state


def test_step_by_step_equals_the_whole_pass_bit_for_bit(stateful: Model, data: Sequences) -> None:
    items = np.asarray(data[3])
    state = stateful.start()
    for n, item in enumerate(items.tolist(), 1):
        state = stateful.step(state, [item])
        assert_same(stateful.queries(state), stateful.encode(items[:n], np.array([0, n])))
    assert np.array_equal(state, after(stateful, items))
    assert state.dtype == stateful.state_dtype


def test_states_of_many_users_move_as_each_alone(stateful: Model, data: Sequences) -> None:
    states = stateful.start(data.n_users)
    stateful.advance(states, np.asarray(data.items), np.asarray(data.offsets))
    stateful.advance(states, np.array([4, 5], np.int32), np.array([0, 2] + [2] * (data.n_users - 1)))
    for user in range(data.n_users):
        assert np.array_equal(states[user : user + 1], after(stateful, [*data[user], *([4, 5] if user == 0 else [])]))


def test_a_step_leaves_the_old_state_alone(stateful: Model) -> None:
    before = after(stateful, [1, 2, 3])
    kept = before.copy()
    stateful.step(before, [4])
    assert np.array_equal(before, kept)


def test_states_from_elsewhere_are_checked(stateful: Model) -> None:
    state = after(stateful, [1, 2, 3])
    assert stateful.usable(stateful.start(2)).all() and stateful.usable(state).all()
    spoils: list[tuple[str, Any]] = [("items", 60), ("items", -2), *((name, np.nan) for name in ("h", "hidden", "interest"))]
    for name, value in spoils:
        if name in (state.dtype.names or ()) and state[name].size:
            spoiled = state.copy()
            spoiled[name].reshape(-1)[-1] = value
            assert not stateful.usable(spoiled).any(), name


@pytest.mark.parametrize("name", ["random", "pop", "bpr"])
def test_models_without_states(name: str, trained: Trained) -> None:
    assert trained[name].state_dtype is None
    with pytest.raises(ConfigError, match="keeps no state per user"):
        trained[name].start()


def test_a_step_costs_the_same_whatever_the_history(network: HCAGRU, monkeypatch: pytest.MonkeyPatch) -> None:
    """The state has a fixed size, and the kernel is given one event and a work space of the windows' size."""
    from hcarec.ops import cpu

    w_x, w_h = network.windows
    seen: list[tuple[tuple[int, ...], ...]] = []
    kernel = cpu_kernels.encoder("float32")

    def counting(*arguments: Any) -> Any:
        seen.append(tuple(np.shape(argument) for argument in arguments))
        return kernel(*arguments)

    monkeypatch.setattr(cpu, "encoder", lambda dtype: counting)
    for length in (1, 50, 3000):
        state = after(network, np.arange(length) % 60)
        assert [state[name].shape[1:] for name in ("h", "items", "hidden")] == [(D,), (w_x - 1,), (w_h - 1, D)]
        seen.clear()
        network.step(state, [5])
        assert len(seen) == 1
        if length == 1:
            first = seen[0]
        assert seen[0] == first
    assert max(int(np.prod(shape)) for shape in first[2:]) < 100 * D * (w_x + w_h)


# -- recommending ------------------------------------------------------------------------------------------------------


def test_k_beyond_the_catalogue_gives_the_catalogue(model: Model, data: Sequences) -> None:
    found = model.recommend(history(data), k=1000)
    assert sorted(str(one.item) for one in found) == sorted(data.item_ids.texts())
    assert all(np.isfinite(one.score) for one in found)


@pytest.mark.parametrize("k", [0, -1, 2.5])
def test_a_k_that_makes_no_sense(model: Model, k: Any) -> None:
    with pytest.raises(ConfigError, match="k is"):
        model.recommend([], k=k)


def test_seen_items_are_hidden_only_when_asked(model: Model, data: Sequences) -> None:
    past = history(data)
    everything = model.recommend(past, k=1000)
    assert {str(item) for item in past} <= {str(one.item) for one in everything}
    hidden = model.recommend(past, k=1000, hide_seen=True)
    assert hidden == [one for one in everything if one.item not in past]


def test_allow_and_deny(model: Model, data: Sequences) -> None:
    past, ids = history(data), list(data.item_ids)
    everything = model.recommend(past, k=1000)
    some, bad = ids[5:25], ids[20:30]
    assert model.recommend(past, k=1000, allow=some) == [one for one in everything if one.item in some]
    assert model.recommend(past, k=1000, deny=bad) == [one for one in everything if one.item not in bad]
    assert model.recommend(past, k=1000, allow=[*some, "unknown"], deny=bad) == [one for one in everything if one.item in some and one.item not in bad]
    assert model.recommend(past, k=5, allow=[]) == []


def test_unknown_items_are_skipped(model: Model, data: Sequences) -> None:
    past = history(data)
    mixed = ["no such item", *past[:4], "nor this", *past[4:]]
    assert model.recommend(mixed, k=5) == model.recommend(past, k=5)


@pytest.mark.parametrize("past", [[], ["no such item", "nor this"]])
def test_without_a_known_history_the_popular_items(model: Model, past: list[str], data: Sequences) -> None:
    found = model.recommend(past, k=10)
    counts = np.bincount(data.items, minlength=data.n_items)
    assert {one.basis for one in found} == {"popular"}
    assert [one.score for one in found] == sorted(counts.tolist(), reverse=True)[:10]
    assert all(counts[data.item_ids.find(one.item)] == one.score for one in found)


def test_every_answer_says_its_basis(trained: Trained, data: Sequences) -> None:
    bases = {name: {one.basis for one in found.recommend(history(data), k=3)} for name, found in trained.items()}
    assert bases == {"random": {"random"}, "pop": {"popular"}} | {name: {"personal"} for name in PERSONAL}


@pytest.mark.parametrize("name", [name for name in KINDS if name not in COUNTING])
def test_similar_items(name: str, trained: Trained) -> None:
    found = trained[name].similar_items(trained[name].item_ids[4], k=8)
    X = trained[name].item_vectors.astype(np.float64)
    X = X / np.linalg.norm(X, axis=1, keepdims=True)
    expected = np.delete(np.argsort(-(X @ X[4])), 0)[:8]
    assert [one.item for one in found] == [trained[name].item_ids[item] for item in expected]
    np.testing.assert_allclose([one.score for one in found], (X @ X[4])[expected], rtol=1e-5)
    with pytest.raises(DataError, match="is not among"):
        trained[name].similar_items("no such item")


@pytest.mark.parametrize("name", ["markov", "item-knn"])
def test_similar_items_of_a_table(name: str, trained: Trained) -> None:
    """The row of an item, the greatest values first, equal ones by the hash of the id."""
    model = trained[name]
    indptr, indices, values = (model.theta[letter] for letter in ("indptr", "indices", "values"))
    row = sorted(
        (-value, model.tie_rank[item], item) for item, value in zip(indices[indptr[4] : indptr[5]], values[indptr[4] : indptr[5]], strict=True) if item != 4
    )
    found = model.similar_items(model.item_ids[4], k=8)
    assert [(one.item, one.score) for one in found] == [(model.item_ids[int(item)], pytest.approx(-value)) for value, _, item in row[:8]]
    with pytest.raises(DataError, match="is not among"):
        model.similar_items("no such item")


def test_pop_knows_nothing_alike(trained: Trained) -> None:
    with pytest.raises(ConfigError, match="POP"):
        trained["pop"].similar_items(trained["pop"].item_ids[0])


def test_models_by_name() -> None:
    assert isinstance(make("hca-gru", window_x=2), HCAGRU)
    with pytest.raises(ConfigError, match="did you mean 'hca-gru'"):
        make("hcagru")
    with pytest.raises(ConfigError, match="gru has no attention"):
        make("gru", window_x=3)


# -- save and load -----------------------------------------------------------------------------------------------------


def test_a_loaded_model_has_the_same_bits_and_answers(model: Model, data: Sequences, tmp_path: Path) -> None:
    model.save(tmp_path / "model", b'{"epoch": 1}\n')
    again = load(tmp_path / "model")
    assert type(again) is type(model)
    assert (again.config, again.about) == (model.config, model.about)
    assert same_bits(again.theta, model.theta)
    assert list(again.item_ids) == list(model.item_ids)
    assert [type(item) for item in again.item_ids] == [type(item) for item in model.item_ids]
    for past in ([], history(data), history(data, 7)[:1]):
        assert again.recommend(past, k=15) == model.recommend(past, k=15)
    again.save(tmp_path / "again", b'{"epoch": 1}\n')
    for path in (tmp_path / "model").iterdir():
        assert (tmp_path / "again" / path.name).exists()
    assert same_bits(load(tmp_path / "again").theta, model.theta)


def test_the_folder_is_that_of_the_contract(trained: Trained, tmp_path: Path) -> None:
    import polars as pl

    for name, found in trained.items():
        found.save(tmp_path / name)
        files = {path.name for path in (tmp_path / name).iterdir()}
        assert files == {"model.safetensors", "model.json", "items.parquet", "log.jsonl"} | ({"users.parquet"} if name == "bpr" else set())
        items = pl.read_parquet(tmp_path / name / "items.parquet")
        assert items.columns[:2] == ["item_id", "title"]
        assert items["item_id"].to_list() == [str(item) for item in found.item_ids]


def test_saving_never_replaces_what_is_no_model(model: Model, tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "dear.txt").write_text("keep me")
    with pytest.raises(ModelError, match="not a model folder"):
        model.save(tmp_path / "letters")
    assert (tmp_path / "letters" / "dear.txt").read_text() == "keep me"


def test_messages_name_the_models_that_can(data: Sequences, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that is new appears in them by what it can do."""
    from hcarec import explain
    from hcarec.models import MODELS

    class Chain(Markov):
        name = "chain"

    monkeypatch.setitem(MODELS, "chain", Chain)
    model, item = Pop().fit(data), data.item_ids[0]
    with pytest.raises(ConfigError, match=r"which items are alike: use markov, item-knn, bpr, gru, hca-gru, sasrec or chain$"):
        model.similar_items(item)
    with pytest.raises(ConfigError, match=r"explain a model markov, item-knn, gru, hca-gru, sasrec or chain$"):
        explain(model, [item])
