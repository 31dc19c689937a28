"""Read item names from a file, and what else it says about items."""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from hcarec.config import ReadOptions
from hcarec.data.files import InputFile, open_file
from hcarec.errors import InputError

_NAMES = ("title", "name", "itemname", "itemtitle", "productname", "producttitle", "movietitle", "description", "label")
_ITEMS = ("itemid", "item", "id", "productid", "movieid", "asin", "sku", "stockcode", "articleid", "newsid", "documentid")
RESERVED = ("item_id", "title", "events")
"""Columns that the catalogue of a model has already; others of that name get a low line behind."""


class Described(NamedTuple):
    """What is known of items, by their ids: names, and for every other column of the file its texts."""

    titles: dict[str, str]
    fields: dict[str, dict[str, str]]


def read_titles(path: str | Path, options: ReadOptions | None = None) -> Described:
    """Read a file with a column of item ids, one of names, and others that are kept as texts; the first text of an item counts."""
    file = InputFile(Path(path), Path(path).name)
    if not file.path.is_file():
        raise InputError(f"titles file '{path}' does not exist")
    rows = _rows(file, options or ReadOptions())
    header = next(rows, None)
    if not header:
        raise InputError(f"titles file '{path}' is empty: expected a column of item ids and one of names")
    item, name = _place(header, _ITEMS, "item ids", path), _place(header, _NAMES, "names", path)
    found: dict[int, dict[str, str]] = {place: {} for place in range(len(header)) if place != item}
    for row in rows:
        if len(row) > item:
            for place, texts in found.items():
                if place < len(row) and row[place]:
                    texts.setdefault(row[item], row[place])
    titles = found.pop(name)
    fields: dict[str, dict[str, str]] = {}
    for place, texts in found.items():
        if texts:
            fields[_field(header[place], place, fields)] = texts
    return Described(titles, fields)


def _rows(file: InputFile, options: ReadOptions) -> Iterator[list[str]]:
    with open_file(file) as (stream, _):
        head = stream.read(8)
        stream.seek(0)
        if head.startswith((b"PAR1", b"ARROW1")):
            from hcarec.data.read_frame import open_table

            frame = open_table(file, stream, head).collect()
            yield frame.columns
            yield from ([_text(value) for value in row] for row in frame.iter_rows())
            return
        text = io.TextIOWrapper(stream, encoding=options.encoding, errors="replace", newline="")
        first = text.readline().lstrip("\ufeff")
        if first.lstrip().startswith("{"):
            yield from _objects(itertools.chain([first], text), file.name)
            return
        delimiter = options.delimiter or max(",\t;|", key=first.count)
        try:
            yield from csv.reader(itertools.chain([first] if first else [], text), delimiter=delimiter)
        except csv.Error as error:
            raise InputError(f"titles file '{file.name}' cannot be read: {error}") from None


def _objects(lines: Iterable[str], name: str) -> Iterator[list[str]]:
    """Yield JSON lines as rows, the keys of the first as header."""
    try:
        objects = (json.loads(line) for line in lines if line.strip())
        first = next(objects)
        yield list(first)
        yield [_text(first[key]) for key in first]
        yield from ([_text(one.get(key)) for key in first] for one in objects)
    except (ValueError, AttributeError, TypeError):
        raise InputError(f"titles file '{name}' is not JSON lines, one object a line") from None


def _text(value: Any) -> str:
    if isinstance(value, (list, tuple, dict)):
        return json.dumps(value, ensure_ascii=False, default=str)
    return "" if value is None else str(value).encode(errors="replace").decode()  # JSON can hold half a character


def _field(name: str, place: int, taken: Collection[str]) -> str:
    """Return the name that a column is kept under."""
    simple = " ".join(_text(name).partition(":")[0].split()) or f"column {place + 1}"
    while simple in RESERVED or simple in taken:
        simple += "_"
    return simple


def _place(header: list[str], names: tuple[str, ...], what: str, path: str | Path) -> int:
    simple = ["".join(c for c in name.partition(":")[0].lower() if c.isalnum()) for name in header]
    for name in names:
        if name in simple:
            return simple.index(name)
    raise InputError(f"titles file '{path}' has no column of {what}; its columns are {', '.join(header)}: name it {names[0]}")


def as_titles(given: str | Path | Mapping[str, str] | None) -> Described | None:
    """Take names as a file or as a dict."""
    if given is None or isinstance(given, Mapping):
        return None if given is None else Described({str(item): name for item, name in given.items()}, {})
    return read_titles(given)
