"""Number ids in order of first appearance, with an exact hash table over their bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from hcarec.data.scan import OK
from hcarec.errors import InputError
from hcarec.ids import Ids

_PACKED = 7
"""Texts of up to this many bytes are their own key: they fit a 64-bit word together with their length."""


class Encoder:
    """Turn texts into indices 0, 1, 2, .. and keep the table of what was seen."""

    def __init__(self) -> None:
        self._slots = np.full((1 << 12, 2), -1, np.int64)  # key, index
        self._blob = np.empty(1 << 16, np.uint8)
        self._offsets = np.zeros(1 << 12, np.int64)
        self._n = 0
        self._may_be_integer = True

    def __len__(self) -> int:
        return self._n

    def encode(self, text: np.ndarray, starts: np.ndarray, ends: np.ndarray, status: np.ndarray, integer: bool | None = None) -> np.ndarray:
        """Return the indices (n,) int32 of the texts of rows that are OK, -1 elsewhere.

        `integer` says what the source knows of the column's type; None leaves it to the look of the texts.
        """
        codes = np.full(len(starts), -1, np.int32)
        if integer is False:
            self._may_be_integer = False
        done = 0
        while done < len(starts):
            self._make_room(int(ends[done]) - int(starts[done]))
            done, self._n = _encode(text, starts, ends, status, done, codes, self._slots, self._blob, self._offsets, self._n)
        return codes

    def ids(self) -> Ids:
        """Return the table, in order of first appearance."""
        offsets = self._offsets[: self._n + 1].copy()
        blob = self._blob[: offsets[-1]].copy()
        return Ids(blob, offsets, self._n > 0 and self._may_be_integer and bool(_all_integers(blob, offsets)))

    def _make_room(self, length: int) -> None:
        if 2 * self._n >= len(self._slots):
            if self._n > 1 << 30:
                raise InputError(f"more than {self._n:,} different ids: indices have 32 bits, split the log")
            slots = np.full((4 * len(self._slots), 2), -1, np.int64)
            _rehash(self._slots, slots)
            self._slots = slots
        if self._n + 1 >= len(self._offsets):
            self._offsets = np.concatenate([self._offsets, np.zeros_like(self._offsets)])
        if self._offsets[self._n] + length > len(self._blob):
            self._blob = np.concatenate([self._blob, np.empty(len(self._blob) + length, np.uint8)])


@njit(nogil=True, cache=True)
def _key(text: Any, start: int, end: int) -> Any:
    """Return a 63-bit key: the text itself where it is short, a hash with the top bits set where it is not."""
    if end - start <= _PACKED:
        key = np.uint64(end - start)
        for place in range(start, end):
            key = (key << np.uint64(8)) | np.uint64(text[place])
        return np.int64(key)
    key = np.uint64(14695981039346656037)
    for place in range(start, end):
        key = (key ^ np.uint64(text[place])) * np.uint64(1099511628211)
    return np.int64((key & np.uint64(0x7FFFFFFFFFFFFFFF)) | np.uint64(0x4000000000000000))


@njit(nogil=True, cache=True)
def _home(key: Any, mask: int) -> Any:
    mixed = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(32)
    return np.int64(mixed & np.uint64(mask))


@njit(nogil=True, cache=True)
def _encode(text: Any, starts: Any, ends: Any, status: Any, done: int, codes: Any, slots: Any, blob: Any, offsets: Any, n: int) -> tuple[int, int]:
    """Encode from row `done` on until a table is full; return where it stopped and how many ids there are now."""
    mask = len(slots) - 1
    for row in range(done, len(starts)):
        if status[row] != OK:
            continue
        start, end = starts[row], ends[row]
        key = _key(text, start, end)
        slot = _home(key, mask)
        while True:
            index = slots[slot, 1]
            if index < 0:
                if 2 * n >= len(slots) or n + 1 >= len(offsets) or offsets[n] + end - start > len(blob):
                    return row, n
                slots[slot, 0], slots[slot, 1] = key, n
                for k in range(end - start):
                    blob[offsets[n] + k] = text[start + k]
                offsets[n + 1] = offsets[n] + end - start
                codes[row] = n
                n += 1
                break
            if slots[slot, 0] == key and (end - start <= _PACKED or _same(text, start, end, blob, offsets[index], offsets[index + 1])):
                codes[row] = index
                break
            slot = (slot + 1) & mask
    return len(starts), n


@njit(nogil=True, cache=True)
def _same(text: Any, start: int, end: int, blob: Any, begin: int, stop: int) -> bool:
    if end - start != stop - begin:
        return False
    for k in range(end - start):
        if text[start + k] != blob[begin + k]:
            return False
    return True


@njit(nogil=True, cache=True)
def _rehash(old: Any, new: Any) -> None:
    mask = len(new) - 1
    for row in range(len(old)):
        if old[row, 1] >= 0:
            slot = _home(old[row, 0], mask)
            while new[slot, 1] >= 0:
                slot = (slot + 1) & mask
            new[slot, 0], new[slot, 1] = old[row, 0], old[row, 1]


@njit(nogil=True, cache=True)
def _all_integers(blob: Any, offsets: Any) -> bool:
    """Say whether every text is an integer written the way `str(int)` writes it."""
    for n in range(len(offsets) - 1):
        start, end = offsets[n], offsets[n + 1]
        if start < end and blob[start] == 45:
            start += 1
            if start < end and blob[start] == 48:
                return False
        if start == end or (blob[start] == 48 and end - start > 1):
            return False
        for place in range(start, end):
            if blob[place] < 48 or blob[place] > 57:
                return False
    return True
