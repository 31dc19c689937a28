"""Data sets from a user's own copy, from a server and from the cache."""

from __future__ import annotations

import csv
import hashlib
import io
import lzma
import os
import zipfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

import tls_server
from hcarec import Filters
from hcarec.data.sources import cache, find, obtain
from hcarec.data.sources.address import Policy
from hcarec.data.sources.model import Https
from hcarec.errors import DownloadError, InputError
from raw_samples import SAMPLES


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    (tmp_path / "raw").mkdir()
    return tmp_path / "raw"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def files_in(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock")


# -- own copies ------------------------------------------------------------------------------------------------------


def test_the_hash_of_an_own_copy_is_recorded_and_compared(raw: Path, store: Path) -> None:
    path = SAMPLES["TAOBAO"].write(raw)
    first = obtain(find("taobao"), path, store).about
    assert (first["sha256_status"], first["sha256"]) == ("recorded", hashlib.sha256(path.read_bytes()).hexdigest())
    assert obtain(find("taobao"), path, store).about == first
    path.write_text("1 2 20150101\n")
    changed = obtain(find("taobao"), path, store).about
    assert changed["sha256_status"] == "changed"
    assert changed["sha256_before"] == first["sha256"]
    assert "is not the one used first" in changed["warning"]
    cache.record_of("taobao", store).unlink()
    assert obtain(find("taobao"), path, store).about["sha256_status"] == "recorded"


def test_a_large_own_copy_is_hashed_once_while_it_stays(raw: Path, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "REHASH_BELOW", 10)
    path = SAMPLES["TAOBAO"].write(raw)
    seen: list[str] = []
    for _ in range(2):
        obtain(find("taobao"), path, store, lambda what, done, total: seen.append(what))
    assert seen == ["checking user_bought_history.txt"]
    path.write_text("1 2 20150101\n" * 3)
    assert obtain(find("taobao"), path, store).about["sha256_status"] == "changed"


def test_an_own_copy_of_a_pinned_file_is_verified(raw: Path, store: Path) -> None:
    path = SAMPLES["ML_100K"].write(raw)
    source = find("movielens-100k")
    mirror = replace(source.mirrors[0], sha256=hashlib.sha256(path.read_bytes()).hexdigest())
    assert obtain(source, path, store).about["sha256_status"] == "recorded"
    assert obtain(replace(source, mirrors=(mirror,)), path, store).about["sha256_status"] == "verified"


def test_options_and_filters_are_the_data_sets_own(raw: Path, store: Path) -> None:
    found = obtain(find("taobao"), SAMPLES["TAOBAO"].write(raw), store)
    assert found.filters == Filters(min_user_events=30, max_user_events=200)
    assert (found.options.delimiter, found.options.header) == (" ", False)
    assert found.paths == [raw / "user_bought_history.txt"]


def test_conversions_are_made_once(raw: Path, store: Path) -> None:
    path = SAMPLES["ONLINE_RETAIL"].write(raw)
    first = obtain(find("online-retail"), path, store)
    made = first.paths[0].stat()
    assert first == obtain(find("online-retail"), path, store)
    assert first.paths[0].stat().st_mtime_ns == made.st_mtime_ns
    first.paths[0].write_bytes(b"damaged")
    assert obtain(find("online-retail"), path, store).paths[0].stat().st_size == made.st_size


def test_a_title_is_the_most_frequent_one_and_the_first_on_ties(raw: Path, store: Path) -> None:
    names = [("1", "B"), ("1", "A"), ("1", "A"), ("2", "SECOND"), ("2", "FIRST"), ("3", "")]
    rows = [f"5000,{item},{name},1,12/1/2010 8:26,1.0,17,UK" for item, name in names]
    (raw / "online_retail.csv").write_text("InvoiceNo,StockCode,Description,Quantity,InvoiceDate,UnitPrice,CustomerID,Country\n" + "\n".join(rows) + "\n")
    assert obtain(find("online-retail"), raw, store).titles == {"1": "A", "2": "SECOND"}


def test_the_second_edition_of_online_retail_is_read(raw: Path, store: Path) -> None:
    path = raw / "online_retail_II.csv"
    path.write_text(
        "\ufeffInvoice,StockCode,Description,Quantity,InvoiceDate,Price,Customer ID,Country\n489434,85048,LIGHTS £,12,2009-12-01 07:45:00,6.95,13085.0,UK\n",
        "utf-8",
    )
    found = obtain(find("online-retail"), path, store)
    assert found.paths[0].read_text() == "user_id,item_id,timestamp\n13085.0,85048,1259653500\n"
    assert found.titles == {"85048": "LIGHTS £"}


@pytest.mark.parametrize(
    ("name", "file", "content", "message"),
    [
        ("taobao", None, b"", "does not exist: expected user_bought_history.txt"),
        ("yoochoose", "yoochoose-data.7z", b"7z", "unpack it by hand and give yoochoose-clicks.dat"),
        ("online-retail", "Online Retail.xlsx", b"PK", "save its sheet as CSV"),
        ("online-retail", "data.csv", b"a,b\n1,2\n", "has no column 'InvoiceNo', but a, b"),
        ("online-retail", "data.csv", b"", "has no column 'InvoiceNo', but none"),
        (
            "diginetica",
            "train-item-views.csv",
            b"sessionId;item;timeframe;eventdate\n",
            "has no column 'itemId', but sessionId, item, timeframe, eventdate; did you mean 'item'",
        ),
        ("steam", "steam_reviews.json.gz", b"\x1f\x8b\x08\x00cut", "steam_reviews.json.gz"),
    ],
)
def test_a_copy_that_cannot_be_used_is_one_clear_line(raw: Path, store: Path, name: str, file: str | None, content: bytes, message: str) -> None:
    path = raw / (file or "missing")
    if file:
        path.write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        obtain(find(name), path, store)
    assert "\n" not in str(caught.value)
    assert not (store / "converted").exists() or files_in(store / "converted") == []


def test_a_folder_and_an_archive_without_the_file_are_one_clear_line(raw: Path, store: Path) -> None:
    with pytest.raises(InputError, match=r"holds none of the files of gowalla: expected loc-gowalla_totalCheckins\.txt"):
        obtain(find("gowalla"), raw, store)
    with zipfile.ZipFile(raw / "other.zip", "w") as out:
        out.writestr("readme.txt", "nothing here")
    with pytest.raises(InputError, match=r"holds none of the files of outbrain: expected page_views\.csv"):
        obtain(find("outbrain"), raw / "other.zip", store)


def test_an_archive_that_leaves_its_folder_is_refused(raw: Path, store: Path) -> None:
    with zipfile.ZipFile(raw / "ml-1m.zip", "w") as out:
        out.writestr("ml-1m/ratings.dat", "1::2::3::4\n")
        out.writestr("../../../evil", "evil")
    with pytest.raises(InputError, match="points outside its folder"):
        obtain(find("movielens-1m"), raw / "ml-1m.zip", store)
    assert files_in(store) == ["recorded/movielens-1m.json"]


def test_a_bomb_is_refused_and_leaves_nothing(raw: Path, store: Path) -> None:
    with zipfile.ZipFile(raw / "UserBehavior.csv.zip", "w", zipfile.ZIP_DEFLATED) as out:
        out.writestr("UserBehavior.csv", b"1,2,3,pv,4\n" * 6_000_000)
    with pytest.raises(InputError, match="unpacks to more than"):
        obtain(find("taobao-userbehavior"), raw / "UserBehavior.csv.zip", store)
    assert files_in(store) == ["recorded/taobao-userbehavior.json"]


def test_an_endless_line_is_no_review(raw: Path, store: Path) -> None:
    good = b"{'username': 'a', 'product_id': '1', 'date': '2017-01-01'}\n"
    (raw / "steam_reviews.json").write_bytes(good + b"[" * 3_000_000 + b"\n" + b"(" * 100_000 + b"\n" + good)
    found = obtain(find("steam"), raw, store)
    assert found.paths[0].read_text().splitlines() == ["user_id,item_id,date", "a,1,2017-01-01", ",,", ",,", "a,1,2017-01-01"]


def test_what_is_generated_has_no_file(store: Path) -> None:
    with pytest.raises(InputError, match="synthetic is generated"):
        obtain(find("synthetic"), None, store)


# -- fetching --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["taobao", "gowalla", "amazon-beauty"])
def test_what_has_no_checksum_is_not_fetched(name: str, store: Path) -> None:
    with pytest.raises(DownloadError, match=rf"{name} cannot be fetched: download .*https://.*--raw FILE"):
        obtain(find(name), None, store)


def test_an_archive_is_fetched_checked_unpacked_and_kept(raw: Path, store: Path) -> None:
    content = SAMPLES["ML_100K"].write(raw).read_bytes()
    with tls_server.serving() as server:
        server.answers["/ml-100k.zip"] = tls_server.file(content, break_after=100)
        policy = Policy(frozenset({tls_server.HOST}), server.port, lambda _: True, lambda *_: ["127.0.0.1"], tls_server.trusting)
        source = find("movielens-100k")
        layout = source.mirrors[0].layout
        mirror = Https(server.url("/ml-100k.zip"), hashlib.sha256(content).hexdigest(), len(content), layout)
        source = replace(source, mirrors=(mirror,))
        first = obtain(source, None, store, policy=policy)
        assert len(server.requests) == 2
    assert obtain(source, None, store) == first  # the server is gone
    assert first.titles is not None
    assert first.titles["302"] == "Misérables, Les (1995)"
    assert first.about["sha256_status"] == "verified"
    assert [Path(name).name for name in files_in(store)] == ["files.json", "u.data", "u.item"]


def test_a_server_that_does_not_answer_leaves_nothing(store: Path) -> None:
    def nowhere(host: str, port: int) -> list[str]:
        raise OSError(-2, "Name or service not known")

    source = find("movielens-latest-small")
    with pytest.raises(DownloadError, match=r"could not be fetched: \[1\] the server 'files\.grouplens\.org' is not found .*--raw FILE"):
        obtain(source, None, store, policy=Policy(frozenset({"files.grouplens.org"}), resolve=nowhere))
    assert files_in(store) == []


# -- the cache -------------------------------------------------------------------------------------------------------


def test_a_cache_that_cannot_be_written_is_one_clear_line(raw: Path, store: Path) -> None:
    store.write_text("a file, not a folder")
    with pytest.raises(DownloadError, match=r"could not be stored or read: .*\$HCAREC_CACHE names another"):
        obtain(find("taobao"), SAMPLES["TAOBAO"].write(raw), store)


def test_the_cache_folder_is_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache.sys, "platform", "linux")
    monkeypatch.setenv("HCAREC_CACHE", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache.folder() == tmp_path / "own"
    monkeypatch.delenv("HCAREC_CACHE")
    assert cache.folder() == tmp_path / "xdg" / "hcarec"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache.folder() == tmp_path / ".cache" / "hcarec"


@pytest.mark.skipif("HCAREC_DATA" not in os.environ, reason="HCAREC_DATA does not name the folder of real logs")
def test_online_retail_is_the_log_that_others_use(store: Path) -> None:
    try:
        found = obtain(find("online-retail"), None, store)
    except DownloadError as error:
        pytest.skip(f"no mirror answers: {error}")
    theirs = Path(os.environ["HCAREC_DATA"])
    with lzma.open(theirs / "online_retail.csv.xz", "rt") as file:
        expected = Counter(map(tuple, csv.reader(file)))
    with io.StringIO(found.paths[0].read_text()) as file:
        assert Counter(map(tuple, csv.reader(file))) == expected
    with lzma.open(theirs / "online_retail_titles.csv.xz", "rt") as file:
        assert found.titles == dict(list(csv.reader(file))[1:])
    assert found.about["raw_rows"] == 541_909
    assert found.about["removed"] == {"no customer": 135_080, "cancelled invoice": 8_905}
