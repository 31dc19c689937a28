"""The HTTP application: routes, who may do what, limits, and a line in the log for every request."""

from __future__ import annotations

import functools
import itertools
import re
import secrets
import time
import traceback
from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hcarec.serve import handlers
from hcarec.serve.admission import Admission
from hcarec.serve.call import Call
from hcarec.serve.errors_http import Refusal, refusal
from hcarec.serve.handlers import Site, Text
from hcarec.serve.openapi import document
from hcarec.serve.operations import OPERATIONS, Operation
from hcarec.serve.shedding import LET_IN, Gate, too_many

SAFE_HEADERS = (
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
)
"""Sent with every answer; a page may bring a policy of its own."""
REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
THIS_MACHINE = re.compile(rb"(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d+)?")
JSON = b"application/json"
METHODS = frozenset({"GET", "HEAD", "POST", "DELETE"})


def make_app(site: Site) -> Watch:
    """Return the application."""
    site.openapi = msgspec.json.encode(document(site.limits, site.keys is not None))
    register_url_convertor("anything", Anything())
    endpoints = [Endpoint(site, one) for one in OPERATIONS]
    routes = [Route(_pattern(one.operation.path), one, methods=[one.operation.method], name=one.operation.name) for one in endpoints]
    inner = Starlette(routes=routes, exception_handlers={HTTPException: _not_found})
    inner.router.redirect_slashes = False
    return Watch(site, inner, {(one.operation.method, one.operation.path): one for one in endpoints if "{" not in one.operation.path})


def gates(site: Site) -> dict[tuple[str, str], Gate]:
    """Return what lets requests in before the application sees them: those which `Watch` hands to an endpoint directly, and which wait for something."""
    counted = [one for one in OPERATIONS if one.counted and "{" not in one.path]
    return {(one.method, one.path): Gate(one.method, one.path, _admission(site, one), site.late, site.metrics, site.recent, site.log) for one in counted}


def _admission(site: Site, operation: Operation) -> Admission:
    return site.events if operation.name == "take" else site.asks


def _pattern(path: str) -> str:
    """Return a path as routes have it: the id at its end takes all that follows, one before that goes up to the next slash."""
    return f"{path.removesuffix('}')}:anything}}" if path.endswith("}") else path


def safe(headers: list[tuple[bytes, bytes]], scope: Scope) -> list[tuple[bytes, bytes]]:
    """Return the headers of an answer with those that every answer has."""
    there = {name for name, _ in headers}
    return [*headers, *[pair for pair in SAFE_HEADERS if pair[0] not in there], (b"x-request-id", scope["request_id"].encode())]


def given_name(scope: Scope) -> bytes | None:
    """Return what the caller has named a request."""
    return next((value for name, value in scope["headers"] if name == b"x-request-id"), None)


class Anything(PathConvertor):
    """An id at the end of a path, percent-encoded; a slash that was not encoded is taken as part of it."""

    regex = r"[\s\S]*"


async def _not_found(request: Request, error: Exception) -> Response:
    """Answer what no route fits."""
    assert isinstance(error, HTTPException)
    known = {404: ("not_found", "there is nothing here: /openapi.json lists what there is"), 405: ("method_not_allowed", "this path has no such method")}
    code, message = known.get(error.status_code, ("bad_request", "the request cannot be answered"))
    headers = dict(error.headers or {})
    if error.status_code == 405:
        headers["allow"] = ", ".join(sorted(_methods(request)))
    answer = Response(Refusal(error.status_code, code, message).body(), error.status_code, headers, "application/json")
    answer.raw_headers = safe(answer.raw_headers, request.scope)
    request.scope["status"] = error.status_code
    return answer


def _methods(request: Request) -> set[str]:
    """Return the methods of all routes that a path fits; the framework names those of the first one."""
    fitting = [route for route in request.app.routes if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE]
    return {method for route in fitting for method in route.methods or ()}


@functools.lru_cache(64)
def _is_this_machine(host: bytes) -> bool:
    return THIS_MACHINE.fullmatch(host.strip().lower()) is not None


def _is_own_page(origin: bytes | None, host: bytes) -> bool:
    """Say whether a request comes from our own page, or from none at all: browsers name the origin of what other pages send."""
    return origin is None or origin.partition(b"://")[2].strip().lower() == host.strip().lower()


class Watch:
    """Around everything: a name for the request, its figures, its line in the log.

    `direct` are the endpoints whose paths hold no id; to go through all routes for them would take longer than to answer.
    """

    def __init__(self, site: Site, inner: ASGIApp, direct: dict[tuple[str, str], Endpoint]) -> None:
        self._site, self._inner, self.direct = site, inner, direct
        self._start, self._count = secrets.token_hex(4), itertools.count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._inner(scope, receive, send)
        began = time.perf_counter()
        scope["request_id"], scope["status"] = self.name(given_name(scope)), 0
        # Routes see the path as it was sent: decoded, a slash inside an id would look like one between two ids.
        scope["path"] = scope["raw_path"].partition(b"?")[0].decode("latin-1")
        endpoint = self.direct.get((scope["method"], scope["path"]))
        try:
            await (self._inner if endpoint is None else endpoint)(scope, receive, send)
        finally:
            self.over(scope["method"], endpoint or scope.get("endpoint"), scope["request_id"], scope["status"], time.perf_counter() - began)

    def name(self, given: bytes | None) -> str:
        """Return the name of a request: the one given, if it can be one."""
        return str(given, "ascii") if given is not None and REQUEST_ID.fullmatch(given) else f"{self._start}-{next(self._count)}"

    def common(self, scope: Scope | None = None) -> list[tuple[bytes, bytes]]:
        """Return the headers that every answer has, for one that is given before the application sees the request, or where there is none."""
        name = (scope or {}).get("request_id") or self.name(None if scope is None else given_name(scope))
        return [*SAFE_HEADERS, (b"x-request-id", name.encode())]

    def over(self, method: str, endpoint: Any, name: str, status: int, seconds: float) -> None:
        """Count a request that is over, and write its line in the log."""
        site, known = self._site, isinstance(endpoint, Endpoint)
        route = endpoint.operation.path if known else "other"
        method = method if method in METHODS else "other"
        site.metrics.request(method, route, status, seconds)
        if known and endpoint.operation.counted:
            site.recent.request(status, seconds)
        if site.log.requests or status >= 500 or not status:
            site.log.line("request", id=name, method=method, route=route, status=status, seconds=round(seconds, 6))


