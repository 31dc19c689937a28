"""How the live service runs; each default is written here alone."""

from __future__ import annotations

from dataclasses import dataclass

from hcarec.errors import ConfigError
from hcarec.serve.kinds import MOST, check_kinds

MOST_DAYS = 36_500
"""Days that events may be kept at most, a hundred years: in microseconds, more would not fit into the times of a store."""


@dataclass(frozen=True)
class ServiceOptions:
    """Settings of a service; none of them changes a score, except `half_states`."""

    gather_ms: float = 1.5
    """How long the first of several concurrent asks or events waits for others."""
    max_batch: int = 64
    """Most asks ranked together."""
    max_group: int = 512
    """Most events made durable together."""
    max_waiting_asks: int = 256
    """Asks that may wait; more are refused."""
    max_waiting_events: int = 4096
    """Events that may wait; more are refused."""
    max_wait_s: float = 0.1
    """Asks are refused when the ones before them would take longer than this."""
    max_skew_s: float = 60.0
    """How far in the future an event may lie before its time is replaced by the time of arrival."""
    history_limit: int = 10_000
    """Events kept of one user, about, the latest: a longer history is let go of at its beginning. The state has seen all of them; one that must be made
    anew (after a late event, for another model) is made of those kept, and items seen before them are no longer hidden."""
    explain_events: int = 2000
    """Events of a user by which an answer is explained, the latest."""
    retain_last: int | None = None
    """Events kept per user; None keeps all."""
    retain_days: float | None = None
    """Days that events are kept; None keeps them for good."""
    retain_every_s: float = 600.0
    """How often retention is carried out."""
    half_states: bool = False
    """Store states as 16-bit numbers: half the room, and scores that differ a little after a restart."""
    threads: int | None = None
    """Threads that rank one batch; None for one per core."""
    store_timeout_s: float = 2.0
    """Longest wait for one answer of a Redis server; a store that has not answered for so long is reported as not ready, and an SQLite store whose process
    has been silent for five times as long is started anew."""
    state_wait_s: float = 0.25
    """Longest wait of an ask for the state of its user; after that the answer rests on less."""
    take_wait_s: float = 5.0
    """Longest wait of an event to become durable, and of a history to be read."""
    retry_s: float = 0.5
    """How often a store that is cut off is tried again."""
    cached_users: int = 50_000
    """Users whose states are held in memory."""
    accept_less: bool = False
    """Use a Redis server that may lose what it has acknowledged."""
    store_apart: bool = True
    """Run SQLite in a process of its own, so that it does not take turns with requests."""
    verify_store: bool = True
    """Check the structure of an SQLite store when it is opened."""

    def __post_init__(self) -> None:
        check_kinds(self)
        for name in ("max_batch", "max_group", "max_waiting_asks", "max_waiting_events", "cached_users", "history_limit", "explain_events"):
            if not 1 <= getattr(self, name) <= MOST:
                raise ConfigError(f"{name} is {getattr(self, name)}: give a whole number of at least 1 and at most {MOST:,}")
        for name in ("max_wait_s", "max_skew_s", "retain_every_s", "store_timeout_s", "state_wait_s", "take_wait_s", "retry_s"):
            if not 0 < getattr(self, name) <= MOST:
                raise ConfigError(f"{name} is {getattr(self, name)}: give a number of seconds above 0 and at most {MOST:,}")
        if not 0 <= self.gather_ms <= 1000:
            raise ConfigError(f"gather_ms is {self.gather_ms}: give 0 to 1000 milliseconds")
        for name, most in (("retain_last", MOST), ("retain_days", MOST_DAYS), ("threads", MOST)):
            value = getattr(self, name)
            if value is not None and not 0 < value <= most:
                raise ConfigError(f"{name} is {value}: give a number above 0 and at most {most:,}, or leave it out")

    @property
    def retains(self) -> bool:
        """Say whether the log is bounded."""
        return self.retain_last is not None or self.retain_days is not None
