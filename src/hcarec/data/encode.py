"""Number ids in order of first appearance, with an exact hash table over their bytes.

Ids hold no NUL byte, so that an id of fewer than 16 bytes is told by its first two words, filled up with zeros; of longer
ones the rest is compared too. Rows are taken in small groups: hashes first, then the table's slots, then the ids they
point at, so that many waits for memory are one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from hcarec.data.scan import OK
from hcarec.data.words import fetch_soon, part_at
from hcarec.errors import InputError
from hcarec.ids import Ids

_GROUP = 64
"""Rows whose waits for memory overlap."""
_HEAD = 16
"""Bytes of an id that stand in the table itself."""
_INDEX = np.uint64(0xFFFFFFFF)


class Encoder:
    """Turn texts into indices 0, 1, 2, .. and keep the table of what was seen."""

    def __init__(self) -> None:
        self._slots = np.zeros(1 << 12, np.uint64)  # upper half: part of the hash; lower half: index + 1, 0 where free
        self._heads = np.zeros((1 << 11, 2), np.uint64)  # the first two words of every id
        self._blob = np.empty(1 << 16, np.uint8)
        self._offsets = np.zeros((1 << 11) + 1, np.int64)
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
            done, self._n = _encode(text, starts, ends, status, done, codes, self._slots, self._heads, self._blob, self._offsets, self._n)
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
            slots = np.zeros(2 * len(self._slots), np.uint64)
            _rehash(self._heads, self._blob, self._offsets, self._n, slots)
            self._slots = slots
        if self._n >= len(self._heads):
            self._heads = np.concatenate([self._heads, np.zeros_like(self._heads)])
            self._offsets = np.concatenate([self._offsets, np.zeros(len(self._offsets) - 1, np.int64)])
        if self._offsets[self._n] + length > len(self._blob):
            self._blob = np.concatenate([self._blob, np.empty(len(self._blob) + length, np.uint8)])


@njit(nogil=True, cache=True)
def _hash(first: Any, second: Any, text: Any, start: int, end: int) -> Any:
    """Hash an id: its first two words, and what follows them in text[start:end]."""
    mixed = (first ^ (np.uint64(end - start) << np.uint64(56))) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    mixed = (mixed ^ second) * np.uint64(0xC2B2AE3D27D4EB4F)
    for place in range(start + _HEAD, end, 8):
        mixed ^= mixed >> np.uint64(29)
        mixed = (mixed ^ part_at(text, place, end)) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(32)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    return mixed ^ (mixed >> np.uint64(29))


@njit(nogil=True, cache=True)
def _encode(
    text: Any, starts: Any, ends: Any, status: Any, done: int, codes: Any, slots: Any, heads: Any, blob: Any, offsets: Any, n: int
) -> tuple[int, int]:  # fmt: skip
    """Encode from row `done` on until a table is full; return where it stopped and how many ids there are now."""
    mask = np.uint64(len(slots) - 1)
    hashes, words = np.empty(_GROUP, np.uint64), np.empty((_GROUP, 2), np.uint64)
    for begin in range(done, len(starts), _GROUP):
        stop = min(begin + _GROUP, len(starts))
        for row in range(begin, stop):
            k, start, end = row - begin, starts[row], ends[row]
            words[k, 0] = part_at(text, start, end)
            words[k, 1] = part_at(text, start + 8, end) if end - start > 8 else np.uint64(0)
            hashes[k] = _hash(words[k, 0], words[k, 1], text, start, end)
            fetch_soon(slots, np.intp(hashes[k] & mask))
        for k in range(stop - begin):
            index = slots[np.intp(hashes[k] & mask)] & _INDEX
            if index:
                fetch_soon(heads, np.intp(index) - 1)
        for row in range(begin, stop):
            if status[row] != OK:
                continue
            k, start, end = row - begin, starts[row], ends[row]
            index = _find(text, start, end, words[k, 0], words[k, 1], hashes[k], slots, mask, heads, blob, offsets)
            if index < 0:  # new: -1 - its slot
                if 2 * n >= len(slots) or n >= len(heads) or offsets[n] + end - start > len(blob):
                    return row, n
                slots[-1 - index] = (hashes[k] & ~_INDEX) | np.uint64(n + 1)
                heads[n, 0], heads[n, 1] = words[k, 0], words[k, 1]
                for place in range(end - start):
                    blob[offsets[n] + place] = text[start + place]
                offsets[n + 1] = offsets[n] + end - start
                index = n
                n += 1
            codes[row] = index
    return len(starts), n


@njit(nogil=True, cache=True)
def _find(
    text: Any, start: int, end: int, first: Any, second: Any, mixed: Any, slots: Any, mask: Any, heads: Any, blob: Any, offsets: Any
) -> Any:  # fmt: skip
    """Return the index of an id, or -1 - the free slot where it belongs."""
    slot = mixed & mask
    while True:
        found = slots[np.intp(slot)]
        if found == 0:
            return -1 - np.intp(slot)
        if (found ^ mixed) >> np.uint64(32) == 0:
            index = np.intp(found & _INDEX) - 1
            if heads[index, 0] == first and heads[index, 1] == second:
                if end - start < _HEAD or _same_rest(text, start, end, blob, offsets[index], offsets[index + 1]):
                    return index
        slot = (slot + np.uint64(1)) & mask


@njit(nogil=True, cache=True)
def _same_rest(text: Any, start: int, end: int, blob: Any, begin: int, stop: int) -> bool:
    """Say whether two ids with the same first two words are the same."""
    if end - start != stop - begin:
        return False
    for k in range(_HEAD, end - start):
        if text[start + k] != blob[begin + k]:
            return False
    return True


@njit(nogil=True, cache=True)
def _rehash(heads: Any, blob: Any, offsets: Any, n: int, slots: Any) -> None:
    mask = np.uint64(len(slots) - 1)
    for index in range(n):
        mixed = _hash(heads[index, 0], heads[index, 1], blob, offsets[index], offsets[index + 1])
        slot = mixed & mask
        while slots[np.intp(slot)]:
            slot = (slot + np.uint64(1)) & mask
        slots[np.intp(slot)] = (mixed & ~_INDEX) | np.uint64(index + 1)


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
