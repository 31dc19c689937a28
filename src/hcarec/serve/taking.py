"""Take events in beside the store, in one go: load whom it does not know, decide about each event, make all of them durable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from hcarec.serve.messages import Status
from hcarec.serve.policy import Plan, Stamped, by_user, plan
from hcarec.serve.stores.errors import StoreError
from hcarec.serve.stores.interface import Change, Loaded, Store, Wanted

ROUNDS = 3
"""How often events are tried: the second time with what the store says of those that it refused."""
MOST_REMEMBERED = 50_000


class Group(NamedTuple):
    """Events to take in; `unknown` are the items that the model does not know, `wanted` the users whose rows the sender needs back."""

    events: Sequence[Stamped]
    unknown: list[str]
    wanted: list[str]
    model: str


class Moved(NamedTuple):
    """What events did to a user: its row before them, the version and the latest time after them, the status of each, or why nothing was done."""

    before: Loaded
    version: int
    last_time: int | None
    statuses: list[Status]
    failed: str | None = None


class Taker:
    """Takes events in for one store, of which it alone must be the owner.

    It remembers version and latest time of the users seen last. What it remembers may be old: then the store refuses the change, and the user is loaded.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._remembered: dict[str, Loaded] = {}

    def take(self, group: Group) -> list[Moved]:
        """Make events durable; return what became of each user, in the order of their first events.

        An error means that nothing was written.
        """
        events = by_user(group.events)
        unknown, wanted = set(group.unknown), set(group.wanted)
        done: dict[str, Moved] = {}
        for attempt in range(ROUNDS):
            left = {user: own for user, own in events.items() if user not in done}
            if not left:
                break
            try:
                before = self._load(left, wanted, group.model)
                plans = {user: plan(own, before[user].last_time, before[user].duplicates, lambda item: -(item in unknown)) for user, own in left.items()}
                versions = self._commit(plans, before, group.model)
            except StoreError as error:
                self._forget(left)
                if not attempt:
                    raise
                done |= {user: Moved(NOBODY, 0, None, [], str(error)) for user in left}  # others are written already
                break
            for user, version in versions.items():
                own, was = plans[user], before[user]
                if version is None:
                    self._forget([user])
                else:
                    self._remember(user, Loaded(version, own.last_time, None, frozenset(), 0))
                    done[user] = Moved(was, version, own.last_time, [one.status for one in own.taken])
        missing = "the events of this user change all the time: try again shortly"
        return [done.get(user) or Moved(NOBODY, 0, None, [], missing) for user in events]

    def _load(self, users: Mapping[str, Sequence[Stamped]], wanted: set[str], model: str) -> dict[str, Loaded]:
        """Return the rows of users; whether the log of one that is remembered holds an event already, the store says when it is written."""
        asked = [user for user in users if user in wanted or user not in self._remembered]
        rows = self._store.load([Wanted(user, _ids(users[user])) for user in asked], model) if asked else []
        return {user: self._remembered[user] for user in users if user in self._remembered} | dict(zip(asked, rows, strict=True))

    def _commit(self, plans: Mapping[str, Plan], before: Mapping[str, Loaded], model: str) -> dict[str, int | None]:
        changed = [user for user, own in plans.items() if own.add]
        changes = [Change(user, before[user].version, plans[user].add, model, None) for user in changed]
        versions = dict(zip(changed, self._store.commit(changes), strict=True)) if changes else {}
        return {user: versions[user] if user in versions else before[user].version for user in plans}

    def _remember(self, user: str, row: Loaded) -> None:
        self._remembered.pop(user, None)
        self._remembered[user] = row
        if len(self._remembered) > MOST_REMEMBERED:
            del self._remembered[next(iter(self._remembered))]

    def _forget(self, users: Sequence[str] | Mapping[str, object]) -> None:
        for user in users:
            self._remembered.pop(user, None)


NOBODY = Loaded(0, None, None, frozenset(), 0)


def _ids(events: Sequence[Stamped]) -> list[str]:
    return [event.event_id for event in events if event.event_id is not None]
