from __future__ import annotations

import io
import json
import lzma
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcarec.data import health, health_order
from hcarec.data.finding import Finding, level, percent
from hcarec.data.inspect import inspect
from hcarec.data.split import split
from hcarec.data.synthetic import synthetic
from hcarec.ids import Ids
from hcarec.sequences import Sequences


def log(users: list[list[int]], times: list[list[float]] | None = None, unit: str = "s", n_items: int | None = None) -> Sequences:
    items = [item for user in users for item in user]
    return Sequences(
        items=np.array(items, np.int32),
        offsets=np.cumsum([0, *map(len, users)]).astype(np.int64),
        user_ids=Ids.of(range(len(users))),
        item_ids=Ids.of(range(n_items or max(items, default=0) + 1)),
        times=None if times is None else np.array([time for user in times for time in user]),
        time_unit=None if times is None else unit,
    )


def by_name(data: Sequences) -> dict[str, Finding]:
    findings = health.check(data)
    assert len({finding.name for finding in findings}) == len(findings)
    return {finding.name: finding for finding in findings}


@pytest.fixture(scope="module")
def good() -> dict[str, Finding]:
    return by_name(synthetic(users=1500, items=300, mean_length=30))


def test_a_healthy_log_has_no_warning_but_the_leak_of_a_ratio_split(good: dict[str, Finding]) -> None:
    assert {name for name, finding in good.items() if finding.level == "warn"} == {"leak"}
    assert good["order"].level == "ok"
    assert "3 back" in good["order"].text
    assert good["order"].advice == "Give hca-gru windows of at least 3."


def test_every_warning_says_what_to_do(good: dict[str, Finding]) -> None:
    for finding in [*good.values(), *health.check(log([[0], [1]])), *health.check(log([]))]:
        assert finding.level in ("ok", "note", "warn")
        assert finding.text.endswith(".")
        assert finding.level != "warn" or finding.advice.endswith(".")


def test_every_check_is_documented(good: dict[str, Finding]) -> None:
    page = (Path(__file__).parents[1] / "docs" / "health.md").read_text()
    for name in good:
        assert f"### {name}\n" in page


# -- time and order


