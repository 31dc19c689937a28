"""Read times: integers, floats, ISO dates, yyyymmdd, or a given format."""

from __future__ import annotations

import datetime
import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

from hcarec.config import TIME_UNITS
from hcarec.data.scan import BAD_TIME, MISSING_TIME, OK
from hcarec.errors import ConfigError, InputError

NUMBER, ISO, DAY = "number", "ISO date", "yyyymmdd"

_INTEGER = re.compile(rb"\s*[-+]?\d+\s*")
_FLOAT = re.compile(rb"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*")
_POWERS = 10.0 ** np.arange(23)
_BAD, _WHOLE, _FRACTION, _SLOW = 0, 1, 2, 3


@dataclass(frozen=True)
class TimeFormat:
    """How a column of texts is read as times: by `kind`, which is NUMBER, ISO, DAY or a strptime format."""

    kind: str

    def parse(self, text: np.ndarray, starts: np.ndarray, ends: np.ndarray, status: np.ndarray) -> np.ndarray:
        """Return times (n,), int64 or float64; mark rows whose time cannot be read.

        Numbers stay as they are, dates become microseconds since 1970 (UTC where no zone is given).
        """
        if self.kind == NUMBER:
            return _parse_numbers(text, starts, ends, status)
        times = np.zeros(len(starts), np.int64)
        if self.kind == ISO:
            _parse_iso(text, starts, ends, status, times)
        elif self.kind == DAY:
            _parse_days(text, starts, ends, status, times)
        else:
            _parse_format(self.kind, text, starts, ends, status, times)
        return times

    @property
    def unit(self) -> str | None:
        """Return the unit that dates are stored in; that of numbers depends on their size."""
        return None if self.kind == NUMBER else "us"


def detect(text: np.ndarray, starts: np.ndarray, ends: np.ndarray, status: np.ndarray, column: str) -> TimeFormat:
    """Find the format that reads the most of a sample of texts."""
    sample = np.flatnonzero((status == OK) & (ends > starts))[:2000]
    if len(sample) == 0:
        return TimeFormat(NUMBER)
    tokens = [text[starts[n] : ends[n]].tobytes() for n in sample]
    days = sum(len(token.strip()) == 8 and token.strip().isdigit() and _is_day(token.strip()) for token in tokens)
    if days > 0.5 * len(tokens):
        return TimeFormat(DAY)
    numbers = sum(bool(_FLOAT.fullmatch(token)) for token in tokens)
    trial, times = np.zeros(len(sample), np.uint8), np.zeros(len(sample), np.int64)
    _parse_iso(text, starts[sample], ends[sample], trial, times)
    dates = int((trial == OK).sum())
    if max(numbers, dates) == 0:
        example = tokens[0][:40].decode(errors="replace")
        raise InputError(
            f"column '{column}' cannot be read as a time ('{example}'): expected a number, an ISO date or yyyymmdd; give --time-format, or another --time-col"
        )
    return TimeFormat(NUMBER if numbers >= dates else ISO)


def judge_unit(times: np.ndarray) -> str:
    """Judge the unit of numeric times by their size: seconds until the year 5138, then ms, us, ns."""
    if len(times) == 0:
        return "s"
    middle = abs(float(np.median(times)))
    return "s" if middle < 1e11 else "ms" if middle < 1e14 else "us" if middle < 1e17 else "ns"


