"""A model that does not fit, ids that are numbers, and logs without a clock, over HTTP."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hcarec import GRU, Sequences, recommend
from hcarec.errors import DataError
from hcarec.ids import Ids
from http_server import Running


def shop(first: int, last: int, times: bool = False) -> Sequences:
    """Return two users, 7 and 11, over the items first..last, whose ids are numbers."""
    order = np.arange(last - first + 1, dtype=np.int32)
    when = 1_700_000_000 + np.arange(2 * len(order)) if times else None
    ids = Ids.of([7, 11]), Ids.of(range(first, last + 1))
    return Sequences(np.concatenate([order, order[::-1]]), np.array([0, len(order), 2 * len(order)]), *ids, when, "s" if times else None)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("shops")
    for name, data in {"own": shop(1, 30), "clock": shop(1, 30, times=True), "other": shop(25, 65), "wider": shop(1, 50)}.items():
        data.save(place / name)
        GRU(preset="paper", d=4).fit(data, epochs=1).save(place / f"{name}-model")
    return place


def test_data_that_the_model_does_not_know_is_refused_at_the_start(place: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"does not fit .*: 6 of 41 items known; .*--allow-mismatch"):
        Running(place / "own-model", tmp_path / "store.sqlite", data=place / "other").__enter__()
    assert not (tmp_path / "store.sqlite").exists()  # nothing was imported
    with Running(place / "own-model", tmp_path / "store.sqlite", data=place / "other", allow_mismatch=True) as server, server.client() as client:
        assert client.get("/readyz").json() == {"status": "ready", "catalog": {"known": 6, "items": 41}}


def test_a_model_of_another_shop_is_not_swapped_in(place: Path, tmp_path: Path) -> None:
    with Running(place / "own-model", tmp_path / "store.sqlite", data=place / "own") as server, server.client() as client:
        assert client.get("/readyz").json()["catalog"] == {"known": 30, "items": 30}
        before = client.get("/v1/models").json()["models"][0]["model"]
        refused = client.post("/admin/model", json={"name": "other-model"})
        assert refused.status_code == 422 and "6 of 30 items known" in refused.json()["error"]["message"]
        assert "allow_mismatch" in refused.json()["error"]["message"]
        assert client.get("/v1/models").json()["models"][0]["model"] == before
        assert client.post("/admin/model", json={"name": "wider-model"}).status_code == 200
        assert client.get("/readyz").json()["catalog"] == {"known": 30, "items": 30}
        assert client.post("/admin/model", json={"name": "other-model", "allow_mismatch": True}).status_code == 200
        assert client.get("/readyz").json()["catalog"] == {"known": 26, "items": 50}


def test_numbers_are_ids_and_come_back_as_numbers(place: Path, tmp_path: Path) -> None:
    with Running(place / "own-model", tmp_path / "store.sqlite") as server, server.client() as client:
        sent = [{"user": 5, "item": 3, "event_id": 1}, {"user": "5", "item": "4", "event_id": "2"}, {"user": 5, "item": 3, "event_id": "1"}]
        assert [one["status"] for one in client.post("/v1/events", json=sent).json()["events"]] == ["applied", "applied", "duplicate"]
        assert [one["item"] for one in client.get("/v1/users/5").json()["events"]] == [3, 4]
        model = server.site.service._live.serving.model
        expected = [{"item": one.item, "title": None, "score": one.score, "basis": one.basis} for one in recommend(model, [3, 4], 5)]
        for asked in ({"user": 5}, {"history": [3, 4]}, {"history": ["3", 4]}):
            assert client.post("/v1/recommend", json={**asked, "k": 5}).json()["items"] == expected
        only = client.post("/v1/recommend", json={"user": 5, "allow": [9, "12"], "deny": [12]}).json()["items"]
        assert [one["item"] for one in only] == [9]
        told = client.post("/v1/explain", json={"user": 5, "item": 9}).json()
        assert told["item"] == 9 and told["title"] is None and [one["item"] for one in told["events"]] == [3, 4]
        assert client.get("/v1/items/9").json()["item"] == 9
        for odd in (1.5, True, None, 2**63, [5]):
            assert client.post("/v1/recommend", json={"user": odd}).status_code == 400


def test_deleting_what_is_not_there(place: Path, tmp_path: Path) -> None:
    with Running(place / "own-model", tmp_path / "store.sqlite") as server, server.client() as client:
        assert client.delete("/v1/users/5/events/1").status_code == client.delete("/v1/users/5").status_code == 404
        client.post("/v1/events", json={"user": 5, "item": 3, "event_id": 1})
        assert client.delete("/v1/users/5/events/1").json() == {"removed": 1}
        assert client.delete("/v1/users/5/events/1").status_code == 404


@pytest.mark.parametrize(("name", "first"), [("own", None), ("clock", "2023-11-14T22:13:20.000000Z")])
def test_a_log_without_a_clock_shows_no_dates(place: Path, tmp_path: Path, name: str, first: str | None) -> None:
    with Running(place / f"{name}-model", tmp_path / "store.sqlite", data=place / name) as server, server.client() as client:
        assert client.get("/v1/users/7").json()["events"][0] == {"item": 1, "time": first}
        steps = client.post("/v1/attention", json={"user": 7}).json()["steps"]
        assert (steps[0]["time"] is None) == (first is None)
