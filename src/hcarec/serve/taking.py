"""Take events in beside the store, in one go: load whom it does not know, decide about each event, make all of them durable."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from hcarec.serve.messages import Status
from hcarec.serve.policy import Plan, Stamped, by_user, plan
from hcarec.serve.stores.errors import StoreError
from hcarec.serve.stores.interface import Change, Loaded, Progress, Store, Wanted

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
    """What events did to a user: its row before them, the version and the latest time after them, the status of each; or the kind of error and its words."""

    before: Loaded
    version: int
    last_time: int | None
    statuses: list[Status]
    failed: tuple[str, str] | None = None


class Taker:
    """Takes events in for one store, of which it alone must be the owner.

    It remembers version and latest time of the users seen last. What it remembers may be old: then the store refuses the change, and the user is loaded.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._remembered: OrderedDict[str, Loaded] = OrderedDict()

    def take(self, group: Group) -> list[Moved]:
        """Make events durable; return what became of each user, in the order of their first events.

        An error means that nothing was written.
        """
        events = by_user(group.events)
        done: dict[str, Moved] = {}
        self._attempt(events, group, done)
        for _ in range(ROUNDS - 1):
            # Those that the store has refused; one by one, since the others are written already and an error must be nobody else's.
            for user in [user for user in events if user not in done]:
                try:
                    self._attempt({user: events[user]}, group, done)
                except StoreError as error:
                    done[user] = Moved(NOBODY, 0, None, [], (type(error).__name__, str(error)))
        missing = Moved(NOBODY, 0, None, [], (StoreError.__name__, "the events of this user change all the time: try again shortly"))
        return [done.get(user, missing) for user in events]

    def forget(self, user: str, scrub: bool) -> int:
        """Remove a user from the store, and from what is remembered."""
        self._remembered.pop(user, None)
        return self._store.forget(user, scrub)

    def restore(self, source: str, progress: Progress | None = None) -> None:
        """Put a backup in the place of all that the store holds; nothing is remembered afterwards, whatever came of it."""
        try:
            self._store.restore(source, progress)
        finally:
            self._remembered.clear()

    def _attempt(self, events: Mapping[str, Sequence[Stamped]], group: Group, done: dict[str, Moved]) -> None:
        """Take the events of some users; those that the store refuses stay undone, and are loaded the next time."""
        unknown = set(group.unknown)

        def known(item: str) -> int:
            return -1 if item in unknown else 0  # which item it is does not matter here

        try:
            before = self._load(events, set(group.wanted), group.model)
            plans = {user: plan(own, before[user].last_time, before[user].duplicates, known) for user, own in events.items()}
            versions = self._commit(plans, before, group.model)
        except StoreError:
            for user in events:
                self._remembered.pop(user, None)
            raise
        for user, version in versions.items():
            if version is None:
                self._remembered.pop(user, None)
                continue
            own = plans[user]
            self._remember(user, Loaded(version, own.last_time, None, frozenset(), 0))
            done[user] = Moved(before[user], version, own.last_time, [one.status for one in own.taken])

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
        self._remembered[user] = row
        self._remembered.move_to_end(user)
        if len(self._remembered) > MOST_REMEMBERED:
            self._remembered.popitem(last=False)


NOBODY = Loaded(0, None, None, frozenset(), 0)


def _ids(events: Sequence[Stamped]) -> list[str]:
    return [event.event_id for event in events if event.event_id is not None]
