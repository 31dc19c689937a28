"""Events by the short way: the same answers as by the long one, whatever is sent and in whatever pieces; and heads are remembered only where that is right."""

from __future__ import annotations

import itertools
import json
import random
import re
import socket
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hcarec.serve.heads import LONGEST, MOST_KNOWN, Heads
from hcarec.serve.keys import make
from hcarec.serve.limits import Limits
from http_server import Running
from raw_http import Answer, ask, ask_alone, connect, read, request
from short_way import folder, server, short, until

__all__ = ["folder", "server", "short"]
LONG_WAY = "X-Request-Id: "
"""A header by which a head is not remembered."""
BODIES = (
    b'{"user":"u","item":"i01"}',
    b'{"user":"u","item":"nothing known"}',
    b'{"user":"u","item":"i01","time":946684800,"event_id":"same"}',
    b'{"events":[{"user":"u","item":"i02","time":1}, {"user":"v","item":"i03","time":"2021-01-01T00:00:00Z"}]}',
    b'[{"user":"u","item":"i02","event_id":"a"}, {"user":"u","item":"i02","event_id":"a"}]',
    b'{"user":"u"}',
    b'{"user":"u","item":"i01","more":1}',
    b'{"user":"u","item":""}',
    b'{"user":"\\ud800","item":"i01"}',
    b'{"user":"' + b"\xc3\xa4" * 300 + b'","item":"i01"}',
    b'{"user":"u","item":"i01","time":99999999999999}',
    b'{"user":"\xff","item":"i01"}',
    b"[" * 5000,
    b"{",
    b"[]",
    b"null",
    b"",
)


def without_moment(answer: Answer) -> tuple[int, dict[str, str], Any]:
    """Return an answer without what is different each time: its time and its name."""
    status, headers, body = answer
    return status, headers | dict.fromkeys(("date", "x-request-id"), ""), json.loads(re.sub(rb'"time":"2[^"]*"', b'"time":0', body))


# -- answers -----------------------------------------------------------------------------------------------------------


def test_the_second_request_with_a_head_goes_the_short_way_on_any_connection(server: Running, short: list[bytes]) -> None:
    first, second, longer = (json.dumps({"user": user, "item": "i01"}).encode() for user in ("a", "b", "longer"))
    with connect(server) as one, connect(server) as other:
        assert ask(one, request("/v1/events", first))[0] == 200
        assert short == []
        assert ask(other, request("/v1/events", second))[0] == 200
        assert ask(one, request("/v1/events", longer))[0] == 200
        assert ask(one, request("/v1/events", first))[0] == 200
    assert short == [second, first]
    with server.client() as client:
        assert len(client.get("/v1/users/a").json()["events"]) == 2
        assert 'hcarec_events_taken_total{status="applied"} 4.0' in client.get("/metrics").text
        assert 'hcarec_request_seconds_count{method="POST",route="/v1/events",status="200"} 4.0' in client.get("/metrics").text
    until(lambda: len({line["id"] for line in server.lines() if line["what"] == "request" and line["route"] == "/v1/events"}) == 4)


@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
def test_both_ways_give_the_same_answer(folder: Path, tmp_path: Path, short: list[bytes], body: bytes) -> None:
    found = []
    for way in ("long", "short"):
        with Running(folder / "model", tmp_path / f"{way}.sqlite") as server, connect(server) as connection:
            if way == "short":  # a head of the same length, for the way to be known
                ask(connection, request("/v1/events", b" " * len(body)))
            more = [] if way == "short" else [f"{LONG_WAY}n"]
            found.append(without_moment(ask(connection, request("/v1/events", body, *more))))
    assert found[0] == found[1]
    assert short == [body]


def test_answers_come_in_order_in_whatever_pieces_the_requests_do(server: Running, short: list[bytes]) -> None:
    rng, n = random.Random(3), 60
    sent, expected = [], []
    for at in range(n):
        good = rng.random() < 0.7
        body = json.dumps({"user": f"u{at % 7}", "item": "i01", "event_id": f"{at:03d}"} if good else {"user": f"u{at % 7}", "wrong": f"{at:024d}"})
        kind = rng.choice(("/v1/events", "/v1/events", "/v1/events", "/healthz", "/v1/recommend"))
        sent.append(request(kind, None if kind == "/healthz" else b"{}" if kind == "/v1/recommend" else body.encode()))
        expected.append(200 if good or kind != "/v1/events" else 400)
    ends = [sum(map(len, sent[: k + 1])) for k in range(n)]
    for _ in range(4):
        with connect(server) as connection:
            whole, at, heard = b"".join(sent), 0, list[Answer]()
            reader = threading.Thread(target=_hear, args=(connection, n, heard))
            reader.start()
            while at < len(whole):
                if at in ends and rng.random() < 0.5:  # one who waits for its answers
                    until(partial(_has, heard, ends.index(at) + 1))
                end = rng.choice([next(one for one in ends if one > at), at + rng.randint(1, 400)])
                connection.sendall(whole[at:end])
                at = end
            reader.join(30)
        assert [status for status, _, _ in heard] == expected
    assert short


def _has(heard: list[Answer], n: int) -> bool:
    return len(heard) == n


def _hear(connection: socket.socket, n: int, heard: list[Answer]) -> None:
    for one in itertools.islice(read(connection), n):
        heard.append(one)


