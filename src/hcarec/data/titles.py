"""Read item names from a file."""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from hcarec.config import ReadOptions
from hcarec.data.files import InputFile, open_file
from hcarec.errors import InputError

_NAMES = ("title", "name", "itemname", "itemtitle", "productname", "producttitle", "movietitle", "description", "label")
_ITEMS = ("itemid", "item", "id", "productid", "movieid", "asin", "sku", "stockcode", "articleid", "newsid", "documentid")


def read_titles(path: str | Path, options: ReadOptions | None = None) -> dict[str, str]:
    """Read a file with a column of item ids and one of names into a dict; the first name of an item counts."""
    file = InputFile(Path(path), Path(path).name)
    if not file.path.is_file():
        raise InputError(f"titles file '{path}' does not exist")
    titles: dict[str, str] = {}
    rows = _rows(file, options or ReadOptions())
    header = next(rows, None)
    if not header:
        raise InputError(f"titles file '{path}' is empty: expected a column of item ids and one of names")
    item, name = _place(header, _ITEMS, "item ids", path), _place(header, _NAMES, "names", path)
    for row in rows:
        if len(row) > max(item, name) and row[name]:
            titles.setdefault(row[item], row[name])
    return titles


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
    return "" if value is None else str(value)


def _place(header: list[str], names: tuple[str, ...], what: str, path: str | Path) -> int:
    simple = ["".join(c for c in name.partition(":")[0].lower() if c.isalnum()) for name in header]
    for name in names:
        if name in simple:
            return simple.index(name)
    raise InputError(f"titles file '{path}' has no column of {what}; its columns are {', '.join(header)}: name it {names[0]}")


def as_titles(given: str | Path | Mapping[str, str] | None) -> dict[str, str] | None:
    """Take names as a file or as a dict."""
    if given is None or isinstance(given, Mapping):
        return None if given is None else {str(item): name for item, name in given.items()}
    return read_titles(given)
