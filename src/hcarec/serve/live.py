"""The live core: a model and a store, and users whose states move with every event.

What a user's state is, is defined by the log alone: the model's replay of its known items, in order. Rows in memory, rows in the
store and steps are short cuts to the same bits. One at a time uses it: the thread that owns the store, or the loop when it is its turn (see `lane`);
any may read `people`.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hcarec.errors import InputError
from hcarec.serve.messages import Taken
from hcarec.serve.options import ServiceOptions
from hcarec.serve.people import NOBODY, People, Person
from hcarec.serve.policy import Plan, Stamped, by_user, plan
from hcarec.serve.serving import Serving
from hcarec.serve.stores.errors import StoreDamaged, StoreError, StoreUnreachable, failure
from hcarec.serve.stores.interface import PAGE_EVENTS, TRIM_FROM, Change, Figures, History, Loaded, Progress, Rebuilt, Store, Wanted
from hcarec.serve.taking import Group, Moved

ROUNDS = 20
"""How often events are tried again when another server was quicker."""
LONGEST_TAIL = 64
"""Items that a state may have yet to take in: many users' steps together cost little more than one's."""
SAVED_AT_ONCE = 32
"""States written in one go: events that come in meanwhile wait for it."""


class Lookup(NamedTuple):
    """A user whose state is wanted, and whether the log is, too."""

    user: str
    with_log: bool = False


class LongHistory(Exception):
    """The log of a user is too long to be read in one step; see `long_history`."""


class Sent(NamedTuple):
    """A group of events for a `Taker`: the places of each user's events in it, and the index of each event's item, -1 for one that the model does not know."""

    group: Group
    users: dict[str, list[int]]
    items: list[int]


class Known(NamedTuple):
    """A user as a model sees it."""

    serving: Serving
    person: Person


class Live:
    """A store seen through a model.

    `exclusive` says that no other server writes to the store, so that what is in memory is surely current. `unsaved` are users whose states
    the store does not have yet: to write them later, many at once, spares every event the larger part of its
    write, and a crash costs no more than the time to replay. With retention, where a replay may lack events, they are written at once.
    """

    def __init__(self, store: Store, serving: Serving, options: ServiceOptions) -> None:
        self.store, self.options = store, options
        self.exclusive = store.exclusive
        self.people = People(serving, options.cached_users)
        self.unsaved: dict[str, Person] = {}
        self._epoch = self._store_epoch()
        self.replays = 0

    def at_hand(self, user: str, with_log: bool) -> Known | None:
        """Return what is surely current of a user and enough to recommend, without the store; any thread may ask."""
        people = self.people
        person = people.get(user) if self.exclusive else None
        return Known(people.serving, person) if person is not None and person.serves(people.serving.stateful, with_log) else None

    @property
    def serving(self) -> Serving:
        """The model that answers now."""
        return self.people.serving

    def _store_epoch(self) -> object:
        return getattr(self.store, "epoch", None)

    def began_anew(self) -> bool:
        """Say whether the store lost data since it was last looked at; then nothing in memory is worth anything."""
        if (epoch := self._store_epoch()) == self._epoch:
            return False
        self._epoch = epoch
        self.switch(self.serving)
        return True

    # -- events --------------------------------------------------------------------------------------------------

    def take(self, events: Sequence[Stamped]) -> list[Taken | StoreError]:
        """Make events durable in one transaction and move the states; say for each what was done, or why it failed."""
        done: dict[str, list[Taken] | StoreError] = {}
        left = by_user(events)
        for _ in range(ROUNDS):
            self._attempt(left, done)
            if not (left := {user: own for user, own in left.items() if user not in done}):
                break
        done |= dict.fromkeys(left, StoreError("other servers change this user's events all the time: try again shortly"))
        given = {user: iter(found) for user, found in done.items() if not isinstance(found, StoreError)}
        failed = {user: found for user, found in done.items() if isinstance(found, StoreError)}
        return [failed[event.user] if event.user in failed else next(given[event.user]) for event in events]

    def group(self, events: Sequence[Stamped]) -> Sent:
        """Return events as a `Taker` takes them, who knows neither the model nor what is in memory here."""
        serving, people = self.serving, self.people
        users: dict[str, list[int]] = {}
        for place, event in enumerate(events):
            users.setdefault(event.user, []).append(place)
        items = [serving.find(event.item) for event in events]
        wanted = [user for user in users if not _serves(people.get(user), serving)]
        unknown = [event.item for event, item in zip(events, items, strict=True) if item < 0] if min(items) < 0 else []
        return Sent(Group(events, unknown, wanted, serving.key), users, items)

    def follow(self, sent: Sent, moved: Sequence[Moved]) -> list[Taken | StoreError]:
        """Move the states of users after a `Taker` has made their events durable; return what `take` does."""
        events, items = sent.group.events, sent.items
        results: list[Any] = [None] * len(events)
        after: dict[str, Person] = {}
        for (user, places), one in zip(sent.users.items(), moved, strict=True):
            if one.failed is not None:
                self.people.drop(user)
                error = failure(*one.failed)
                for place in places:
                    results[place] = error
                continue
            step: list[int] = []
            for place, status in zip(places, one.statuses, strict=True):
                event = events[place]
                results[place] = Taken(status, event.time, event.corrected)
                if status == "applied":
                    step.append(items[place])
            person = self._current(user, self.people.get(user), one.before)
            if one.version != one.before.version:
                after[user] = self._after(person, one.version, one.last_time, step, "late" in one.statuses)
        for user, person in self._shortened(after).items():
            self._hold(user, person, saved=False)
        return results

    def drop(self, sent: Sent) -> None:
        """Let go of the users of events of which it is not known whether they were written."""
        for user in sent.users:
            self.people.drop(user)

    def _attempt(self, events: Mapping[str, list[Stamped]], done: dict[str, list[Taken] | StoreError]) -> None:
        """Take the events of some users; those for whom another server was quicker stay undone."""
        try:
            done.update(self._commit(events))
        except StoreDamaged as error:  # the row of one user must not stop the others
            if len(events) == 1:
                done.update(dict.fromkeys(events, error))
                return
            for user, own in events.items():
                self._attempt({user: own}, done)

    def _commit(self, events: Mapping[str, list[Stamped]]) -> dict[str, list[Taken]]:
        serving = self.serving
        ids = {user: [event.event_id for event in own if event.event_id is not None] for user, own in events.items()}
        before = self._load(ids)
        plans = {user: plan(own, before[user][0].last_time, before[user][1], serving.find) for user, own in events.items()}
        after = self._moved({user: person for user, (person, _) in before.items()}, plans)
        changed = [user for user in plans if plans[user].add]
        states = self._states_to_commit([after[user].row for user in changed])
        changes = [Change(user, after[user].version, plans[user].add, serving.key, state) for user, state in zip(changed, states, strict=True)]
        try:
            versions = self.store.commit(changes) if changes else []
        except BaseException:  # whether anything was written is not known
            for user in changed:
                self.people.drop(user)
            raise
        for user, version, state in zip(changed, versions, states, strict=True):
            if version is None:
                self.people.drop(user)
                continue
            self._hold(user, after[user]._replace(version=version), saved=state is not None)
        refused = {user for user, version in zip(changed, versions, strict=True) if version is None}
        return {user: plans[user].taken for user in events if user not in refused}

    def _states_to_commit(self, rows: Sequence[bytes | None]) -> list[bytes | None]:
        if not (self.options.retains and self.serving.stateful):
            return [None] * len(rows)
        return [None if row is None else self.serving.to_store([row])[0] for row in rows]

    def _moved(self, people: Mapping[str, Person], plans: Mapping[str, Plan]) -> dict[str, Person]:
        """Return what becomes of users by their plans, the version still as it was."""
        moved = {}
        for user, person in people.items():
            own = plans[user]
            moved[user] = self._after(person, person.version, own.last_time, own.step, own.replay)
        return self._shortened(moved)

    def _after(self, person: Person, version: int, last_time: int | None, step: Sequence[int], replay: bool) -> Person:
        """Return a user after some more events; a state that must be replayed is left to who needs it, and so is a log that the store no longer keeps whole."""
        row = person.row
        if row is None and person.version == 0 and self.serving.stateful:
            row = self.serving.blank
        tail = person.tail + array("i", step).tobytes()
        log = person.log if person.log_events + len(tail) // array("i").itemsize < self.options.history_limit + TRIM_FROM else None
        if replay or (row is None and (log is None or self.serving.stateful)):
            return Person(version, last_time, None, None)
        return Person(version, last_time, row, log, tail, person.log_events)

    def _shortened(self, people: dict[str, Person]) -> dict[str, Person]:
        """Return users with no more items to take in than there may be."""
        longest = 0 if self.options.retains else LONGEST_TAIL * array("i").itemsize
        long = {user: person for user, person in people.items() if len(person.tail) > longest}
        return people | self._settled(long) if long else people

    def _settled(self, people: Mapping[str, Person]) -> dict[str, Person]:
        """Return users with states that have taken in all events."""
        if not people:
            return {}
        if not self.serving.stateful:
            return {user: person.settled(None) for user, person in people.items()}
        rows = self.serving.advance([person.row for person in people.values()], [person.latest for person in people.values()])
        return {user: person.settled(row) for (user, person), row in zip(people.items(), rows, strict=True)}

    def _hold(self, user: str, person: Person, saved: bool) -> None:
        self.people.put(user, person)
        self.unsaved.pop(user, None)
        if person.row is not None and not saved:
            self.unsaved[user] = person if person.log is None else person._replace(log=None)

    # -- states --------------------------------------------------------------------------------------------------

    def look_up(self, wanted: Sequence[Lookup]) -> list[Known | StoreError | LongHistory]:
        """Return what recommending for users needs, replaying logs where there is no state; an error where a user's rows are damaged or too many."""
        try:
            found = self._look_up(wanted)
        except StoreDamaged as error:
            return [error] if len(wanted) == 1 else [self.look_up([each])[0] for each in wanted]
        return [LongHistory() if (person := found.get(each.user)) is None else Known(self.serving, person) for each in wanted]

    def _look_up(self, wanted: Sequence[Lookup]) -> dict[str, Person]:
        """Return users, without those whose logs would have to be read and are long."""
        stateful = self.serving.stateful
        with_log = {each.user for each in wanted if each.with_log}
        found = {user: person for user, (person, _) in self._load({each.user: () for each in wanted}).items()}
        read = {user for user, person in found.items() if not person.serves(stateful, user in with_log)}
        for user in [*read]:
            if (person := self._read(user, found[user])) is None:
                read.remove(user)
                del found[user]
            else:
                found[user] = person
        found |= (replayed := self.replay({user: person for user, person in found.items() if not person.serves(stateful, False)}))
        for user in read:
            if found[user].version:
                self._hold(user, found[user], saved=user not in replayed and user not in self.unsaved)
        return found

    def _load(self, wanted: Mapping[str, Collection[str]]) -> dict[str, tuple[Person, Collection[str]]]:
        """Return what is known of users without reading their logs, and which of the given event ids their logs hold."""
        held = {user: self.people.get(user) for user in wanted}
        found: dict[str, tuple[Person, Collection[str]]] = {}
        if self.exclusive:
            # Whether an event is there already the store finds out by itself when it is written; then the user is loaded after all.
            found = {user: (person, ()) for user, person in held.items() if person is not None and person.serves(self.serving.stateful, False)}
        asked = [Wanted(user, ids) for user, ids in wanted.items() if user not in found]
        rows = self.store.load(asked, self.serving.key) if asked else []
        if self.began_anew():
            held = dict.fromkeys(wanted)
        for (user, _), loaded in zip(asked, rows, strict=True):
            found[user] = self._current(user, held[user], loaded), loaded.duplicates
        return found

    def _current(self, user: str, held: Person | None, loaded: Loaded) -> Person:
        """Return what is held of a user if it is as new as the row in the store, else what is in that."""
        if loaded.version == 0:
            return NOBODY
        if held is None or held.version != loaded.version or (held.row is None and loaded.state is not None):
            held = self.unsaved.get(user)
            if held is None or held.version != loaded.version:
                held = Person(loaded.version, loaded.last_time, self.serving.from_store(loaded.state), None)
            self.people.put(user, held)
        return held

    def _read(self, user: str, person: Person) -> Person | None:
        """Add the log to what is known of a user; None where it is long."""
        history = self.store.history(user, min(PAGE_EVENTS + 1, self.options.history_limit))
        if self.began_anew():
            raise StoreUnreachable("the store began anew: what was known of it is read again; try again")
        if history.version == 0:
            return NOBODY
        if len(history.events) > PAGE_EVENTS:
            return None
        log = self.serving.known([event.item for event in history.events])
        if history.version == person.version and person.row is not None:
            return person._replace(log=log[: len(log) - len(person.latest)], log_events=len(log) - len(person.latest))
        if history.version == person.version:
            return Person(person.version, person.last_time, None, log, log_events=len(log))
        last_time = max((event.time for event in history.events), default=None)
        return Person(history.version, last_time, None, log, log_events=len(log))  # another server was here

    def replay(self, people: Mapping[str, Person]) -> dict[str, Person]:
        """Return users, whose logs are at hand, with the states after them."""
        if not people:
            return {}
        logs = [person.log for person in people.values() if person.log is not None]
        assert len(logs) == len(people)
        rows = self.serving.advance([None] * len(people), logs)
        self.replays += len(people)
        return {user: person._replace(row=row) for (user, person), row in zip(people.items(), rows, strict=True)}

    def keep(self, user: str, people: People, read: Person) -> Known | None:
        """Hold on to a user whose long log was read and replayed elsewhere, for those who were `people` then.

        None if that was in vain, since the log, the model or the store is another by now.
        """
        person, _ = self._load({user: ()})[user]
        if people is not self.people or person.version != read.version:
            return None
        serving = self.serving
        if serving.stateful and person.row is not None:  # it has seen what is no longer kept as well
            person = person._replace(log=read.log, log_events=read.log_events)
        else:
            person = read._replace(last_time=person.last_time)
            self.replays += serving.stateful
        if person.version:
            self._hold(user, person, saved=user not in self.unsaved and person.row is not read.row)
        return Known(serving, person)

    def save(self, most: int = SAVED_AT_ONCE) -> int:
        """Bring some unsaved states into the store; return how many."""
        self.began_anew()  # what was unsaved then is of a store that is no more
        some = self._settled(dict(itertools.islice(self.unsaved.items(), most)))
        if some:
            rows = self.serving.to_store([person.row for person in some.values() if person.row is not None])
            self.store.put_states([Rebuilt(user, person.version, self.serving.key, row) for (user, person), row in zip(some.items(), rows, strict=True)])
            if self.began_anew():
                return 0
            for user, person in some.items():
                del self.unsaved[user]
                self.people.settle(user, person)
        return len(some)

    # -- the rest ------------------------------------------------------------------------------------------------

    def page(self, user: str, limit: int, before: tuple[int, int] | None) -> History:
        """Return some events of a user: the last ones, or those before a place."""
        return self.store.history(user, limit, before)

    def forget(self, user: str) -> int:
        """Remove a user; what slack space may still hold is left to the upkeep."""
        self.people.drop(user)
        self.unsaved.pop(user, None)
        return self.store.forget(user, scrub=False)

    def retract(self, user: str, event_id: str) -> int:
        """Remove one event; the state is made anew from the rest of the log when it is needed."""
        removed = 1
        try:
            removed = self.store.retract(user, event_id)
        finally:
            if removed:  # or whether anything was written is not known
                self.people.drop(user)
                self.unsaved.pop(user, None)
        return removed

    def restore(self, source: Path, progress: Progress) -> Figures:
        """Put a backup in the place of all that the store holds; return the size of the store after it."""
        if not self.exclusive:
            raise InputError(
                "other servers may write to a Redis store, so it is not restored while it is used: stop them, empty its database, and start one with --restore"
            )
        try:
            self.store.restore(source, progress)
        except InputError:  # a backup that is none: all is as it was
            raise
        except BaseException:  # whether it was done is not known
            self.switch(self.serving)
            raise
        self.switch(self.serving)
        return self.store.figures()

    def switch(self, serving: Serving) -> None:
        """Let another model answer from now on; users are replayed when they are touched."""
        self.people = People(serving, self.options.cached_users)
        self.unsaved.clear()


def _serves(person: Person | None, serving: Serving) -> bool:
    """Say whether what is held of a user is enough to take in an event."""
    return person is not None and person.serves(serving.stateful, False)
