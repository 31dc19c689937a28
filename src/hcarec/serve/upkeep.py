"""What a service does when nothing is waiting, a little at a time: save states, replay users for a new model, let go of what is old."""

from __future__ import annotations

import time

from hcarec.serve.live import Live
from hcarec.serve.people import Person
from hcarec.serve.policy import SECOND
from hcarec.serve.stores.interface import PAGE_EVENTS, Figures, Rebuilt

PAGE = 32
"""Users looked at in one go: what comes in meanwhile waits for it."""
REBUILT_EVENTS = 4096
"""Events read and replayed in one go, unless one user has more."""
SAVE_AFTER_S, SAVE_FROM, SAVE_QUIET_S = 1.0, 256, 0.02
"""Unsaved states are written once there are so many of them or so long after the last time, but not while events keep coming in."""
MOST_UNSAVED = 32_768
"""With more unsaved states than this, they are written even then."""
FIGURES_EVERY_S = 1.0
SCRUB_QUIET_S, SCRUB_SHARE = 0.05, 0.1
"""What is left of forgotten users is removed in short pieces: one after the other when nothing has come in for so long, else in this share of the time."""
SCRUB_AGAIN_S = 1.0
"""When it is tried again where that failed."""
DAY_S = 86_400


class Upkeep:
    """The work of quiet moments; `step` does one piece of it."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._keys: list[str] = []
        self._next_retention = 0.0
        self._retained_up_to: str | None = None
        self._saved_at = self._figures_at = self._next_scrub = self._next_scrub_under_load = time.monotonic()
        self.figures: Figures = live.store.figures()
        self.rebuilt = 0
        self.renew()

    def renew(self) -> None:
        """Begin anew because of another model: all users need states of it, those of models before the last may go."""
        key = self._live.serving.key
        self._keys = [key, *(other for other in self._keys if other != key)][:2]
        self._swept_up_to: str | None = None
        self.sweeping = self._live.serving.stateful
        self._dropping = True

    def restart(self) -> None:
        """Begin anew because all that the store holds may be other than before."""
        self.renew()
        self._next_retention, self._retained_up_to = 0.0, None

    @property
    def pressing(self) -> bool:
        """Whether something must not be put off any longer."""
        return len(self._live.unsaved) > MOST_UNSAVED

    def urgent(self) -> None:
        """Do what must not be put off for ever, in pieces that delay nobody for long."""
        self._live.store.settle()
        if self.pressing:
            self._live.save()
        elif self._should_scrub(time.monotonic(), 0.0):
            self._scrub()

    def step(self, quiet_s: float) -> bool:
        """Do one piece of work, if there is any, `quiet_s` after the last job came in; say whether there may be more."""
        now = time.monotonic()
        live = self._live
        if self._should_save(now, quiet_s):
            live.save()
            self._saved_at = now
        elif self._should_scrub(now, quiet_s):
            self._scrub()
        elif self.sweeping:
            self._sweep()
        elif live.options.retains and now >= self._next_retention:
            self._retain(now)
        elif self._dropping:
            self._dropping = live.store.drop_states(self._keys) > 0
        elif now - self._figures_at >= FIGURES_EVERY_S:
            self.figures, self._figures_at = live.store.figures(), now
        else:
            live.store.settle()
            return False
        return True

    def _should_save(self, now: float, quiet_s: float) -> bool:
        n = len(self._live.unsaved)
        due = n >= SAVE_FROM or (n > 0 and now - self._saved_at >= SAVE_AFTER_S)
        return n > MOST_UNSAVED or (due and quiet_s >= SAVE_QUIET_S)

    def _should_scrub(self, now: float, quiet_s: float) -> bool:
        return self.figures.traces and now >= (self._next_scrub if quiet_s >= SCRUB_QUIET_S else self._next_scrub_under_load)

    def _scrub(self) -> None:
        """Remove a piece of what is left of forgotten users."""
        begin = time.monotonic()
        self._next_scrub = self._next_scrub_under_load = begin + SCRUB_AGAIN_S  # where it fails, the rest of the upkeep goes on
        seconds = self._live.store.scrub()
        end = time.monotonic()
        self._next_scrub = end + (seconds or 0.0)
        self._next_scrub_under_load = max(self._next_scrub, end + (end - begin) * (1 / SCRUB_SHARE - 1))
        if seconds is None:
            self.figures = self._live.store.figures()

    def _sweep(self) -> None:
        """Replay some users that have no current state."""
        page = self._live.store.without_state(self._live.serving.key, self._swept_up_to, PAGE)
        last = self._rebuild(page.users)
        self._swept_up_to = page.after if last is None else last
        self.sweeping = self._swept_up_to is not None

    def _rebuild(self, users: list[str]) -> str | None:
        """Replay users and store their states; one with a long log is left to who asks for it, unless events are about to go.

        Return the user after which the others were left for the next time, None if it was done for all.
        """
        live = self._live
        live.began_anew()
        people: dict[str, Person] = {}
        read = 0
        for user in users:
            history = live.store.history(user, None if live.options.retains else PAGE_EVENTS + 1) if user not in live.unsaved else None
            if history is not None and history.version and (live.options.retains or len(history.events) <= PAGE_EVENTS):
                people[user] = Person(history.version, None, None, live.serving.known([event.item for event in history.events]))
            read += 0 if history is None else len(history.events)
            if read >= REBUILT_EVENTS:
                break
        if live.began_anew():  # what was read first may be of a store that is no more
            return None
        replayed = live.replay(people)
        rows = live.serving.to_store([person.row for person in replayed.values() if person.row is not None]) if replayed else []
        if rows:
            live.store.put_states([Rebuilt(user, people[user].version, live.serving.key, row) for user, row in zip(replayed, rows, strict=True)])
        self.rebuilt += len(rows)
        return user if users and user != users[-1] else None

    def _retain(self, now: float) -> None:
        """Let go of old events of some users, having made sure that states have seen them."""
        live, options = self._live, self._live.options
        while live.save():
            pass
        if live.serving.stateful:
            if self._rebuild(live.store.without_state(live.serving.key, self._retained_up_to, PAGE).users) is not None:
                return
        since = None if options.retain_days is None else int((time.time() - options.retain_days * DAY_S) * SECOND)
        done = live.store.retain(options.retain_last, since, self._retained_up_to, PAGE)
        if done.removed:
            live.people.drop_logs()
        self._retained_up_to = done.after
        if done.after is None:
            self._next_retention = now + options.retain_every_s
