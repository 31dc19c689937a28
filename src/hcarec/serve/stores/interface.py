"""What the service asks of a store: a log of events per user, and the model's state after replaying it.

Per user a store keeps

- the log: events in the order (time, arrival number), whenever they came in. Arrival numbers are given by the store
  and grow; two are never equal.
  A store that is opened with `history_limit` keeps about so many of a user, the latest, and lets go of the others as `retain` does.
- a version: 0 for a user without a log, otherwise a number that grows with every change of the log. Versions are drawn
  from one counter of the whole store, so none is used twice, not even after `forget`.
- per model at most one state: bytes that mean nothing to the store, and the version of the log they reflect. States
  are derived: one that is damaged or of an older version counts as absent, and is rebuilt by replaying the log.

An update is `load`, then the model's step outside the store, then `commit` with the version that was loaded. Where the
version has moved in between, `commit` refuses that change alone, and the caller loads again. Two servers on one store
therefore always equal one after the other.

Ids (of users, items, events, models) are any text of 1 to 512 bytes of UTF-8, NUL and newline included; others are
refused with `InputError`. Times are integer microseconds since 1970, any 64-bit integer.

Threads: a store is used by the thread that opened it, one call at a time; SQLite enforces this. A service gives it a
worker thread of its own and gathers what is waiting into one `load` and one `commit`. The callbacks of `backup`, `restore` and
`check` run in that thread between two short steps, and may use the store: that is how a service goes on meanwhile.

Every method may raise the family of `StoreError`; after one, the store remains usable and nothing is half done.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

PAGE_EVENTS = 512
"""Events that are read in one short step."""
TRIM_FROM, TRIM_MOST = 256, 1024
"""Events of a user beyond `history_limit` from which on some go, and how many go at once at most."""
RETAIN_MOST = 4096
"""Events that go in one page of `retain`, about."""
Progress = Callable[[int, int], None]
"""Called with (done, total) between two short steps of a long call."""


class Event(NamedTuple):
    """One event of a log; the store gives the arrival number, the one of a new event is ignored."""

    time: int
    item: str
    event_id: str | None = None
    arrival: int = 0


class Wanted(NamedTuple):
    """A user to load, and the ids of events about to be added."""

    user: str
    event_ids: Collection[str] = ()


class Loaded(NamedTuple):
    """What the next event of a user needs.

    `last_time` is the latest time the log has ever held, be the event still there or not (None for a user without a
    log): an event before it is late and the state must be rebuilt. `state` is None unless it reflects `version`. `duplicates` are those of the wanted
    event ids that the log holds already. `n_events` counts the events kept.
    """

    version: int
    last_time: int | None
    state: bytes | None
    duplicates: frozenset[str]
    n_events: int


class Change(NamedTuple):
    """Events to add to a user's log if it is still at `expected_version`, and the model's state after them.

    At least one event; an event id occurs once. All states held become old by the change; with `state` None there is
    no current one until `put_states` brings it. A state is the larger part of what a change writes: a service that
    holds states in memory may commit without them and put them later, many at once, and loses nothing by a crash.
    """

    user: str
    expected_version: int
    events: Sequence[Event]
    model: str
    state: bytes | None


class Rebuilt(NamedTuple):
    """A state made by replaying the log as of `version`."""

    user: str
    version: int
    model: str
    state: bytes


class History(NamedTuple):
    """A log, oldest event first."""

    version: int
    events: list[Event]


class Page(NamedTuple):
    """Some users in the order of their ids' bytes; `after` leads to the next page and is None on the last one."""

    users: list[str]
    after: str | None


class Retained(NamedTuple):
    """How many events a page of `retain` removed; `after` as in `Page`."""

    removed: int
    after: str | None


class Figures(NamedTuple):
    """The size of a store.

    `states` counts per model what is held, old ones included; `damaged_states` those found damaged since the store was
    opened; `traces` says that slack space may still hold bytes of forgotten users (see `scrub`).
    """

    users: int
    events: int
    bytes: int
    states: dict[str, int]
    damaged_states: int
    traces: bool


class Checked(NamedTuple):
    """What `check` has read and found right; damaged states are counted, since they are rebuilt."""

    users: int
    events: int
    states: int
    damaged_states: int


