"""Nobody holds the server up: what is too large, too deep, too slow, too much or no HTTP at all is refused."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from hcarec.errors import ConfigError
from hcarec.serve.keys import make
from hcarec.serve.limits import MOST_CALLERS, Limits, Rates
from http_server import Running, problem, small_model

EVENT = {"user": "someone", "item": "i01"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def server(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Run a server with little patience."""
    limits = Limits(body_bytes=4096, header_bytes=8192, rate=0, receive_seconds=0.3, send_seconds=0.3, connections=20)
    with Running(folder / "model", tmp_path_factory.mktemp("store") / "store.sqlite", limits=limits) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Running) -> Iterator[httpx.Client]:
    with server.client() as made:
        yield made


# -- hostile bodies ----------------------------------------------------------------------------------------------------

BAD_BODIES: dict[str, bytes] = {
    "empty": b"",
    "blank": b"   ",
    "truncated": b'{"user": "a", "item',
    "deep list": b"[" * 4000,
    "deep object": b'{"a":' * 800,
    "deep field": b'{"user":' + b"[" * 4000,
    "not utf-8": b'{"user": "\xff", "item": "b"}',
    "utf-8 surrogate": b'{"user": "\xed\xa0\x80", "item": "b"}',
    "overlong utf-8": b'{"user": "\xc0\x80", "item": "b"}',
    "utf-16": '{"user": "a", "item": "b"}'.encode("utf-16"),
    "byte order mark": b'\xef\xbb\xbf{"user": "a", "item": "b"}',
    "lone surrogate": b'{"user": "\\ud800", "item": "b"}',
    "raw NUL": b'{"user": "a\x00", "item": "b"}',
    "raw newline": b'{"user": "a\n", "item": "b"}',
    "trailing": b'{"user": "a", "item": "b"} {}',
    "two events": b'{"user": "a", "item": "b"}\n{"user": "a", "item": "b"}',
    "NaN": b'{"user": "a", "item": "b", "time": NaN}',
    "infinity": b'{"user": "a", "item": "b", "time": 1e999}',
    "huge number": b'{"user": "a", "item": "b", "time": ' + b"9" * 3000 + b"}",
    "fraction as id": b'{"user": 1.5, "item": "b"}',
    "null": b"null",
    "text": b'"user"',
    "unknown field": b'{"user": "a", "item": "b", "admin": true}',
    "unknown field, long": b'{"user": "a", "item": "b", "' + b"x" * 3000 + b'": true}',
    "no events": b'{"events": []}',
    "mixed": b'{"events": [{"user": "a", "item": "b"}], "user": "a"}',
    "long id": b'{"user": "' + b"x" * 513 + b'", "item": "b"}',
    "form": b"user=a&item=b",
    "xml": b'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><a>&b;</a>',
}


@pytest.mark.parametrize("name", BAD_BODIES)
@pytest.mark.parametrize("path", ["/v1/events", "/v1/recommend", "/v1/explain", "/admin/model"])
def test_a_body_that_is_not_expected_is_refused(client: httpx.Client, path: str, name: str) -> None:
    answer = client.post(path, content=BAD_BODIES[name], headers={"Content-Type": "application/json"})
    assert problem(answer) == (400, "bad_request")
    assert len(answer.content) < 1000


def test_too_many_of_anything_is_refused(folder: Path, tmp_path: Path) -> None:
    with Running(folder / "model", tmp_path / "store.sqlite") as running, running.client() as client:
        for path, body in (
            ("/v1/events", [EVENT] * 1001),
            ("/v1/recommend", {"k": 1001}),
            ("/v1/recommend", {"k": 0}),
            ("/v1/recommend", {"k": -1}),
            ("/v1/recommend", {"k": 2.5}),
            ("/v1/recommend", {"k": 2**70}),
            ("/v1/recommend", {"history": ["i01"] * 2001}),
            ("/v1/recommend", {"visit": ["i01"] * 2001}),
            ("/v1/recommend", {"allow": ["i01"] * 10_001}),
            ("/v1/recommend", {"deny": ["i01"] * 10_001}),
            ("/v1/recommend", {"variety": 1.1}),
            ("/v1/recommend", {"user": None}),
        ):
            assert problem(client.post(path, json=body)) == (400, "bad_request"), path
        assert client.post("/v1/events", json=[EVENT] * 1000).status_code == 200
        assert len(client.post("/v1/recommend", json={"k": 1000, "history": ["i01"] * 2000}).json()["items"]) == 40
        assert problem(client.post("/v1/recommend", json={"user": "a", "history": []})) == (422, "refused")
        assert problem(client.post("/v1/recommend", json={"user": "ü" * 300})) == (422, "refused")
        assert problem(client.get("/v1/users/" + "%C3%BC" * 300)) == (422, "refused")
        assert problem(client.get("/v1/users/" + "x" * 513)) == (400, "bad_request")


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded", "application/jsonp", "multipart/form-data; boundary=x"])
def test_only_json_is_read(client: httpx.Client, kind: str | None) -> None:
    headers = {} if kind is None else {"Content-Type": kind}
    assert problem(client.post("/v1/events", content=json.dumps(EVENT).encode(), headers=headers)) == (415, "unsupported_media_type")
    assert client.post("/v1/recommend", content=b"{}", headers={"Content-Type": "Application/JSON; charset=utf-8"}).status_code == 200


