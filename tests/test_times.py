"""Times of every kind, and nonsense in their place."""

from __future__ import annotations

import datetime
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import rows, write
from hcarec import prepare, read_events
from hcarec.data.batches import Texts, fresh_status
from hcarec.data.times import ISO, NUMBER, TimeFormat, moment
from hcarec.errors import ConfigError, InputError

MAY_2 = 1714608000


def times(tmp_path: Path, values: list[str], **settings: object) -> tuple[list[object], str | None, dict[str, int]]:
    lines = ["user_id,item_id,timestamp"] + [f"u,{n},{value}" for n, value in enumerate(values)]
    events = read_events(write(tmp_path / "log.csv", lines), **settings)  # type: ignore[arg-type]
    assert events.times is not None
    return events.times.tolist(), events.time_unit, events.quarantined


def parse(kind: str, tokens: list[str]) -> tuple[list[object], list[int]]:
    texts, status = Texts.of(tokens), fresh_status(len(tokens))
    found = TimeFormat(kind).parse(texts.text, texts.starts, texts.ends, status)
    return found.tolist(), status.tolist()


def test_units_are_judged_by_size(tmp_path: Path) -> None:
    for unit, scale in (("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)):
        assert times(tmp_path, [str(MAY_2 * scale)])[:2] == ([MAY_2 * scale], unit)


def test_floats_and_whole_floats(tmp_path: Path) -> None:
    assert times(tmp_path, ["1.0", "2.0"])[0] == [1, 2]
    assert times(tmp_path, ["1", "2.25", "-3", "1.7e3"])[0] == [1.0, 2.25, -3.0, 1700.0]


def test_dates(tmp_path: Path) -> None:
    values = ["2024-05-02", "2024-05-02 00:00", "2024-05-02T00:00:00Z", "2024-05-02T02:00:00+02:00", "2024-05-01T19:00:00.000-0500", "2024/05/02"]
    assert times(tmp_path, values)[:2] == ([MAY_2 * 10**6] * 6, "us")
    assert times(tmp_path, ["20240502", "20240229"])[0][0] == MAY_2 * 10**6


def test_a_given_format(tmp_path: Path) -> None:
    from hcarec import ReadOptions

    found, unit, bad = times(tmp_path, ["2.5.2024 00:00", "nonsense", ""], options=ReadOptions(time_format="%d.%m.%Y %H:%M"))
    assert (found, unit) == ([MAY_2 * 10**6], "us")
    assert bad == {"unparsable time": 1, "missing time": 1}


def test_negative_times_are_times(tmp_path: Path) -> None:
    assert times(tmp_path, ["-5", "-50000000000", "3"])[0] == [-5, -50000000000, 3]


def test_nonsense_is_quarantined(tmp_path: Path) -> None:
    found, _, bad = times(tmp_path, ["1", "nan", "inf", "-Infinity", "", "1e400", "99999999999999999999", "0x10", "1_000", "9223372036854775807"])
    assert found == [1, 9223372036854775807]
    assert bad == {"unparsable time": 7, "missing time": 1}


def test_far_future_is_kept(tmp_path: Path) -> None:
    assert times(tmp_path, ["9999-12-31", "2024-01-01"])[0][0] == 253402214400 * 10**6


def test_a_column_that_is_no_time_says_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"column 'timestamp' cannot be read as a time \('soon'\).*--time-format"):
        times(tmp_path, ["soon", "later"])


def test_frames_with_nan_and_infinite_times() -> None:
    frame = pl.DataFrame({"user_id": ["u"] * 4, "item_id": list("abcd"), "timestamp": [1.5, float("nan"), float("inf"), None]})
    events = read_events(frame)
    assert events.quarantined == {"unparsable time": 2, "missing time": 1}
    assert events.times is not None
    assert events.times.tolist() == [1.5]


def test_zoned_frames_are_brought_to_utc() -> None:
    when = datetime.datetime(2024, 5, 2, 2, tzinfo=datetime.timezone(datetime.timedelta(hours=2)))
    assert rows(prepare(pl.DataFrame({"user_id": [1], "item_id": [2], "time": [when]}))) == [(1, 2, MAY_2 * 10**6)]


@given(st.datetimes(min_value=datetime.datetime(1, 1, 1), max_value=datetime.datetime(9999, 12, 31)))
def test_iso_agrees_with_the_standard_library(when: datetime.datetime) -> None:
    expected = (when - datetime.datetime(1970, 1, 1)) // datetime.timedelta(microseconds=1)
    assert parse(ISO, [when.isoformat(), when.isoformat(" ") + "Z"]) == ([expected] * 2, [0, 0])


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=8))
def test_integers_agree_with_python(values: list[int]) -> None:
    assert parse(NUMBER, [repr(value) for value in values]) == (values, [0] * len(values))


@given(st.lists(st.one_of(st.integers(-(2**53), 2**53), st.floats(-1e15, 1e15)), min_size=1, max_size=8))
def test_floats_agree_with_python(values: list[float]) -> None:
    found, status = parse(NUMBER, [repr(value) for value in values])
    assert status == [0] * len(values)
    assert found == [float(value) for value in values]


def test_fractions_among_huge_integers_are_refused() -> None:
    with pytest.raises(InputError, match="mixes fractions with integers beyond"):
        parse(NUMBER, ["0.5", str(2**60 + 1)])


@pytest.mark.parametrize(
    "token", ["2024-02-30", "2023-02-29", "2024-13-01", "2024-05-02T24:00", "2024-05-02T10:61", "2024-05-02X10:00", "2024-05-02T10:00:00+", "2024-5-2"]
)
def test_dates_that_do_not_exist(token: str) -> None:
    assert parse(ISO, [token])[1] != [0]


def test_moments_in_every_unit() -> None:
    assert moment("2024-05-02", "s", "--since") == MAY_2
    assert moment("20240502", "ms", "--since") == MAY_2 * 10**3
    assert moment("17", "s", "--since") == 17
    with pytest.raises(ConfigError, match="--until 'soon' is not a time"):
        moment("soon", "s", "--until")