def test_ties_make_the_order_doubtful() -> None:
    data = synthetic(users=300, items=100)
    assert data.times is not None
    by_day = replace(data, times=data.times // 86_400 * 86_400)
    assert by_name(by_day)["ties"].level == "warn"
    assert by_name(by_day)["ties"].figure == pytest.approx(0.85, abs=0.05)
    assert by_name(data)["ties"].level == "ok"


def test_an_order_that_hangs_on_ties_is_a_warning() -> None:
    data = synthetic(users=500, items=300, lag=1, interest=0.7, taste=0.2)
    place = np.arange(data.n_events) - np.repeat(data.offsets[:-1], data.lengths)
    users = np.repeat(np.arange(data.n_users), data.lengths)
    baskets = replace(data, times=1_700_000_000 + (place // 20 * 100 + users % 100) * 3600)
    found = by_name(baskets)["order"]
    assert found.level == "warn"
    assert "of one time" in found.text
    assert by_name(data)["order"].level == "ok"


def test_no_order_is_a_warning() -> None:
    found = by_name(synthetic(users=1500, interest=0))["order"]
    assert found.level == "warn"
    assert found.figure == pytest.approx(0, abs=0.05)


def test_few_users_leave_the_question_open() -> None:
    found = by_name(synthetic(users=20))["order"]
    assert (found.level, found.figure) == ("note", None)


def test_a_row_number_is_not_a_clock() -> None:
    data = synthetic(users=200, items=50)
    rows = np.arange(data.n_events)
    place = rows - np.repeat(data.offsets[:-1], data.lengths)
    kept = np.sort(np.random.default_rng(0).permutation(10 * data.n_events)[: data.n_events])  # rows left after filters
    for numbers in (rows, rows + 1, place, place + 1, kept, rows.astype(float)):
        counted = replace(data, times=numbers)
        assert health_order.clock_kind(counted) == "number"
        found = by_name(counted)
        assert [found[name].figure for name in ("times", "ties", "leak")] == [None, None, None]
        assert "'time'" in found["times"].advice
    assert health_order.clock_kind(data) == "clock"
    assert health_order.clock_kind(replace(data, times=data.times - data.times.min())) == "clock"  # type: ignore[operator,union-attr]


def test_a_person_cut_into_visits_has_a_clock() -> None:
    visits = [[1_600_000_000 + 100_000 * visit + 60 * event for event in range(4)] for visit in range(30)]
    assert health_order.clock_kind(log([[0, 1, 2, 3]] * 30, visits)) == "clock"


@pytest.mark.parametrize(
    ("times", "unit", "word", "figure"),
    [
        ([-5, 1_600_000_000, 1_600_000_001, 1_600_000_002], "s", "before 1970", 0.25),
        ([0, 0, 1_600_000_001, 1_600_000_002], "s", "exactly zero", 0.5),
        ([1_600_000_000, 1_600_000_001, 1_600_000_002, 1_600_000_000_000], "s", "after 2100", 0.25),
        ([1_600_000_000_000, 1_600_000_000_001, 1_600_000_000_002, 9_600_000_000_000], "ms", "after 2100", 0.25),
    ],
)
def test_times_that_cannot_be_right(times: list[float], unit: str, word: str, figure: float) -> None:
    found = by_name(log([[0, 1, 0, 1]], [times], unit))["times"]
    assert found.level == "warn"
    assert word in found.text
    assert found.figure == pytest.approx(figure)


def test_one_time_for_all_and_times_from_an_unknown_day() -> None:
    assert by_name(log([[0, 1], [1, 0]], [[7, 7], [7, 7]]))["times"].level == "warn"
    unknown = by_name(log([[0, 1], [1, 0]], [[60, 7000], [90, 8000]]))["times"]
    assert unknown.level == "note"
    assert "1970" in unknown.text
    assert by_name(log([[0, 1], [1, 0]]))["times"].figure is None


# -- users and items


def test_short_users() -> None:
    found = by_name(log([[0, 1]] * 6 + [[0, 1, 0, 1]] * 4))["short users"]
    assert (found.level, found.figure) == ("warn", 0.6)
    assert "60% of users have fewer than 3 events, 100% fewer than 5" in found.text
    assert by_name(log([[0, 1, 0]] * 10))["short users"].level == "ok"


def test_a_user_of_many_events() -> None:
    crowd = [[0, 1, 2, 3, 4]] * 100
    assert by_name(log([*crowd, [0, 1] * 50]))["long users"].level == "warn"
    assert by_name(log([*crowd, [0, 1, 2, 3, 4]]))["long users"].level == "ok"
    many = by_name(log([*crowd * 250, [0, 1] * 600]))["long users"]  # not a hundredth of the log, but endless
    assert many.level == "note"


def test_rare_items_and_a_catalogue_too_large() -> None:
    found = by_name(log([[item] * 2 for item in range(50)]))
    assert (found["rare items"].level, found["rare items"].figure) == ("warn", 1.0)
    assert (found["catalogue"].level, found["catalogue"].figure) == ("warn", 2.0)
    assert by_name(log([[item] * 5 for item in range(50)]))["catalogue"].level == "note"


def test_an_item_that_dominates() -> None:
    rng = np.random.default_rng(0)
    users = [[int(item) for item in rng.integers(0, 100, 10)] for _ in range(50)]
    assert by_name(log(users))["top item"].level == "ok"
    assert by_name(log([[0, *user[:2], 0] for user in users]))["top item"].level == "warn"


def test_repeats_decide_whether_to_hide_what_was_seen() -> None:
    often, seldom = by_name(log([[0, 1, 0, 1, 0]] * 5))["repeats"], by_name(log([[0, 1, 2]] * 5))["repeats"]
    assert often.figure == pytest.approx(0.6)
    assert "Do not use --hide-seen" in often.advice
    assert seldom.figure == 0
    assert "Use --hide-seen" in seldom.advice


def test_the_same_item_again() -> None:
    assert by_name(log([[0, 0, 1]] * 5))["same again"].level == "note"
    assert by_name(log([[0, 1, 0]] * 5))["same again"].level == "ok"


# -- the split


def test_test_items_never_trained_on() -> None:
    found = by_name(log([[0, 1, 2, 3, 4], [0, 1, 2, 3, 0]], n_items=5))["unseen test items"]
    assert found.figure == pytest.approx(0.5)
    assert found.level == "warn"
    assert "50%" in found.advice


@given(st.lists(st.lists(st.integers(0, 30), min_size=2, max_size=8), min_size=2, max_size=5))
def test_leak_is_the_mean_share_of_training_that_lies_ahead(times: list[list[int]]) -> None:
    when = [sorted(user) for user in times]
    data = log([[0] * len(user) for user in when], [[float(time) for time in user] for user in when])
    training = [time for user in when for time in user[: int(0.8 * len(user))]]
    tests = [time for user in when for time in user[int(0.8 * len(user)) :]]
    expected = np.mean([[later > test for later in training] for test in tests])
    assert health.leak(data, split(data, "ratio").train.lengths) == pytest.approx(expected)


def test_leak_is_nothing_where_all_train_before_any_tests() -> None:
    data = log([[0, 1, 2, 3, 4]] * 2, [[1.6e9, 1.6e9 + 1, 1.6e9 + 2, 1.6e9 + 3, 1.6e9 + 9]] * 2)
    assert by_name(data)["leak"].figure == 0.0
    one_after_the_other = log([[0, 1, 2, 3, 4]] * 2, [[1.6e9 + n for n in range(5)], [1.7e9 + n for n in range(5)]])
    assert by_name(one_after_the_other)["leak"].figure == pytest.approx(0.25)


# -- odd data and words


@pytest.mark.parametrize("users", [[], [[]], [[0]], [[0], [1]], [[0, 1]], [[], [0, 0, 0, 0, 0], []]])
@pytest.mark.parametrize("timed", [False, True])
def test_next_to_nothing_is_judged_too(users: list[list[int]], timed: bool) -> None:
    data = log(users, [[1.6e9 + n for n in range(len(user))] for user in users] if timed else None)
    report = inspect(data)
    assert json.loads(json.dumps(report.as_dict(), allow_nan=False))["findings"]


def test_levels_and_percent() -> None:
    assert [level(figure, (0.1, 0.5)) for figure in (0.09, 0.1, 0.49, 0.5)] == ["ok", "note", "note", "warn"]
    shares = (0, 0.0004, 0.001, 0.0251, 0.0994, 0.0996, 0.37, 0.996, 0.9996, 1)
    assert [percent(share) for share in shares] == ["0%", "<0.1%", "0.1%", "2.5%", "9.9%", "10%", "37%", "99.6%", ">99.9%", "100%"]


def test_a_check_says_the_same_twice() -> None:
    data = synthetic(users=150)
    assert health.check(data, seed=1) == health.check(data, seed=1)


def test_the_report_is_told_what_is_being_done() -> None:
    told: list[str] = []
    report = inspect(synthetic(users=20), progress=told.append)
    assert len(told) == 3
    assert report.name == "synthetic"


# -- real logs


def read(file: Path) -> Sequences:
    """Read a real log straight away, so that these tests do not hang on the reader's."""
    import polars as pl

    with lzma.open(file) as text:
        table = pl.read_csv(io.BytesIO(text.read()), schema_overrides={"user_id": pl.String, "item_id": pl.String})
    users, user = np.unique(table["user_id"].to_numpy().astype(str), return_inverse=True)
    items, item = np.unique(table["item_id"].to_numpy().astype(str), return_inverse=True)
    times = table["timestamp"].to_numpy()
    order = np.lexsort((times, user))
    offsets = np.concatenate([[0], np.cumsum(np.bincount(user))]).astype(np.int64)
    return Sequences(item[order].astype(np.int32), offsets, Ids.of(users.tolist()), Ids.of(items.tolist()), times[order], "s")


def test_a_shop_whose_invoices_share_a_minute(real_data: Path) -> None:
    found = by_name(read(real_data / "online_retail.csv.xz"))
    assert found["ties"].level == "warn"
    assert found["order"].level == "warn"
    assert "of one time" in found["order"].text


def test_visits_in_no_true_order(real_data: Path) -> None:
    found = by_name(read(real_data / "tmall.csv.xz"))
    assert found["times"].figure is None
    assert found["order"].level == "warn"
    assert "does not seem to matter" in found["order"].text


def test_films_rated_over_decades(real_data: Path) -> None:
    found = by_name(read(real_data / "ml-latest-small.csv.xz"))
    assert found["leak"].level == "warn"
    assert found["order"].level == "ok"
    assert "--hide-seen" in found["repeats"].advice