# -- limits ------------------------------------------------------------------------------------------------------------


@contextmanager
def raw(server: Running) -> Iterator[socket.socket]:
    """Open a connection to speak by hand."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as made:
        yield made


def spoken(connection: socket.socket) -> bytes:
    """Read until the server closes."""
    parts = []
    try:
        while part := connection.recv(65536):
            parts.append(part)
    except ConnectionResetError:  # closed while we were still sending
        pass
    return b"".join(parts)


HEAD = b"POST /v1/recommend HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def test_a_body_that_is_too_large_is_refused_before_it_is_read(server: Running) -> None:
    with raw(server) as connection:
        connection.sendall(HEAD + b"Content-Length: 100000000000\r\n\r\n")
        answer = spoken(connection)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"connection: close" in answer
    with raw(server) as connection:
        connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"1000\r\n" + b" " * 4096 + b"\r\n1\r\n \r\n")
        assert spoken(connection).startswith(b"HTTP/1.1 413 ")


def test_who_may_not_ask_is_answered_before_the_body(server: Running) -> None:
    with raw(server) as connection:
        connection.sendall(HEAD.replace(b"localhost", b"elsewhere") + b"Content-Length: 1000\r\n\r\n")
        answer = spoken(connection)
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert b"connection: close" in answer


@pytest.mark.parametrize(
    "flood",
    [b"".join(b"X-%d: %s\r\n" % (n, b"y" * 100) for n in range(100)), b"X: " + b"y" * 9000 + b"\r\n"],
    ids=["many", "long"],
)
def test_headers_that_are_too_large_are_refused(server: Running, flood: bytes) -> None:
    with raw(server) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + flood + b"\r\n")
        assert spoken(connection).startswith(b"HTTP/1.1 431 ")
    for begin in (b"GET /healthz HTTP/1.1\r\n", b"GET /healthz?"):
        with raw(server) as connection:
            with suppress(ConnectionError):
                connection.sendall(begin)
                for _ in range(200):  # never ending
                    connection.sendall(flood)
            assert spoken(connection)[:12] in (b"HTTP/1.1 431", b"HTTP/1.1 400")  # too large, or no address any more


NO_HTTP = {
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00",
    "no path": b"GET\r\n\r\n",
    "no such version": b"GET / HTTP/9.9\r\n\r\n",
    "zeros": b"\x00" * 100,
    "negative length": HEAD + b"Content-Length: -1\r\n\r\n",
    "two lengths": HEAD + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /healthz HTTP/1.1\r\n\r\n",
}


@pytest.mark.parametrize("sent", NO_HTTP.values(), ids=NO_HTTP)
def test_what_is_no_http_is_refused(server: Running, sent: bytes) -> None:
    with raw(server) as connection:
        connection.sendall(sent)
        answer = spoken(connection)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "bad_request"
    assert answer.count(b"HTTP/1.1 ") == 1


def test_slow_callers_are_let_go(server: Running) -> None:
    with raw(server) as connection:
        assert spoken(connection) == b""  # said nothing
    with raw(server) as connection:
        connection.sendall(b"GET /healthz HT")
        assert spoken(connection).startswith(b"HTTP/1.1 408 ")
    with raw(server) as connection:
        connection.sendall(HEAD + b"X-Request-Id: slow-1\r\nContent-Length: 2\r\n\r\n{")
        answer = spoken(connection)
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"\r\nx-request-id: slow-1\r\n" in answer  # by which the log knows it as well
    with raw(server) as connection:  # a line break between requests does not stop the clock
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = b""
        while not answer.endswith(b'{"status":"ok"}'):
            answer += connection.recv(65536)
        connection.sendall(b"\r\n")
        assert spoken(connection) == b""


def test_who_does_not_read_is_let_go(server: Running) -> None:
    before = len(server._server.server_state.connections)
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", server.port))
        connection.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 400)
        deadline = time.monotonic() + 30
        while len(server._server.server_state.connections) == before and time.monotonic() < deadline:
            time.sleep(0.01)
        while len(server._server.server_state.connections) > before:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_there_are_only_so_many_connections(server: Running) -> None:
    opened = []
    try:
        for _ in range(40):
            opened.append(socket.create_connection(("127.0.0.1", server.port), timeout=20))
        answer = spoken(opened[-1])
    finally:
        for one in opened:
            one.close()
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"retry-after: 1" in answer
    deadline = time.monotonic() + 10
    while True:  # and room again when they have gone
        with server.client() as client:
            try:
                if client.get("/healthz").status_code == 200:
                    break
            except httpx.TransportError:
                pass
        assert time.monotonic() < deadline


def test_there_are_only_so_many_requests_at_once(server: Running, client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server.site.asks, "under_way", server.site.limits.in_flight)
    answer = client.post("/v1/recommend", json={})
    assert problem(answer) == (503, "overloaded")
    assert answer.headers["retry-after"] == "1"
    assert client.get("/healthz").status_code == client.get("/metrics").status_code == 200
    monkeypatch.setattr(server.site.asks, "under_way", 0)
    assert client.post("/v1/recommend", json={}).status_code == 200


def test_one_caller_may_ask_only_so_often(folder: Path, tmp_path: Path) -> None:
    keys = [make(tmp_path / "keys.json", "read") for _ in range(2)]
    with Running(folder / "model", tmp_path / "store.sqlite", keys=tmp_path / "keys.json", limits=Limits(rate=3)) as running:
        with running.client(keys[0]) as client:
            answers = [client.post("/v1/recommend", json={}) for _ in range(10)]
            assert answers[0].status_code == 200
            refused = [answer for answer in answers if answer.status_code != 200]
            assert refused and {problem(answer) for answer in refused} == {(429, "too_many_requests")}
            assert all(answer.headers["retry-after"] == "1" for answer in refused)
            assert client.get("/healthz").status_code == 200
        with running.client(keys[1]) as other:
            assert other.post("/v1/recommend", json={}).status_code == 200
        with running.client("hcarec_a_guess") as guessing:
            assert {guessing.post("/v1/recommend", json={}).status_code for _ in range(10)} == {401, 429}


def test_tokens_come_back_at_the_rate() -> None:
    rates = Rates(10)
    assert [rates.wait("a", 100.0) for _ in range(10)] == [0.0] * 10
    assert rates.wait("a", 100.0) == pytest.approx(0.1)
    assert rates.wait("b", 100.0) == 0.0
    assert rates.wait("a", 100.15) == 0.0
    assert rates.wait("a", 100.15) == pytest.approx(0.05)
    assert sum(rates.wait("a", 200.0) == 0.0 for _ in range(50)) == 10
    for n in range(MOST_CALLERS + 10):
        rates.wait(f"caller {n}", 300.0)
    assert len(rates._buckets) == MOST_CALLERS
    assert Rates(0).wait("a") == 0.0


@pytest.mark.parametrize("path", ["/admin/model", "/admin/backup"])
def test_a_bad_name_is_refused_in_words(server: Running, path: str) -> None:
    with server.client() as client:
        for name in ("../etc", "-x", "a b", "\u00fc", "a\n"):
            answer = client.post(path, json={"name": name})
            assert problem(answer) == (400, "bad_request")
            said = answer.json()["error"]["message"]
            assert "of letters (a to z, A to Z), digits, `.`, `_` and `-`, the first of them neither `.` nor `-` - at `$.name`" in said
            assert "regex" not in said
        written = client.get("/openapi.json").json()["components"]["schemas"]["Named"]["properties"]["name"]
        assert re.search(written["pattern"], "model-2.b") and not re.search(written["pattern"], "../etc")


@pytest.mark.parametrize("wrong", [{"rate": -1}, {"body_bytes": 0}, {"in_flight": float("inf")}, {"connections": "many"}, {"idle_seconds": True}])
def test_limits_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Limits(**wrong)
