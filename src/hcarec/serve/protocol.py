"""HTTP/1.1 connections that cannot be held for nothing: uvicorn's protocol with limits on headers, patience and number."""

from __future__ import annotations

import asyncio
from asyncio import TimerHandle
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from hcarec.serve.connections import Connections
from hcarec.serve.errors_http import Refusal
from hcarec.serve.heads import Heads, Known
from hcarec.serve.limits import Limits
from hcarec.serve.one_piece import OnePiece
from hcarec.serve.short_way import ShortWay

Headers = list[tuple[bytes, bytes]]


def guarded(
    limits: Limits,
    open_connections: Connections,
    refused: Callable[[str], None],
    let_in: Callable[[Any], Refusal | None],
    common: Callable[..., Headers],
    short_way: ShortWay,
) -> type[asyncio.Protocol]:
    """Return the protocol with limits; `refused` is told the code of what it turns away by itself.

    `let_in` is asked, by its scope, about every request that has come in one piece; what it refuses never reaches the application,
    for which there would be no time. `common` gives the headers of such an answer, by the scope where there is one.
    Requests whose heads lead to it are left to the `short_way`.
    """

    class Guarded(GuardedProtocol):
        pass

    Guarded.limits, Guarded.open_connections = limits, open_connections
    Guarded.refused, Guarded.let_in = staticmethod(refused), staticmethod(let_in)
    Guarded.common, Guarded.short_way, Guarded.heads = staticmethod(common), short_way, Heads()
    return Guarded


