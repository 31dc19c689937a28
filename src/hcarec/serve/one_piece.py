"""Send the head of an answer together with its body."""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle


class OnePiece:
    """Sends the head of an answer together with its body: two writes would wake the reader twice. What is not so plain is left to uvicorn.

    An answer that comes before the end of the request's body ends the connection: nobody would read the rest, or know where it ends.
    """

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle
        self._start: Any = None

    async def __call__(self, message: Any) -> None:
        """Take a message of ASGI."""
        if message["type"] == "http.response.start" and self._start is None:
            self._start = message
            return
        start, self._start = self._start, None
        if self._cycle.more_body:
            self._cycle.keep_alive = False
        if start is None or not self.sent(start, message):
            for one in (start, message) if start is not None else (message,):
                await RequestResponseCycle.send(self._cycle, one)

    def sent(self, start: Any, message: Any) -> bool:
        """Send a whole answer, if it is one and the reader keeps up; say whether it was."""
        cycle, body, headers = self._cycle, message.get("body", b""), start["headers"]
        whole = not message.get("more_body") and (b"content-length", b"%d" % len(body)) in headers
        if not whole or cycle.disconnected or cycle.flow.write_paused or cycle.response_started or cycle.scope["method"] == "HEAD":
            return False
        lines = [b"%s: %s\r\n" % pair for pair in (*cycle.default_headers, *headers)]
        cycle.keep_alive = cycle.keep_alive and (b"connection", b"close") not in headers
        if not cycle.keep_alive and (b"connection", b"close") not in headers:
            lines.append(b"connection: close\r\n")
        head = b"".join(lines)
        if head.count(b"\n") != len(lines):
            return False  # a header that breaks a line; uvicorn says so
        cycle.waiting_for_100_continue = False
        cycle.response_started = cycle.response_complete = True
        cycle.transport.write(b"".join((STATUS_LINE[start["status"]], head, b"\r\n", body)))
        cycle.message_event.set()
        cycle.__dict__.pop("send", None)  # which holds the cycle: neither would be let go of before the garbage is collected
        if not cycle.keep_alive:
            cycle.transport.close()
        cycle.on_response()
        return True
