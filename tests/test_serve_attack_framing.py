"""Attacks by the framing of requests: trailers without end, trailers that pretend to be headers, doubled headers, bodies that nobody reads."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from hcarec.serve.keys import make
from hcarec.serve.limits import Limits
from http_server import Running, small_model
from live_models import saved
from raw_http import answers, ask_alone, connect, request
from service_process import Starter
from soak_counts import counting

EVENT = json.dumps({"user": "someone", "item": "i01"}).encode()
PATHS = ("/v1/events", "/v1/recommend", "/healthz", "/nowhere", "/v1/users/someone")


def chunked(path: str, body: bytes, *trailers: bytes, headers: tuple[bytes, ...] = (b"Host: 127.0.0.1", b"Content-Type: application/json")) -> bytes:
    """Return a request whose body is one chunk, with trailers after it."""
    head = b"\r\n".join([b"POST %s HTTP/1.1" % path.encode(), *headers, b"Transfer-Encoding: chunked", b"", b""])
    return head + b"%x\r\n%s\r\n0\r\n" % (len(body), body) + b"".join(line + b"\r\n" for line in (*trailers, b""))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def server(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(folder / "model", tmp_path_factory.mktemp("store") / "store.sqlite", limits=Limits(rate=0, header_bytes=4096)) as running:
        yield running


def until_closed(connection: socket.socket) -> bytes:
    """Read until the server closes."""
    parts = []
    with suppress(ConnectionError):
        while part := connection.recv(65536):
            parts.append(part)
    return b"".join(parts)


# -- one limit for headers and trailers --------------------------------------------------------------------------------

MANY = tuple(b"X-%d: %s" % (n, b"y" * 100) for n in range(100))
TOO_MUCH = {"many": MANY, "long": (b"X: " + b"y" * 9000,), "with headers": MANY[:20]}


@pytest.mark.parametrize("path", PATHS[:2])
@pytest.mark.parametrize("name", TOO_MUCH)
def test_headers_and_trailers_share_one_limit(server: Running, path: str, name: str) -> None:
    more = MANY[:20] if name == "with headers" else ()
    sent = chunked(path, EVENT, *TOO_MUCH[name], headers=(b"Host: 127.0.0.1", b"Content-Type: application/json", *more))
    with connect(server) as connection:
        connection.sendall(sent)  # in one piece
        assert until_closed(connection).startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize("path", PATHS)
def test_trailers_that_do_not_end_are_refused(server: Running, path: str) -> None:
    sent = 0
    with connect(server) as connection:
        connection.sendall(chunked(path, EVENT)[:-2])
        with suppress(ConnectionError):
            for _ in range(30_000):
                connection.sendall(b"X: " + b"y" * 1000 + b"\r\n")
                sent += 1
        answer = until_closed(connection)
    assert sent < 30_000  # the server has closed it
    assert answer[:12] in (b"", b"HTTP/1.1 431", b"HTTP/1.1 404", b"HTTP/1.1 405")  # a reset may overtake the answer


@pytest.mark.parametrize("begin", [b"0\r\nX: ", b"1;x="], ids=["trailer", "extension of a chunk"])
def test_a_line_that_does_not_end_is_refused(server: Running, begin: bytes) -> None:
    with connect(server) as connection:
        connection.sendall(chunked("/v1/events", EVENT).removesuffix(b"0\r\n\r\n") + begin)
        with pytest.raises(ConnectionError):
            connection.sendall(b"y" * 30_000_000)


def test_small_trailers_and_small_chunks_are_fine(server: Running) -> None:
    status, _, _ = ask_alone(server, chunked("/v1/events", EVENT, b"Expires: never"))
    assert status == 200
    with connect(server) as connection:
        for byte in chunked("/v1/events", EVENT, b"Expires: never") * 2:
            connection.send(bytes([byte]))
        assert [status for status, _, _ in answers(connection, 2)] == [200, 200]


# -- trailers are no headers -------------------------------------------------------------------------------------------


def test_a_trailer_is_never_believed(folder: Path, tmp_path: Path) -> None:
    key = make(tmp_path / "keys.json", "read,write").encode()
    plain = b"Host: 127.0.0.1", b"Content-Type: application/json"
    with Running(folder / "model", tmp_path / "store.sqlite", keys=tmp_path / "keys.json") as locked:
        assert ask_alone(locked, chunked("/v1/events", EVENT, b"Authorization: Bearer " + key, headers=plain))[0] == 401
        assert ask_alone(locked, chunked("/v1/events", EVENT, headers=(*plain, b"Authorization: Bearer " + key)))[0] == 200


def test_neither_host_nor_kind_may_come_late(server: Running) -> None:
    elsewhere, kind = b"Host: elsewhere", b"Content-Type: application/json"
    assert ask_alone(server, chunked("/v1/events", EVENT, b"Host: 127.0.0.1", headers=(elsewhere, kind)))[0] == 403
    assert ask_alone(server, chunked("/v1/events", EVENT, b"Host: elsewhere"))[0] == 200
    assert ask_alone(server, chunked("/v1/events", EVENT, kind, headers=(b"Host: 127.0.0.1",)))[0] == 415


# -- one of each -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("twice", ["Host: 127.0.0.1", "host: elsewhere"])
def test_a_second_host_is_refused(server: Running, twice: str) -> None:
    for sent in (request("/healthz", None, twice), request("/v1/recommend", b"{}", twice), request("/v1/events", EVENT, twice)):
        for _ in range(2):  # a head that was seen before is no better
            assert ask_alone(server, sent)[0] == 400


def test_a_second_key_is_refused(folder: Path, tmp_path: Path) -> None:
    key = make(tmp_path / "keys.json", "read,write")
    with Running(folder / "model", tmp_path / "store.sqlite", keys=tmp_path / "keys.json") as locked:
        for other in (key, "another"):
            both = f"Authorization: Bearer {other}", f"Authorization: Bearer {key}"
            assert ask_alone(locked, request("/v1/recommend", b"{}", *both))[0] == 400
            assert ask_alone(locked, request("/v1/events", EVENT, *both))[0] == 400


@pytest.mark.parametrize("path", ["/nowhere", "/healthz", "/v1/users/someone", "/"])
def test_a_body_that_nobody_reads_ends_the_connection(server: Running, path: str) -> None:
    with connect(server) as connection:
        connection.sendall(request(path, b"{}").replace(b"Content-Length: 2", b"Content-Length: 1000"))
        answer = until_closed(connection)
    assert answer.startswith((b"HTTP/1.1 404 ", b"HTTP/1.1 405 ")) and b"connection: close" in answer


# -- memory ------------------------------------------------------------------------------------------------------------


def flood(port: int, path: str, connections: int, most_mib: int) -> int:
    """Send trailers over connections, one after the other, each until it is closed or has sent so much; return the bytes sent."""
    block, sent = b"".join(b"X-%d: %s\r\n" % (n, b"y" * 60) for n in range(1000)), 0
    for _ in range(connections):
        with socket.create_connection(("127.0.0.1", port), timeout=60) as connection, suppress(ConnectionError):
            connection.sendall(chunked(path, EVENT)[:-2])
            for _ in range((most_mib << 20) // len(block)):
                connection.sendall(block)
                sent += len(block)
    return sent


@pytest.mark.parametrize("connections", [pytest.param(100, id="some"), pytest.param(10_000, id="many", marks=pytest.mark.soak)])
def test_memory_after_a_flood_of_trailers_is_what_it_was(tmp_path: Path, starter: Starter, connections: int) -> None:
    with counting("trailers", connections > 1000) as counts:
        process = starter.start(saved(tmp_path, "hca-gru"), "--store", tmp_path / "store.sqlite", "--rate", 0)
        address = process.address()
        assert address is not None, process.errors
        port = int(address.rpartition(":")[2])
        for path in PATHS:
            flood(port, path, 10, 1)  # what is made once is made now
        before = highest = process.resident_mib()
        counted: list[int] = []
        clients = [threading.Thread(target=lambda path=path: counted.append(flood(port, path, connections // len(PATHS), 100))) for path in PATHS]
        for client in clients:
            client.start()
        while any(client.is_alive() for client in clients):
            clients[0].join(0.05)
            highest = max(highest, process.resident_mib())
        assert len(counted) == len(PATHS)
        after = process.resident_mib()
        counts["connections"], counts["MiB of trailers"] = connections, sum(counted) >> 20
        counts["memory before, MiB"], counts["memory highest, MiB"], counts["memory after, MiB"] = round(before), round(highest), round(after)
        assert highest < 1.5 * before and after < 1.2 * before, counts
