"""Read JSON lines in batches."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, BinaryIO

import msgspec
import numpy as np

from hcarec.config import ReadOptions
from hcarec.data.batches import Batch, Texts, fresh_status
from hcarec.data.columns import find_columns
from hcarec.data.files import InputFile, recode
from hcarec.data.read_text import EmptyFile
from hcarec.data.scan import BAD_JSON
from hcarec.errors import InputError

LINES = 200_000
HEAD = 1000
"""Lines that are looked at to find out which keys there are."""


class JsonReader:
    """Batches of one file of JSON objects, one a line; `columns` tells which keys were taken."""

    def __init__(self, file: InputFile, stream: BinaryIO, options: ReadOptions) -> None:
        self._file = file
        if options.encoding.lower() not in ("utf-8", "utf8", "ascii"):
            stream = recode(stream, options.encoding)
        self._lines = _lines(stream)
        self._decode = msgspec.json.Decoder(dict[str, Any]).decode
        self._waiting: list[bytes] = []
        self.header = self._find_header()
        self.columns = find_columns(self.header, options, f"'{file.name}'")

    def __iter__(self) -> Iterator[Batch]:
        row, lines = 1, self._waiting
        while True:
            for line in self._lines:
                lines.append(line)
                if len(lines) >= LINES:
                    break
            if not lines:
                return
            yield self._batch(lines, row)
            row += len(lines)
            lines = []

    def _batch(self, lines: list[bytes], row: int) -> Batch:
        status = fresh_status(len(lines))
        objects: list[dict[str, Any]] = []
        for n, line in enumerate(lines):
            try:
                objects.append(self._decode(line))
            except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
                objects.append({})
                status[n] = BAD_JSON
        user, item = (_id_texts([one.get(name) for one in objects]) for name in (self.columns.user, self.columns.item))
        time = Texts.of([_text(one.get(self.columns.time)) for one in objects]) if self.columns.time else None
        event = Texts.of([_text(one.get(self.columns.event)) for one in objects]) if self.columns.event else None

        def content(n: int) -> str:
            return lines[n].decode(errors="backslashreplace").rstrip("\r\n")

        return Batch(user, item, time, event, status, row, content)

    def _find_header(self) -> list[str]:
        """Return the keys of the first objects, in order; these lines wait for the first batch."""
        keys: dict[str, None] = {}
        for line in self._lines:
            self._waiting.append(line)
            with contextlib.suppress(msgspec.DecodeError, RecursionError, UnicodeDecodeError):
                keys |= dict.fromkeys(self._decode(line))
            if len(self._waiting) >= HEAD:
                break
        if keys:
            return list(keys)
        if not self._waiting:
            raise EmptyFile(self._file.name)
        if self._waiting[0].lstrip().startswith(b"["):
            raise InputError(f"'{self._file.name}' is a JSON array: write it as JSON lines, one object a line")
        raise InputError(f"'{self._file.name}' holds no JSON object in its first {len(self._waiting):,} lines: expected one object a line")


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    """Yield the lines that are not blank."""
    left = b""
    while block := stream.read(1 << 20):
        *lines, left = (left + block).split(b"\n")
        yield from (line for line in lines if not line.isspace() and line)
    if left.strip():
        yield left


def _id_texts(values: list[Any]) -> Texts:
    integer = all(type(value) is int for value in values if value is not None)
    return Texts.of([_text(value) for value in values], integer=None if integer else False)


def _text(value: Any) -> str | None:
    """Write a value as its text; an object or a list is no id and no time."""
    if value is None or isinstance(value, (dict, list, bool)):
        return None
    return value if isinstance(value, str) else str(value)


def looks_like_json(head: np.ndarray | bytes) -> bool:
    """Say whether a file begins with a JSON object."""
    return bytes(head).lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{"
