"""What every renderer of a document asks: the pieces of a text, the groups of a table's columns, verdicts by claim, names for anchors."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

from hcarec.experiments.document import Table, Verdict

_MARKED = re.compile(r"`([^`]+)`|\*\*(\S(?:.*?\S)?)\*\*")
_NUMBER = re.compile(r"(?:[+\-−±<>≈~]\s?)?\d[\d.,\s×/:e+\-−]*(?:%|[a-zA-Z]{1,3})?|[+\-−][\d.,]+%? to [+\-−][\d.,]+%?|[–—-]?")
"""A figure, with a sign or a unit or not, an interval of differences, or the dash of a missing one."""


class Span(NamedTuple):
    """A piece of a text that is set one way."""

    text: str
    code: bool = False
    strong: bool = False


def spans(text: str, strong: bool = False) -> list[Span]:
    """Cut a text into pieces; marks without a partner stay text, white space becomes single spaces, control characters go."""
    clean = "".join(" " if unicodedata.category(one) in ("Cc", "Cs", "Zl", "Zp") else one for one in text)
    found: list[Span] = []
    place = 0
    for match in _MARKED.finditer(clean):
        found += [Span(clean[place : match.start()], strong=strong)]
        found += [Span(match[1], True, strong)] if match[1] else spans(match[2], True)
        place = match.end()
    found += [Span(clean[place:], strong=strong)]
    return [span._replace(text=re.sub(" +", " ", span.text)) for span in found if span.text]


def plain(text: str) -> str:
    """Return a text without its marks."""
    return "".join(span.text for span in spans(text)).strip()


class Group(NamedTuple):
    """Columns of a table under one heading, which is empty where there is none."""

    name: str
    columns: list[int]


def groups(table: Table) -> list[Group]:
    """Return the groups of the columns after the first; a column without one is a group of its own."""
    assert all(len(row) == len(table.columns) for row in table.rows), f"a row of '{table.title}' has more or fewer cells than there are columns"
    found, place = [], 1
    for name, width in table.groups:
        found.append(Group(name, list(range(place, place + width))))
        place += width
    assert place <= max(1, len(table.columns)), f"the groups of '{table.title}' are wider than the table"
    return found + [Group("", [column]) for column in range(place, len(table.columns))]


def numeric(table: Table, column: int) -> bool:
    """Say whether a column holds figures, which stand to the right."""
    return column > 0 and all(_NUMBER.fullmatch(plain(row[column].text)) for row in table.rows)


def by_claim(rows: Sequence[Verdict]) -> dict[str, list[tuple[int, Verdict]]]:
    """Return the verdicts, numbered, under their claims, both in the order given."""
    found: dict[str, list[tuple[int, Verdict]]] = {}
    for number, row in enumerate(rows):
        found.setdefault(row.claim, []).append((number, row))
    return found


def data_names(rows: Sequence[Verdict]) -> list[str]:
    """Return the data sets of the verdicts, each once, in the order given."""
    return list(dict.fromkeys(row.data for row in rows))


def anchor(text: str, taken: set[str]) -> str:
    """Return a name to link to that is not in `taken`, and put it there."""
    base = re.sub(r"[^a-z0-9]+", "-", plain(text).lower()).strip("-") or "part"
    name, number = base, 1
    while name in taken:
        number += 1
        name = f"{base}-{number}"
    taken.add(name)
    return name
