"""Cut every user's events into what trains, what validates and what tests.

Every kind of split cuts a user's ordered events at two places: [0, fit) trains, [fit, seen) validates and
[seen, n) tests. The kinds differ only in where those places are.
"""

from __future__ import annotations

import datetime
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from hcarec.errors import ConfigError, DataError, nearest
from hcarec.sequences import Sequences

KINDS = ("ratio", "leave-one-out", "time", "none")
RATIO = 0.8
"""The paper's share of a user's events that train; also the default share of events before a time split's date."""
VALIDATION_RATIO = 0.8
"""Share of the training part that still trains when the rest of it validates."""

NO_CLOCK = {"number": "its times are a running number", "equal": "all its events have the same time"}
"""Kinds of times that cannot be compared across users, in words."""

When = str | int | float | datetime.date | np.datetime64


@dataclass(frozen=True)
class Part:
    """A stretch of every user's events: `items` (n,) int32, cut by `offsets` (n_users + 1,) int64; some are empty."""

    items: np.ndarray
    offsets: np.ndarray

    @cached_property
    def lengths(self) -> np.ndarray:
        """Events per user, (n_users,)."""
        return np.diff(self.offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, user: int) -> np.ndarray:
        """Return one user's item indices, oldest first."""
        return self.items[self.offsets[user] : self.offsets[user + 1]]


@dataclass(frozen=True)
class Split:
    """A log cut in parts, each over all users.

    `history` is what a prediction of the test starts from: everything before the test, the validation events among
    it and their repeats kept. `evaluated` (n_users,) bool marks users with a history and a test item, `validated`
    those with a training event and a validation item. `protocol` describes the split for comparing results.
    """

    train: Part
    validation: Part | None
    test: Part
    history: Part
    protocol: dict[str, Any]

    @property
    def counts(self) -> dict[str, int]:
        """Return the exact counts of the protocol."""
        counts: dict[str, int] = self.protocol["counts"]
        return counts

    @cached_property
    def evaluated(self) -> np.ndarray:
        return _predictable(self.history, self.test)

    @cached_property
    def validated(self) -> np.ndarray:
        return _predictable(self.train, self.validation) if self.validation is not None else np.zeros(len(self.train), bool)


def split(sequences: Sequences, how: str = "ratio", *, ratio: float = RATIO, at: When | None = None, validation: bool = False) -> Split:
    """Split a log by `ratio`, `leave-one-out`, `time` or `none`.

    `ratio` is the share of a user's events that train; under `time`, where no date `at` is given, the share of all
    events that lie before it. With `validation` the end of the training part is kept to choose the epoch by.
    """
    fit, seen, rule, parameters = _places(sequences, how, ratio, at, validation)
    history = _part(sequences, np.zeros_like(seen), seen)
    train = history if fit is seen else _part(sequences, np.zeros_like(fit), fit)
    test, test_repeats = _once(_part(sequences, seen, sequences.lengths), sequences.n_items)
    validating, validation_repeats = (None, 0)
    if validation:
        validating, validation_repeats = _once(_part(sequences, fit, seen), sequences.n_items)
    counts = {
        "users": sequences.n_users,
        "train_events": len(train.items),
        "validation_items": len(validating.items) if validating else 0,
        "test_items": len(test.items),
        "validation_repeats_removed": validation_repeats,
        "test_repeats_removed": test_repeats,
        "users_without_training_event": int((train.lengths == 0).sum()),
        "users_with_one_training_event": int((train.lengths == 1).sum()),
        "users_without_history": int((history.lengths == 0).sum()),
        "users_without_test": int((test.lengths == 0).sum()),
        "users_validated": int(_predictable(train, validating).sum()) if validating else 0,
        "users_evaluated": int(_predictable(history, test).sum()),
    }
    protocol = {"split": how, **parameters, "validation": validation, "rule": rule, "counts": counts}
    return Split(train, validating, test, history, protocol)


# -- where to cut ------------------------------------------------------------------------------------------------------


def _places(sequences: Sequences, how: str, ratio: float, at: When | None, validation: bool) -> tuple[np.ndarray, np.ndarray, str, dict[str, Any]]:
    """Return per user where training ends and where the test begins, the rule in words and its parameters."""
    if how not in KINDS:
        raise ConfigError(f"split '{how}' is not known: give one of {', '.join(KINDS)}{nearest(how, KINDS)}")
    if at is not None and how != "time":
        raise ConfigError(f"at '{at}' was given with split '{how}': only the split 'time' has a date")
    if not 0 < ratio < 1:
        raise ConfigError(f"ratio {ratio} leaves nothing to train on or to test: give a number between 0 and 1, such as {RATIO}")
    lengths = np.asarray(sequences.lengths)
    if how == "none":
        if validation:
            raise ConfigError("split 'none' trains on everything and has no validation part: choose another split, or no validation")
        return lengths, lengths, "every event trains", {}
    if how == "ratio":
        seen = _first(lengths, ratio)
        rule = f"of a user's n events the first int({ratio:g} n) train, the rest test"
        fit = _first(seen, VALIDATION_RATIO) if validation else seen
        return fit, seen, _words(rule, validation), _validation_ratio({"ratio": ratio}, validation)
    if how == "leave-one-out":
        seen = np.maximum(lengths - 1, np.minimum(lengths, 1))
        fit = np.where(lengths >= 3, seen - 1, seen) if validation else seen
        rule = "a user's last event tests, the rest train; a single event trains"
        return fit, seen, rule + "; of three events or more the one before the last validates" * validation, {}
    return _time_places(sequences, ratio, at, validation)


