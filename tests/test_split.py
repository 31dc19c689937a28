from __future__ import annotations

import datetime
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcarec.data.split import Part, split
from hcarec.errors import ConfigError, DataError
from hcarec.ids import Ids
from hcarec.sequences import Sequences

N_ITEMS = 6


def log(users: list[list[tuple[int, int]]], times: bool = True) -> Sequences:
    """Build a log of (time, item) events; those of a user are put in order of time."""
    users = [sorted(events, key=lambda event: event[0]) for events in users]
    events = [event for user in users for event in user]
    return Sequences(
        items=np.array([item for _, item in events], np.int32),
        offsets=np.cumsum([0, *map(len, users)]).astype(np.int64),
        user_ids=Ids.of(range(len(users))),
        item_ids=Ids.of(range(N_ITEMS)),
        times=np.array([time for time, _ in events], np.int64) if times else None,
        time_unit="s" if times else None,
    )


def histories(*lengths: int) -> Sequences:
    """Build users of given lengths whose items all differ, as far as they go."""
    return log([[(n, n % N_ITEMS) for n in range(length)] for length in lengths])


def plain(part: Part) -> list[list[int]]:
    return [part[user].tolist() for user in range(len(part))]


def first_only(items: list[int]) -> list[int]:
    return list(dict.fromkeys(items))


events = st.tuples(st.integers(0, 20), st.integers(0, N_ITEMS - 1))
logs = st.lists(st.lists(events, max_size=14), min_size=1, max_size=6)


@given(logs, st.sampled_from([0.5, 0.7, 0.8, 0.9]), st.booleans())
def test_ratio_is_what_a_loop_over_users_gives(users: list[list[tuple[int, int]]], ratio: float, validation: bool) -> None:
    data = log(users)
    parts = split(data, "ratio", ratio=ratio, validation=validation)
    for user, whole in enumerate(map(list, data)):
        seen = int(ratio * len(whole))
        fit = int(0.8 * seen) if validation else seen
        assert parts.history[user].tolist() == whole[:seen]
        assert parts.train[user].tolist() == whole[:fit]
        assert parts.test[user].tolist() == first_only(whole[seen:])
        if validation:
            assert parts.validation is not None
            assert parts.validation[user].tolist() == first_only(whole[fit:seen])
    assert (parts.validation is None) == (not validation)


@given(logs, st.booleans())
def test_leave_one_out_is_what_a_loop_over_users_gives(users: list[list[tuple[int, int]]], validation: bool) -> None:
    data = log(users)
    parts = split(data, "leave-one-out", validation=validation)
    for user, whole in enumerate(map(list, data)):
        test = whole[-1:] if len(whole) > 1 else []
        held = whole[-2:-1] if validation and len(whole) > 2 else []
        assert parts.test[user].tolist() == test
        assert parts.train[user].tolist() == whole[: len(whole) - len(test) - len(held)]
        assert parts.history[user].tolist() == whole[: len(whole) - len(test)]
        if validation:
            assert parts.validation is not None
            assert parts.validation[user].tolist() == held


@given(logs, st.integers(1, 20), st.booleans())
def test_under_time_nothing_of_the_future_trains(users: list[list[tuple[int, int]]], at: int, validation: bool) -> None:
    data = log(users)
    try:
        parts = split(data, "time", at=at, validation=validation)
    except DataError:
        return  # no event on one side of a date; the messages are tested below
    middle = parts.protocol.get("validation_at", at)
    assert parts.protocol["at"] == at
    for user, whole in enumerate(map(list, data)):
        when = data.times[data.offsets[user] : data.offsets[user + 1]]  # type: ignore[index]
        assert parts.train[user].tolist() == [item for item, time in zip(whole, when, strict=True) if time < middle]
        assert parts.history[user].tolist() == [item for item, time in zip(whole, when, strict=True) if time < at]
        assert parts.test[user].tolist() == first_only([item for item, time in zip(whole, when, strict=True) if time >= at])


