"""Read delimited text (CSV, TSV, RecBole's .inter, any delimiter) in batches."""

from __future__ import annotations

import codecs
import csv
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np

from hcarec.config import ReadOptions
from hcarec.data.batches import Batch, Texts
from hcarec.data.columns import Columns, find_columns
from hcarec.data.files import InputFile, recode
from hcarec.data.scan import delimiter_bytes, scan_plain_rows, scan_rows, unescape
from hcarec.errors import InputError

BLOCK = 4 << 20
QUOTE = ord('"')
_CANDIDATES = (",", "\t", ";", "|", "::")


class TextReader:
    """Batches of one delimited file; `columns` tells which columns were taken."""

    def __init__(self, file: InputFile, stream: BinaryIO, options: ReadOptions) -> None:
        self.file, self.options = file, options
        if options.encoding.lower().replace("_", "-") not in ("utf-8", "utf8", "ascii"):
            stream = recode(stream, options.encoding)
        self._stream = stream
        self._buffer = np.empty(BLOCK, np.uint8)
        self._filled, self._final = 0, False
        self._fill()
        self._skip_mark()
        first_line = self._first_line()
        inter = file.ending == ".inter"
        self.delimiter = options.delimiter or ("\t" if inter or file.ending == ".tsv" else _sniff(first_line))
        self.quotes = options.quotes and not inter
        fields = self._fields(first_line)
        self._begin = 0
        if options.header:
            self.header = fields
            self._begin = self._header_end
        else:
            self.header = [str(n + 1) for n in range(len(fields))]
        self.columns: Columns = find_columns(self.header, options, f"'{file.name}'")
        wanted = self.columns.wanted()
        self._slots = np.full(len(self.header), -1, np.int64)
        for slot, name in enumerate(wanted):
            self._slots[self.header.index(name)] = slot
        self._n_wanted = len(wanted)

    def __iter__(self) -> Iterator[Batch]:
        row, begin = 1, self._begin
        while True:
            capacity, wanted = max(1024, (self._filled - begin) // 8), self._n_wanted
            starts, ends = (np.empty((wanted, capacity), np.int32) for _ in range(2))
            rows, status, escaped = np.empty((2, capacity), np.int32), np.empty(capacity, np.uint8), np.zeros((wanted, capacity), np.bool_)
            n, begin, blank = self._scan(begin, starts, ends, rows, status, escaped)
            if n or blank:
                yield self._batch(row, blank, starts[:, :n], ends[:, :n], rows[:, :n], status[:n], escaped[:, :n])
            row += n
            if n < capacity:
                if self._final and begin >= self._filled:
                    return
                self._shift(begin)
                begin = 0

    def _batch(self, row: int, blank: int, starts: np.ndarray, ends: np.ndarray, rows: np.ndarray, status: np.ndarray, escaped: np.ndarray) -> Batch:
        text = fields = self._buffer
        if escaped.any():
            fields = text.copy()  # the rows stay as they were, for the quarantine
            unescape(fields, starts, ends, status, escaped)
        columns = [Texts(fields, starts[k], ends[k]) for k in range(self._n_wanted)]
        user, item, *others = columns
        time = others.pop(0) if self.columns.time is not None else None
        event = others.pop(0) if self.columns.event is not None else None

        def content(n: int) -> str:
            return text[rows[0, n] : rows[1, n]].tobytes().decode(errors="backslashreplace")

        return Batch(user, item, time, event, status, row, content, blank_lines=blank)

    def _scan(self, begin: int, starts: np.ndarray, ends: np.ndarray, rows: np.ndarray, status: np.ndarray, escaped: np.ndarray) -> tuple[int, int, int]:
        """Scan what the buffer holds, by the quicker way where there is nothing to quote."""
        delimiter = delimiter_bytes(self.delimiter)
        if len(delimiter) == 1 and not (self.quotes and (self._buffer[begin : self._filled] == QUOTE).any()):
            return scan_plain_rows(self._buffer, begin, self._filled, self._final, int(delimiter[0]), self._slots, starts, ends, rows, status)
        return scan_rows(self._buffer, begin, self._filled, self._final, delimiter, self.quotes, self._slots, starts, ends, rows, status, escaped)

    # -- the buffer ----------------------------------------------------------------------------------------------

    def _fill(self) -> None:
        view = memoryview(self._buffer)  # type: ignore[arg-type]
        while self._filled < len(self._buffer):
            count = self._stream.readinto(view[self._filled :])  # type: ignore[attr-defined]
            if not count:
                self._final = True
                return
            self._filled += count

    def _shift(self, begin: int) -> None:
        """Keep what is left in a new buffer (batches hold on to the old one) and fill it up."""
        left = self._filled - begin
        buffer = np.empty(max(BLOCK, 2 * left), np.uint8)
        buffer[:left] = self._buffer[begin : self._filled]
        self._buffer, self._filled = buffer, left
        self._fill()

    def _skip_mark(self) -> None:
        head = self._buffer[: min(4, self._filled)].tobytes()
        if head.startswith(codecs.BOM_UTF8):
            self._buffer[: self._filled - 3] = self._buffer[3 : self._filled].copy()
            self._filled -= 3
        elif head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise InputError(f"'{self.file.name}' is UTF-16 text: say so with --encoding utf-16")

    # -- the header ----------------------------------------------------------------------------------------------

    def _first_line(self) -> str:
        text = self._buffer[: self._filled].tobytes() if self._filled < 1 << 20 else self._buffer[: 1 << 20].tobytes()
        begin = len(text) - len(text.lstrip(b"\r\n"))
        if begin == len(text):
            raise EmptyFile(self.file.name)
        end = text.find(b"\n", begin)
        while 0 <= end < len(text) and text[begin:end].count(b'"') % 2 and self.options.quotes:
            end = text.find(b"\n", end + 1)
        if end < 0 and len(text) == 1 << 20:
            raise InputError(f"the first line of '{self.file.name}' is longer than a megabyte: this is no table of events (are its line ends missing?)")
        end = len(text) if end < 0 else end
        self._header_end = min(end + 1, self._filled)
        return text[begin:end].decode(errors="replace").rstrip("\r")

    def _fields(self, line: str) -> list[str]:
        if len(self.delimiter) == 1 and self.quotes:
            try:
                return next(csv.reader([line], delimiter=self.delimiter))
            except csv.Error as error:
                raise InputError(f"the header of '{self.file.name}' cannot be read: {error}") from None
        return line.split(self.delimiter)


class EmptyFile(InputError):
    """A file without a single row; among several files it is passed over."""

    def __init__(self, name: str) -> None:
        super().__init__(f"'{name}' is empty: expected a header and at least one event")


def _sniff(line: str) -> str:
    """Choose the delimiter that cuts the first line into the most fields; a space only where there is no other."""
    best = max(_CANDIDATES, key=line.count)
    return best if line.count(best) else " "