def _time_places(sequences: Sequences, ratio: float, at: When | None, validation: bool) -> tuple[np.ndarray, np.ndarray, str, dict[str, Any]]:
    times = sequences.times
    if times is None:
        raise DataError("the split 'time' needs times and this data has only an order: use 'ratio' or 'leave-one-out'")
    times = np.asarray(times)
    if not len(times):
        raise DataError("the split 'time' needs events and this data has none")
    _check_order(times, sequences.offsets)
    date = _time_at(times, ratio) if at is None else _moment(at, sequences.time_unit)
    _check_within(date, times, "test")
    _check_clock(sequences)
    seen = _count_before(times, sequences.offsets, date)
    rule, parameters = f"events before {date} train, the rest test", {"at": date}
    if not validation:
        return seen, seen, _words(rule, False), parameters
    training = times[times < date]
    earlier = _time_at(training, VALIDATION_RATIO)
    _check_within(earlier, training, "validation")
    fit = _count_before(times, sequences.offsets, earlier)
    rule = f"events before {earlier} train, from there to {date} validate, the rest test"
    return fit, seen, _words(rule, False), parameters | {"validation_at": earlier}


def _first(lengths: np.ndarray, ratio: float) -> np.ndarray:
    """Return int(ratio n) for each n, in the same arithmetic as Python's."""
    return (ratio * lengths).astype(np.int64)


def _words(rule: str, validation: bool) -> str:
    more = f"; of a training part of m events the first int({VALIDATION_RATIO:g} m) train, the rest validate" * validation
    return rule + more + "; an item repeated inside a user's test or validation part is kept once, in order"


def _validation_ratio(parameters: dict[str, Any], validation: bool) -> dict[str, Any]:
    return parameters | ({"validation_ratio": VALIDATION_RATIO} if validation else {})


def _moment(at: When, unit: str | None) -> int | float:
    """Turn a date or a number into a time in the data's unit; a date without a zone is UTC."""
    if isinstance(at, (int, np.integer)):
        return int(at)
    if isinstance(at, (float, np.floating)):
        if not math.isfinite(at):
            raise ConfigError(f"at {at} is not a time: give a date such as 2024-05-31, or a number in the data's unit")
        return float(at)
    from hcarec.data import times  # compiled, so only where a date is to be read

    if unit is None:
        raise ConfigError(f"at '{at}' cannot be placed: the times of this data have no known unit, give a number instead")
    return times.moment(str(at), unit, "at")


def _time_at(times: np.ndarray, ratio: float) -> int | float:
    """Return the time of the event that stands at int(ratio n) when all are sorted."""
    place = int(ratio * len(times))
    found: int | float = np.partition(times, place)[place].item()
    return found


def _check_within(date: int | float, times: np.ndarray, part: str) -> None:
    first, last = times.min().item(), times.max().item()
    if not first < date <= last:
        fault = "no event comes before it to train on" if date <= first else f"no event is left for the {part}"
        raise DataError(f"the {part} begins at {date}, the events run from {first} to {last}: {fault}, give another date or split")


def _check_clock(sequences: Sequences) -> None:
    """Refuse times that say nothing across users."""
    from hcarec.data.health_order import clock_kind  # compiles, so only where a date is to be found

    if (kind := clock_kind(sequences)) in NO_CLOCK:
        raise DataError(f"the split 'time' needs a clock, but {NO_CLOCK[kind]}: split by 'ratio' or 'leave-one-out', or prepare with real times")


def _check_order(times: np.ndarray, offsets: np.ndarray) -> None:
    falls = times[1:] < times[:-1]
    starts = np.asarray(offsets[1:-1])
    falls[starts[(starts > 0) & (starts < len(times))] - 1] = False  # from one user to the next time may fall
    if falls.any():
        raise DataError("the events of a user are not in the order of their times: prepare the data again")


def _count_before(times: np.ndarray, offsets: np.ndarray, date: int | float) -> np.ndarray:
    """Count each user's events before a date, (n_users,)."""
    before = np.zeros(len(times) + 1, np.int64)
    np.cumsum(times < date, out=before[1:])
    return np.diff(before[np.asarray(offsets)])


# -- cutting -----------------------------------------------------------------------------------------------------------


def _part(sequences: Sequences, begin: np.ndarray, end: np.ndarray) -> Part:
    """Take the events [begin, end) of every user; both (n_users,), counted within the user."""
    lengths = end - begin
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    if offsets[-1] == sequences.n_events:
        return Part(np.asarray(sequences.items), offsets)
    source = np.repeat(np.asarray(sequences.offsets[:-1]) + begin - offsets[:-1], lengths)
    source += np.arange(len(source))
    return Part(np.asarray(sequences.items)[source], offsets)


def _once(part: Part, n_items: int) -> tuple[Part, int]:
    """Keep the first of equal items inside each user's part; return also how many were removed."""
    if not len(part.items) or part.lengths.max() <= 1:
        return part, 0
    key = np.repeat(np.arange(len(part), dtype=np.int64) * n_items, part.lengths) + part.items
    by_key = np.argsort(key, kind="stable")  # stable, so that the first of equal keys is the earliest event
    kept = np.ones(len(key), bool)
    kept[by_key[1:]] = key[by_key[1:]] != key[by_key[:-1]]
    before = np.zeros(len(key) + 1, np.int64)
    np.cumsum(kept, out=before[1:])
    return Part(part.items[kept], before[part.offsets]), int(len(key) - before[-1])


def _predictable(history: Part, targets: Part | None) -> np.ndarray:
    assert targets is not None
    return (history.lengths > 0) & (targets.lengths > 0)
