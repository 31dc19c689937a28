"""HTTP by the bytes: what a client library would not send, or not in such pieces."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Iterator

from http_server import Running

Answer = tuple[int, dict[str, str], bytes]
"""Status, headers, body."""


def request(path: str, body: bytes | None = None, *more: str) -> bytes:
    """Return a request."""
    lines = [f"{'GET' if body is None else 'POST'} {path} HTTP/1.1", "Host: 127.0.0.1", *more]
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode() + (body or b"")


def read(connection: socket.socket) -> Iterator[Answer]:
    """Yield answers as they come."""
    connection.settimeout(20)
    stream = connection.makefile("rb")
    while True:
        status = int(stream.readline().split()[1])
        headers = dict(line.decode().strip().split(": ", 1) for line in iter(stream.readline, b"\r\n"))
        yield status, headers, stream.read(int(headers["content-length"]))


def answers(connection: socket.socket, n: int) -> list[Answer]:
    """Read so many answers."""
    return list(itertools.islice(read(connection), n))


def connect(server: Running) -> socket.socket:
    """Open a connection."""
    return socket.create_connection(("127.0.0.1", server.port), timeout=20)


def ask(connection: socket.socket, whole: bytes) -> Answer:
    """Send a request in one piece and wait for its answer."""
    connection.sendall(whole)
    return answers(connection, 1)[0]


def ask_alone(server: Running, whole: bytes) -> Answer:
    """Send a request on a connection of its own."""
    with connect(server) as connection:
        return ask(connection, whole)
