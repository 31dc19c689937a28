"""Refuse what there is no room for as soon as it has been read: with more requests than there is time for, every step spared for one is left for another."""

from __future__ import annotations

import time
from collections.abc import Mapping

from starlette.types import Scope

from hcarec.serve.admission import Admission
from hcarec.serve.errors_http import Refusal
from hcarec.serve.lateness import Lateness
from hcarec.serve.logs import Log
from hcarec.serve.metrics import Metrics
from hcarec.serve.status import Recent

LET_IN = "hcarec.let_in"
"""Where a scope holds the time at which its request, now let in, has about arrived; who answers it tells `Admission` when that is done."""
LOG_EVERY_S = 1.0


def too_many() -> Refusal:
    """Return the answer to a request that there is no room for."""
    return Refusal(503, "overloaded", "too many requests at once: try again later", 1)


class Gate:
    """Lets the requests of one path in, or not; what it refuses is noted in the log once a second."""

    def __init__(self, method: str, path: str, admission: Admission, late: Lateness, metrics: Metrics, recent: Recent, log: Log) -> None:
        self._method, self._path, self._admission, self._late = method, path, admission, late
        self._metrics, self._recent, self._log = metrics, recent, log
        self._refused, self._log_at = 0, 0.0

    def enter(self) -> float | None:
        """Return when a request that may go on has about arrived, None for one that there is no room for."""
        late = self._late.ask()
        if self._admission.enter():
            return time.perf_counter() - late
        self._metrics.request(self._method, self._path, 503, 0.0)
        self._recent.refused += 1
        self._refused += 1
        if (now := time.monotonic()) >= self._log_at:
            self._log.line("overloaded", route=self._path, refused=self._refused)
            self._refused, self._log_at = 0, now + LOG_EVERY_S
        return None


class Shedding:
    """Lets requests in by the gates of their methods and paths; those of other paths go on."""

    def __init__(self, gates: Mapping[tuple[str, str], Gate]) -> None:
        self._gates = {(method, path.encode()): gate for (method, path), gate in gates.items()}
        self._refusal = too_many()

    def __call__(self, scope: Scope) -> Refusal | None:
        """Return None for a request that may go on."""
        gate = self._gates.get((scope["method"], scope["raw_path"]))
        if gate is None:
            return None
        arrived = gate.enter()
        if arrived is None:
            return self._refusal
        scope[LET_IN] = arrived
        return None
