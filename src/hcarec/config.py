"""What reading and preparing a log can be told, each default written once; what models are told is in `settings`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hcarec.errors import ConfigError

REPEATS = ("keep", "consecutive", "once")
TIME_UNITS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
"""Steps of a time stamp in one second, by the name of its unit."""

_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h|d)")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True)
class ReadOptions:
    """How to read a log; what is None is found out from the file."""

    user_col: str | None = None
    """Column of the user id: a name, or a position from 1 where there is no header."""
    item_col: str | None = None
    """Column of the item id."""
    time_col: str | None = None
    """Column of the time; where there is none, the file's order is the order of events."""
    event_col: str | None = None
    """Column of the event type, needed only to keep some types."""
    events: tuple[str, ...] = ()
    """Event types to keep; empty keeps all."""
    delimiter: str | None = None
    """What separates fields, one character or more."""
    header: bool = True
    """Whether the first row names the columns."""
    quotes: bool = True
    """Whether a field may stand in double quotes."""
    encoding: str = "utf-8"
    """Text encoding of the file."""
    time_format: str | None = None
    """strptime format of the time, where it is neither a number, an ISO date nor yyyymmdd."""
    time_unit: str | None = None
    """Unit of a numeric time, s, ms, us or ns; by default judged by its size."""

    def __post_init__(self) -> None:
        if self.time_unit is not None and self.time_unit not in TIME_UNITS:
            raise ConfigError(f"time unit '{self.time_unit}' is not known: give one of {', '.join(TIME_UNITS)}")
        if self.delimiter == "":
            raise ConfigError("the delimiter is empty: give at least one character")


@dataclass(frozen=True)
class Filters:
    """What to leave out; by default nothing."""

    min_user_events: int = 0
    """Leave out users with fewer events."""
    max_user_events: int | None = None
    """Leave out users with more events."""
    min_item_events: int = 0
    """Leave out items with fewer events."""
    repeats: str = "keep"
    """keep, consecutive (of a run of one item keep the first) or once (each item once per user)."""
    since: str | None = None
    """Leave out events before this date or time stamp."""
    until: str | None = None
    """Leave out events at or after this date or time stamp."""
    session_gap: str | None = None
    """Cut users into visits wherever nothing happened for longer than this."""

    def __post_init__(self) -> None:
        if self.repeats not in REPEATS:
            raise ConfigError(f"repeats '{self.repeats}' is not known: give one of {', '.join(REPEATS)}")
        for name in ("min_user_events", "min_item_events", "max_user_events"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < 0):
                raise ConfigError(f"{name} is {value!r}: give a whole number of 0 or more")
        if self.max_user_events is not None and self.max_user_events < max(1, self.min_user_events):
            raise ConfigError(f"max_user_events {self.max_user_events} is below min_user_events {max(1, self.min_user_events)}: no user could stay")
        if self.session_gap is not None:
            seconds(self.session_gap)


def seconds(span: str) -> float:
    """Turn a span such as '30m', '1.5h' or '90s' into seconds."""
    span = str(span)
    parts = _SPAN.findall(span)
    if not parts or _SPAN.sub("", span).strip():
        raise ConfigError(f"'{span}' is not a span of time: write it like 30m, 1.5h, 90s or 1d")
    total = sum(float(number) * _SECONDS[unit] for number, unit in parts)
    if total <= 0:
        raise ConfigError(f"'{span}' is no time at all: give a gap above zero")
    return total


def parse_settings(given: list[str]) -> dict[str, str | int | float | bool]:
    """Turn 'key=value' texts into settings; numbers and true or false become what they say."""
    settings: dict[str, str | int | float | bool] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"'{text}' is not a setting: write it as key=value")
        settings[name.strip().replace("-", "_")] = _value(value.strip())
    return settings


def _value(text: str) -> str | int | float | bool:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
