"""Too much to do: what is let in is answered, the rest is refused at once, and nothing that holds a place keeps it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hcarec.serve.admission import HIGHER, JUDGED, LEAST, Admission
from hcarec.serve.app import SAFE_HEADERS
from hcarec.serve.keys import make
from hcarec.serve.limits import Limits
from http_server import Running, small_model
from raw_http import answers, connect, request

GUARDING = {name.decode(): value.decode() for name, value in SAFE_HEADERS}
EVENT = json.dumps({"user": "someone", "item": "i01"}).encode()


# -- the limit ---------------------------------------------------------------------------------------------------------


class Clock:
    """Lets requests end, a second's worth at a time."""

    def __init__(self, most: int = 100) -> None:
        self.admission, self.now = Admission(most, slow_s=0.02), time.monotonic()

    def answer(self, *seconds: float) -> int:
        """End requests that took so long; return the limit after them."""
        self.now += 1.0
        for one in seconds:
            assert self.admission.enter()
            self.admission.leave(one, self.now)
        return self.admission.limit


def test_the_limit_falls_while_most_are_slow_and_rises_when_they_are_not() -> None:
    clock = Clock()
    assert clock.answer(*[0.001] * JUDGED) == 100
    assert clock.answer(*[0.03] * JUDGED) == 90
    assert clock.answer(*[0.03] * JUDGED) == 81
    for _ in range(40):
        clock.answer(*[0.03] * JUDGED)
    assert clock.admission.limit == LEAST
    assert clock.answer(*[0.019] * JUDGED) == LEAST + HIGHER
    for _ in range(40):
        clock.answer(*[0.001] * JUDGED)
    assert clock.admission.limit == 100


def test_a_few_slow_requests_change_nothing() -> None:
    clock = Clock()
    assert clock.answer(*[9.0] * (JUDGED // 2 - 1), *[0.001] * JUDGED) == 100
    assert Clock().answer(*[9.0] * (JUDGED - 1)) == 100  # so few that they say nothing


def test_there_is_room_up_to_the_limit() -> None:
    admission = Admission(3, slow_s=1.0)
    assert [admission.enter() for _ in range(5)] == [True, True, True, False, False]
    admission.leave(0.1)
    assert admission.enter()
    assert (admission.under_way, admission.limit) == (3, 3)  # which may be less than what is always let in


# -- over the wire -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("models"))


@pytest.fixture
def server(folder: Path, tmp_path: Path) -> Iterator[Running]:
    with Running(folder / "model", tmp_path / "store.sqlite", limits=Limits(rate=0, in_flight=2)) as running:
        yield running


def under_way(server: Running) -> int:
    return server.site.asks.under_way + server.site.events.under_way


def test_what_is_refused_is_answered_in_its_turn_and_the_connection_goes_on(server: Running) -> None:
    server.site.asks.under_way = server.site.events.under_way = 2
    with connect(server) as connection:
        connection.sendall(request("/v1/events", EVENT) + request("/healthz") + request("/v1/recommend", b"{}") + request("/healthz"))
        found = answers(connection, 4)
        assert [status for status, _, _ in found] == [503, 200, 503, 200]
        refused = found[0]
        assert json.loads(refused[2])["error"]["code"] == "overloaded"
        assert refused[1]["retry-after"] == "1"
        assert refused[1]["x-content-type-options"] == "nosniff" and refused[1]["cache-control"] == "no-store"
        server.site.asks.under_way = server.site.events.under_way = 0
        connection.sendall(request("/v1/events", EVENT))
        assert answers(connection, 1)[0][0] == 200
    assert server.site.recent.refused == 2
    with server.client() as client:
        assert 'hcarec_refusals_total{code="overloaded"} 2.0' in client.get("/metrics").text
    assert under_way(server) == 0
    deadline = time.monotonic() + 10
    while not (told := [line for line in server.lines() if line["what"] == "overloaded"]):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert told[0]["refused"] == 1  # the next line would count the second one


def test_a_refusal_closes_the_connection_of_who_wants_that(server: Running) -> None:
    server.site.events.under_way = 2
    with connect(server) as connection:
        connection.sendall(request("/v1/events", EVENT, "Connection: close"))
        ((status, headers, _),) = answers(connection, 1)
        assert (status, headers["connection"]) == (503, "close")
        assert connection.recv(1) == b""


def test_a_refusal_carries_what_every_answer_does(server: Running) -> None:
    server.site.events.under_way = 2
    with connect(server) as connection:
        for sent in (request("/v1/events", EVENT), request("/v1/events", EVENT), request("/v1/events", EVENT, "X-Request-Id: mine")):
            connection.sendall(sent)
            ((status, headers, _),) = answers(connection, 1)
            assert status == 503
            assert headers.items() >= GUARDING.items()
            assert (headers["x-request-id"] == "mine") == (b"mine" in sent)
    with connect(server) as connection:
        connection.sendall(b"no HTTP at all\r\n\r\n")
        ((status, headers, _),) = answers(connection, 1)
        assert status == 400
        assert headers.items() >= GUARDING.items()
        assert headers["x-request-id"]


def test_only_whole_requests_take_a_place(server: Running) -> None:
    whole = request("/v1/events", EVENT)
    with connect(server) as first, connect(server) as second, connect(server) as third:
        for slow in (first, second, third):
            slow.sendall(whole[:-5])
        with connect(server) as other:
            other.sendall(whole)
            assert answers(other, 1)[0][0] == 200
        assert under_way(server) == 0
        for slow in (first, second, third):
            slow.sendall(whole[-5:])
            assert answers(slow, 1)[0][0] == 200
    assert under_way(server) == 0


def test_events_have_places_of_their_own(server: Running) -> None:
    server.site.asks.under_way = 2
    with server.client() as client:
        assert client.post("/v1/recommend", json={}).status_code == 503
        assert client.get("/v1/users/someone").status_code == 503
        assert client.post("/v1/events", json={"user": "someone", "item": "i01"}).status_code == 200
        server.site.asks.under_way, server.site.events.under_way = 0, 2
        assert client.post("/v1/recommend", json={}).status_code == 200
        assert client.post("/v1/events", json={"user": "someone", "item": "i01"}).status_code == 503
        assert 'hcarec_requests_in_flight{kind="events"} 2.0' in client.get("/metrics").text


def test_every_place_is_given_back(folder: Path, tmp_path: Path) -> None:
    key = make(tmp_path / "keys.json", "read")
    with Running(folder / "model", tmp_path / "store.sqlite", keys=tmp_path / "keys.json", limits=Limits(rate=0, in_flight=2)) as server:
        for _ in range(3):
            with server.client(key) as client:
                assert client.post("/v1/events", json={"user": "a", "item": "b"}).status_code == 403
                assert client.post("/v1/recommend", content=b"{").status_code == 415
                assert client.post("/v1/recommend", content=b"{", headers={"Content-Type": "application/json"}).status_code == 400
                assert client.post("/v1/recommend?x=%2F", json={}).status_code == 200
                assert client.post("/v1/r%65commend", json={}).status_code in (200, 404)
                assert client.get("/v1/recommend").status_code == 405
            with server.client() as client:
                assert client.post("/v1/recommend", json={}).status_code == 401
            with connect(server) as gone:
                gone.sendall(request("/v1/recommend", b"{}", f"Authorization: Bearer {key}"))
        deadline = time.monotonic() + 10
        while under_way(server) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert under_way(server) == 0
