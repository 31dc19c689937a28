"""HTTP/1.1 connections that cannot be held for nothing: uvicorn's protocol with limits on headers, patience and number."""

from __future__ import annotations

import asyncio
from asyncio import TimerHandle
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from hcarec.serve.errors_http import Refusal
from hcarec.serve.limits import Limits


def guarded(limits: Limits, refused: Callable[[str], None], let_in: Callable[[Any], Refusal | None]) -> type[asyncio.Protocol]:
    """Return the protocol with limits; `refused` is told the code of what it turns away by itself.

    `let_in` is asked, by its scope, about every request that has come in one piece; what it refuses never reaches the application,
    for which there would be no time.
    """

    class Guarded(GuardedProtocol):
        pass

    Guarded.limits, Guarded.refused, Guarded.let_in = limits, staticmethod(refused), staticmethod(let_in)
    return Guarded


class GuardedProtocol(HttpToolsProtocol):
    """A connection; uvicorn itself waits for headers and for a reader without end."""

    limits: Limits
    refused: Callable[[str], None]
    let_in: Callable[[Any], Refusal | None]
    _held: tuple[RequestResponseCycle, Any] | None = None
    """A request whose headers are there, until it is known whether the rest has come with them."""
    _reading: TimerHandle | None = None
    _writing: TimerHandle | None = None
    _in_headers = True
    _begun = False
    _header_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start, or turn away what is one too many."""
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            return self._turn_away(Refusal(503, "overloaded", "too many connections: try again later", 1))
        self._read_in_time()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._stop_reading_clock()
        self._stop_writing_clock()
        super().connection_lost(exc)

    # -- coming in ---------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Take in bytes, and count those of headers that do not end; the application checks those that have."""
        self._begun = False
        super().data_received(data)
        if self._held is not None:
            self._begin_held()
        if self.transport.is_closing():
            return
        if self._in_headers and not self._begun:  # where in this piece a request began is not known, the ones after it are its own
            self._header_bytes += len(data)
        if self._in_headers and self._header_bytes > self.limits.header_bytes:
            self._turn_away(Refusal(431, "too_large", f"the headers have more than {self.limits.header_bytes} bytes"))
        elif self._reading is None and self._more_must_come():  # most requests come in one piece, and need no clock
            self._read_in_time()

    def _more_must_come(self) -> bool:
        if self._in_headers or self.cycle is None:
            return True
        if self.cycle.response_complete:  # bytes between two requests have stopped the clock of an idle connection
            return self.timeout_keep_alive_task is None
        return self.cycle.more_body

    def on_message_begin(self) -> None:
        """Begin a request: its headers must end in time."""
        super().on_message_begin()
        self._unset_keepalive_if_required()  # set again if the one before was answered at once
        self._in_headers, self._begun, self._header_bytes = True, True, 1
        self._stop_reading_clock()

    def on_headers_complete(self) -> None:
        """Go on to the body, which has its own time."""
        self._in_headers = False
        self._stop_reading_clock()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """End the request."""
        super().on_message_complete()
        self._stop_reading_clock()
        if self._held is not None:
            refusal = self.let_in(self._held[0].scope)
            if refusal is None or not self._refuse_held(refusal):
                self._begin_held()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP."""
        self._turn_away(Refusal(400, "bad_request", "this is not an HTTP request"))

    def _read_in_time(self) -> None:
        self._stop_reading_clock()
        self._reading = self.loop.call_later(self.limits.receive_seconds, self._too_slow)

    def _too_slow(self) -> None:
        # Who has sent nothing yet hears nothing: browsers open connections ahead of need.
        self._reading = None
        within = f"did not come within {self.limits.receive_seconds:g} seconds"
        if self._in_headers and self._header_bytes:
            return self._turn_away(Refusal(408, "timeout", f"the headers {within}"))
        if self.cycle is not None and self.cycle.more_body and not self.cycle.response_started:
            self.cycle.scope["too_slow"] = True  # type: ignore[typeddict-unknown-key]
            return self._turn_away(Refusal(408, "timeout", f"the body {within}"))
        self.transport.close()

    # -- going out ---------------------------------------------------------------------------------------------------

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        cycle.send = OnePiece(cycle)  # type: ignore[method-assign]
        if cycle is self.cycle and cycle.more_body:
            self._held = cycle, app
        else:  # one that had to wait for the answer to another
            super()._start_asgi_task(cycle, app)

    def _begin_held(self) -> None:
        assert self._held is not None
        (cycle, app), self._held = self._held, None
        super()._start_asgi_task(cycle, app)

    def _refuse_held(self, refusal: Refusal) -> bool:
        """Answer at once, if that is possible; say whether it was."""
        assert self._held is not None
        body = refusal.body()
        headers = [*refusal.headers, (b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        sent = OnePiece(self._held[0]).sent({"status": refusal.status, "headers": headers}, {"body": body})
        if sent:
            self._held = None
            self.refused(refusal.code)
        return sent

    def pause_writing(self) -> None:
        """Wait for a reader, for a while."""
        super().pause_writing()
        self._stop_writing_clock()
        self._writing = self.loop.call_later(self.limits.send_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on: the reader reads."""
        self._stop_writing_clock()
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection, and do not wait for one who never took the last answer."""
        if self.transport.get_write_buffer_size():
            return self.transport.abort()
        super().timeout_keep_alive_handler()

    def _turn_away(self, refusal: Refusal) -> None:
        self.refused(refusal.code)
        body = refusal.body()
        lines: list[Any] = [STATUS_LINE[refusal.status], b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n" % len(body)]
        lines += [b"%s: %s\r\n" % pair for pair in refusal.headers]
        self.transport.write(b"".join([*lines, b"\r\n", body]))
        self.transport.close()

    def _stop_reading_clock(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def _stop_writing_clock(self) -> None:
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None


class OnePiece:
    """Sends the head of an answer together with its body: two writes would wake the reader twice. What is not so plain is left to uvicorn."""

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle
        self._start: Any = None

    async def __call__(self, message: Any) -> None:
        """Take a message of ASGI."""
        if message["type"] == "http.response.start" and self._start is None:
            self._start = message
            return
        start, self._start = self._start, None
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