# -- who may, and how much ---------------------------------------------------------------------------------------------


def test_a_key_that_is_revoked_and_one_that_may_not_are_refused(folder: Path, tmp_path: Path, short: list[bytes]) -> None:
    keys = tmp_path / "keys.json"
    writes, reads = make(keys, "write"), make(keys, "read")
    event = request("/v1/events", BODIES[0], f"Authorization: Bearer {writes}")
    with Running(folder / "model", tmp_path / "store.sqlite", keys=keys) as server:
        assert [ask_alone(server, event)[0] for _ in range(3)] == [200] * 3
        for _ in range(2):
            assert ask_alone(server, request("/v1/events", BODIES[0], f"Authorization: Bearer {reads}"))[0] == 403
            assert ask_alone(server, request("/v1/events", BODIES[0], "Authorization: Bearer wrong"))[0] == 401
        assert len(short) == 4
        kept = json.loads(keys.read_text())["keys"][1:]
        keys.write_text(json.dumps({"keys": kept}))
        until(lambda: ask_alone(server, event)[0] == 401)
        assert ask_alone(server, event)[1]["www-authenticate"] == "Bearer"
    assert len(short) > 5


def test_another_host_is_refused_each_time(server: Running, short: list[bytes]) -> None:
    foreign = request("/v1/events", BODIES[0]).replace(b"127.0.0.1", b"shop.test")
    assert [ask_alone(server, foreign)[0] for _ in range(3)] == [403] * 3
    assert len(short) == 2


def test_a_rate_counts_on_both_ways(folder: Path, tmp_path: Path, short: list[bytes]) -> None:
    with Running(folder / "model", tmp_path / "store.sqlite", limits=Limits(rate=1)) as server:
        found = [ask_alone(server, request("/v1/events", BODIES[0])) for _ in range(40)]
    assert found[0][0] == 200
    refused = [headers for status, headers, _ in found if status == 429]
    assert refused and int(refused[0]["retry-after"]) >= 1
    assert len(short) == 39


def test_what_there_is_no_room_for_is_refused_and_the_connection_goes_on(server: Running, short: list[bytes]) -> None:
    with connect(server) as connection:
        whole = request("/v1/events", BODIES[0])
        assert ask(connection, whole)[0] == 200
        server.site.events.under_way = server.site.limits.in_flight
        status, headers, body = ask(connection, whole)
        assert (status, headers["retry-after"], json.loads(body)["error"]["code"]) == (503, "1", "overloaded")
        assert headers["x-content-type-options"] == "nosniff" and headers["cache-control"] == "no-store"
        server.site.events.under_way = 0
        assert ask(connection, whole)[0] == 200
    assert len(short) == 2
    assert (server.site.recent.refused, server.site.events.under_way) == (1, 0)


# -- what is remembered ------------------------------------------------------------------------------------------------


def scope(whole: bytes, **changed: Any) -> dict[str, Any]:
    """Return the scope of a request, which is plain."""
    lines = whole.partition(b"\r\n\r\n")[0].split(b"\r\n")[1:]
    headers = [(name.lower(), value) for name, _, value in (line.partition(b": ") for line in lines)]
    return {"method": "POST", "http_version": "1.1", "headers": headers, "client": ("127.0.0.1", 1), **changed}


def test_a_head_is_found_by_its_bytes_with_a_body_of_its_length() -> None:
    heads, whole = Heads(), request("/v1/events", b"12345")
    heads.learn(whole, scope(whole), "more")
    found = heads.find(whole[:-5] + b"67890")
    assert found is not None
    known, body = found
    assert (known.more, known.scope["method"], body) == ("more", "POST", b"67890")
    assert "client" not in known.scope
    for other in (whole[:-1], whole + b"6", whole.replace(b"POST", b"PoST"), whole[:20], b"", whole[1:], b"\r\n" + whole):
        assert heads.find(other) is None


@pytest.mark.parametrize(
    "line",
    ["Connection: close", "Connection: Upgrade", "Expect: 100-continue", "Transfer-Encoding: chunked", "Upgrade: h2c", "X-Request-Id: a", "Content-Length: 5"],
)
def test_what_concerns_the_connection_or_changes_each_time_is_not_remembered(line: str) -> None:
    heads, whole = Heads(), request("/v1/events", b"12345", line)
    heads.learn(whole, scope(whole))
    assert len(heads) == 0


def test_only_whole_plain_requests_are_remembered_and_not_too_many() -> None:
    heads, whole, kept = Heads(), request("/v1/events", b"12345"), request("/v1/events", b"12345", "Connection: keep-alive")
    heads.learn(whole, scope(whole, method="GET"))
    heads.learn(whole, scope(whole, http_version="1.0"))
    heads.learn(whole + whole, scope(whole))
    heads.learn(whole[:-1], scope(whole))
    heads.learn(long := request("/v1/events", b"12345", f"A: {LONGEST * 'a'}"), scope(long))
    heads.learn(odd := whole.replace(b"Length: 5", b"Length: +5"), scope(odd))
    assert len(heads) == 0
    heads.learn(kept, scope(kept))
    assert heads.find(kept) is not None
    for n in range(MOST_KNOWN):
        heads.learn(one := request("/v1/events", b"12345", f"A: {n}"), scope(one))
        assert len(heads) <= MOST_KNOWN
    assert heads.find(one) is not None and heads.find(kept) is None
