"""Read times: integers, floats, ISO dates, yyyymmdd, or a given format."""

from __future__ import annotations

import datetime
from dataclasses import dataclass

import numpy as np

from hcarec.config import TIME_UNITS
from hcarec.data.dates import parse_days, parse_format, parse_iso
from hcarec.data.numbers import INTEGER, parse_numbers
from hcarec.data.numbers import NUMBER as ANY_NUMBER
from hcarec.data.scan import OK
from hcarec.errors import ConfigError, InputError

NUMBER, ISO, DAY = "number", "ISO date", "yyyymmdd"


@dataclass(frozen=True)
class TimeFormat:
    """How a column of texts is read as times: by `kind`, which is NUMBER, ISO, DAY or a strptime format."""

    kind: str

    def parse(self, text: np.ndarray, starts: np.ndarray, ends: np.ndarray, status: np.ndarray) -> np.ndarray:
        """Return times (n,), int64 or float64; mark rows whose time cannot be read.

        Numbers stay as they are, dates become microseconds since 1970 (UTC where no zone is given).
        """
        if self.kind == NUMBER:
            return parse_numbers(text, starts, ends, status)
        times = np.zeros(len(starts), np.int64)
        if self.kind == ISO:
            parse_iso(text, starts, ends, status, times)
        elif self.kind == DAY:
            parse_days(text, starts, ends, status, times)
        else:
            parse_format(self.kind, text, starts, ends, status, times)
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
    numbers = sum(bool(ANY_NUMBER.fullmatch(token)) for token in tokens)
    trial, times = np.zeros(len(sample), np.uint8), np.zeros(len(sample), np.int64)
    parse_iso(text, starts[sample], ends[sample], trial, times)
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
    if ANY_NUMBER.fullmatch(given.encode()) and not (len(given.strip()) == 8 and _is_day(given.strip().encode())):
        number = float(given)
        return int(given) if INTEGER.fullmatch(given.encode()) else number
    status, found = np.zeros(1, np.uint8), np.zeros(1, np.int64)
    (parse_days if given.strip().isdigit() else parse_iso)(text, start, end, status, found)
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
