"""Read one request: its headers, its body within the limits, the id in its path."""

from __future__ import annotations

import itertools
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote_to_bytes

import msgspec
from starlette.types import Receive, Scope

from hcarec.serve.errors_http import Refusal
from hcarec.serve.limits import Limits
from hcarec.serve.schemas import ID_BYTES, check_id

T = TypeVar("T")
SINGLE = frozenset({b"authorization", b"host"})


class Call:
    """A request on its way in; `receive` is for one whose body is still to be read."""

    def __init__(self, scope: Scope, receive: Receive | None, limits: Limits) -> None:
        self.scope, self._receive, self._limits = scope, receive, limits
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.unread = b"content-length" in self.headers or b"transfer-encoding" in self.headers
        """Whether a part of the body may still be on its way; the connection cannot be used again then."""

    def check_headers(self) -> None:
        """Refuse headers that are too large in all, and two that must be one: another server on the way may believe the other of them."""
        names = [name for name, _ in self.scope["headers"] if name in SINGLE]
        if len(names) > len(set(names)):
            raise Refusal(400, "bad_request", "Host or Authorization is given twice: send each once")
        fields = itertools.chain.from_iterable(self.scope["headers"])
        size = sum(map(len, fields)) + len(self.scope.get("raw_path") or b"") + len(self.scope["query_string"])
        if size > self._limits.header_bytes:
            raise Refusal(431, "too_large", f"the headers have more than {self._limits.header_bytes} bytes")

    def check_body(self, size: int = 0) -> None:
        """Refuse a body that is not JSON, or too large by what the headers say or by what has come of it."""
        kind = self.headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if kind != b"application/json":
            raise Refusal(415, "unsupported_media_type", "send JSON, and say so with the header Content-Type: application/json")
        length = self.headers.get(b"content-length", b"0").strip()  # blanks around it are no part of it
        if not length.isdigit() or int(length[:20]) > self._limits.body_bytes or size > self._limits.body_bytes:
            raise Refusal(413, "too_large", f"the body has more than {self._limits.body_bytes} bytes: send less at once")

    async def body(self) -> bytes:
        """Read the body; one that is too large is refused before it is read."""
        assert self._receive is not None
        self.check_body()
        parts, size = [], 0
        while True:
            message = await self._receive()
            if message["type"] != "http.request":
                if self.scope.get("too_slow"):  # which the connection has said already
                    raise Refusal(408, "timeout", "the body did not come in time")
                raise Refusal(400, "bad_request", "the connection was closed before the body was whole")
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            self.check_body(size)
            if not message.get("more_body", False):
                self.unread = False
                return parts[0] if len(parts) == 1 else b"".join(parts)

    def id_in_path(self, what: str) -> str:
        """Return an id from the path, strictly: bytes that are no UTF-8 are refused, an encoded slash belongs to the id."""
        try:
            given = unquote_to_bytes(self.scope["path_params"][what].encode("latin-1")).decode()
        except UnicodeDecodeError:
            raise Refusal(400, "bad_request", f"the {what} in the path is not UTF-8: percent-encode the bytes of its UTF-8") from None
        if len(given) > ID_BYTES:
            raise Refusal(400, "bad_request", f"the {what} in the path has {len(given)} characters: give at most {ID_BYTES}")
        return check_id(what, given)

    def query(self, kind: type[T]) -> T:
        """Read the query as the fields of a struct."""
        try:
            pairs = parse_qsl(
                self.scope["query_string"].decode("ascii"), keep_blank_values=True, strict_parsing=bool(self.scope["query_string"]), errors="strict"
            )
        except ValueError:
            raise Refusal(400, "bad_request", "the query is not of the form name=value&name=value in UTF-8") from None
        values: dict[str, Any] = dict(pairs)
        if len(values) != len(pairs):
            raise Refusal(400, "bad_request", "a name occurs twice in the query")
        return msgspec.convert(values, kind, strict=False)