@given(logs, st.sampled_from(["ratio", "leave-one-out", "time", "none"]), st.booleans())
def test_a_split_is_an_ordered_partition_but_for_counted_repeats(users: list[list[tuple[int, int]]], how: str, validation: bool) -> None:
    data = log(users)
    validation = validation and how != "none"
    try:
        parts = split(data, how, validation=validation)
    except DataError:
        assert how == "time"
        return
    held = len(parts.validation.items) if parts.validation is not None else 0
    counts = parts.counts
    removed = counts["test_repeats_removed"] + counts["validation_repeats_removed"]
    assert len(parts.train.items) + held + len(parts.test.items) + removed == data.n_events
    assert counts["users"] == data.n_users == len(parts.train) == len(parts.test) == len(parts.history)
    for part in filter(None, (parts.train, parts.validation, parts.test, parts.history)):
        assert part.items.dtype == np.int32
        assert part.offsets.dtype == np.int64
        assert part.offsets[0] == 0
        assert part.offsets[-1] == len(part.items)
    for user, whole in enumerate(map(list, data)):
        end = len(parts.history[user])
        assert parts.history[user].tolist() == whole[:end]
        assert parts.train[user].tolist() == whole[: len(parts.train[user])]
        assert set(parts.test[user].tolist()) == set(whole[end:])
        assert len(set(parts.test[user].tolist())) == len(parts.test[user])
        assert parts.evaluated[user] == (end > 0 and end < len(whole))
        assert parts.validated[user] == (validation and 0 < len(parts.train[user]) < end)


def test_ratio_counts_as_python_does() -> None:
    data = histories(*range(300))
    for ratio in (0.8, 0.29, 0.7, 0.9, 1 / 3):
        found = split(data, "ratio", ratio=ratio).train.lengths
        assert found.tolist() == [int(ratio * n) for n in range(300)]


def test_users_left_out_are_counted_and_stay_in_place() -> None:
    parts = split(histories(0, 1, 2, 3, 10), "ratio")
    assert parts.train.lengths.tolist() == [0, 0, 1, 2, 8]
    assert parts.evaluated.tolist() == [False, False, True, True, True]
    assert parts.counts["users_without_training_event"] == 2
    assert parts.counts["users_with_one_training_event"] == 1
    assert parts.counts["users_without_history"] == 2
    assert parts.counts["users_without_test"] == 1
    assert parts.counts["users_evaluated"] == 3
    inner = split(histories(0, 1, 2, 3, 10), "ratio", validation=True)
    assert inner.train.lengths.tolist() == [0, 0, 0, 1, 6]
    assert inner.validated.tolist() == [False, False, False, True, True]
    assert inner.counts["users_validated"] == 2
    assert inner.evaluated.tolist() == parts.evaluated.tolist()


def test_an_item_of_the_test_may_be_in_the_training_part() -> None:
    data = log([[(n, item) for n, item in enumerate([1, 2, 3, 4, 1, 2, 1, 2, 2, 1])]])
    parts = split(data, "ratio", ratio=0.5)
    assert plain(parts.train) == [[1, 2, 3, 4, 1]]
    assert plain(parts.test) == [[2, 1]]
    assert parts.counts["test_repeats_removed"] == 3


def test_time_by_default_has_the_given_share_of_events_before_it() -> None:
    data = log([[(n, 0) for n in range(0, 100, 2)], [(n, 1) for n in range(1, 100, 2)]])
    parts = split(data, "time", validation=True)
    assert parts.protocol["at"] == 80
    assert parts.protocol["validation_at"] == 64
    assert len(parts.history.items) == 80
    assert len(parts.train.items) == 64


@pytest.mark.parametrize(
    "at",
    [
        86400,
        86400.0,
        np.int64(86400),
        "86400",
        "19700102",
        "1970-01-02",
        "1970-01-02T01:00:00+01:00",
        datetime.date(1970, 1, 2),
        datetime.datetime(1970, 1, 2, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=1))),
        np.datetime64("1970-01-02"),
    ],
)
def test_a_date_may_be_written_in_many_ways(at: object) -> None:
    data = log([[(86_399, 0), (86_400, 1)]])
    parts = split(data, "time", at=at)  # type: ignore[arg-type]
    assert parts.protocol["at"] == 86_400
    assert plain(parts.train) == [[0]]


