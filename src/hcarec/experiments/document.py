"""A report as plain values: what it says, apart from how it looks.

Texts may hold `code` in backticks and **strong** words; everything else is shown as it is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

Holds = Literal["holds", "holds in part", "does not hold", "not tested"]


class Cell(NamedTuple):
    """A value of a table; `spread` (± 0.12) and `aside` (another's figure) are shown smaller."""

    text: str
    strong: bool = False
    spread: str = ""
    aside: str = ""


class Table(NamedTuple):
    """A table whose first column names the row; `groups` are headings over so many of the columns after the first, left to right."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""
    groups: Sequence[tuple[str, int]] = ()


class Figure(NamedTuple):
    """A drawing that lies in figures/ as `name`.png; `alt` says what it shows to those who cannot see it."""

    title: str
    name: str
    caption: str
    alt: str


class Verdict(NamedTuple):
    """What became of a claim on a data set."""

    claim: str
    data: str
    holds: Holds
    evidence: str


class Paragraph(NamedTuple):
    """Running text."""

    text: str


class Bullets(NamedTuple):
    """A list of points."""

    items: Sequence[str]


class Verdicts(NamedTuple):
    """Claims and what became of each, in the order to show them."""

    rows: Sequence[Verdict]


Block = Paragraph | Bullets | Table | Figure | Verdicts


class Section(NamedTuple):
    """A heading and what stands under it."""

    heading: str
    blocks: Sequence[Block]


class Document(NamedTuple):
    """A whole report; `facts` are names and values such as the machine, the time taken, the commit."""

    title: str
    lead: str
    sections: Sequence[Section]
    facts: Sequence[tuple[str, str]] = ()
