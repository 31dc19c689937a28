"""Events by the short way when something goes wrong: clients that leave, stores that stand still, servers that stop, bytes that are no request."""

from __future__ import annotations

import gc
import json
import threading
import time
from pathlib import Path

import pytest

from hcarec.serve import short_way
from hcarec.serve.protocol import GuardedProtocol
from http_server import Running
from raw_http import answers, ask, ask_alone, connect, request
from short_way import EVENT, Standing, folder, server, short, standing, until

__all__ = ["folder", "server", "short", "standing"]
WHOLE = request("/v1/events", EVENT)


def test_who_leaves_early_has_the_event_stored_and_keeps_no_place(server: Running, short: list[bytes]) -> None:
    ask_alone(server, WHOLE)
    for _ in range(20):
        with connect(server) as connection:
            connection.sendall(WHOLE)
    with server.client() as client:
        until(lambda: len(client.get("/v1/users/u").json()["events"]) == 21)
    until(lambda: server.site.events.under_way == 0)
    assert len(short) == 20


def test_a_store_that_stands_still_is_waited_for_as_long_as_on_the_long_way(folder: Path, tmp_path: Path, standing: Standing, short: list[bytes]) -> None:
    with Running(folder / "model", tmp_path / "store.sqlite", store_apart=False, take_wait_s=0.3) as server, connect(server) as connection:
        assert ask(connection, WHOLE)[0] == 200
        for _ in range(2):
            standing.still()
            status, headers, body = ask(connection, WHOLE)
            assert (status, json.loads(body)["error"]["code"], headers["retry-after"]) == (503, "store_unavailable", "1")
            standing.go_on()
            until(lambda: ask_alone(server, WHOLE)[0] == 200)
        assert ask(connection, WHOLE)[0] == 200
        assert server.site.events.under_way == 0
    assert len(short) > 4


def test_what_is_no_request_after_one_under_way_ends_the_connection_and_nothing_else(
    folder: Path, tmp_path: Path, standing: Standing, short: list[bytes]
) -> None:
    with Running(folder / "model", tmp_path / "store.sqlite", store_apart=False, take_wait_s=0.5) as server:
        assert ask_alone(server, WHOLE)[0] == 200
        for goes_on in (True, False):  # before the time to wait is over, or not
            standing.still()
            with connect(server) as connection:
                connection.sendall(WHOLE)
                assert standing.reached.wait(20)
                connection.sendall(WHOLE + b"\x00 this is no request\r\n\r\n")
                connection.settimeout(20)
                assert connection.recv(1) == b"", "which would be taken for the answer to the first"
            if goes_on:
                standing.go_on()
            until(lambda: server.site.events.under_way == 0)
            standing.go_on()
            until(lambda: ask_alone(server, WHOLE)[0] == 200)
        standing.still()
        assert ask_alone(server, WHOLE)[0] == 503, "waits still come to an end"
        standing.go_on()
    assert b"Traceback" not in server.written.getvalue()


def test_a_body_after_an_offer_to_upgrade_is_not_taken_for_a_request(server: Running) -> None:
    smuggled = request("/healthz")
    head = request("/v1/events", smuggled, "Connection: Upgrade", "Upgrade: other")[: -len(smuggled)]
    for pieces in ((head + smuggled,), (head, smuggled)):
        with connect(server) as connection:
            for piece in pieces:
                connection.sendall(piece)
                time.sleep(0.05)
            ((status, headers, _),) = answers(connection, 1)
            assert (status, headers["connection"]) == (400, "close")
            connection.settimeout(20)
            assert connection.recv(1) == b""


def test_a_server_that_stops_answers_what_it_has_begun(folder: Path, tmp_path: Path, standing: Standing, short: list[bytes]) -> None:
    running = Running(folder / "model", tmp_path / "store.sqlite", store_apart=False)
    with connect(running.__enter__()) as connection:
        assert ask(connection, WHOLE)[0] == 200
        standing.still()
        connection.sendall(WHOLE)
        assert standing.reached.wait(20)
        stopping = threading.Thread(target=running.__exit__, args=(None, None, None))
        stopping.start()
        until(lambda: not running._server.servers or not running._server.servers[0].is_serving())
        time.sleep(0.2)  # so that the server has told its connections
        standing.go_on()
        status, headers, _ = answers(connection, 1)[0]
        assert (status, headers["connection"]) == (200, "close")
        assert connection.recv(1) == b""
    stopping.join(60)
    assert not stopping.is_alive()
    assert len(short) == 1


def test_an_error_nobody_foresaw_is_answered_and_noted(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    with connect(server) as connection:
        assert ask(connection, WHOLE)[0] == 200
        with monkeypatch.context() as broken:
            broken.setattr(short_way, "taken", lambda events: 1 / 0)
            status, _, body = ask(connection, WHOLE)
        assert (status, json.loads(body)["error"]["code"]) == (500, "internal")
        assert ask(connection, WHOLE)[0] == 200
    until(lambda: any(line["what"] == "failed" and "ZeroDivisionError" in line.get("trace", "") for line in server.lines()))
    assert server.site.events.under_way == 0


def test_connections_leave_nothing_behind_for_the_garbage_collector(server: Running, short: list[bytes]) -> None:
    ask_alone(server, WHOLE)
    gc.collect()
    gc.disable()
    try:
        for refused in (False, True):
            for _ in range(20):
                server.site.events.under_way = server.site.limits.in_flight if refused else 0
                assert ask_alone(server, WHOLE)[0] == (503 if refused else 200)
                assert ask_alone(server, request("/v1/events", EVENT, "X-Request-Id: long"))[0] == (503 if refused else 200)
        server.site.events.under_way = 0
        until(lambda: sum(issubclass(type(one), GuardedProtocol) for one in gc.get_objects()) < 5)
    finally:
        gc.enable()
    assert len(short) == 40
