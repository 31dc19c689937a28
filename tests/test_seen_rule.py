"""The seen rule belongs to the model: trained with --hide-seen, it hides everywhere, unless told otherwise."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import polars as pl
import pytest

import hcarec
from hcarec import Sequences, evaluate, load, recommend, synthetic
from hcarec.recommendation import recommend_all, recommend_user
from service_process import Starter

Command = Callable[..., tuple[int, str, str]]
MODELS: dict[str, dict[str, Any]] = {"bpr": {"epochs": 2, "d": 6}, "gru": {"preset": "paper", "epochs": 2, "d": 6}, "markov": {}, "item-knn": {}, "pop": {}}


@pytest.fixture(scope="module")
def data() -> Sequences:
    return synthetic(users=50, items=40, mean_length=15)


@pytest.fixture(scope="module")
def stored(data: Sequences, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("seen") / "data"
    data.save(path)
    return path


@pytest.fixture(scope="module")
def folders(stored: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, bool], Path]:
    """Return models trained with and without the rule."""
    base, made = tmp_path_factory.mktemp("models"), {}
    for name, settings in MODELS.items():
        for hide in (False, True):
            made[name, hide] = base / f"{name}-{hide}"
            hcarec.train(Sequences.open(stored), made[name, hide], model=name, hide_seen=hide, compare=False, **settings)
    return made


def shown(found: list[Any]) -> set[str]:
    return {str(one.item) for one in found}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("hide", [False, True])
@pytest.mark.parametrize("asked", [None, False, True])
def test_python_command_and_files_agree(
    name: str, hide: bool, asked: bool | None, folders: dict[tuple[str, bool], Path], stored: Path, tmp_path: Path, command: Command
) -> None:
    model, data = load(folders[name, hide]), Sequences.open(stored)
    assert model.hide_seen is hide
    hidden = hide if asked is None else asked
    user = data.user_ids[3]
    past = [data.item_ids[item] for item in data[3]]
    option = [] if asked is None else ["--hide-seen" if asked else "--keep-seen"]
    found = model.recommend(past, 40, hide_seen=asked)
    assert bool(shown(found) & {str(item) for item in past}) is not hidden
    assert recommend(model, past, 40, hide_seen=asked) == found
    for arguments, right in ((["--history", ",".join(map(str, past))], found), (["--user", str(user)], recommend_user(model, data, user, 40, hide_seen=asked))):
        code, out, _ = command("recommend", folders[name, hide], *arguments, "--data", stored, "-k", "40", "--json", "-", *option)
        assert code == 0
        assert [(one["item"], one["score"]) for one in json.loads(out)] == [(str(one.item), one.score) for one in right]
        assert bool(shown(right) & {str(item) for item in past}) is not hidden
    code, out, _ = command("recommend", folders[name, hide], "--user", str(user), "--data", stored, *option)
    why = "as the model was trained" if asked is None else "as asked for"
    assert f"seen items {'hidden' if hidden else 'kept'}, {why}" in " ".join(out.split())
    written = recommend_all(model, data, tmp_path / "all.parquet", 40, hide_seen=asked)
    assert written.hide_seen is hidden
    rows = pl.read_parquet(tmp_path / "all.parquet").filter(pl.col("user_id") == str(user))
    assert rows["item_id"].to_list() == [str(one.item) for one in recommend_user(model, data, user, 40, hide_seen=asked)]
    code, out, _ = command("recommend", folders[name, hide], "--all-users", "--data", stored, "-o", tmp_path / "more.csv", *option)
    assert f"seen items {'hidden' if hidden else 'kept'}" in " ".join(out.split())


@pytest.mark.parametrize("name", MODELS)
def test_evaluation_follows_it(name: str, folders: dict[tuple[str, bool], Path], data: Sequences, stored: Path, command: Command) -> None:
    for hide in (False, True):
        model = load(folders[name, hide])
        assert evaluate(model, data).metrics["ndcg@10"] == model.about["metrics"]["ndcg@10"]
        code, out, _ = command("evaluate", folders[name, hide], stored)
        assert code == 0 and f"seen items {'hidden' if hide else 'kept'}" in " ".join(out.split())
        assert evaluate(model, data, hide_seen=not hide).protocol["seen"] == ("kept" if hide else "hidden")


def test_the_service_follows_it_for_every_model(folders: dict[tuple[str, bool], Path], stored: Path, starter: Starter, tmp_path: Path) -> None:
    data = Sequences.open(stored)
    user, past = str(data.user_ids[3]), [str(data.item_ids[item]) for item in data[3]]
    beside = [path for key, path in folders.items() if key != ("gru", True)]
    options = [f"--beside={path}" for path in beside]
    process = starter.start(folders["gru", True], "--data", stored, "--store", tmp_path / "store.sqlite", "--rate", 0, *options)
    address = process.address()
    assert address is not None, process.errors
    with httpx.Client(base_url=address) as client:
        cards = {card["name"]: card for card in client.get("/v1/models").json()["models"]}
        for (name, hide), path in folders.items():
            model = load(path)
            assert cards[path.name]["hide_seen"] is hide
            for asked in (None, False, True):
                hidden = hide if asked is None else asked
                for whose in ({"user": user}, {"history": past}, {"history": past[:-2], "visit": past[-2:]}):
                    wish = {**whose, "k": 40, "model": path.name, "hide_seen": asked}  # null is the model's rule
                    answer = client.post("/v1/recommend", json=wish).json()
                    if asked is None:  # and so is nothing at all
                        del wish["hide_seen"]
                        assert client.post("/v1/recommend", json=wish).json()["items"] == answer["items"]
                    right = recommend(model, past, 40, hide_seen=asked)
                    assert answer["hide_seen"] is hidden, (name, hide, asked)
                    assert [(one["item"], one["score"]) for one in answer["items"]] == [(str(one.item), one.score) for one in right]


def test_explanations_speak_of_what_would_be_recommended(folders: dict[tuple[str, bool], Path], data: Sequences) -> None:
    past = [data.item_ids[item] for item in data[3]]
    for name in ("gru", "markov", "item-knn"):
        for hide in (False, True):
            model = load(folders[name, hide])
            assert hcarec.explain(model, past).recommended == model.recommend(past, 1)[0]
