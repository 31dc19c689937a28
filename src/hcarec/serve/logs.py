"""One JSON object a line on standard error, written by a thread of its own, so that a slow reader never holds up a request."""

from __future__ import annotations

import contextlib
import datetime
import functools
import logging
import sys
import threading
import time
from collections import deque
from typing import IO, Any

import msgspec

MOST_WAITING = 10_000
"""Lines that may wait to be written; more are dropped and counted."""
GATHER = 0.05
"""Seconds for which lines are gathered and then written at once, so that the writer seldom takes its turn from the requests."""


class Log:
    """Write lines; `level` "errors" leaves out requests that went well."""

    def __init__(self, level: str = "requests", stream: IO[bytes] | None = None) -> None:
        self.requests = level == "requests"
        self.dropped = 0
        self._stream = stream if stream is not None else sys.stderr.buffer
        self._waiting: deque[dict[str, Any]] = deque()
        self._wake, self._closed = threading.Event(), False
        self._writer = threading.Thread(target=self._write, name="log", daemon=True)
        self._writer.start()

    def line(self, what: str, **fields: Any) -> None:
        """Write one line; `what` names the kind of it."""
        if len(self._waiting) >= MOST_WAITING:
            self.dropped += 1
            return
        self._waiting.append({"time": time.time(), "what": what, **fields})
        if not self._wake.is_set():
            self._wake.set()

    def close(self) -> None:
        """Write what is waiting, and end."""
        self._closed = True
        self._wake.set()
        self._writer.join(timeout=2.0)

    def _write(self) -> None:
        while not self._closed or self._waiting:
            self._wake.wait()
            if not self._closed:
                time.sleep(GATHER)
            self._wake.clear()
            lines = []
            while self._waiting:
                one = self._waiting.popleft()
                one["time"] = iso(int(one["time"] * 1_000_000))
                lines.append(msgspec.json.encode(one, enc_hook=str))
            with contextlib.suppress(OSError, ValueError):  # nobody reads any more
                self._stream.write(b"\n".join([*lines, b""]))
                self._stream.flush()


class Forward(logging.Handler):
    """Pass on what libraries log."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record as a line, with the trace of an exception; it goes to the log of the server only."""
        trace = logging.Formatter().formatException(record.exc_info) if record.exc_info and record.exc_info[0] else None
        self._log.line("library", level=record.levelname.lower(), logger=record.name, message=record.getMessage(), **({"trace": trace} if trace else {}))


def iso(microseconds: int) -> str:
    """Write a time as ISO 8601 in UTC, to the microsecond; years outside 1 to 9999 are brought to the nearest."""
    seconds, rest = divmod(min(max(microseconds, EARLIEST), LATEST), 1_000_000)
    return f"{_second(seconds)}.{rest:06d}Z"


@functools.lru_cache(16)
def _second(seconds: int) -> str:
    """Write a time to the second; most of those asked for are of this moment, and to write one takes longer than to remember it."""
    return (EPOCH + datetime.timedelta(seconds=seconds)).isoformat()


EPOCH = datetime.datetime(1970, 1, 1)
EARLIEST = (datetime.datetime.min - EPOCH) // datetime.timedelta(microseconds=1)
LATEST = (datetime.datetime.max - EPOCH) // datetime.timedelta(microseconds=1)
