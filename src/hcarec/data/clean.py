"""Leave out what was asked to be left out, and count every event of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numba import njit

from hcarec.config import Filters
from hcarec.data.order import Log
from hcarec.data.times import moment
from hcarec.errors import ConfigError


@dataclass
class Removed:
    """What one filter removed, over all rounds."""

    what: str
    events: int = 0
    users: int = 0
    items: int = 0


@dataclass
class Cleaning:
    """Every filter with what it removed, and how many rounds it took until nothing changed."""

    removed: dict[str, Removed] = field(default_factory=dict)
    rounds: int = 0

    def apply(self, log: Log, name: str, what: str, keep: np.ndarray) -> None:
        """Keep the events of a mask and note what went."""
        entry = self.removed.setdefault(name, Removed(what))
        if keep.all():
            return
        users, items = _present(log)
        log.keep(keep)
        users_left, items_left = _present(log)
        entry.events += int(len(keep) - keep.sum())
        entry.users += users - users_left
        entry.items += items - items_left


def clean(log: Log, filters: Filters, n_items: int, time_unit: str | None) -> Cleaning:
    """Apply filters to a log in place: time range, repeats, then users and items until nothing changes any more."""
    done = Cleaning()
    _time_range(log, filters, time_unit, done)
    steps = _steps(filters, n_items)
    while steps:
        done.rounds += 1
        before = len(log.items)
        for name, what, keep in steps:
            if name != "max_user_events" or done.rounds == 1:  # users only get shorter afterwards
                done.apply(log, name, what, keep(log))
        if len(log.items) == before:
            break
    return done


def _steps(filters: Filters, n_items: int) -> list[tuple[str, str, Callable[[Log], np.ndarray]]]:
    low, high, rare = filters.min_user_events, filters.max_user_events, filters.min_item_events
    steps: list[tuple[str, str, Callable[[Log], np.ndarray]]] = []
    if filters.repeats == "consecutive":
        steps.append(("repeats", "the same item again at once", lambda log: _not_the_same_again(log)))
    elif filters.repeats == "once":
        steps.append(("repeats", "an item the user had before", lambda log: _first_of_each(log.items, log.offsets, n_items)))
    if high is not None:
        steps.append(("max_user_events", f"users with more than {high:,} events", lambda log: _of_users(log, log.lengths <= high)))
    if low > 1:
        steps.append(("min_user_events", f"users with fewer than {low:,} events", lambda log: _of_users(log, log.lengths >= low)))
    if rare > 1:
        steps.append(("min_item_events", f"items with fewer than {rare:,} events", lambda log: (np.bincount(log.items, minlength=n_items) >= rare)[log.items]))
    return steps


def _time_range(log: Log, filters: Filters, unit: str | None, done: Cleaning) -> None:
    if filters.since is None and filters.until is None:
        return
    if log.times is None or unit is None:
        raise ConfigError("--since and --until need a time column, and the log has none: name it with --time-col, or leave them out")
    if filters.since is not None:
        done.apply(log, "since", f"before {filters.since}", log.times >= moment(str(filters.since), unit, "--since"))
    if filters.until is not None:
        done.apply(log, "until", f"at or after {filters.until}", log.times < moment(str(filters.until), unit, "--until"))


def _of_users(log: Log, users: np.ndarray) -> np.ndarray:
    return np.repeat(users, log.lengths)


def _not_the_same_again(log: Log) -> np.ndarray:
    keep = log.starts()
    keep[1:] |= log.items[1:] != log.items[:-1]
    return keep


@njit(nogil=True, cache=True)
def _first_of_each(items: Any, offsets: Any, n_items: int) -> Any:
    keep = np.zeros(len(items), np.bool_)
    last_user = np.full(n_items, -1, np.int64)
    for u in range(len(offsets) - 1):
        for n in range(offsets[u], offsets[u + 1]):
            if last_user[items[n]] != u:
                last_user[items[n]] = u
                keep[n] = True
    return keep


def _present(log: Log) -> tuple[int, int]:
    """Count users and items that still have an event."""
    return int((log.lengths > 0).sum()), int(np.count_nonzero(np.bincount(log.items)))
