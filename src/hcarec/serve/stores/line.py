"""Messages between two processes: MessagePack, each with its length before it."""

from __future__ import annotations

import select
import socket
from typing import Any, NamedTuple

import msgspec

LENGTH = 8
"""Bytes that hold the length of a message."""


class Message(NamedTuple):
    """`kind` is the name of a method, `result`, the name of an error, `question`, `answer` or `abort`; `value` what comes with it, encoded."""

    kind: str
    value: msgspec.Raw


class Line:
    """One end of the connection between both processes."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._readable = select.poll()  # `select` knows no descriptors above 1024
        self._readable.register(end, select.POLLIN)
        self._decoder = msgspec.msgpack.Decoder(Message)
        self._held = bytearray()

    def send(self, kind: str, value: Any = None) -> None:
        """Send a message."""
        packed = msgspec.msgpack.encode(Message(kind, msgspec.Raw(msgspec.msgpack.encode(value))))
        self._end.sendall(len(packed).to_bytes(LENGTH, "little") + packed)

    def receive(self) -> Message:
        """Wait for a message, or fail with `EOFError` when the other side is gone."""
        return self._decoder.decode(self._exactly(int.from_bytes(self._exactly(LENGTH), "little")))

    def _exactly(self, size: int) -> bytes:
        """Return so many bytes; what has come beyond them is kept, so that a short message takes one call of the system."""
        while len(self._held) < size:
            part = self._end.recv(max(1 << 16, min(size - len(self._held), 1 << 20)))
            if not part:
                raise EOFError
            self._held += part
        taken, self._held = bytes(self._held[:size]), self._held[size:]
        return taken

    def waiting(self) -> bool:
        """Say whether a message, or a part of one, has arrived."""
        return bool(self._held) or bool(self._readable.poll(0))

    def close(self) -> None:
        """Hang up."""
        self._end.close()