class Store(Protocol):
    """A durable store of logs and states; `exclusive` says that nobody else can write to it while it is open."""

    exclusive: bool

    def load(self, wanted: Sequence[Wanted], model: str) -> list[Loaded]:
        """Return, for every user wanted, in order, what the next event needs."""

    def commit(self, changes: Sequence[Change]) -> list[int | None]:
        """Make all changes in one durable transaction; return each user's new version, None where refused.

        Refused: the log is not at the expected version, or holds one of the event ids already (`load` tells). A
        second change of the same user in one call is refused as well. When this returns, the rest is on disk.
        """

    def put_states(self, rebuilt: Sequence[Rebuilt]) -> list[bool]:
        """Store states for logs that are still at the given version; say for which that was so.

        Where the store has begun anew since it was last read, versions say nothing, and none is stored.
        """

    def settle(self) -> None:
        """Do a little of the work that commits put off; to be called when nothing is waiting, so that it delays nobody."""

    def history(self, user: str, limit: int | None = None, before: tuple[int, int] | None = None) -> History:
        """Return a user's log, or its last `limit` events, or the last of those `before` a time and arrival; version 0 and no events for a user without one."""

    def users(self, after: str | None = None, limit: int = 1000) -> Page:
        """Return up to `limit` users that have a log."""

    def without_state(self, model: str, after: str | None = None, limit: int = 1000) -> Page:
        """Look at up to `limit` users; return those that have events and no current state for a model."""

    def drop_states(self, keep: Collection[str], limit: int = 1000) -> int:
        """Remove about `limit` states of models other than those to keep; return how many. Call until it returns 0."""

    def retract(self, user: str, event_id: str) -> int:
        """Remove one event of a user durably, by its id; return how many went: 1, or 0 where the log holds no such event.

        The version grows, so all states become old: the next one is made by replaying what is left, and equals that of a
        log that never held the event. Where `retain` has let go of events before, a replay lacks those as well. A log of
        which nothing is left stays, at its new version. The id may be used again. The row is overwritten as those that
        `retain` lets go are; only `forget` also sees to journals and slack space.
        """

    def forget(self, user: str, scrub: bool = True) -> int:
        """Remove a user wholly and durably; return how many events went.

        Afterwards nothing of the user is there for anybody, also after a crash, and rows and journal are overwritten or cut at once, but
        for what takes longer: the events of a long log, and bytes that were moved into unused space of the files earlier. `scrub` removes those, here,
        or with `scrub=False` by later calls; `figures().traces` is true until then. Blocks that the file system has freed and older backups are beyond reach.
        """

    def scrub(self) -> float | None:
        """Remove a piece of what is left of forgotten users, in a bounded time.

        Return the seconds to wait before the next piece, None when nothing is left. A round that was interrupted begins anew.
        """

    def seed(self, fingerprint: str, histories: Iterable[tuple[str, Sequence[Event]]], again: bool = False) -> int:
        """Import the histories of a data set, once; return how many events were added.

        The fingerprint is remembered together with how far the import has come: a finished one is not repeated and
        an interrupted one goes on, so the same fingerprint must always come with the same histories in the same
        order. Data with another fingerprint is refused unless `again`: events in both would count twice.
        """

    def seeded(self) -> dict[str, bool]:
        """Return the fingerprints of the data sets imported, and whether each import has finished."""

    def retain(self, last: int | None = None, since: int | None = None, after: str | None = None, limit: int = 1000) -> Retained:
        """Let go of events beyond the `last` ones of a user and those before the time `since`, for a page of users.

        After the user with whom `RETAIN_MOST` events have gone the page ends.
        Versions and states stay: a current state has seen the events that go and remains exact. Lost is what needs
        them: a state rebuilt later (for a new model, or after a late event) replays only what is kept and so differs;
        hide-seen and `history` do not know them; and the id of a removed event is no longer recognised as a duplicate.
        """

    def backup(self, target: str | Path, progress: Progress | None = None) -> None:
        """Write a copy to a file while the store is in use; the file is an SQLite store, and appears whole or not at all."""

    def restore(self, source: str | Path, progress: Progress | None = None) -> None:
        """Put a backup in the place of everything that the store holds, whole or not at all; one that is damaged or none is refused with `InputError`.

        Every row of the backup is checked before, and it stays as it is. What was written to the store until this returns is gone, but
        versions that are given out later were not given out before. A store to which several servers may write (not `exclusive`) takes a backup
        only while it is empty and nobody uses it; if that is interrupted, the store is not opened again until it is emptied.
        """

    def check(self, progress: Progress | None = None) -> Checked:
        """Read everything, compare all checksums, and raise `StoreDamaged` where they differ."""

    def figures(self) -> Figures:
        """Return the size of the store, quickly."""

    def close(self) -> None:
        """Let go of the store; all that was acknowledged is on disk already."""
