"""How an answer leaves a connection: in one piece where it is plain, as uvicorn sends it where it is not."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from hcarec.serve.protocol import OnePiece

PLAIN = [(b"content-type", b"application/json"), (b"content-length", b"2")]


class Transport:
    """Remembers what was written."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def resume_reading(self) -> None:
        """Go on."""


def answer(headers: list[tuple[bytes, bytes]], *bodies: bytes, method: str = "GET", keep_alive: bool = True, status: int = 200) -> tuple[Transport, int]:
    """Send an answer in parts; return what the connection saw, and how often the answer was over."""
    transport, over = Transport(), 0

    def finish() -> None:
        nonlocal over
        over += 1

    async def send() -> None:
        connection: Any = transport
        scope: Any = {"type": "http", "method": method, "headers": []}
        log = logging.getLogger("test")
        cycle = RequestResponseCycle(
            scope, connection, FlowControl(connection), log, log, False, [(b"date", b"now")], asyncio.Event(), False, keep_alive, finish
        )
        cycle.more_body = False  # the request has been read to its end
        piece = OnePiece(cycle)
        await piece({"type": "http.response.start", "status": status, "headers": headers})
        for place, body in enumerate(bodies, 1):
            await piece({"type": "http.response.body", "body": body, "more_body": place < len(bodies)})

    asyncio.run(send())
    return transport, over


def test_a_plain_answer_is_one_write() -> None:
    transport, over = answer(PLAIN, b"{}")
    assert transport.writes == [b"HTTP/1.1 200 OK\r\ndate: now\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"]
    assert over == 1 and not transport.closed


@pytest.mark.parametrize(("headers", "keep_alive"), [([*PLAIN, (b"connection", b"close")], True), (PLAIN, False)])
def test_the_last_answer_says_so_once_and_closes(headers: list[tuple[bytes, bytes]], keep_alive: bool) -> None:
    transport, over = answer(headers, b"{}", keep_alive=keep_alive)
    assert len(transport.writes) == 1 and transport.writes[0].count(b"connection: close\r\n") == 1
    assert over == 1 and transport.closed


def test_what_is_not_plain_is_the_same_as_without_us() -> None:
    head, _ = answer(PLAIN, b"{}", method="HEAD")
    assert b"".join(head.writes).endswith(b"content-length: 2\r\n\r\n")
    parts, over = answer([(b"content-type", b"text/plain")], b"one", b"two")
    assert b"".join(parts.writes).endswith(b"transfer-encoding: chunked\r\n\r\n3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n") and over == 1
    unchanged, _ = answer([], b"", status=304)
    assert b"".join(unchanged.writes) == b"HTTP/1.1 304 Not Modified\r\ndate: now\r\n\r\n"


def test_a_header_that_breaks_a_line_is_refused() -> None:
    with pytest.raises(RuntimeError, match="header value"):
        answer([*PLAIN, (b"x", b"a\r\nb: c")], b"{}")
