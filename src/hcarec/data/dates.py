"""Read dates out of text: ISO dates, yyyymmdd, and any strptime format; all become microseconds since 1970."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from hcarec.data.scan import BAD_TIME, MISSING_TIME, OK, trimmed
from hcarec.errors import ConfigError


@njit(nogil=True, cache=True)
def _digits(text: Any, place: int, end: int, count: int) -> int:
    """Read exactly `count` digits, or return -1."""
    if place + count > end:
        return -1
    value = 0
    for k in range(count):
        c = text[place + k]
        if c < 48 or c > 57:
            return -1
        value = value * 10 + (c - 48)
    return value


@njit(nogil=True, cache=True)
def _days(year: int, month: int, day: int) -> int:
    """Count the days from 1970-01-01 in the Gregorian calendar; a date that does not exist gives a huge number."""
    leap = (year % 4 == 0 and year % 100 != 0) or year % 400 == 0
    longest = 31
    if month == 2:
        longest = 29 if leap else 28
    elif month in (4, 6, 9, 11):
        longest = 30
    if year < 1 or month < 1 or month > 12 or day < 1 or day > longest:
        return 1 << 40
    shifted = year - 1 if month <= 2 else year
    era = shifted // 400
    of_era = shifted - era * 400
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468


@njit(nogil=True, cache=True)
def parse_days(text: Any, starts: Any, ends: Any, status: Any, times: Any) -> None:
    """Read yyyymmdd."""
    for n in range(len(starts)):
        if status[n] != OK:
            continue
        place, end = trimmed(text, starts[n], ends[n])
        if place == end:
            status[n] = MISSING_TIME
            continue
        days = _days(_digits(text, place, end, 4), _digits(text, place + 4, end, 2), _digits(text, place + 6, end, 2))
        if end - place != 8 or days >= 1 << 40:
            status[n] = BAD_TIME
            continue
        times[n] = days * 86_400_000_000


@njit(nogil=True, cache=True)
def parse_iso(text: Any, starts: Any, ends: Any, status: Any, times: Any) -> None:
    """Read yyyy-mm-dd, then optionally T or a space, hh:mm, :ss, a fraction, and Z or an offset."""
    for n in range(len(starts)):
        if status[n] != OK:
            continue
        place, end = trimmed(text, starts[n], ends[n])
        if place == end:
            status[n] = MISSING_TIME
            continue
        status[n] = BAD_TIME
        if end - place < 10 or text[place + 4] not in (45, 47) or text[place + 7] != text[place + 4]:
            continue
        days = _days(_digits(text, place, end, 4), _digits(text, place + 5, end, 2), _digits(text, place + 8, end, 2))
        if days >= 1 << 40:
            continue
        place += 10
        micro = np.int64(0)
        if place < end and text[place] in (84, 116, 32):
            hour, minute = _digits(text, place + 1, end, 2), _digits(text, place + 4, end, 2)
            if hour < 0 or hour > 23 or minute < 0 or minute > 59 or text[place + 3] != 58:
                continue
            micro = np.int64(hour * 3600 + minute * 60) * 1_000_000
            place += 6
            if place < end and text[place] == 58:
                second = _digits(text, place + 1, end, 2)
                if second < 0 or second > 60:
                    continue
                micro += np.int64(second) * 1_000_000
                place += 3
                if place < end and text[place] in (46, 44):
                    place += 1
                    unit = 100_000
                    while place < end and 48 <= text[place] <= 57:
                        micro += np.int64(text[place] - 48) * unit
                        unit //= 10
                        place += 1
            while place < end and text[place] == 32:
                place += 1
            if place < end and text[place] in (90, 122):
                place += 1
            elif place + 4 < end + 1 and place < end and text[place] in (43, 45):
                sign = 1 if text[place] == 43 else -1
                offset_hour = _digits(text, place + 1, end, 2)
                behind = place + 4 if place + 3 < end and text[place + 3] == 58 else place + 3
                offset_minute = _digits(text, behind, end, 2) if behind < end else 0
                if offset_hour < 0 or offset_hour > 23 or offset_minute < 0 or offset_minute > 59:
                    continue
                micro -= np.int64(sign * (offset_hour * 3600 + offset_minute * 60)) * 1_000_000
                place = min(end, behind + 2)
            elif place + 3 == end and text[place] == 85 and text[place + 1] == 84 and text[place + 2] == 67:
                place = end
        if place != end:
            continue
        status[n] = OK
        times[n] = days * 86_400_000_000 + micro


def parse_format(pattern: str, text: np.ndarray, starts: np.ndarray, ends: np.ndarray, status: np.ndarray, times: np.ndarray) -> None:
    """Read dates of a strptime format."""
    import polars as pl

    good = np.flatnonzero(status == OK)
    tokens = [text[starts[n] : ends[n]].tobytes().decode(errors="replace") for n in good]
    has_time = any(part in pattern for part in ("%H", "%I", "%T", "%R", "%s", "%X", "%c"))
    column = pl.Series(tokens, dtype=pl.String)
    try:
        parsed = (
            column.str.to_datetime(pattern, time_unit="us", strict=False) if has_time else column.str.to_date(pattern, strict=False).cast(pl.Datetime("us"))
        )
    except pl.exceptions.PolarsError as error:
        raise ConfigError(f"--time-format '{pattern}' cannot be used: {str(error).splitlines()[0]}") from None
    if parsed.dtype.time_zone is not None:  # type: ignore[attr-defined]
        parsed = parsed.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    bad = parsed.is_null().to_numpy()
    empty = ends[good] <= starts[good]
    status[good[bad]] = BAD_TIME
    status[good[bad & empty]] = MISSING_TIME
    times[good] = parsed.dt.epoch("us").fill_null(0).to_numpy()