class GuardedProtocol(HttpToolsProtocol):
    """A connection; uvicorn itself waits for headers and for a reader without end."""

    limits: Limits
    open_connections: Connections
    refused: Callable[[str], None]
    let_in: Callable[[Any], Refusal | None]
    common: Callable[..., Headers]
    short_way: ShortWay
    heads: Heads
    _piece: bytes | None = None
    """What has just come in, if it begins with a request."""
    _held: tuple[RequestResponseCycle, Any] | None = None
    """A request whose headers are there, until it is known whether the rest has come with them."""
    _reading: TimerHandle | None = None
    _writing: TimerHandle | None = None
    _in_headers = True
    _begun = False
    _with_body = False
    """Whether the piece that is being read holds a part of a body."""
    _header_bytes = 0
    """Bytes of pieces that hold headers, trailers or the framing of chunks, and nothing of a body."""
    _field_bytes = 0
    """Bytes of the headers and trailers that have come whole."""
    _fields_too_large = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start, or turn away what is one too many."""
        super().connection_made(transport)
        if (reason := self.open_connections.enter(self.client)) is not None:
            return self._turn_away(Refusal(503, "overloaded", reason, 1))
        self._read_in_time()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._stop_reading_clock()
        self._stop_writing_clock()
        self.open_connections.leave(self.client)
        super().connection_lost(exc)

    # -- coming in ---------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Take in bytes, and count those of headers and trailers that do not end; `on_header` counts those that have."""
        self._begun = self._with_body = False
        between = self._is_between()
        if between and (found := self.heads.find(data)) is not None:
            self._begin_known(*found)
            return None
        self._piece = data if between else None
        super().data_received(data)
        self._piece = None
        if self.transport.is_closing():  # what has been turned away is not begun
            self._held = None
            return None
        if not (self._begun or self._with_body):  # where in this piece a request began is not known, the ones after it are its own
            self._header_bytes += len(data)
        if self._header_bytes > self.limits.header_bytes and self._more_must_come():
            self._held = None
            return self._turn_away(self._too_large())
        if self._held is not None:
            self._begin_held()
        if self._reading is None and self._more_must_come():  # most requests come in one piece, and need no clock
            self._read_in_time()

    def _is_between(self) -> bool:
        """Say whether the next byte is the first of a request, and all those before it are answered."""
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None:
            return not self._header_bytes
        return cycle.response_complete and not (self._in_headers or cycle.more_body or self.transport.is_closing())

    def _begin_known(self, known: Known, body: bytes) -> None:
        """Begin a request that has come in one piece, and whose head needs no parsing."""
        self._unset_keepalive_if_required()
        self._stop_reading_clock()
        self._in_headers = False
        if known.more is not None and not self.flow.write_paused:
            self.short_way(self, known.more, body)
            return
        scope = known.scope | {"server": self.server, "client": self.client, "scheme": self.scheme, "state": self.app_state.copy()}
        self.cycle = RequestResponseCycle(
            scope=scope,  # type: ignore[arg-type]
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=False,
            keep_alive=True,
            on_response=self.on_response_complete,
        )
        self.cycle.body += body
        self.cycle.more_body = False
        self.cycle.message_event.set()
        self._decide(self.cycle, self.app)

    def _decide(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Refuse a whole request, or let the application answer it."""
        refusal = self.let_in(cycle.scope)
        if refusal is None or not self._refuse(cycle, refusal):
            self._start_asgi_task(cycle, app)

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
        self._in_headers, self._begun, self._header_bytes, self._field_bytes = True, True, 1, 0
        self._stop_reading_clock()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header, and only count a trailer: what comes after the body must not change who asks, or what for."""
        self._field_bytes += len(name) + len(value)
        if self._field_bytes > self.limits.header_bytes:
            self._fields_too_large = True
            raise ValueError("the headers are too large")  # the parser stops, and `send_400_response` is called
        if self._in_headers:
            super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        """Take in a part of the body."""
        self._with_body = True
        super().on_body(body)

    def on_headers_complete(self) -> None:
        """Go on to the body, which has its own time."""
        self._in_headers = False
        self._stop_reading_clock()
        super().on_headers_complete()
        if self.parser.should_upgrade():  # which is not offered; the parser takes what follows for another request, even if it is the body of this one
            self.cycle.keep_alive = False

    def on_message_complete(self) -> None:
        """End the request."""
        super().on_message_complete()
        self._stop_reading_clock()
        if self._held is not None:
            if self._piece is not None:
                scope: Any = self._held[0].scope
                self.heads.learn(self._piece, scope, self.short_way.leads(scope))
                self._piece = None
            (cycle, app), self._held = self._held, None
            self._decide(cycle, app)

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP, or has more headers than are read."""
        if self._fields_too_large:
            return self._turn_away(self._too_large())
        self._turn_away(Refusal(400, "bad_request", "this is not an HTTP request"))

    def _too_large(self) -> Refusal:
        return Refusal(431, "too_large", f"the headers and trailers have more than {self.limits.header_bytes} bytes")

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
            return self._turn_away(Refusal(408, "timeout", f"the body {within}"), self.cycle.scope)
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

    def _refuse(self, cycle: RequestResponseCycle, refusal: Refusal) -> bool:
        """Answer at once, if that is possible; say whether it was."""
        body = refusal.body()
        headers = [*self.common(cycle.scope), *refusal.headers, (b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        sent = OnePiece(cycle).sent({"status": refusal.status, "headers": headers}, {"body": body})
        if sent:
            cycle.on_response = _nothing  # which holds the connection, as that holds the cycle
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

    def _turn_away(self, refusal: Refusal, scope: Any = None) -> None:
        self.refused(refusal.code)
        if self._answers_another():  # who would take this for that answer
            return self.transport.close()
        body = refusal.body()
        lines: list[Any] = [STATUS_LINE[refusal.status], b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n" % len(body)]
        lines += [b"%s: %s\r\n" % pair for pair in (*self.common(scope), *refusal.headers)]
        self.transport.write(b"".join([*lines, b"\r\n", body]))
        self.transport.close()

    def _answers_another(self) -> bool:
        """Say whether a whole request, before the one that is being read, still waits for its answer."""
        cycle: RequestResponseCycle | None = self.cycle
        return bool(self.pipeline) or (cycle is not None and not cycle.response_complete and (self._in_headers or not cycle.more_body))

    def _stop_reading_clock(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def _stop_writing_clock(self) -> None:
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None


def _nothing() -> None:
    pass
