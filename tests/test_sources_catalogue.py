"""The list of known data sets, and its page in the documentation."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from hcarec.data.sources import catalogue, find, known
from hcarec.data.sources.model import Https, Wheel
from hcarec.errors import InputError

DOCS = Path(__file__).parents[1] / "docs" / "datasets.md"


def test_the_names_are_those_promised() -> None:
    assert set(known()) == {
        "taobao", "outbrain", "movielens-100k", "movielens-1m", "movielens-latest-small", "online-retail", "amazon-*",
        "steam", "gowalla", "retailrocket", "yoochoose", "diginetica", "taobao-userbehavior", "synthetic",
    }  # fmt: skip


@pytest.mark.parametrize("name", known())
def test_every_data_set_says_what_it_is(name: str) -> None:
    source = known()[name]
    assert source.name == name
    assert all((source.title, source.size, source.licence))
    if not source.generated:
        assert source.homepage.startswith("https://")
        assert source.get


@pytest.mark.parametrize("name", [name for name, source in known().items() if source.mirrors])
def test_every_mirror_is_pinned(name: str) -> None:
    for mirror in known()[name].mirrors:
        hashes = [mirror.sha256] if isinstance(mirror, Https) else list(mirror.members.values())
        assert all(re.fullmatch(r"[0-9a-f]{64}", one) for one in hashes)
        if isinstance(mirror, Wheel):
            assert re.fullmatch(r"[\w-]+==[\d.]+", mirror.requirement)
        else:
            assert mirror.url.startswith("https://")


def test_the_terms_of_movielens_1m_are_told() -> None:
    assert "Free for research" in find("movielens-1m").terms
    assert "not to be passed on" in find("movielens-1m").terms


def test_the_author_of_online_retail_is_named() -> None:
    source = find("online-retail")
    assert source.licence == "CC BY 4.0"
    assert source.citation == "Chen, D. (2015). Online Retail. UCI Machine Learning Repository. doi 10.24432/C5BW33"


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("amazon-beauty", "reviews_Beauty_5.json"),
        ("amazon-video-games", "reviews_Video_Games_5.json"),
        ("amazon-toys-and-games", "reviews_Toys_and_Games_5.json"),
        ("amazon-movies-and-tv", "reviews_Movies_and_TV_5.json"),
        ("amazon-something-new", "reviews_Something_New_5.json"),
    ],
)
def test_any_category_of_amazon_is_known(name: str, file: str) -> None:
    source = find(name)
    assert source.name == name
    assert source.layouts[0].events[0] == file
    assert file in source.get


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("movielens-1mm", "did you mean 'movielens-1m'"),
        ("Taobao", "did you mean 'taobao'"),
        ("amazon-", "did you mean 'amazon-"),
        ("amazon-*", "put a category in place of the star"),
        ("amazon-../x", "is not known"),
        ("zzz", "'hcarec prepare --list' shows all"),
    ],
)
def test_an_unknown_name_is_one_clear_line(name: str, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        find(name)
    assert "\n" not in str(caught.value)


def test_only_the_servers_of_mirrors_are_allowed() -> None:
    assert catalogue.hosts() == {"files.grouplens.org"}


def test_listing_needs_no_heavy_library() -> None:
    code = "import sys, hcarec.data.sources as s; s.known(); print(sorted({'numpy', 'numba', 'polars', 'torch', 'pandas'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", known())
def test_the_documentation_agrees_with_the_list(name: str) -> None:
    source = known()[name]
    rows = [line for line in DOCS.read_text(encoding="utf-8").splitlines() if line.startswith(f"| `{name}` |")]
    assert len(rows) == 1
    assert source.licence in rows[0]
    for setting in ("min_user_events", "min_item_events", "max_user_events", "session_gap"):
        value = getattr(source.filters, setting)
        if value:
            assert f"{setting.replace('_', '-')} {value}" in rows[0]
    if source.filters.repeats != "keep":
        assert f"repeats {source.filters.repeats}" in rows[0]
