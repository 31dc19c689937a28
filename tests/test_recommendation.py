"""Recommending for a history, a user and everybody, from Python and from the command."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from conftest import write
from hcarec import BPR, GRU, HCAGRU, Pop, Random, Sequences, synthetic
from hcarec.cli.recommend import parse_ids
from hcarec.data.split import split
from hcarec.errors import ConfigError, DataError, ModelError
from hcarec.ids import Ids
from hcarec.models import Model

verbs: Any = import_module("hcarec.recommendation")  # the package's own name `recommend` is the function
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Sequences:
    made = synthetic(users=60, items=50, mean_length=12)
    path = tmp_path_factory.mktemp("data") / "data"
    made.save(path)
    return Sequences.open(path)


@pytest.fixture(scope="module")
def models(data: Sequences) -> dict[str, Model]:
    kinds: tuple[Model, ...] = (Random(d=6), Pop(), BPR(d=6, learning_rate=0.05), GRU(preset="paper", d=6), HCAGRU(preset="paper", d=6, window_x=3, window_h=2))
    made = {kind.name: kind.fit(data, epochs=2, seed=3) for kind in kinds}
    for model in made.values():
        model.about["data"]["path"] = data.about["path"]
    return made


@pytest.fixture(params=["random", "pop", "bpr", "gru", "hca-gru"])
def model(request: pytest.FixtureRequest, models: dict[str, Model]) -> Model:
    return models[request.param]


def past(data: Sequences, user: int) -> list[str | int]:
    return verbs.history_of(data, data.user_ids[user])


def other_data(data: Sequences) -> Sequences:
    """Return a data set of other users over some of the items, in another order, and some that no model knows; one user has only such."""
    known = list(data.item_ids)[::-2]
    ids = Ids.of([*known[:10], "new 1", *known[10:], "new 2"])
    sequences = [[0, 10, 3, 26], [10, 26, 10], [], [5], [2, 2, 2, 9, 12, 26, 1]]
    items = np.array([item for sequence in sequences for item in sequence], np.int32)
    offsets = np.cumsum([0, *map(len, sequences)]).astype(np.int64)
    return Sequences(items, offsets, Ids.of(["a", 'b,"c', "none", "é", "e"]), ids)


# -- one ---------------------------------------------------------------------------------------------------------------


def test_the_function_and_the_method_agree(model: Model, data: Sequences) -> None:
    history = [*past(data, 4), "unknown"]
    allow, deny = list(data.item_ids)[:30], list(data.item_ids)[3:8]
    for settings in ({}, {"hide_seen": True}, {"allow": allow}, {"deny": deny}, {"hide_seen": True, "allow": allow, "deny": deny}):
        assert verbs.recommend(model, history, 7, **settings) == model.recommend(history, 7, **settings)
    assert verbs.recommend(model, [], 3) == model.recommend([], 3)
    assert len(verbs.recommend(model, history, 10**9)) == data.n_items  # no memory for what cannot be there


def test_a_user_is_the_user_s_whole_log(models: dict[str, Model], data: Sequences) -> None:
    for name in ("random", "pop", "gru", "hca-gru"):
        for user in (0, 31):
            assert verbs.recommend_user(models[name], data, data.user_ids[user], 6) == models[name].recommend(past(data, user), 6)


def test_bpr_knows_its_users(models: dict[str, Model], data: Sequences) -> None:
    bpr = models["bpr"]
    for user in (0, 31):
        found = verbs.recommend_user(bpr, data, data.user_ids[user], 6)
        scores = bpr.theta["X"].astype(np.float64) @ bpr.theta["P"][user].astype(np.float64)
        assert [bpr.item_ids.find(one.item) for one in found] == np.argsort(-scores)[:6].tolist()
        assert {one.basis for one in found} == {"personal"}
        assert found != bpr.recommend(past(data, user), 6)  # which is the fitted vector's list


def test_bpr_folds_in_users_of_other_data(models: dict[str, Model], data: Sequences) -> None:
    later = replace(data, items=np.asarray(data.items)[::-1].copy(), about={})
    user = data.user_ids[3]
    assert verbs.recommend_user(models["bpr"], later, user, 6) == models["bpr"].recommend(verbs.history_of(later, user), 6)


def test_bpr_folds_in_users_that_it_learned_nothing_from(data: Sequences) -> None:
    """A user whose only event is tested on has a vector that training never touched."""
    lonely = replace(data, items=np.append(data.items, 7).astype(np.int32), offsets=np.append(data.offsets, data.n_events + 1),
                     user_ids=Ids.of([*data.user_ids, 10**6]), times=None, about={})  # fmt: skip
    parts = split(lonely, "ratio")
    bpr = BPR(d=6)
    bpr.set_catalog(lonely, parts.train.items)
    bpr.initialize(parts.train.items, parts.train.offsets, 0)
    bpr.about = {"data": {"fingerprint": lonely.fingerprint}, "protocol": {"split": parts.protocol}}
    rows = verbs.trained_rows(bpr, lonely)
    assert rows[-1] == -1
    assert np.array_equal(rows >= 0, parts.train.lengths > 0)
    assert verbs.recommend_user(bpr, lonely, 10**6, 5) == bpr.recommend([lonely.item_ids[7]], 5)


def test_an_unknown_user(model: Model, data: Sequences) -> None:
    with pytest.raises(DataError, match="user 'nobody' is not among the 60 users"):
        verbs.recommend_user(model, data, "nobody")


def test_unknown_items_are_named_once_in_order(models: dict[str, Model], data: Sequences) -> None:
    assert verbs.unknown_items(models["gru"], ["z", data.item_ids[0], "y", "z"]) == ["z", "y"]


# -- many --------------------------------------------------------------------------------------------------------------


def read(path: Path) -> pl.DataFrame:
    text = {"user_id": pl.String, "item_id": pl.String}
    if path.suffix == ".csv":
        return pl.read_csv(path, schema_overrides=text)
    return pl.read_ndjson(path, schema_overrides=text) if path.suffix == ".jsonl" else pl.read_parquet(path)


def by_hand(model: Model, data: Sequences, k: int, **settings: object) -> list[tuple[str, int, str, str]]:
    rows = []
    for user in data.user_ids:
        found = verbs.recommend_user(model, data, user, k, **settings)
        rows += [(str(user), rank, str(one.item), one.basis) for rank, one in enumerate(found, 1)]
    return rows


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".jsonl"])
def test_everybody_gets_what_each_would_get(model: Model, data: Sequences, ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verbs, "USERS_AT_ONCE", 7)  # so that there are several chunks, the last one short
    done: list[tuple[int, int | None]] = []
    written = verbs.recommend_all(model, data, tmp_path / f"all{ending}", 4, hide_seen=True, progress=lambda *now: done.append(now))
    frame = read(tmp_path / f"all{ending}")
    assert frame.columns == ["user_id", "rank", "item_id", "score", "basis", "title"]
    assert frame.select("user_id", "rank", "item_id", "basis").rows() == by_hand(model, data, 4, hide_seen=True)
    assert written == (data.n_users, frame.height, data.n_users * (model.name == "pop"), True)
    assert done[-1] == (data.n_users, data.n_users)
    assert len(done) == 9
    titles = dict(zip(data.item_ids.texts(), data.titles.texts(), strict=True)) if data.titles is not None else {}
    assert frame["title"].to_list() == [titles[item] for item in frame["item_id"]]
    assert [path.name for path in tmp_path.iterdir()] == [f"all{ending}"]


def test_chunks_change_nothing(models: dict[str, Model], data: Sequences, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frames = []
    for size in (1, 16, 4096):
        monkeypatch.setattr(verbs, "USERS_AT_ONCE", size)
        verbs.recommend_all(models["hca-gru"], data, tmp_path / "all.parquet", 5, threads=1 + size % 2)
        frames.append(read(tmp_path / "all.parquet"))
    assert frames[0].equals(frames[1])
    assert frames[0].equals(frames[2])


def test_a_long_list_means_fewer_users_at_a_time(models: dict[str, Model], data: Sequences, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verbs, "ROWS_AT_ONCE", 100)
    heights = [frame.height for frame, _ in verbs._frames(models["gru"], data, 10**6, verbs.Rules())]
    assert max(heights) <= 100
    assert sum(heights) == data.n_users * data.n_items


def test_other_data_is_matched_by_id(model: Model, data: Sequences, tmp_path: Path) -> None:
    others = other_data(data)
    written = verbs.recommend_all(model, others, tmp_path / "all.csv", 3, hide_seen=True)
    frame = read(tmp_path / "all.csv")
    assert frame.select("user_id", "rank", "item_id", "basis").rows() == by_hand(model, others, 3, hide_seen=True)
    popular = set(frame.filter(pl.col("basis") == "popular")["user_id"])
    assert popular == (set(others.user_ids) if model.name == "pop" else {'b,"c', "none"})
    assert written.popular == len(popular)


def test_nobody_at_all(models: dict[str, Model], data: Sequences, tmp_path: Path) -> None:
    nobody = Sequences(np.zeros(0, np.int32), np.zeros(1, np.int64), Ids.of([]), data.item_ids)
    for ending in verbs.FORMATS:
        assert verbs.recommend_all(models["gru"], nobody, tmp_path / f"all{ending}", 3) == (0, 0, 0, False)
        assert (tmp_path / f"all{ending}").exists()


@pytest.mark.parametrize("stop", [ModelError("one line"), KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_a_file_appears_whole_or_not_at_all(
    models: dict[str, Model], data: Sequences, tmp_path: Path, stop: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verbs, "USERS_AT_ONCE", 7)

    def failing(done: int, total: int | None) -> None:
        if done > 30:
            raise stop

    for ending in verbs.FORMATS:
        target = write(tmp_path / f"all{ending}", b"the old one")
        with pytest.raises((ModelError, KeyboardInterrupt)):
            verbs.recommend_all(models["gru"], data, target, 3, progress=failing)
        assert target.read_bytes() == b"the old one"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(f"all{ending}" for ending in verbs.FORMATS)


def test_a_file_that_cannot_be_written(models: dict[str, Model], data: Sequences, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"ends in \.parquet, \.csv, \.jsonl"):
        verbs.recommend_all(models["gru"], data, tmp_path / "all.xlsx")
    write(tmp_path / "file", "")
    with pytest.raises(ModelError, match="cannot write"):
        verbs.recommend_all(models["gru"], data, tmp_path / "file" / "all.csv")


# -- the data that a model notes -----------------------------------------------------------------------------------------


def test_the_noted_data_is_opened_if_it_is_still_the_same(models: dict[str, Model], data: Sequences, tmp_path: Path) -> None:
    model = GRU(preset="paper", d=6)
    with pytest.raises(DataError, match="does not note where its data is"):
        verbs.open_data(model)
    model.about = {"data": {"path": str(tmp_path / "data"), "fingerprint": data.fingerprint}}
    with pytest.raises(DataError, match=r"cannot be opened .*give it with --data"):
        verbs.open_data(model)
    data.save(tmp_path / "data")
    assert verbs.open_data(model).fingerprint == data.fingerprint
    other_data(data).save(tmp_path / "data")
    with pytest.raises(DataError, match="has changed since the model was trained"):
        verbs.open_data(model)
    with pytest.raises(DataError, match=r"does not fit .*: 0 of 27 items known; .*--allow-mismatch"):
        verbs.open_data(model, tmp_path / "data")
    assert verbs.open_data(model, tmp_path / "data", allow_mismatch=True).n_users == 5
    assert verbs.open_data(models["gru"], tmp_path / "data").n_users == 5  # other data that it knows is fine


# -- the command ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(models: dict[str, Model], tmp_path: Path) -> Path:
    models["hca-gru"].save(tmp_path / "model")
    return tmp_path / "model"


def test_json_is_that_of_the_contract(folder: Path, models: dict[str, Model], data: Sequences, command: Command) -> None:
    items = [str(item) for item in past(data, 4)]
    code, out, err = command("recommend", folder, "--history", ",".join(items), "-k", "4", "--json", "-")
    assert (code, err) == (0, "")
    expected = models["hca-gru"].recommend(items, 4)
    assert json.loads(out) == [{"item": str(one.item), "score": one.score, "basis": "personal", "title": one.title} for one in expected]
    assert command("recommend", folder, "--user", str(data.user_ids[4]), "-k", "4", "--json", "-")[1] == out


def test_a_table_with_titles(folder: Path, models: dict[str, Model], data: Sequences, command: Command) -> None:
    code, out, _ = command("recommend", folder, "--user", str(data.user_ids[4]), "-k", "3", "--hide-seen")
    lines = out.splitlines()
    assert code == 0
    assert lines[1].split() == ["rank", "item", "title", "score", "basis"]
    for line, one in zip(lines[2:], models["hca-gru"].recommend(past(data, 4), 3, hide_seen=True), strict=True):
        assert str(one.item) in line and one.title in line and f"{one.score:.4f}" in line and line.rstrip().endswith("personal")


def test_skipped_items_are_named_on_standard_error(folder: Path, data: Sequences, command: Command) -> None:
    assert "after 1 event (" in command("recommend", folder, "--history", f"nope,{data.item_ids[1]}")[1]  # those that count, and no others
    assert "without a known history" in command("recommend", folder, "--history", "nope")[1]
    code, out, err = command("recommend", folder, "--history", f"nope,{data.item_ids[1]}, neither ,nope", "--json", "-")
    assert code == 0
    assert err == "hcarec: skipped, not in the model's catalogue: nope, neither\n"
    assert {one["basis"] for one in json.loads(out)} == {"personal"}
    for history in ("nope", "", " , "):
        assert {one["basis"] for one in json.loads(command("recommend", folder, "--history", history, "--json", "-")[1])} == {"popular"}


def test_everybody_into_a_file(folder: Path, models: dict[str, Model], data: Sequences, command: Command, tmp_path: Path) -> None:
    code, out, err = command("recommend", folder, "--all-users", "-o", tmp_path / "all.jsonl", "-k", "2", "--threads", "1")
    assert (code, err) == (0, "")
    assert f"{2 * data.n_users:,} rows for {data.n_users:,} users" in out
    assert read(tmp_path / "all.jsonl").select("user_id", "rank", "item_id", "basis").rows() == by_hand(models["hca-gru"], data, 2)
    other_data(data).save(tmp_path / "other")
    code, out, _ = command("recommend", folder, "--all-users", "--data", tmp_path / "other", "-o", tmp_path / "all.csv")
    assert code == 0
    assert "2 of them got the popular items" in out


def test_similar(folder: Path, models: dict[str, Model], data: Sequences, command: Command) -> None:
    found = json.loads(command("recommend", folder, "--similar", str(data.item_ids[2]), "-k", "3", "--json", "-")[1])
    assert [one["item"] for one in found] == [str(one.item) for one in models["hca-gru"].similar_items(data.item_ids[2], 3)]
    assert {one["basis"] for one in found} == {"similar"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "nothing given: give exactly one of"),
        (("--history", "1", "--user", "2"), "--history and --user given"),
        (("--user", "2", "--all-users", "-o", "x.csv"), "--user and --all-users given"),
        (("--all-users",), "give -o FILE"),
        (("--all-users", "-o", "x.csv", "--json", "-"), "no JSON"),
        (("--all-users", "-o", "x.txt"), "ends in .parquet"),
        (("--history", "1", "-o", "x.csv"), "-o goes with --all-users"),
        (("--history", "1", "-k", "0"), "k is 0"),
        (("--history", "1", "--threads", "0"), "--threads is 0"),
        (("--user", "nobody"), "user 'nobody' is not among"),
        (("--similar", "nothing like it"), "is not among"),
        (("--history", "1", "--allow", "no-such-file.txt"), "names no item of the catalogue"),
        (("--history", "1", "--deny", "no-such-file.txt"), "names no item of the catalogue"),
        (("--history", "1", "--data", "nowhere", "--user", "2"), "given"),
        (("--user", "1", "--data", "nowhere"), "not a prepared data set"),
    ],
)
def test_mistakes_are_one_line(
    folder: Path, command: Command, arguments: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = command("recommend", folder, *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_allow_and_deny_lists(folder: Path, models: dict[str, Model], data: Sequences, command: Command, tmp_path: Path) -> None:
    ids = [str(item) for item in data.item_ids]
    history = ",".join(map(str, past(data, 4)))

    def listed(*arguments: str | Path) -> list[str]:
        return [one["item"] for one in json.loads(command("recommend", folder, "--history", history, "-k", "100", "--json", "-", *arguments)[1])]

    everything = listed()
    file = write(tmp_path / "some.txt", "\ufeff" + "\r\n".join(ids[:9]) + "\r\n\r\nunknown\r\n")
    assert listed("--allow", file) == [item for item in everything if item in ids[:9]]
    assert listed("--deny", file) == [item for item in everything if item not in ids[:9]]
    assert listed("--allow", ",".join(ids[:3])) == [item for item in everything if item in ids[:3]]
    assert listed("--deny", json.dumps(ids[:3])) == [item for item in everything if item not in ids[:3]]
    _, _, err = command("recommend", folder, "--history", history, "--allow", file)
    assert err == "hcarec: --allow: not in the model's catalogue: unknown\n"


def test_ids_with_commas_and_brackets() -> None:
    assert parse_ids("a, b,,c ") == ["a", "b", "c"]
    assert parse_ids('["a,b", 7]') == ["a,b", "7"]
    assert parse_ids("[new] lamp,2") == ["[new] lamp", "2"]
    assert parse_ids("") == []


def test_names_cannot_play_tricks_on_the_terminal(data: Sequences, command: Command, tmp_path: Path) -> None:
    names = ["[bold]\x1b[31mred\x07[/bold]\n"] * data.n_items
    model = Pop().fit(replace(data, titles=Ids.of(names), about={}))
    model.save(tmp_path / "model")
    _, out, _ = command("recommend", tmp_path / "model", "--history", str(data.item_ids[0]), "-k", "2")
    assert "\x1b" not in out and "\x07" not in out
    assert "[bold]" in out
    assert len(out.splitlines()) == 4


def test_recommending_needs_no_torch(folder: Path) -> None:
    code = (
        "import sys\nfrom hcarec.cli import main\nsys.argv = ['hcarec', *sys.argv[1:]]\ntry: main()\nexcept SystemExit: pass\n"
        "print([name for name in ('torch', 'matplotlib') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, "recommend", str(folder), "--history", "1"], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr
