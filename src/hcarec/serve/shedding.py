"""Refuse what there is no room for as soon as it has been read: with more requests than there is time for, every step spared for one is left for another."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

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


def too_many(headers: Iterable[tuple[bytes, bytes]] = ()) -> Refusal:
    """Return the answer to a request that there is no room for."""
    return Refusal(503, "overloaded", "too many requests at once: try again later", 1, tuple(headers))


class Shedding:
    """Lets requests in, or not; asked only about those of `paths`, methods and paths. What it refuses is noted in the log once a second."""

    def __init__(
        self,
        paths: Mapping[tuple[str, str], Admission],
        late: Lateness,
        metrics: Metrics,
        recent: Recent,
        log: Log,
        headers: Iterable[tuple[bytes, bytes]],
    ) -> None:
        self._late, self._metrics, self._recent, self._log = late, metrics, recent, log
        self._paths = {(method, path.encode()): (path, admission) for (method, path), admission in paths.items()}
        self._refusal = too_many(headers)
        self._refused, self._log_at = 0, 0.0

    def __call__(self, scope: Scope) -> Refusal | None:
        """Return None for a request that may go on."""
        found = self._paths.get((scope["method"], scope["raw_path"]))
        if found is None:
            return None
        path, admission = found
        late = self._late.ask()
        if admission.enter():
            scope[LET_IN] = time.perf_counter() - late
            return None
        self._metrics.request(scope["method"], path, 503, 0.0)
        self._recent.refused += 1
        self._refused += 1
        if (now := time.monotonic()) >= self._log_at:
            self._log.line("overloaded", refused=self._refused)
            self._refused, self._log_at = 0, now + LOG_EVERY_S
        return self._refusal
