"""Find rows and fields in delimited text, exactly and at memory speed.

A block of text goes in, the places of the wanted fields of every row come out. Nothing is copied and nothing is
guessed: a row with the wrong number of fields, or with quotes that do not close, is marked as such and left to the
caller. Quotes follow RFC 4180: a field that begins with a double quote ends at the next single one and may hold
delimiters, line ends and doubled quotes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from hcarec.data.words import bytes_equal, lowest_bit, repeated, word_at

OK, TOO_FEW, TOO_MANY, UNCLOSED, AFTER_QUOTE, MISSING_USER, MISSING_ITEM, BAD_TEXT, NUL, BAD_TIME, MISSING_TIME, BAD_JSON = range(12)
"""What can be wrong with a row."""

REASONS = {
    TOO_FEW: "too few fields",
    TOO_MANY: "too many fields",
    UNCLOSED: "a quote that is never closed",
    AFTER_QUOTE: "text after a closing quote",
    MISSING_USER: "missing user id",
    MISSING_ITEM: "missing item id",
    BAD_TEXT: "not valid text in the file's encoding",
    NUL: "a NUL byte in an id",
    BAD_TIME: "unparsable time",
    MISSING_TIME: "missing time",
    BAD_JSON: "not a JSON object",
}

LONGEST_QUOTED_ROW = 1 << 20
"""A row with an open quote longer than this counts as never closed: only its first line is set aside."""

_QUOTE, _NEWLINE, _RETURN = 34, 10, 13


@njit(nogil=True, cache=True)
def scan_rows(
    text: Any, begin: int, end: int, final: bool, delimiter: Any, quotes: bool, slots: Any,
    starts: Any, ends: Any, rows: Any, status: Any, escaped: Any,
) -> tuple[int, int, int]:  # fmt: skip
    """Scan whole rows of `text[begin:end]` into the output arrays until one of them is full.

    `slots` (n_fields,) says for every field which output column takes it, or -1; `starts`, `ends` (wanted, capacity)
    take its place in the text, `rows` (2, capacity) that of the row, `status` (capacity,) what is wrong with it,
    `escaped` (wanted, capacity) whether that field holds doubled quotes. Return rows found, the place where the next
    row begins, and the number of blank lines passed over.
    """
    n_fields, capacity, n, blank = len(slots), len(status), 0, 0
    first = delimiter[0]
    place = begin
    while place < end and n < capacity:
        row_begin = place
        field, state = 0, OK
        at_end_of_row = False
        while not at_end_of_row:
            if quotes and place < end and text[place] == _QUOTE:
                field_begin, place, doubled, closed = _quoted(text, place, end)
                field_end = place - 1
                if place - row_begin > LONGEST_QUOTED_ROW or (not closed and final):
                    state = UNCLOSED
                    break
                if not final and place >= end:
                    return n, row_begin, blank
                if place < end and not _ends_field(text, place, end, delimiter):
                    state = AFTER_QUOTE
            else:
                field_begin, doubled, field_end = place, False, -1
            while place < end:
                c = text[place]
                if c == _NEWLINE or (c == first and _matches(text, place, end, delimiter)):
                    break
                place += 1
            if place >= end and not final:
                return n, row_begin, blank
            at_end_of_row = place >= end or text[place] == _NEWLINE
            if field_end < 0:
                field_end = place
                if at_end_of_row and field_end > field_begin and text[field_end - 1] == _RETURN:
                    field_end -= 1
            if field < n_fields and slots[field] >= 0:
                starts[slots[field], n] = field_begin
                ends[slots[field], n] = field_end
                escaped[slots[field], n] = doubled
            field += 1
            if not at_end_of_row:
                place += len(delimiter)
        if state == UNCLOSED:  # set the first line aside and go on behind it
            place = row_begin
            while place < end and text[place] != _NEWLINE:
                place += 1
        row_end = place
        place += 1
        if row_end > row_begin and text[row_end - 1] == _RETURN:
            row_end -= 1
        if row_end == row_begin:
            blank += 1
            continue
        for missing in range(field, n_fields):
            if slots[missing] >= 0:
                starts[slots[missing], n], ends[slots[missing], n], escaped[slots[missing], n] = 0, 0, False
        if state == OK and field != n_fields:
            state = TOO_FEW if field < n_fields else TOO_MANY
        rows[0, n], rows[1, n] = row_begin, row_end
        status[n] = state
        n += 1
    return n, min(place, end), blank


@njit(nogil=True, cache=True)
def scan_plain_rows(
    text: Any, begin: int, end: int, final: bool, delimiter: int, slots: Any, starts: Any, ends: Any, rows: Any, status: Any
) -> tuple[int, int, int]:  # fmt: skip
    """Do the same for text without quotes and with a delimiter of one byte, eight bytes at a time."""
    n_fields, capacity = len(slots), len(status)
    n = blank = field = 0
    row_begin: Any = begin
    field_begin: Any = begin
    place = begin
    marks, newlines = repeated(delimiter), repeated(_NEWLINE)
    while place < end and n < capacity:
        if place + 8 <= end:
            word = word_at(text, place)
            found = bytes_equal(word, marks) | bytes_equal(word, newlines)
            width = 8
        else:  # the last few bytes, one by one; the end of a file ends its last row
            width = 1
            found = np.uint64(0x80) if text[place] == delimiter or text[place] == _NEWLINE else np.uint64(0)
        while found and n < capacity:
            at: Any = place + np.intp(lowest_bit(found) >> np.uint64(3))
            found &= found - np.uint64(1)
            at_end_of_row = text[at] == _NEWLINE
            field_end = at - 1 if at_end_of_row and at > field_begin and text[at - 1] == _RETURN else at
            if field < n_fields and slots[field] >= 0:
                starts[slots[field], n], ends[slots[field], n] = field_begin, field_end
            field += 1
            field_begin = at + 1
            if at_end_of_row:
                if field == 1 and field_end == row_begin:
                    blank += 1
                else:
                    _end_row(n, row_begin, field_end, field, slots, starts, ends, rows, status)
                    n += 1
                row_begin, field = at + 1, 0
        place += width
    if final and n < capacity and row_begin < end:
        field_end = end - 1 if end > field_begin and text[end - 1] == _RETURN else end
        if field < n_fields and slots[field] >= 0:
            starts[slots[field], n], ends[slots[field], n] = field_begin, field_end
        if field > 0 or field_end > row_begin:
            _end_row(n, row_begin, field_end, field + 1, slots, starts, ends, rows, status)
            n += 1
        else:
            blank += 1
        row_begin = end
    return n, row_begin, blank


@njit(nogil=True, cache=True)
def _end_row(n: int, begin: int, end: int, fields: int, slots: Any, starts: Any, ends: Any, rows: Any, status: Any) -> None:
    """Note where a plain row stands and whether its number of fields is right; fields that are missing are empty."""
    rows[0, n], rows[1, n] = begin, end
    status[n] = OK if fields == len(slots) else TOO_FEW if fields < len(slots) else TOO_MANY
    for missing in range(fields, len(slots)):
        if slots[missing] >= 0:
            starts[slots[missing], n], ends[slots[missing], n] = 0, 0


@njit(nogil=True, cache=True)
def _quoted(text: Any, place: int, end: int) -> tuple[int, int, bool, bool]:
    """Pass a quoted field: return where its text begins, the place behind its closing quote, doubled?, closed?"""
    begin, doubled = place + 1, False
    place += 1
    while place < end:
        if text[place] == _QUOTE:
            if place + 1 < end and text[place + 1] == _QUOTE:
                doubled = True
                place += 1
            else:
                return begin, place + 1, doubled, True
        place += 1
    return begin, place, doubled, False


@njit(nogil=True, cache=True)
def _matches(text: Any, place: int, end: int, delimiter: Any) -> bool:
    if place + len(delimiter) > end:
        return False
    for k in range(len(delimiter)):
        if text[place + k] != delimiter[k]:
            return False
    return True


@njit(nogil=True, cache=True)
def _ends_field(text: Any, place: int, end: int, delimiter: Any) -> bool:
    c = text[place]
    if c == _NEWLINE or _matches(text, place, end, delimiter):
        return True
    return bool(c == _RETURN and (place + 1 >= end or text[place + 1] == _NEWLINE))


@njit(nogil=True, cache=True)
def unescape(text: Any, starts: Any, ends: Any, status: Any, escaped: Any) -> None:
    """Turn the doubled quotes of wanted fields that stand in quotes into single ones, in place."""
    for column in range(len(starts)):
        for n in range(len(status)):
            if escaped[column, n] and status[n] == OK:
                into = starts[column, n]
                place, end = into, ends[column, n]
                while place < end:
                    text[into] = text[place]
                    place += 2 if text[place] == _QUOTE and place + 1 < end and text[place + 1] == _QUOTE else 1
                    into += 1
                ends[column, n] = into


@njit(nogil=True, cache=True)
def check_ids(text: Any, starts: Any, ends: Any, status: Any, missing: int, plain: bool) -> None:
    """Mark rows whose id is missing, holds a NUL byte or is not UTF-8; in `plain` text only the first can be."""
    for n in range(len(status)):
        if status[n] != OK:
            continue
        place, end = starts[n], ends[n]
        if place >= end:
            status[n] = missing
        while place < end and not plain:
            c = text[place]
            if c == 0:
                status[n] = NUL
                break
            if c < 0x80:
                place += 1
                continue
            width = _utf8_width(text, place, end)
            if width == 0:
                status[n] = BAD_TEXT
                break
            place += width


@njit(nogil=True, cache=True)
def _utf8_width(text: Any, place: int, end: int) -> int:
    """Return the bytes of the well-formed character at `place`, or 0."""
    c = text[place]
    if 0xC2 <= c <= 0xDF:
        width = 2
    elif 0xE0 <= c <= 0xEF:
        width = 3
    elif 0xF0 <= c <= 0xF4:
        width = 4
    else:
        return 0
    if place + width > end:
        return 0
    for k in range(1, width):
        if text[place + k] & 0xC0 != 0x80:
            return 0
    second = text[place + 1]
    if (c == 0xE0 and second < 0xA0) or (c == 0xED and second > 0x9F) or (c == 0xF0 and second < 0x90) or (c == 0xF4 and second > 0x8F):
        return 0
    return width


@njit(nogil=True, cache=True)
def trimmed(text: Any, place: int, end: int) -> tuple[int, int]:
    """Leave out spaces around text[place:end]."""
    while place < end and text[place] == 32:
        place += 1
    while end > place and text[end - 1] == 32:
        end -= 1
    return place, end


def is_plain(text: np.ndarray) -> bool:
    """Say whether a whole buffer is ASCII without NUL, so that its ids need not be looked at byte by byte."""
    return len(text) == 0 or (int(text.max()) < 0x80 and int(text.min()) > 0)


def delimiter_bytes(delimiter: str) -> np.ndarray:
    """Return a delimiter as the scanner wants it."""
    return np.frombuffer(delimiter.encode(), np.uint8)
