"""Heads of requests that were parsed before: a client sends the same one again and again, and what it means does not change."""

from __future__ import annotations

from typing import Any, NamedTuple

MOST_KNOWN, LONGEST = 1024, 2048
"""Heads that are remembered, and the bytes of the longest such."""
END = b"\r\n\r\n"
SPECIAL = frozenset({b"connection", b"expect", b"proxy-connection", b"trailer", b"transfer-encoding", b"upgrade"})
"""Headers about the connection itself, or about how the body is sent: not for a memory."""
VARIED = frozenset({b"traceparent", b"x-request-id"})
"""Headers that are different with every request."""


class Known(NamedTuple):
    """What a head means: how many bytes of body follow it, the part of an ASGI scope that depends on nothing else, and what it is remembered as besides."""

    length: int
    scope: dict[str, Any]
    more: Any


class Heads:
    """The heads seen, by their bytes; with too many, the one learned longest ago is forgotten."""

    def __init__(self) -> None:
        self._known: dict[bytes, Known] = {}

    def __len__(self) -> int:
        return len(self._known)

    def find(self, data: bytes) -> tuple[Known, bytes] | None:
        """Return what a head means, and the body, if the data, which begin where a request does, are one whole request whose head is known."""
        end = data.find(END, 0, LONGEST) + len(END)
        known = self._known.get(data[:end])
        return (known, data[end:]) if known is not None and len(data) == end + known.length else None

    def learn(self, data: bytes, scope: dict[str, Any], more: Any = None) -> None:
        """Remember a head that has been parsed, if the data are one whole request and a plain one."""
        end = data.find(END, 0, LONGEST) + len(END)
        names = {name for name, value in scope["headers"] if (name, value) != (b"connection", b"keep-alive")}
        lengths = [value for name, value in scope["headers"] if name == b"content-length"]
        if end < len(END) or scope["method"] != "POST" or scope["http_version"] != "1.1" or names & SPECIAL or names & VARIED:
            return
        if len(lengths) != 1 or not lengths[0].isdigit() or len(data) != end + int(lengths[0][:9]):
            return
        if len(self._known) >= MOST_KNOWN:
            del self._known[next(iter(self._known))]
        own = {"server", "client", "scheme", "state"}
        self._known[data[:end]] = Known(int(lengths[0]), {name: value for name, value in scope.items() if name not in own}, more)
