"""Searching items: what is found, in which order, and that it equals a plain search over words."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcarec import Pop
from hcarec.ids import Ids
from hcarec.models import Model
from hcarec.serve.search import Names, describe, fold

NAMES = [
    "WHITE HANGING HEART T-LIGHT HOLDER", "Heart of glass", "Sweetheart trinket box", "Crème brûlée set", "Ångström lamp", "Children's cup",
    "  <script>alert(1)</script> ", "Straße 7", "", "glass heart", "日本語の本", "£5 note", "line\nbreak\there", "ÉCLAIR", "C++ in a week",
]  # fmt: skip


def catalogue(names: list[str], ids: list[str] | None = None, events: list[int] | None = None) -> Model:
    model = Pop()
    model.item_ids = Ids.of(ids or [f"{n:03}A" for n in range(len(names))])
    model.titles = Ids.of(names) if any(names) else None
    model.item_events = np.array(events or range(len(names)), np.int64)
    model.fields = {"kind": Ids.of(["", *["k"] * (len(names) - 1)])} if names else {}
    return model


def names_of(model: Model) -> Names:
    return Names(model, np.lexsort((model.tie_rank, -model.item_events)).astype(np.int32))


@pytest.fixture(scope="module")
def names() -> Names:
    return names_of(catalogue(NAMES))


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("heart", [1, 9, 0, 2]),  # a name that begins with it, then words, the more frequent first, then what is inside a word
        ("HEART", [1, 9, 0, 2]),
        ("gla he", [9, 1]),
        ("heart of", [1]),
        ("t light", [0]),
        ("light hold", [0]),
        ("creme brulee", [3]),
        ("CRÈME", [3]),
        ("cre\u0300me", [3]),
        ("angstrom", [4]),
        ("childrens", [5]),
        ("children's", [5]),
        ("script", [6]),
        ("<script>", [6]),
        ("strasse", [7]),
        ("本", [10]),
        ("日本", [10]),
        ("£5", [11]),
        ("break here", [12]),
        ("éc", [13]),
        ("c++", [14]),
        ("004a", [4]),
        ("008A", [8]),
        ("008", [8]),
        ("nothing of the kind", []),
        ("heart zebra", []),
        ("!?", []),
        ("\0", []),
    ],
)
def test_what_is_found(names: Names, typed: str, found: list[int]) -> None:
    answer = names.search(typed, 10)
    assert [int(item.item[:3]) for item in answer.items] == found
    assert answer.total == len(found)


@pytest.mark.parametrize("typed", ["", "  ", "\n\t"])
def test_nothing_typed_gives_the_most_frequent(names: Names, typed: str) -> None:
    answer = names.search(typed, 3)
    assert [item.item for item in answer.items] == ["014A", "013A", "012A"]
    assert answer.total == len(NAMES)


def test_an_id_comes_first_however_it_is_written() -> None:
    model = catalogue(["no", "85123A", "85123a shelf", "x"], ["85123A", "b", "c", "!!"], [1, 9, 9, 9])
    names = names_of(model)
    assert [item.item for item in names.search("85123a", 9).items] == ["85123A", "b", "c"]
    assert [item.item for item in names.search("!!", 9).items] == ["!!"]
    assert [item.item for item in names.search(" !! ", 9).items] == ["!!"]
    assert names.search("85123", 1).total == 3


def test_items_without_names_are_found_by_id() -> None:
    names = names_of(catalogue(["", ""], ["red-cup", "cup"], [5, 1]))
    assert [item.item for item in names.search("cup", 9).items] == ["cup", "red-cup"]
    assert names.search("red", 9).items[0] == ("red-cup", None, 5, {})


def test_what_is_known_of_an_item() -> None:
    model = catalogue(NAMES)
    assert describe(model, 8) == ("008A", None, 8, {"kind": "k"})
    assert describe(model, 0) == ("000A", NAMES[0], 0, {})


def plainly(model: Model, typed: str) -> list[int]:
    """Search as the rules say, one item after the other."""
    words, whole = fold(typed).split(), fold(typed)
    ranked = []
    for index in range(len(model.item_ids)):
        name, item = fold(model.label(index)), fold(model.item_ids.text(index))
        own = [*name.split(), *item.split()]
        begins = all(any(one.startswith(word) for one in own) for word in words)
        inside = all(any(word in one for one in own) for word in words)
        rank = 0 if item == whole else 1 if name.startswith(whole) else 2 if begins else 3 if inside else None
        if words and rank is not None:
            ranked.append((rank, -model.item_events[index], int(model.tie_rank[index]), index))
    return [index for *_, index in sorted(ranked)]


TEXT = st.text(st.sampled_from("abé -AB'1"), max_size=7)


@given(items=st.lists(st.tuples(TEXT, st.integers(0, 2)), min_size=1, max_size=8), typed=TEXT, limit=st.integers(1, 9))
def test_a_search_equals_a_plain_one(items: list[tuple[str, int]], typed: str, limit: int) -> None:
    model = catalogue([name for name, _ in items], [f"x{n} b" for n in range(len(items))], [events for _, events in items])
    answer = names_of(model).search(typed, limit)
    if typed.strip():
        expected = plainly(model, typed)
        assert [model.item_ids.find(item.item) for item in answer.items] == expected[:limit]
        assert answer.total == len(expected)


@given(st.text(max_size=30))
def test_any_text_folds_and_is_found_again(text: str) -> None:
    text = text.encode(errors="ignore").decode()
    assert fold(fold(text)) == fold(text)
    folded = fold(text.replace("\n", " ").replace("\t", " "))
    names = names_of(catalogue([text or "x", "other"], ["one", "two"]))
    if folded and text.strip():
        assert "one" in [item.item for item in names.search(text, 2).items]


def test_many_names_keep_their_places() -> None:
    names = names_of(catalogue([f"name {n}é{' ' * (n % 3)}" for n in range(2500)], [str(n) for n in range(2500)]))
    for n in (0, 999, 1000, 2499):
        assert names.search(f"name {n}e", 1).items[0].item == str(n)