def moment(given: str, unit: str, what: str) -> int | float:
    """Turn a date or number given as an option into a time in the data's unit."""
    text = np.frombuffer(given.strip().encode(), np.uint8)
    start, end = np.zeros(1, np.int32), np.array([len(text)], np.int32)
    if _FLOAT.fullmatch(given.encode()) and not (len(given.strip()) == 8 and _is_day(given.strip().encode())):
        number = float(given)
        return int(given) if _INTEGER.fullmatch(given.encode()) else number
    status, found = np.zeros(1, np.uint8), np.zeros(1, np.int64)
    (_parse_days if given.strip().isdigit() else _parse_iso)(text, start, end, status, found)
    if status[0] != OK:
        raise ConfigError(f"{what} '{given}' is not a time: give a date such as 2024-05-31, or a number in the data's unit ({unit})")
    microseconds = int(found[0])
    scale = TIME_UNITS[unit]
    return microseconds * (scale // 1_000_000) if scale >= 1_000_000 else microseconds // (1_000_000 // scale)


def show(time: float, unit: str | None) -> str:
    """Write a time as a date where it is one, else as a number."""
    try:
        seconds = float(time) / TIME_UNITS[unit or "s"]
        if abs(seconds) < 1e8:  # before 1973: most likely a counter, not a date
            return f"{time:.12g}"
        return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return f"{time:.12g}"


def _is_day(token: bytes) -> bool:
    try:
        return 1900 <= datetime.datetime.strptime(token.decode(), "%Y%m%d").year <= 2200
    except ValueError:
        return False


def _parse_numbers(text: np.ndarray, starts: np.ndarray, ends: np.ndarray, status: np.ndarray) -> np.ndarray:
    whole, broken = np.zeros(len(starts), np.int64), np.zeros(len(starts), np.float64)
    kind = np.zeros(len(starts), np.uint8)
    _numbers(text, starts, ends, status, _POWERS, whole, broken, kind)
    for n in np.flatnonzero(kind == _SLOW):
        value = _slow_number(text[starts[n] : ends[n]].tobytes())
        if value is None:
            status[n] = BAD_TIME
        elif isinstance(value, int):
            whole[n], kind[n] = value, _WHOLE
        else:
            broken[n], kind[n] = value, _FRACTION
    fractions = kind == _FRACTION
    if not fractions.any():
        return whole
    _check_exact(whole[~fractions])
    return np.where(fractions, broken, whole.astype(np.float64))


def join(parts: list[np.ndarray]) -> np.ndarray:
    """Put times together, as integers where all are."""
    if any(part.dtype == np.float64 for part in parts):
        for part in parts:
            if part.dtype == np.int64:
                _check_exact(part)
        parts = [part.astype(np.float64) for part in parts]
    return np.concatenate(parts)


def _check_exact(integers: np.ndarray) -> None:
    """Refuse integers that floats could not tell apart."""
    if len(integers) and int(np.abs(integers).max()) > 1 << 53:
        raise InputError("the time column mixes fractions with integers beyond 2^53, which would lose their order: bring them to one form")


def _slow_number(token: bytes) -> int | float | None:
    """Read any finite number that fits 64 bits, an integer where it is one; None for anything else."""
    if _INTEGER.fullmatch(token):
        value: int | float = int(token)
    elif _FLOAT.fullmatch(token) and math.isfinite(float(token)):
        value = float(token)
        value = int(value) if value.is_integer() else value
    else:
        return None
    return value if isinstance(value, float) or -(2**63) <= value < 2**63 else None


@njit(nogil=True, cache=True)
def _numbers(text: Any, starts: Any, ends: Any, status: Any, powers: Any, whole: Any, broken: Any, kind: Any) -> None:
    """Read numbers exactly where that is quick (up to 18 digits), leave the rest to the slow path."""
    for n in range(len(starts)):
        if status[n] != OK:
            continue
        place, end = starts[n], ends[n]
        while place < end and text[place] == 32:
            place += 1
        while end > place and text[end - 1] == 32:
            end -= 1
        if place == end:
            status[n] = MISSING_TIME
            continue
        negative = text[place] == 45
        if negative or text[place] == 43:
            place += 1
        digits, scale, mantissa = 0, -1, np.int64(0)
        while place < end:
            c = text[place]
            if 48 <= c <= 57 and digits < 18:
                mantissa = mantissa * 10 + (c - 48)
                digits += 1
                if scale >= 0:
                    scale += 1
            elif c == 46 and scale < 0:
                scale = 0
            else:
                break
            place += 1
        if place < end or digits == 0:
            kind[n] = _SLOW
            continue
        while scale > 0 and mantissa % 10 == 0:
            mantissa //= 10
            scale -= 1
        if negative:
            mantissa = -mantissa
        if scale <= 0:
            whole[n], kind[n] = mantissa, _WHOLE
        elif abs(mantissa) <= 1 << 53:
            broken[n], kind[n] = mantissa / powers[scale], _FRACTION
        else:
            kind[n] = _SLOW


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
def _parse_days(text: Any, starts: Any, ends: Any, status: Any, times: Any) -> None:
    for n in range(len(starts)):
        if status[n] != OK:
            continue
        place, end = starts[n], ends[n]
        if place == end:
            status[n] = MISSING_TIME
            continue
        days = _days(_digits(text, place, end, 4), _digits(text, place + 4, end, 2), _digits(text, place + 6, end, 2))
        if end - place != 8 or days >= 1 << 40:
            status[n] = BAD_TIME
            continue
        times[n] = days * 86_400_000_000


@njit(nogil=True, cache=True)
def _parse_iso(text: Any, starts: Any, ends: Any, status: Any, times: Any) -> None:
    """Read yyyy-mm-dd, then optionally T or a space, hh:mm, :ss, a fraction, and Z or an offset."""
    for n in range(len(starts)):
        if status[n] != OK:
            continue
        place, end = starts[n], ends[n]
        while place < end and text[place] == 32:
            place += 1
        while end > place and text[end - 1] == 32:
            end -= 1
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


def _parse_format(pattern: str, text: np.ndarray, starts: np.ndarray, ends: np.ndarray, status: np.ndarray, times: np.ndarray) -> None:
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
