"""The service over HTTP: what each route does, and that it answers exactly what Python does."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from hcarec import HCAGRU, Sequences, load, recommend, synthetic
from hcarec.explanation import explain
from hcarec.models import Model
from http_server import Running

NOW = "2024-05-31T12:00:00Z"


@pytest.fixture(scope="module")
def data() -> Sequences:
    return synthetic(users=60, items=300, mean_length=12)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, data: Sequences) -> Path:
    """Return a folder with two models."""
    made = tmp_path_factory.mktemp("models")
    for seed in (1, 2):
        HCAGRU(preset="paper", d=8, window_x=3, window_h=2).fit(data, epochs=2, seed=seed).save(made / f"model-{seed}")
    return made


@pytest.fixture(scope="module")
def server(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    backups = tmp_path_factory.mktemp("backups")
    with Running(folder / "model-1", tmp_path_factory.mktemp("store") / "store.sqlite", backups=backups) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Running) -> Iterator[httpx.Client]:
    with server.client() as made:
        yield made


@pytest.fixture(scope="module")
def model(folder: Path) -> Model:
    return load(folder / "model-1")


@pytest.fixture(scope="module")
def items(model: Model) -> list[str]:
    return list(model.item_ids.texts())


def listed(found: list[Any]) -> list[dict[str, Any]]:
    """Write recommendations of Python as HTTP does."""
    return [{"item": str(one.item), "score": one.score, "basis": one.basis, "title": one.title} for one in found]


def send(client: httpx.Client, user: str, *items: str, start: int = 1_700_000_000) -> None:
    events = [{"user": user, "item": item, "time": start + n} for n, item in enumerate(items)]
    answer = client.post("/v1/events", json=events)
    assert answer.status_code == 200, answer.text


# -- events ------------------------------------------------------------------------------------------------------------


def test_one_event_a_list_or_an_object_with_a_list(client: httpx.Client, items: list[str]) -> None:
    event = {"user": "shapes", "item": items[0], "time": NOW}
    for body in (event, [event], {"events": [event, event]}):
        answer = client.post("/v1/events", json=body).json()
        assert [one["time"] for one in answer["events"]] == ["2024-05-31T12:00:00.000000Z"] * len(answer["events"])
    assert len(client.get("/v1/users/shapes").json()["events"]) == 4


def test_each_event_is_told_what_was_done_with_it(client: httpx.Client, items: list[str]) -> None:
    events = [
        {"user": "told", "item": items[0], "time": 1_700_000_000, "event_id": "a"},
        {"user": "told", "item": items[1], "time": 1_700_000_009.25},
        {"user": "told", "item": "never heard of", "time": "2023-11-14T22:13:35+00:00"},
        {"user": "told", "item": items[2], "time": "2023-11-14T23:13:22+01:00"},
        {"user": "told", "item": items[0], "time": 1_700_000_000, "event_id": "a"},
    ]
    told = [client.post("/v1/events", json=event).json()["events"][0] for event in events]
    assert [one["status"] for one in told] == ["applied", "applied", "unknown_item", "late", "duplicate"]
    assert told[1] == {"status": "applied", "time": "2023-11-14T22:13:29.250000Z", "time_corrected": False}
    kept = client.get("/v1/users/told").json()
    assert [one["item"] for one in kept["events"]] == [items[0], items[2], items[1], "never heard of"]
    assert kept["events"][0] == {"item": items[0], "time": "2023-11-14T22:13:20.000000Z", "event_id": "a"}


@pytest.mark.parametrize("when", ["2999-01-01T00:00:00Z", 915_148_800, "0001-01-01T00:00:00+23:59", -99_999_999_999, 99_999_999_999])
def test_an_impossible_time_is_replaced_by_the_time_of_arrival(client: httpx.Client, items: list[str], when: object) -> None:
    before = time.time()
    told = client.post("/v1/events", json={"user": f"clock {when}", "item": items[0], "time": when}).json()["events"][0]
    assert told["time_corrected"]
    assert told["time"][:4] == time.strftime("%Y", time.gmtime(before))


@pytest.mark.parametrize("when", ["2024-05-31T12:00:00", "yesterday", 1_700_000_000_000, True, None, 1e300, [], "2024-13-01T00:00:00Z"])
def test_a_time_that_is_none_is_refused(client: httpx.Client, items: list[str], when: object) -> None:
    answer = client.post("/v1/events", json={"user": "nobody", "item": items[0], "time": when})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_request")
    assert ("milliseconds" in answer.text) == (when in (1_700_000_000_000, 1e300) and when is not True)
    assert client.get("/v1/users/nobody").status_code == 404


def test_nothing_of_a_batch_with_a_mistake_is_stored(client: httpx.Client, items: list[str]) -> None:
    good = {"user": "half", "item": items[0], "time": NOW}
    for bad in ({"user": "half"}, {"user": "half", "item": "ü" * 400}, {**good, "extra": 1}, {"user": "", "item": "x"}):
        assert client.post("/v1/events", json=[good, bad]).status_code in (400, 422)
    assert client.get("/v1/users/half").status_code == 404


# -- recommendations ---------------------------------------------------------------------------------------------------


@given(picks=st.lists(st.integers(0, 299), max_size=12), k=st.integers(1, 40), hide_seen=st.booleans(), cut=st.integers(0, 12), data=st.data())
def test_http_answers_exactly_what_python_does(
    client: httpx.Client, model: Model, items: list[str], picks: list[int], k: int, hide_seen: bool, cut: int, data: st.DataObject
) -> None:
    history = [items[pick] for pick in picks]
    deny = data.draw(st.lists(st.sampled_from(items), max_size=5))
    allow = data.draw(st.none() | st.lists(st.sampled_from(items), max_size=50))
    rules: dict[str, Any] = {"hide_seen": hide_seen, "deny": deny, **({} if allow is None else {"allow": allow})}
    expected = listed(recommend(model, history, k, **rules))
    whole = client.post("/v1/recommend", json={"history": history, "k": k, **rules})
    assert whole.status_code == 200
    assert [one | {"basis": ""} for one in whole.json()["items"]] == [one | {"basis": ""} for one in expected]
    assert whole.json()["basis"] == ("personal" if history else "popular")
    parted = client.post("/v1/recommend", json={"history": history[:cut], "visit": history[cut:], "k": k, **rules}).json()
    assert [(one["item"], one["score"]) for one in parted["items"]] == [(one["item"], one["score"]) for one in expected]


def test_a_user_is_the_events_sent_and_each_counts_at_once(client: httpx.Client, model: Model, items: list[str]) -> None:
    sent: list[str] = []
    for n, item in enumerate(items[40:52]):
        send(client, "walker", item, start=1_700_000_000 + n)
        sent.append(item)
        answer = client.post("/v1/recommend", json={"user": "walker"}).json()
        assert answer["basis"] == "personal"
        assert not answer["degraded"]
        assert answer["items"] == listed(recommend(model, sent, 20))
    visited = client.post("/v1/recommend", json={"user": "walker", "visit": items[:3], "hide_seen": True, "k": 7}).json()
    assert visited["items"] == listed(recommend(model, [*sent, *items[:3]], 7, hide_seen=True))
    assert client.post("/v1/recommend", json={"user": "walker"}).json()["items"] == listed(recommend(model, sent, 20))  # the visit was not stored


def test_the_basis_of_an_answer(client: httpx.Client, model: Model, items: list[str]) -> None:
    assert client.post("/v1/recommend", json={"user": "a stranger"}).json()["basis"] == "popular"
    assert client.post("/v1/recommend", json={}).json()["items"] == listed(recommend(model, [], 20))
    visit = client.post("/v1/recommend", json={"user": "a stranger", "visit": [items[5], "unknown"]}).json()
    assert (visit["basis"], visit["skipped"]) == ("visit", ["unknown"])
    assert visit["model"] and set(visit["seconds"]) >= {"queue", "rank", "total"}


def test_lists_never_shorten_an_answer(client: httpx.Client, items: list[str]) -> None:
    for rules in ({"deny": items[:100]}, {"allow": items[::2]}, {"hide_seen": True}, {"variety": 0.9}):
        assert len(client.post("/v1/recommend", json={"history": items[:30], "k": 20, **rules}).json()["items"]) == 20


def test_an_answer_says_how_varied_it_is(client: httpx.Client, model: Model, items: list[str]) -> None:
    X = model.item_vectors.astype(np.float64)
    X /= np.linalg.norm(X, axis=1, keepdims=True)

    def ask(**rules: float) -> tuple[dict[str, Any], float]:
        answer = client.post("/v1/recommend", json={"history": items[:30], **rules}).json()
        own = X[[items.index(one["item"]) for one in answer["items"]]]
        return answer, 1 - float((own @ own.T)[np.triu_indices(len(own), 1)].max(initial=-1))

    without, plain = ask(k=20)
    assert "variety" not in without and "variety" not in ask(k=1, variety=0.5)[0]
    some, most = ask(k=5, variety=0.3), ask(k=20, variety=1.0)
    for answer, right in (some, most):
        assert answer["variety"] == pytest.approx(right, rel=1e-6)
    assert some[1] >= 0.3 and 2 * plain < most[1] < 1.0
    assert most[0]["items"] == sorted(most[0]["items"], key=lambda one: -one["score"])


def test_explain_says_what_python_says(client: httpx.Client, model: Model, items: list[str]) -> None:
    history = [*items[3:9], "unknown"]
    said = client.post("/v1/explain", json={"history": history, "item": items[77]})
    assert said.status_code == 200
    assert said.json() == json.loads(json.dumps(explain(model, history, items[77]).as_dict()))
    assert (
        client.post("/v1/explain", json={"history": history}).json()["item"]
        == client.post("/v1/recommend", json={"history": history}).json()["items"][0]["item"]
    )
    for question in ({"history": history, "item": "unknown"}, {"history": ["unknown"]}, {"user": "a stranger"}):
        assert client.post("/v1/explain", json=question).status_code == 422


def test_similar_items(client: httpx.Client, model: Model, items: list[str]) -> None:
    found = client.get(f"/v1/similar/{items[4]}", params={"k": 6}).json()["items"]
    assert found == listed(model.similar_items(items[4], 6))
    assert client.get("/v1/similar/unknown").status_code == 404
    for query in ("k=0", "k=1001", "k=x", "k=3&k=4", "q=3", "k", "k=%ff"):
        assert client.get(f"/v1/similar/{items[4]}?{query}").status_code == 400, query


# -- people ------------------------------------------------------------------------------------------------------------

TRICKS = [
    "a/b", "../../etc/passwd", "a b?c#d&e=f", "nul\0inside", "line\nbreak", "tab\t", "é", "e\u0301", "\u202egnp.exe", "😀" * 30,
    "%2F", "%", "+", "\ufeff", "\uffff", '"', "'; DROP TABLE users; --", "𝕦𝕤𝕖𝕣", "x" * 512,
]  # fmt: skip


@pytest.mark.parametrize("user", TRICKS)
def test_any_text_is_an_id_and_means_itself_alone(client: httpx.Client, items: list[str], user: str) -> None:
    from urllib.parse import quote

    path = f"/v1/users/{quote(user, safe='')}"
    send(client, user, items[0], items[1])
    read = client.get(path)
    assert read.status_code == 200
    assert read.json()["user"] == user
    assert len(read.json()["events"]) == 2
    assert client.delete(path).json() == {"forgotten": 2}
    assert client.get(path).status_code == 404
    assert client.delete(path).status_code == 404
    assert client.post("/v1/recommend", json={"user": user}).json()["basis"] == "popular"


def test_an_id_that_is_no_utf8_is_refused_and_not_replaced(client: httpx.Client, items: list[str]) -> None:
    send(client, "\ufffd", items[0])
    assert client.get("/v1/users/%ff").status_code == 400
    assert client.delete("/v1/users/%c3%28").status_code == 400
    assert client.get("/v1/users/%EF%BF%BD").status_code == 200


def test_the_history_is_read_back_from_its_end(client: httpx.Client, items: list[str]) -> None:
    send(client, "long", *items[:150])
    assert [one["item"] for one in client.get("/v1/users/long").json()["events"]] == items[50:150]
    assert [one["item"] for one in client.get("/v1/users/long?limit=3").json()["events"]] == items[147:150]


# -- running it --------------------------------------------------------------------------------------------------------


def test_a_model_is_swapped_by_name_and_a_bad_one_refused(client: httpx.Client, folder: Path, items: list[str]) -> None:
    send(client, "swapped", *items[:5])
    before = client.post("/v1/recommend", json={"user": "swapped"}).json()
    (folder / "broken").mkdir(exist_ok=True)
    for name in ("broken", "missing"):
        refused = client.post("/admin/model", json={"name": name})
        assert refused.status_code == 422
        assert str(folder) not in refused.text
    for name in ("../models", "/etc", "a/b", "..", ".", "", "model-2\n", "a\0b"):
        assert client.post("/admin/model", json={"name": name}).status_code == 400
    assert client.post("/v1/recommend", json={"user": "swapped"}).json()["items"] == before["items"]
    swapped = client.post("/admin/model", json={"name": "model-2"}).json()
    assert swapped["items"] == 300
    after = client.post("/v1/recommend", json={"user": "swapped"}).json()
    assert after["model"] == swapped["model"] != before["model"]
    assert after["items"] == listed(recommend(load(folder / "model-2"), items[:5], 20))
    assert client.post("/admin/model", json={"name": "model-1"}).json()["model"] == before["model"]
    assert client.post("/v1/recommend", json={"user": "swapped"}).json()["items"] == before["items"]


def test_a_backup_is_a_store(client: httpx.Client, server: Running, folder: Path, items: list[str], tmp_path: Path) -> None:
    send(client, "kept", *items[:4])
    assert client.post("/admin/backup", json={"name": "one.sqlite"}).json() == {"name": "one.sqlite"}
    assert client.post("/admin/backup", json={"name": "one.sqlite"}).status_code == 422
    assert server.site.backups is not None
    copy = tmp_path / "copy.sqlite"
    copy.write_bytes((server.site.backups / "one.sqlite").read_bytes())
    send(client, "kept", *items[4:6], start=1_800_000)
    with Running(folder / "model-1", copy) as other, other.client() as restored:
        assert [one["item"] for one in restored.get("/v1/users/kept").json()["events"]] == items[:4]


def test_health_readiness_and_figures(client: httpx.Client, items: list[str]) -> None:
    assert client.get("/healthz").json() == {"status": "ok"}
    assert client.get("/readyz").json()["status"] == "ready"
    send(client, "counted", items[0])
    client.post("/v1/recommend", json={"user": "counted"})
    deadline = time.monotonic() + 30
    while "hcarec_users " not in (text := client.get("/metrics").text):  # those of the store are taken now and then
        assert time.monotonic() < deadline
        time.sleep(0.05)
    for figure in (
        'hcarec_request_seconds_bucket{le="0.01",method="POST",route="/v1/events",status="200"}',
        'hcarec_events_taken_total{status="applied"}',
        'hcarec_recommendations_total{basis="personal",degraded="false"}',
        'hcarec_recommend_part_seconds_count{part="rank"}',
        "hcarec_requests_in_flight",
        "hcarec_users ",
        "hcarec_waiting_events ",
        "hcarec_batches_total ",
        'hcarec_title_info{title="HCA-GRU',
        "process_resident_memory_bytes",
    ):
        assert figure in text, figure
    assert "counted" not in text


def test_the_log_has_a_line_for_each_request_and_names_nobody(server: Running, client: httpx.Client, items: list[str]) -> None:
    client.post("/v1/recommend", json={"user": "a secret person", "visit": [items[7]]}, headers={"X-Request-Id": "mine-1"})
    client.get("/v1/users/a%20secret%20person", headers={"X-Request-Id": "mine-2"})
    answer = client.get("/nowhere/a%20secret%20person", headers={"X-Request-Id": "not fine;"})
    deadline = time.monotonic() + 10
    while b'"' + answer.headers["x-request-id"].encode() + b'"' not in server.written.getvalue() and time.monotonic() < deadline:
        time.sleep(0.01)
    lines = {line.get("id"): line for line in server.lines()}
    assert {key: lines["mine-1"][key] for key in ("what", "method", "route", "status")} == {
        "what": "request",
        "method": "POST",
        "route": "/v1/recommend",
        "status": 200,
    }
    assert lines["mine-2"]["route"] == "/v1/users/{user}"
    assert lines[answer.headers["x-request-id"]]["route"] == "other"
    assert b"secret" not in server.written.getvalue()


def test_a_request_leaves_nothing_behind_for_the_garbage_collector(client: httpx.Client) -> None:
    gc.collect()
    gc.disable()
    try:
        for _ in range(20):
            assert client.post("/v1/events", json={"user": "tidy", "item": "i01"}).status_code == 200
            assert client.post("/v1/recommend", json={"user": "tidy"}).status_code == 200
            assert client.post("/v1/recommend", json={"user": 1.5}).status_code == 400
            assert client.get("/healthz").status_code == 200
        left = sum(type(one) is RequestResponseCycle for one in gc.get_objects())
    finally:
        gc.enable()
    assert left < 10  # the last one of each connection
