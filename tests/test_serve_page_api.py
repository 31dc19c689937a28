"""The API behind the page: several models, searching, attention, removed events, users; exactly as Python has them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hcarec import BPR, GRU, HCAGRU, Pop, Sequences, load, prepare, recommend, train
from hcarec.explanation import attention, explain
from hcarec.models import Model
from hcarec.serve.keys import make
from http_server import Running
from live_models import data as small_data

TITLES = "item_id,title,category,price\ni01,White <b>heart</b>,Café,1.5\ni02,Red heart,,\ni03,Éclair,Cakes,2\n"
NAMES = ("main", "gru", "bpr", "pop", "main-2")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Sequences:
    place = tmp_path_factory.mktemp("data")
    (place / "titles.csv").write_text(TITLES)
    return prepare(small_data().to_frame(), place / "data", titles=place / "titles.csv")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory, data: Sequences) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("models")
    train(data, place / "main", model="hca-gru", preset="paper", d=6, window_x=3, window_h=2, epochs=1)
    for name, model in (
        ("gru", GRU(preset="paper", d=5)),
        ("bpr", BPR(d=4)),
        ("pop", Pop()),
        ("other/main", HCAGRU(preset="paper", d=4, window_x=1, window_h=3)),
    ):
        model.fit(data, epochs=1, seed=3).save(place / name)
    return dict(zip(NAMES, (place / name for name in ("main", "gru", "bpr", "pop", "other/main")), strict=True))


@pytest.fixture(scope="module")
def models(folders: dict[str, Path]) -> dict[str, Model]:
    return {name: load(folder) for name, folder in folders.items()}


@pytest.fixture(scope="module")
def server(folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    main, *others = folders.values()
    with Running(main, tmp_path_factory.mktemp("store") / "store.sqlite", beside=others) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Running) -> Iterator[httpx.Client]:
    with server.client() as made:
        yield made


def send(client: httpx.Client, user: str, *items: str, start: int = 1_700_000_000) -> None:
    events = [{"user": user, "item": item, "time": start + n, "event_id": f"{start}-{n}"} for n, item in enumerate(items)]
    assert client.post("/v1/events", json=events).status_code == 200


def pairs(found: list[Any]) -> list[tuple[str, float]]:
    return [(one["item"], one["score"]) if isinstance(one, dict) else (str(one.item), one.score) for one in found]


# -- several models ----------------------------------------------------------------------------------------------------


def test_the_models_are_described_without_a_path(client: httpx.Client, folders: dict[str, Path], models: dict[str, Model]) -> None:
    answer = client.get("/v1/models")
    cards = answer.json()["models"]
    assert [card["name"] for card in cards] == list(NAMES)
    assert [card["serving"] for card in cards] == [True, False, False, False, False]
    assert [card["title"] for card in cards] == [model.config.title for model in models.values()]
    assert [card["has_attention"] for card in cards] == [True, False, False, False, True]
    assert len({card["model"] for card in cards}) == len(NAMES)
    assert cards[0]["config"]["window_x"] == 3
    assert cards[0]["data"] == {"fingerprint": models["main"].about["data"]["fingerprint"], "name": models["main"].about["data"]["name"]}
    assert cards[0]["protocol"]["split"] and cards[0]["metrics"]["recall@20"] == models["main"].about["metrics"]["recall@20"]
    assert cards[0]["items"] == len(models["main"].item_ids)
    assert str(folders["main"].parent) not in answer.text


@given(
    picks=st.lists(st.integers(0, 52), max_size=8),
    visit=st.lists(st.integers(0, 52), max_size=3),
    name=st.sampled_from(NAMES),
    hide=st.booleans(),
    by=st.booleans(),
)
def test_a_model_that_is_named_answers_as_python_does(
    client: httpx.Client, models: dict[str, Model], picks: list[int], visit: list[int], name: str, hide: bool, by: bool
) -> None:
    past, after = ([f"i{pick:02}" for pick in some] for some in (picks, visit))
    whose: dict[str, Any] = {"history": past}
    if by:
        user = "-".join(past) or "nobody"
        send(client, user, *past) if past else None  # sent again, these are duplicates
        whose = {"user": user}
    answer = client.post("/v1/recommend", json={**whose, "visit": after, "k": 9, "hide_seen": hide, "model": name}).json()
    assert pairs(answer["items"]) == pairs(recommend(models[name], [*past, *after], 9, hide_seen=hide))
    assert not answer["degraded"]
    unknown = [item for item in dict.fromkeys([*([] if by else past), *after]) if models[name].item_ids.find(item) < 0]
    assert answer["skipped"] == unknown


def test_another_model_sees_events_at_once_and_keeps_no_states(client: httpx.Client, server: Running, models: dict[str, Model]) -> None:
    for n in range(1, 6):
        send(client, "grower", f"i{n:02}", start=1_700_000_000 + n)
        past = [f"i{m:02}" for m in range(1, n + 1)]
        for name in ("gru", "bpr", "main-2", "main"):
            assert pairs(client.post("/v1/recommend", json={"user": "grower", "model": name}).json()["items"]) == pairs(recommend(models[name], past, 20))
    assert set(server.site.service.figures()["states"]) == {server.site.service.model.model}


def test_a_model_that_is_named_explains(client: httpx.Client, models: dict[str, Model]) -> None:
    history = ["i01", "i02", "i05", "i09"]
    for name in ("main", "gru", "main-2"):
        said = client.post("/v1/explain", json={"history": history, "model": name}).json()
        assert said == json.loads(json.dumps(explain(models[name], history).as_dict()))
    refused = client.post("/v1/explain", json={"history": history, "model": "bpr"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "refused")


@pytest.mark.parametrize("name", ["no such", "../main", "main-3", "\0"])
def test_a_model_that_is_not_there_is_refused(client: httpx.Client, name: str) -> None:
    for path in ("recommend", "explain", "attention"):
        answer = client.post(f"/v1/{path}", json={"history": ["i01"], "model": name})
        assert (answer.status_code, answer.json()["error"]["code"]) == (422, "refused")
        assert "/v1/models" in answer.text


def test_a_swap_leaves_the_other_models_where_they_are(folders: dict[str, Path], models: dict[str, Model], tmp_path: Path) -> None:
    with Running(folders["main"], tmp_path / "s.sqlite", beside=[folders["gru"]]) as running, running.client() as client:
        send(client, "u", "i01", "i02")
        assert client.post("/admin/model", json={"name": "gru"}).status_code == 200
        cards = client.get("/v1/models").json()["models"]
        assert [(card["name"], card["serving"]) for card in cards] == [("gru-2", True), ("gru", False)]
        for name in ("gru", "gru-2"):
            assert pairs(client.post("/v1/recommend", json={"user": "u", "model": name}).json()["items"]) == pairs(recommend(models["gru"], ["i01", "i02"], 20))
        assert client.post("/v1/recommend", json={"user": "u", "model": "main"}).status_code == 422


# -- items -------------------------------------------------------------------------------------------------------------


def test_items_are_found_by_name_and_come_with_what_is_known(client: httpx.Client, models: dict[str, Model]) -> None:
    def events(item: str) -> int:
        return int(models["main"].item_events[models["main"].item_ids.find(item)])

    found = client.get("/v1/items", params={"q": "HEART"}).json()
    assert {one["item"] for one in found["items"]} == {"i01", "i02"} and found["total"] == 2 and found["seconds"] >= 0
    white = {"item": "i01", "title": "White <b>heart</b>", "events": events("i01"), "fields": {"category": "Café", "price": "1.5"}}
    assert client.get("/v1/items", params={"q": "whi heart"}).json()["items"] == [white]
    assert client.get("/v1/items/i01").json() == white
    assert client.get("/v1/items/i02").json()["fields"] == {}
    assert client.get("/v1/items", params={"q": "eclair"}).json()["items"][0]["item"] == "i03"
    assert client.get("/v1/items", params={"q": "i07"}).json()["items"][0] == {"item": "i07", "title": None, "events": events("i07"), "fields": {}}


def test_without_words_the_most_frequent_items_come(client: httpx.Client) -> None:
    popular = [one["item"] for one in client.post("/v1/recommend", json={"k": 7}).json()["items"]]
    found = client.get("/v1/items", params={"limit": 7}).json()
    assert [one["item"] for one in found["items"]] == popular
    assert client.get("/v1/items?q=&limit=7").json()["items"] == found["items"]


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", "q=" + "a" * 201, "q=a&q=b", "x=1", "q=%ff"])
def test_a_search_that_makes_no_sense_is_refused(client: httpx.Client, query: str) -> None:
    assert client.get(f"/v1/items?{query}").status_code == 400


@pytest.mark.parametrize("item", ["unknown", "a/b", "\0", "i01/"])
def test_an_item_that_is_not_there(client: httpx.Client, item: str) -> None:
    assert client.get(f"/v1/items/{quote(item, safe='')}").status_code == 404


# -- attention ---------------------------------------------------------------------------------------------------------


@given(picks=st.lists(st.integers(1, 50), min_size=1, max_size=9), last=st.integers(1, 12), name=st.sampled_from(["main", "main-2"]))
def test_every_step_shows_what_explain_would_have_shown_then(client: httpx.Client, models: dict[str, Model], picks: list[int], last: int, name: str) -> None:
    model, history = models[name], [f"i{pick:02}" for pick in picks]
    assert isinstance(model, HCAGRU)
    known = [index for item in history if (index := model.item_ids.find(item)) >= 0]
    answer = client.post("/v1/attention", json={"history": history, "last": last, "model": name}).json()
    assert (answer["window_x"], answer["window_h"]) == model.windows
    assert [one["item"] for one in answer["steps"]] == [model.item_ids.text(index) for index in known][-last:]
    for end, step in zip(range(len(known), 0, -1), reversed(answer["steps"]), strict=False):
        a_x, a_h = attention(model, np.array(known[:end], np.int32))
        assert step["time"] is None
        assert (step["inputs"] is None) == (a_x is None)
        if a_x is not None:
            np.testing.assert_allclose(step["inputs"], a_x[-1], rtol=1e-9)
        np.testing.assert_allclose(step["hidden"], a_h, rtol=1e-9)


def test_a_user_s_steps_have_times_and_a_visit_s_have_none(client: httpx.Client) -> None:
    send(client, "looked at", "i01", "unknown", "i02")
    answer = client.post("/v1/attention", json={"user": "looked at", "visit": ["i03", "?"]}).json()
    assert [(one["item"], one["title"], one["time"]) for one in answer["steps"]] == [
        ("i01", "White <b>heart</b>", "2023-11-14T22:13:20.000000Z"),
        ("i02", "Red heart", "2023-11-14T22:13:22.000000Z"),
        ("i03", "Éclair", None),
    ]
    assert answer["model"] == client.get("/v1/models").json()["models"][0]["model"]


@pytest.mark.parametrize("name", ["gru", "bpr", "pop"])
def test_without_attention_the_steps_are_there_and_the_weights_are_not(client: httpx.Client, name: str) -> None:
    answer = client.post("/v1/attention", json={"history": ["i01", "i02"], "model": name}).json()
    assert (answer["window_x"], answer["window_h"]) == (1, 1)
    assert [(one["item"], one["inputs"], one["hidden"]) for one in answer["steps"]] == [("i01", None, None), ("i02", None, None)]


def test_nothing_known_has_no_steps(client: httpx.Client) -> None:
    for body in ({}, {"history": []}, {"history": ["?"]}, {"user": "a stranger"}):
        assert client.post("/v1/attention", json=body).json()["steps"] == []
    for body in ({"last": 0}, {"last": 1001}, {"user": "u", "history": []}, {"k": 1}):
        assert client.post("/v1/attention", json=body).status_code in (400, 422)


# -- removed events ----------------------------------------------------------------------------------------------------


@settings(max_examples=20)
@given(picks=st.lists(st.integers(1, 50), min_size=1, max_size=7), gone=st.integers(0, 6), name=st.sampled_from(["main", "gru"]), seen=st.booleans())
def test_after_a_removal_everything_is_as_without_the_event(
    client: httpx.Client, models: dict[str, Model], picks: list[int], gone: int, name: str, seen: bool
) -> None:
    user, history = "remover", [f"i{pick:02}" for pick in picks]
    gone %= len(history)
    send(client, user, *history)
    if seen:
        client.post("/v1/recommend", json={"user": user, "hide_seen": True})
    assert client.delete(f"/v1/users/{user}/events/1700000000-{gone}").json() == {"removed": 1}
    left = history[:gone] + history[gone + 1 :]
    answer = client.post("/v1/recommend", json={"user": user, "hide_seen": True, "model": name}).json()
    assert pairs(answer["items"]) == pairs(recommend(models[name], left, 20, hide_seen=True))
    assert [one["item"] for one in client.get(f"/v1/users/{user}").json().get("events", [])] == left
    assert client.delete(f"/v1/users/{user}/events/1700000000-{gone}").status_code == 404
    assert client.post("/v1/events", json={"user": user, "item": "i09", "event_id": f"1700000000-{gone}"}).json()["events"][0]["status"] == "applied"
    assert pairs(client.post("/v1/recommend", json={"user": user}).json()["items"]) == pairs(recommend(models["main"], [*left, "i09"], 20))
    assert client.delete(f"/v1/users/{user}").status_code == 200


IDS = ["a/events/b", "events", "a/b", "/", "%2F", "a b", "\0", "é", "..x", "?", "#"]


@pytest.mark.parametrize("user", IDS)
@pytest.mark.parametrize("event_id", IDS)
def test_ids_with_slashes_are_told_apart(client: httpx.Client, user: str, event_id: str) -> None:
    client.post("/v1/events", json=[{"user": user, "item": "i01", "event_id": event_id}, {"user": f"{user}/events/{event_id}", "item": "i02"}])
    path = f"/v1/users/{quote(user, safe='')}/events/{quote(event_id, safe='')}"
    assert client.delete(path).json() == {"removed": 1}
    assert client.delete(path).status_code == 404
    both = f"/v1/users/{quote(f'{user}/events/{event_id}', safe='')}"
    assert client.get(both).json()["user"] == f"{user}/events/{event_id}"
    assert client.delete(both).json() == {"forgotten": 1}


def test_a_removal_of_nothing(client: httpx.Client) -> None:
    for path in ("nobody/events/1", "nobody/events/%ff", f"nobody/events/{'x' * 513}", "nobody/events/"):
        assert client.delete(f"/v1/users/{path}").status_code in (400, 404, 422), path
    assert client.post("/v1/users/u/events/e").status_code == 405


# -- people ------------------------------------------------------------------------------------------------------------


def test_users_are_listed_by_the_beginning_of_their_ids(client: httpx.Client) -> None:
    for user in ("list", "list a", "list b", "lisu", "lis", "list é"):
        send(client, user, "i01", "i02")
    send(client, "list b", "i03", start=1_700_000_500)
    assert client.get("/v1/users", params={"q": "list"}).json() == {
        "users": [{"user": "list", "events": 2}, {"user": "list a", "events": 2}, {"user": "list b", "events": 3}, {"user": "list é", "events": 2}]
    }
    assert [one["user"] for one in client.get("/v1/users", params={"q": "list", "limit": 2}).json()["users"]] == ["list", "list a"]
    assert client.get("/v1/users", params={"q": "list é"}).json()["users"] == [{"user": "list é", "events": 2}]
    assert client.get("/v1/users", params={"q": "list c"}).json() == {"users": []}
    listed = [one["user"] for one in client.get("/v1/users", params={"limit": 1000}).json()["users"]]
    assert listed == sorted(listed, key=str.encode) and "lis" in listed
    assert client.get("/v1/users", params={"q": "é" * 300}).status_code == 422
    assert client.get("/v1/users", params={"q": "x" * 513}).status_code == 400


def test_each_key_opens_its_own(folders: dict[str, Path], tmp_path: Path) -> None:
    keys = {scope: make(tmp_path / "keys.json", scope) for scope in ("read", "write", "admin")}
    opens = {
        ("GET", "/v1/items"): "read",
        ("GET", "/v1/items/i01"): "read",
        ("GET", "/v1/models"): "read",
        ("GET", "/v1/status"): "read",
        ("POST", "/v1/attention"): "read",
        ("GET", "/v1/users"): "admin",
        ("DELETE", "/v1/users/u/events/e"): "write",
    }
    with Running(folders["main"], tmp_path / "s.sqlite", keys=tmp_path / "keys.json") as running, running.client() as client:
        for (method, path), needed in opens.items():
            body = {"json": {}} if method == "POST" else {}
            assert client.request(method, path, **body).status_code == 401
            for scope, key in keys.items():
                answer = client.request(method, path, headers={"Authorization": f"Bearer {key}"}, **body)
                assert (answer.status_code != 403) == (scope == needed), (method, path, scope)
        assert client.get("/").status_code == 200
