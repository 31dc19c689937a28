"""Find items by words of their names, or by id, while somebody types; case, accents and punctuation do not matter.

All ids and names lie folded in one array of bytes, `\\n` id `\\t` name for each item, and a search is a scan through it:
quick enough for hundreds of thousands of names, and it finds what is inside a word as well.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from hcarec.models import Model

CHUNK = 1000
"""Names folded at once: nothing else can run meanwhile."""
BLANK = 32
NONE, INSIDE, BEGINS = 0, 1, 2
"""How a typed word lies in a record: not at all, somewhere inside a word, or at the beginning of one."""


class Item(NamedTuple):
    """An item as people know it: its id, its name, how often it occurs in training, and what else is known of it."""

    item: str | int
    title: str | None
    events: int
    fields: dict[str, str]


class Found(NamedTuple):
    """The best items of a search, and how many there are in all."""

    items: list[Item]
    total: int


def describe(model: Model, index: int) -> Item:
    """Return what is known of an item."""
    fields = {name: text for name, texts in model.fields.items() if (text := texts.text(index))}
    return Item(model.item_ids[index], model.title(index), int(model.item_events[index]), fields)


def fold(text: str) -> str:
    """Return a text as it is compared: without case, accents and punctuation, words apart by one blank; lines and tabs stay."""
    text = unicodedata.normalize("NFKD", text).casefold()
    text = text.translate({ord(letter): _folded(letter) for letter in set(text)})
    text = re.sub("  +", " ", text).strip(" ")
    return text.replace(" \n", "\n").replace("\n ", "\n").replace(" \t", "\t").replace("\t ", "\t")


@cache
def _folded(letter: str) -> str | None:
    kind = unicodedata.category(letter)
    if kind in ("Mn", "Cf") or letter in "'’":  # an accent by itself, what cannot be seen, what stands inside words
        return None
    return " " if kind[0] in "PZC" and letter not in "\n\t" else letter


class Names:
    """The names of a catalogue; `order` (n_items,) are its items, the most frequent first."""

    def __init__(self, model: Model, order: np.ndarray) -> None:
        self._model, self._order = model, order
        self._places = np.argsort(order)
        self._text = np.frombuffer(b"".join(_records(model)), np.uint8)
        self._starts = np.append(np.flatnonzero(self._text == ord("\n")), len(self._text))
        self._names = np.flatnonzero(self._text == ord("\t")) + 1
        assert len(self._starts) - 1 == len(self._names) == len(order)

    def search(self, text: str, limit: int) -> Found:
        """Find the items that hold every word of a text; none at all gives the most frequent items.

        First comes the item whose id it is, then names that begin with it, then those with words that begin with its words,
        then those that have them inside; the more frequent first.
        """
        if not text.strip():
            return self._found(self._order[:limit], len(self._order))
        query = fold(text.replace("\n", " ").replace("\t", " ")).encode()
        items, ranks = self._matching(query) if query else (np.zeros(0, np.int64), np.zeros(0, np.int64))
        exact = max(self._model.item_ids.find(text), self._model.item_ids.find(text.strip()))
        if exact >= 0:
            others = items != exact
            items, ranks = np.append(items[others], exact), np.append(ranks[others], -1)
        keys = ranks * len(self._order) + self._places[items]
        best = np.argpartition(keys, limit)[:limit] if limit < len(keys) else np.arange(len(keys))
        return self._found(items[best[np.argsort(keys[best])]], len(items))

    def _found(self, items: np.ndarray, total: int) -> Found:
        return Found([describe(self._model, item) for item in items.tolist()], total)

    def _matching(self, query: bytes) -> tuple[np.ndarray, np.ndarray]:
        """Return the items that hold all words of a folded text, and the class of each: 0 is best."""
        words = sorted(set(query.split()), key=len, reverse=True)
        text, starts = self._text, self._starts
        levels = _scan(text, starts, np.frombuffer(b"".join(words), np.uint8), np.cumsum([0, *map(len, words)]))
        items = np.flatnonzero(levels)
        ranks = np.where(levels[items] == BEGINS, 2, 3)
        ranks[_begins(text, self._names[items], query)] = 1
        ranks[_begins(text, starts[items] + 1, query + b"\t")] = 0
        return items, ranks


def _records(model: Model) -> Iterator[bytes]:
    """Yield the folded ids and names of the catalogue, some at a time; an item without a name is called by its id."""
    ids, titles = list(model.item_ids.texts()), list(model.titles.texts()) if model.titles is not None else []
    for begin in range(0, len(ids), CHUNK):
        some = [text.replace("\n", " ").replace("\t", " ") for text in ids[begin : begin + CHUNK]]
        names = [text.replace("\n", " ").replace("\t", " ") for text in titles[begin : begin + CHUNK]] or some
        yield fold("".join(f"\n{item}\t{name or item}" for item, name in zip(some, names, strict=True))).encode()


def _begins(text: np.ndarray, at: np.ndarray, pattern: bytes) -> np.ndarray:
    """Say at which of some places a pattern lies, (n,) bool."""
    fits = at + len(pattern) <= len(text)
    for n, byte in enumerate(pattern):
        fits[fits] = text[at[fits] + n] == byte
    return fits


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _scan(text: Any, starts: Any, query: Any, cuts: Any) -> Any:
    """Return for each record how it holds the words query[cuts[w]:cuts[w + 1]]: as the one that it holds worst."""
    levels = np.full(len(starts) - 1, BEGINS, np.uint8)
    for n in range(len(levels)):
        for w in range(len(cuts) - 1):
            length, level = cuts[w + 1] - cuts[w], NONE
            for at in range(starts[n] + 1, starts[n + 1] - length + 1):
                if text[at] == query[cuts[w]]:
                    same = 1
                    while same < length and text[at + same] == query[cuts[w] + same]:
                        same += 1
                    if same == length:
                        level = INSIDE
                        if text[at - 1] <= BLANK:
                            level = BEGINS
                            break
            levels[n] = min(levels[n], level)
            if level == NONE:
                break
    return levels
