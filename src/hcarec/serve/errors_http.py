"""Turn what goes wrong into an answer: a status, a code, and one line that names no path, no trace and no other user."""

from __future__ import annotations

import math

import msgspec

from hcarec.errors import ConfigError, DataError, HcarecError, InputError, ModelError
from hcarec.serve.messages import Overloaded
from hcarec.serve.schemas import NAME_IN_WORDS, NAME_PATTERN
from hcarec.serve.stores.errors import StoreBusy, StoreDamaged, StoreError, StoreFull, StoreUnreachable

LONGEST = 400
"""Characters of a message at most; part of it may be what was sent."""

STORE_TROUBLE: dict[type[StoreError], str] = {
    StoreFull: "the store has no room: nothing was written; writes succeed again once there is room",
    StoreUnreachable: "the store did not answer in time: try again shortly",
    StoreBusy: "the store is used by another process",
    StoreDamaged: "the store is damaged: what was read is not what was written; the log of the server says more",
}
"""What is said of a store; its own message may name files and servers, and goes to the log alone."""
UNKNOWN_WRITE = "the store did not answer in time: it is not known whether a write was made; repeat events with the same event_id"


class Refusal(Exception):
    """An answer other than success."""

    def __init__(self, status: int, code: str, message: str, retry_after: float | None = None, headers: tuple[tuple[bytes, bytes], ...] = ()) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, " ".join(message.split())[:LONGEST]
        self.headers = list(headers)
        if retry_after is not None:
            self.headers.append((b"retry-after", b"%d" % max(1, math.ceil(retry_after))))

    def body(self) -> bytes:
        """Return the answer as JSON."""
        return msgspec.json.encode({"error": {"code": self.code, "message": self.message}})


def refusal(error: Exception, writes: bool = False) -> Refusal:
    """Return what a caller is told of an error; `writes` says that the request would have changed a log."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, Overloaded):
        return Refusal(503, "overloaded", "more requests are waiting than can be served: try again later", error.retry_after)
    if isinstance(error, StoreUnreachable) and writes:
        return Refusal(503, "store_unavailable", UNKNOWN_WRITE, 1)
    if isinstance(error, StoreError):
        said = next((words for kind, words in STORE_TROUBLE.items() if isinstance(error, kind)), "the store cannot do this now")
        return Refusal(503, "store_unavailable", said, 1)
    if isinstance(error, (InputError, ConfigError, DataError, ModelError)):
        return Refusal(422, "refused", str(error))
    if isinstance(error, HcarecError):
        return Refusal(500, "internal", "the server could not answer; its log says why")
    if isinstance(error, (msgspec.ValidationError, msgspec.DecodeError)):
        hint = "; numbers are seconds since 1970, not milliseconds" if "99999999999 - at `$" in str(error) or "100000000000.0 - at `$" in str(error) else ""
        words = str(error).replace(f"matching regex {NAME_PATTERN!r}", NAME_IN_WORDS)
        return Refusal(400, "bad_request", f"the request is not what is expected: {words}{hint}")
    if isinstance(error, UnicodeDecodeError):
        return Refusal(400, "bad_request", "the request is not what is expected: JSON in UTF-8 is, and this is not UTF-8")
    if isinstance(error, RecursionError):
        return Refusal(400, "bad_request", "the request is not what is expected: it is nested too deeply")
    return Refusal(500, "internal", "the server could not answer; its log says why")