class Endpoint:
    """One operation: who asks, whether that is within the limits, then the answer."""

    def __init__(self, site: Site, operation: Operation) -> None:
        self.operation = operation
        self._site, self._handler, self._admission = site, getattr(handlers, operation.name), _admission(site, operation)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        call = Call(scope, receive, self._site.limits)
        try:
            text = self.written(await self._answer(call))
        except Exception as error:
            text = self.refused(scope["request_id"], error)
        finally:
            if LET_IN in scope:
                self.leave(time.perf_counter() - scope[LET_IN])
        for message in self.messages(call, text):
            await send(message)

    def leave(self, seconds: float) -> None:
        """Tell who let a request in that it is done, and how long it took."""
        self._admission.leave(seconds)

    def written(self, answer: Any) -> Text:
        """Return an answer as it is sent."""
        return answer if isinstance(answer, Text) else Text(msgspec.json.encode(answer), JSON)

    def refused(self, name: str, error: Exception) -> Text:
        """Return what is sent instead of an answer; count it, and note what went wrong here."""
        said = refusal(error, self.operation.writes)
        self._site.metrics.refused(said.code)
        if said.status >= 500:
            self._note(name, error, said.status)
        return Text(said.body(), JSON, tuple(said.headers), said.status)

    def messages(self, call: Call, text: Text) -> tuple[Message, Message]:
        """Return an answer as ASGI has it."""
        headers = list(text.headers)
        if text.status != 304:
            headers += [(b"content-type", text.kind), (b"content-length", b"%d" % len(text.content))]
        if call.unread:
            headers.append((b"connection", b"close"))
        call.scope["status"] = text.status
        start = {"type": "http.response.start", "status": text.status, "headers": safe(headers, call.scope)}
        return start, {"type": "http.response.body", "body": text.content}

    async def _answer(self, call: Call) -> Any:
        site, one = self._site, self.operation
        call.check_headers()
        self.admit(call.headers, call.scope.get("client"))
        body = await call.body() if one.body is not None else b""
        if not one.counted or LET_IN in call.scope:
            return await self._handler(site, call, body)
        began = time.perf_counter() - site.late.ask()
        if not self._admission.enter():
            raise too_many()
        try:
            return await self._handler(site, call, body)
        finally:
            self.leave(time.perf_counter() - began)

    def admit(self, headers: Mapping[bytes, bytes], client: tuple[str, int] | None) -> None:
        """Refuse who may not ask this, or asks too often."""
        site, need = self._site, self.operation.scope
        if need is None:
            return
        caller, trouble = f"address {client[0] if client else ''}", None
        if site.keys is None:
            # A page in a browser on this machine could reach us under a name of its own; then it is not us who is addressed.
            if not _is_this_machine(headers.get(b"host", b"")):
                trouble = Refusal(
                    403, "forbidden", "without keys only requests to localhost, 127.0.0.1 or [::1] are answered: address the server so, or use keys"
                )
            elif not _is_own_page(headers.get(b"origin"), headers[b"host"]):
                trouble = Refusal(403, "forbidden", "without keys no page of another origin is answered: use keys")
        else:
            word, _, given = headers.get(b"authorization", b"").partition(b" ")
            key = site.keys.find(given.strip()) if word.lower() == b"bearer" else None
            site.note_keys()
            if key is None:
                words = "give an API key: the header Authorization: Bearer KEY"
                if site.keys.unreadable():
                    words = "the server cannot read its keys, so none is accepted"
                trouble = Refusal(401, "unauthorized", words, headers=((b"www-authenticate", b"Bearer"),))
            else:
                caller = f"key {key.name}"
                if need not in key.scopes:
                    trouble = Refusal(403, "forbidden", f"this key does not hold the scope {need}")
        wait = site.rates.wait(caller) if self.operation.counted or trouble else 0.0
        if wait:
            raise Refusal(429, "too_many_requests", f"more than {site.limits.rate:g} requests a second: wait as Retry-After says", wait)
        if trouble:
            raise trouble

    def _note(self, name: str, error: Exception, status: int) -> None:
        """Write what happened to the log, in full for what nobody foresaw."""
        fields: dict[str, Any] = {"id": name, "route": self.operation.path, "status": status, "error": type(error).__name__}
        if status == 500:
            fields["trace"] = "".join(traceback.format_exception(error))
        elif not isinstance(error, Refusal):
            fields["message"] = str(error)
        self._site.log.line("failed", **fields)
