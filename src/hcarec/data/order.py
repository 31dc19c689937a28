"""Bring events into order: by user, then by time, ties in file order.

A counting sort over the numbered users keeps rows in file order; then each user's events are sorted by time, stably,
where they are not in order already. The cost is linear in events, whatever the number of users.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

from hcarec.data.read import Events
from hcarec.data.words import fetch_soon
from hcarec.ids import Ids

_FEW = 24
"""Up to this many events an insertion sort is quicker than a merge sort."""
_AHEAD = 24
"""Rows ahead whose place is fetched while others are written."""


@dataclass
class Log:
    """Events by user, in order: `items` (n,) int32, `times` (n,) or None, `offsets` (n_users + 1,) int64."""

    items: np.ndarray
    times: np.ndarray | None
    offsets: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.offsets)

    def keep(self, events: np.ndarray) -> None:
        """Keep the events where the mask (n,) is true."""
        before = np.zeros(len(events) + 1, np.int64)
        np.cumsum(events, out=before[1:])
        self.offsets = before[self.offsets]
        self.items = self.items[events]
        if self.times is not None:
            self.times = self.times[events]

    def starts(self) -> np.ndarray:
        """Mark the first event of every user, (n,) bool."""
        first = np.zeros(len(self.items) + 1, np.bool_)
        first[self.offsets] = True
        return first[:-1]


def in_order(events: Events) -> Log:
    """Sort events by user and time, ties in file order."""
    offsets = np.zeros(len(events.user_ids) + 1, np.int64)
    np.cumsum(np.bincount(events.user, minlength=len(events.user_ids)), out=offsets[1:])
    with ThreadPoolExecutor(2) as pool:
        columns = [events.item] if events.times is None else [events.item, events.times]
        items, *times = pool.map(lambda column: _by_user(events.user, column, offsets), columns)
        if times:
            middle = int(np.searchsorted(offsets, offsets[-1] // 2))
            halves = [(0, middle), (middle, len(offsets) - 1)]
            list(pool.map(lambda half: _sort_by_time(items, times[0], offsets, *half), halves))
    return Log(items, times[0] if times else None, offsets)


def tied(log: Log) -> int:
    """Count events that share their time with the same user's event before."""
    if log.times is None or len(log.times) == 0:
        return 0
    return int((np.diff(log.times) == 0)[~log.starts()[1:]].sum())


def cut_into_visits(log: Log, user_ids: Ids, gap: float) -> tuple[Log, Ids]:
    """Begin a new sequence wherever more than `gap` passes between two events; name it after the user and its number, as in 'anna#2'."""
    assert log.times is not None
    starts = log.starts()
    starts[1:] |= np.diff(log.times) > gap
    offsets = np.append(np.flatnonzero(starts), len(starts)).astype(np.int64)
    owner = np.searchsorted(log.offsets, offsets[:-1], side="right") - 1
    number = np.arange(len(owner)) - np.searchsorted(owner, owner) + 1
    suffixes = Ids.of(f"#{n}" for n in range(1, int(number.max(initial=0)) + 1))
    names = _join(user_ids.take(owner), suffixes.take(number - 1))
    return Log(log.items, log.times, offsets), names


def _join(left: Ids, right: Ids) -> Ids:
    offsets = left.offsets + right.offsets
    blob = np.empty(int(offsets[-1]), np.uint8)
    for part, shift in ((left, right.offsets[:-1]), (right, left.offsets[1:])):
        blob[np.arange(len(part.blob)) + np.repeat(shift, np.diff(part.offsets))] = part.blob
    return Ids(blob, offsets)


@njit(nogil=True, cache=True)
def _by_user(user: Any, column: Any, offsets: Any) -> Any:
    sorted_column = np.empty_like(column)
    cursor = offsets.copy()
    for n in range(len(user)):
        if n + _AHEAD < len(user):
            fetch_soon(sorted_column, cursor[user[n + _AHEAD]])
        place = cursor[user[n]]
        sorted_column[place] = column[n]
        cursor[user[n]] = place + 1
    return sorted_column


@njit(nogil=True, cache=True)
def _sort_by_time(items: Any, times: Any, offsets: Any, first: int, last: int) -> None:
    for u in range(first, last):
        begin, end = offsets[u], offsets[u + 1]
        in_place = True
        for n in range(begin + 1, end):
            if times[n] < times[n - 1]:
                in_place = False
                break
        if in_place:
            continue
        if end - begin <= _FEW:
            for n in range(begin + 1, end):
                time, item, place = times[n], items[n], n
                while place > begin and times[place - 1] > time:
                    times[place], items[place] = times[place - 1], items[place - 1]
                    place -= 1
                times[place], items[place] = time, item
        else:
            order = np.argsort(times[begin:end], kind="mergesort")
            times[begin:end] = times[begin:end][order]
            items[begin:end] = items[begin:end][order]