def test_the_date_is_in_the_unit_of_the_data() -> None:
    seconds = log([[(86_399_000, 0), (86_400_000, 1)]])
    data = Sequences(seconds.items, seconds.offsets, seconds.user_ids, seconds.item_ids, seconds.times, "ms")
    assert split(data, "time", at="1970-01-02").protocol["at"] == 86_400_000


def test_protocols_tell_splits_apart_and_fit_into_json() -> None:
    data = log([[(n, n % N_ITEMS) for n in range(10)], [(n + 3, n % N_ITEMS) for n in range(12)]])
    made = [split(data, how) for how in ("ratio", "leave-one-out", "time", "none")]
    made += [split(data, "ratio", ratio=0.7), split(data, "ratio", validation=True)]
    texts = [json.dumps(parts.protocol, sort_keys=True) for parts in made]
    assert len(set(texts)) == len(texts)
    assert "int(0.8 n)" in made[0].protocol["rule"]


def test_a_mapped_data_set_splits_alike(tmp_path: Path) -> None:
    data = histories(3, 0, 17)
    data.save(tmp_path / "data")
    mapped = split(Sequences.open(tmp_path / "data"), "ratio", validation=True)
    assert plain(mapped.test) == plain(split(data, "ratio", validation=True).test)


@pytest.mark.parametrize("how", ["ratio", "leave-one-out", "none"])
def test_no_events_give_empty_parts(how: str) -> None:
    parts = split(log([]), how)
    assert len(parts.train.items) == len(parts.test.items) == len(parts.train) == 0


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"how": "ration"}, "did you mean 'ratio'"),
        ({"how": "ratio", "ratio": 1.0}, "between 0 and 1"),
        ({"how": "ratio", "ratio": float("nan")}, "between 0 and 1"),
        ({"how": "ratio", "at": 3}, "only the split 'time'"),
        ({"how": "none", "validation": True}, "no validation part"),
        ({"how": "time", "at": "soon"}, "at 'soon'"),
        ({"how": "time", "at": float("nan")}, "finite|not a time"),
    ],
)
def test_settings_that_make_no_sense(settings: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        split(histories(5, 5), **settings)  # type: ignore[arg-type]


def test_a_running_number_is_no_clock() -> None:
    rows = log([[(0, 1), (1, 2), (2, 3)], [(3, 1), (4, 2), (5, 3)]])
    for data in (histories(5, 8), rows):
        with pytest.raises(DataError, match="needs a clock, but its times are a running number: split by 'ratio' or 'leave-one-out'"):
            split(data, "time")
        split(data, "ratio")


def test_a_date_outside_the_data() -> None:
    with pytest.raises(DataError, match="to train on"):
        split(histories(5), "time", at=0)
    with pytest.raises(DataError, match="left for the test"):
        split(histories(5), "time", at=5)
    with pytest.raises(DataError, match="to train on"):
        split(log([[(7, 0), (7, 1)]]), "time")  # one time for all
    with pytest.raises(DataError, match="to train on"):
        split(log([[(1, 0), (1, 1), (2, 1)]]), "time", at=2, validation=True)
    with pytest.raises(DataError, match="has none"):
        split(log([]), "time")


def test_time_needs_times_in_order() -> None:
    with pytest.raises(DataError, match="needs times"):
        split(log([[(1, 1), (2, 2)]], times=False), "time")
    data = log([[(1, 1), (5, 2)], [(0, 3), (2, 4)]])
    split(data, "time")  # from one user to the next time may fall
    data.times[:2] = [5, 1]  # type: ignore[index]
    with pytest.raises(DataError, match="not in the order"):
        split(data, "time")


def test_a_date_needs_a_unit() -> None:
    data = log([[(1, 1), (2, 2)]])
    bare = Sequences(data.items, data.offsets, data.user_ids, data.item_ids, data.times)
    assert split(bare, "time", at=2).protocol["at"] == 2
    with pytest.raises(ConfigError, match="no known unit"):
        split(bare, "time", at="2024-01-01")
