"""Messages between two processes: MessagePack, each with its length before it."""

from __future__ import annotations

import select
import socket
from typing import Any, NamedTuple

import msgspec

LENGTH = 8
"""Bytes that hold the length of a message."""
ALIVE = "alive"
"""The kind of a message that says nothing but that a call is still being worked on."""
ALIVE_EVERY_S = 0.5
FULL_S = 1.0
"""How long a connection that does not wait by itself may be full."""


class Message(NamedTuple):
    """`kind` is the name of a method, `result`, the name of an error, `question`, `answer`, `abort` or `alive`; `value` what comes with it, encoded."""

    kind: str
    value: msgspec.Raw


class Line:
    """One end of the connection between both processes."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._writable = select.poll()  # `select` knows no descriptors above 1024
        self._writable.register(end, select.POLLOUT)
        self._decoder = msgspec.msgpack.Decoder(Message)
        self._held = bytearray()

    def send(self, kind: str, value: Any = None) -> None:
        """Send a message."""
        self.send_packed(pack(kind, value))

    def send_packed(self, packed: bytes) -> None:
        """Send what `pack` has made."""
        left = memoryview(packed)
        while left:
            try:
                left = left[self._end.send(left) :]
            except BlockingIOError:  # one that does not wait by itself, and the other side is slow to read
                if not self._writable.poll(FULL_S * 1000):
                    raise TimeoutError("the other side does not read") from None

    def receive(self) -> Message:
        """Wait for a message, or fail with `EOFError` when the other side is gone."""
        while (message := self.received()) is None:
            pass
        return message

    def received(self) -> Message | None:
        """Read what has come, or wait for it if the connection is one that waits; return a message as soon as one is whole."""
        if (message := self._taken()) is None:
            try:
                part = self._end.recv(max(1 << 16, min(self._size() + LENGTH - len(self._held), 1 << 20)))
            except BlockingIOError:
                return None
            if not part:
                raise EOFError
            self._held += part
            message = self._taken()
        return message

    def _size(self) -> int:
        return int.from_bytes(self._held[:LENGTH], "little") if len(self._held) >= LENGTH else 0

    def _taken(self) -> Message | None:
        """Take the first message out of what is held, if it is whole; what has come beyond it is kept."""
        end = LENGTH + self._size()
        if len(self._held) < end:
            return None
        message = self._decoder.decode(self._held[LENGTH:end])
        del self._held[:end]
        return message

    def patience(self, seconds: float | None) -> None:
        """Let every wait for the other side end with `TimeoutError` after so long."""
        self._end.settimeout(seconds)

    def fileno(self) -> int:
        """Return the descriptor, to wait for."""
        return self._end.fileno()

    def close(self) -> None:
        """Hang up."""
        self._end.close()


def pack(kind: str, value: Any = None) -> bytes:
    """Return a message as it is sent."""
    packed = msgspec.msgpack.encode(Message(kind, msgspec.Raw(msgspec.msgpack.encode(value))))
    return len(packed).to_bytes(LENGTH, "little") + packed
