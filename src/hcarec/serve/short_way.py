"""The short way of events over HTTP: from the connection that has read them to the service and back, with no task and no messages of ASGI in between.

Events come by the thousand, and each is so little work that most of its time would go into handing it on. Who may send them, what is refused and what is
counted is decided by the same functions as on the long way, those of `Endpoint` and `Watch`; what depends on the head alone is decided once for each head.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from hcarec.serve.app import JSON, SAFE_HEADERS, Endpoint, Watch
from hcarec.serve.call import Call
from hcarec.serve.errors_http import Refusal
from hcarec.serve.handlers import Site, begin_take, taken
from hcarec.serve.messages import Taken
from hcarec.serve.shedding import Gate, too_many

METHOD, PATH = "POST", "/v1/events"


class Head(NamedTuple):
    """A head that leads here, its size and kind being as they should: its headers."""

    headers: dict[bytes, bytes]


class ShortWay:
    """Takes in events that have come as a whole, by heads which were seen before."""

    def __init__(self, site: Site, watch: Watch, gate: Gate) -> None:
        self.site, self.watch, self.gate = site, watch, gate
        self.endpoint: Endpoint = watch.direct[METHOD, PATH]
        self._refusal = too_many()

    def leads(self, scope: Scope) -> Head | None:
        """Return what a head is to be remembered as, if the requests that it comes with can be answered here."""
        if (scope["method"], scope["raw_path"], scope["query_string"]) != (METHOD, PATH.encode(), b""):
            return None
        call = Call(scope, None, self.site.limits)
        try:
            call.check_headers()
            call.check_body()
        except Refusal:
            return None
        return Head(call.headers)

    def __call__(self, connection: HttpToolsProtocol, head: Head, body: bytes) -> None:
        """Begin to answer a request."""
        arrived = self.gate.enter()
        request = Request(self, connection, self.watch.name(None), arrived or 0.0)  # a head with a name of its own is not remembered
        connection.cycle = request  # type: ignore[assignment]
        if arrived is None:
            self.site.metrics.refused(self._refusal.code)
            return request.send(self._refusal.status, self._refusal.headers, JSON, self._refusal.body())
        try:
            self.endpoint.admit(head.headers, connection.client)
            begin_take(self.site, body, request.answer)
        except Exception as error:
            request.answer(error)


class Request:
    """A request on the short way, in the place of uvicorn's cycle: a connection asks it whether it is answered, and tells it of its own end."""

    __slots__ = ("_arrived", "_began", "_connection", "_way", "disconnected", "keep_alive", "name", "response_complete")
    more_body = False
    response_started = False

    def __init__(self, way: ShortWay, connection: HttpToolsProtocol, name: str, arrived: float) -> None:
        self._way, self.name, self._arrived, self._began = way, name, arrived, time.perf_counter()
        self._connection: HttpToolsProtocol | None = connection
        self.response_complete = self.disconnected = False
        self.keep_alive = True

    @property
    def message_event(self) -> Request:
        """What is set when the connection has ended; nobody waits for it here."""
        return self

    def set(self) -> None:
        """Do nothing."""

    def answer(self, found: Sequence[Taken] | Exception) -> None:
        """Answer, count, and note; the same as `Endpoint` and `Watch` do."""
        way, endpoint = self._way, self._way.endpoint
        try:
            text = endpoint.refused(self.name, found) if isinstance(found, Exception) else endpoint.written(taken(found))
        except Exception as error:
            text = endpoint.refused(self.name, error)
        now = time.perf_counter()
        endpoint.leave(now - self._arrived)
        self.send(text.status, text.headers, text.kind, text.content)
        way.watch.over(METHOD, endpoint, self.name, text.status, now - self._began)

    def send(self, status: int, headers: Iterable[tuple[bytes, bytes]], kind: bytes, content: bytes) -> None:
        """Send an answer, and let the connection go on to the next request."""
        self.response_complete = True
        connection, self._connection = self._connection, None  # which holds this: neither would be let go of before the garbage is collected
        if connection is None or self.disconnected or connection.transport.is_closing():
            return
        own = [b"%s: %s\r\n" % pair for pair in (*connection.server_state.default_headers, *headers)]
        if not self.keep_alive:  # the server stops
            own.append(b"connection: close\r\n")
        rest = b"x-request-id: %s\r\ncontent-type: %s\r\ncontent-length: %d\r\n\r\n" % (self.name.encode(), kind, len(content))
        head = (STATUS_LINE[status], _SAFE, *own, rest)
        connection.transport.write(b"".join((*head, content)))
        if not self.keep_alive:
            connection.transport.close()
        connection.on_response_complete()


_SAFE = b"".join(b"%s: %s\r\n" % pair for pair in SAFE_HEADERS)
