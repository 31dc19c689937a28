"""Order and filters: stable, counted, and at a fixed point."""

from __future__ import annotations

import itertools
from collections import Counter

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import rows
from hcarec import Sequences, prepare
from hcarec.errors import InputError

LOG = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 6), st.integers(0, 8)), min_size=1, max_size=80)


def frame(log: list[tuple[int, int, int]]) -> pl.DataFrame:
    return pl.DataFrame(log, schema={"user_id": pl.Int64, "item_id": pl.Int64, "timestamp": pl.Int64}, orient="row")


def cleaned(log: list[tuple[int, int, int]], **settings: object) -> tuple[list[tuple[object, ...]], Sequences | None]:
    """Prepare, or an empty list where nothing is left."""
    try:
        data = prepare(frame(log), **settings)  # type: ignore[arg-type]
    except InputError as error:
        assert "no event is left" in str(error)
        return [], None
    report = data.about["report"]
    assert report["rows"] == len(log) == report["kept"] + sum(entry["events"] for entry in report["dropped"].values())
    return rows(data), data


def plain_order(log: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    first = {user: n for n, (user, _, _) in reversed(list(enumerate(log)))}
    return sorted(log, key=lambda event: (first[event[0]], event[2]))


@given(LOG)
def test_order_is_by_time_with_ties_in_file_order(log: list[tuple[int, int, int]]) -> None:
    found, data = cleaned(log)
    assert found == plain_order(log)
    assert data is not None
    expected = sum(a[0] == b[0] and a[2] == b[2] for a, b in itertools.pairwise(found))
    assert data.about["report"]["ties"]["events"] == expected


@given(LOG, st.integers(0, 5), st.one_of(st.none(), st.integers(5, 20)), st.integers(0, 5), st.sampled_from(["keep", "consecutive", "once"]))
def test_filters_reach_a_fixed_point(log: list[tuple[int, int, int]], low: int, high: int | None, rare: int, repeats: str) -> None:
    found, _ = cleaned(log, min_user_events=low, max_user_events=high, min_item_events=rare, repeats=repeats)
    users, items = Counter(event[0] for event in found), Counter(event[1] for event in found)
    assert all(count >= low for count in users.values())
    assert all(count >= rare for count in items.values())
    assert high is None or all(count <= high for count in users.values())
    pairs = [(a, b) for a, b in itertools.pairwise(found) if a[0] == b[0]]
    if repeats == "consecutive":
        assert all(a[1] != b[1] for a, b in pairs)
    if repeats == "once":
        assert len({event[:2] for event in found}) == len(found)
    # what is left is part of the ordered log, in its order
    rest = iter(plain_order(log))
    assert all(event in rest for event in found)


@given(LOG, st.integers(2, 4), st.integers(2, 4))
def test_k_core_is_the_largest(log: list[tuple[int, int, int]], low: int, rare: int) -> None:
    """Peel one event's user or item at a time, in any order: the k-core is unique."""
    left = plain_order(log)
    while True:
        users, items = Counter(event[0] for event in left), Counter(event[1] for event in left)
        poor_users, poor_items = {u for u, c in users.items() if c < low}, {i for i, c in items.items() if c < rare}
        if poor_users:
            left = [event for event in left if event[0] != min(poor_users)]
        elif poor_items:
            left = [event for event in left if event[1] != max(poor_items)]
        else:
            break
    assert cleaned(log, min_user_events=low, min_item_events=rare)[0] == left


def test_what_each_filter_removed() -> None:
    log = [(1, 1, 1), (1, 1, 2), (1, 2, 3), (1, 2, 4), (1, 3, 5), (2, 1, 1), (2, 2, 2), (3, 3, 9)]
    _, data = cleaned(log, min_user_events=2, min_item_events=2, repeats="consecutive", until="9")
    assert data is not None
    report = data.about["report"]
    assert {name: (entry["events"], entry["users"], entry["items"]) for name, entry in report["dropped"].items()} == {
        "until": (1, 1, 0),
        "repeats": (2, 0, 0),
        "min_user_events": (0, 0, 0),
        "min_item_events": (1, 0, 1),
    }
    assert report["kept"] == 4


def test_time_range_takes_dates() -> None:
    times = ["2024-01-01", "2024-02-01", "2024-03-01T12:00:00"]
    log = pl.DataFrame({"user_id": [1] * 3, "item_id": [1, 2, 3], "timestamp": times})
    assert [item for _, item, _ in rows(prepare(log, since="2024-02-01"))] == [2, 3]
    assert [item for _, item, _ in rows(prepare(log, since="20240102", until="2024-03-01"))] == [2]


def test_event_types(tmp_path: object) -> None:
    log = pl.DataFrame({"user_id": [1, 1, 2], "item_id": [1, 2, 3], "action": ["view", "buy", "view"]})
    data = prepare(log, events=("view",))
    assert rows(data) == [(1, 1, None), (2, 3, None)]
    assert data.about["report"]["dropped"]["events"]["events"] == 1
    with pytest.raises(InputError, match="no event is of type sell; the types are view, buy"):
        prepare(log, events=("sell",))


@given(LOG, st.integers(1, 4))
def test_session_gap_cuts_users_into_visits(log: list[tuple[int, int, int]], gap: int) -> None:
    data = prepare(frame(log), session_gap=f"{gap}s")
    visits: dict[str, list[tuple[int, int]]] = {}
    counts: Counter[int] = Counter()
    last: dict[int, int] = {}
    for user, item, time in plain_order(log):
        if user not in last or time - last[user] > gap:
            counts[user] += 1
        last[user] = time
        visits.setdefault(f"{user}#{counts[user]}", []).append((item, time))
    assert [(f"{u}", i, t) for u, i, t in rows(data)] == [(name, i, t) for name, events in visits.items() for i, t in events]


def test_sessions_know_the_unit_of_time() -> None:
    log = pl.DataFrame({"user_id": ["a"] * 3, "item_id": [1, 2, 3], "timestamp": ["2024-01-01 10:00", "2024-01-01 10:30", "2024-01-01 11:01"]})
    assert list(prepare(log, session_gap="30m").user_ids) == ["a#1", "a#2"]
