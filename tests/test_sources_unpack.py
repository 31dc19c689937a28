"""The unpacker: only what is asked for, never outside its folder, never more than expected."""

from __future__ import annotations

import contextlib
import gzip
import io
import random
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcarec.data.sources import unpack
from hcarec.data.sources.unpack import Limits
from hcarec.errors import InputError


def make_zip(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        for name, content in members.items():
            out.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return path


def make_tar(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, {".gz": "w:gz", ".xz": "w:xz"}.get(path.suffix, "w")) as out:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            out.addfile(entry, io.BytesIO(content))
    return path


MAKERS = {"a.zip": make_zip, "a.tar": make_tar, "a.tar.gz": make_tar, "a.tar.xz": make_tar}


def everything_under(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir())


@pytest.fixture
def into(tmp_path: Path) -> Path:
    folder = tmp_path / "in" / "to"
    folder.mkdir(parents=True)
    return folder


@pytest.mark.parametrize("name", MAKERS)
def test_only_the_wanted_members_come_out(tmp_path: Path, into: Path, name: str) -> None:
    inner = make_zip(tmp_path / "inner.zip", {"ratings.dat": b"inner"}).read_bytes()
    members = {"ml/deep/ratings.dat": b"deep", "ml/ratings.dat": b"1::2", "ml/movies.dat": b"2::Heat", "ml/big.bin": b"x", "ml/inner.zip": inner}
    archive = MAKERS[name](tmp_path / name, members)
    assert unpack.is_archive(archive)
    taken = unpack.take(archive, [("u.data", "ratings.dat"), ("movies.dat",), ("none",)], into, Limits())
    assert taken == [into / "ratings.dat", into / "movies.dat", None]
    assert everything_under(into) == ["movies.dat", "ratings.dat"]
    assert (into / "ratings.dat").read_bytes() == b"1::2"


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("evil", ["../evil.csv", "/evil.csv", "a/../../evil.csv", "..\\evil.csv", "\\evil.csv", "C:evil.csv", "C:\\evil.csv"])
def test_a_path_that_leaves_the_folder_is_refused(tmp_path: Path, into: Path, maker: str, evil: str) -> None:
    archive = MAKERS[maker](tmp_path / maker, {"good.csv": b"good", evil: b"evil"})
    with pytest.raises(InputError, match="points outside its folder"):
        unpack.take(archive, [("*.csv",)], into, Limits())
    assert everything_under(tmp_path) == [maker]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_in_a_tar_are_refused(tmp_path: Path, into: Path, kind: bytes) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as out:
        entry = tarfile.TarInfo("events.csv")
        entry.type, entry.linkname = kind, "/etc/passwd"
        out.addfile(entry)
    with pytest.raises(InputError, match="a link or no plain file"):
        unpack.take(tmp_path / "a.tar", [("events.csv",)], into, Limits())
    assert everything_under(into) == []


def test_a_link_in_a_zip_is_refused(tmp_path: Path, into: Path) -> None:
    entry = zipfile.ZipInfo("events.csv")
    entry.create_system, entry.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as out:
        out.writestr(entry, "/etc/passwd")
    with pytest.raises(InputError, match="no plain file"):
        unpack.take(tmp_path / "a.zip", [("events.csv",)], into, Limits())
    assert everything_under(into) == []


@pytest.mark.parametrize("name", ["a.zip", "a.tar.gz", "a.tar.xz"])
def test_a_bomb_is_stopped_by_its_ratio(tmp_path: Path, into: Path, name: str) -> None:
    archive = MAKERS[name](tmp_path / name, {"events.csv": bytes(64 << 20)})
    assert archive.stat().st_size < 100_000
    with pytest.raises(InputError, match=r"unpacks to more than the 16,777,216 bytes"):
        unpack.take(archive, [("events.csv",)], into, Limits())
    assert sum(path.stat().st_size for path in into.iterdir()) <= 17 << 20


@pytest.mark.parametrize("name", MAKERS)
def test_more_than_the_bytes_allowed_is_refused(tmp_path: Path, into: Path, name: str) -> None:
    archive = MAKERS[name](tmp_path / name, {"events.csv": bytes(50_000)})
    with pytest.raises(InputError, match="unpacks to more than the 40,000 bytes"):
        unpack.take(archive, [("events.csv",)], into, Limits(bytes=40_000))


@pytest.mark.parametrize("name", MAKERS)
def test_too_many_members_are_refused(tmp_path: Path, into: Path, name: str) -> None:
    archive = MAKERS[name](tmp_path / name, {f"{n}.csv": b"" for n in range(21)})
    with pytest.raises(InputError, match="more than 20 files"):
        unpack.take(archive, [("1.csv",)], into, Limits(members=20))


def test_a_zip_that_lies_about_its_size_gives_no_more(tmp_path: Path, into: Path) -> None:
    archive = make_zip(tmp_path / "a.zip", {"events.csv": bytes(100_000)})
    content = archive.read_bytes().replace((100_000).to_bytes(4, "little"), (10).to_bytes(4, "little"))
    archive.write_bytes(content)
    with pytest.raises(InputError, match="cannot be unpacked"):
        unpack.take(archive, [("events.csv",)], into, Limits())
    assert (into / "events.csv").stat().st_size <= 10


@pytest.mark.parametrize("name", MAKERS)
def test_a_damaged_archive_is_one_clear_line(tmp_path: Path, into: Path, name: str) -> None:
    archive = MAKERS[name](tmp_path / name, {"events.csv": random.Random(0).randbytes(50_000)})
    archive.write_bytes(archive.read_bytes()[:700])
    with pytest.raises(InputError) as caught:
        unpack.take(archive, [("events.csv",)], into, Limits())
    assert "\n" not in str(caught.value)


def test_a_locked_zip_is_one_clear_line(tmp_path: Path, into: Path) -> None:
    archive = make_zip(tmp_path / "a.zip", {"events.csv": b"user,item"})
    content = bytearray(archive.read_bytes())
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(mark) + offset] |= 1
    archive.write_bytes(content)
    with pytest.raises(InputError, match="protected by a password"):
        unpack.take(archive, [("events.csv",)], into, Limits())


def test_a_stream_is_stopped_when_too_much_comes_out(tmp_path: Path) -> None:
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(bytes(64 << 20)))
    with pytest.raises(InputError, match="unpacks to more than"), unpack.open_stream(tmp_path / "bomb.gz", 1 << 40) as stream:
        stream.read()


def test_a_stream_that_is_cut_short_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "cut.gz").write_bytes(gzip.compress(bytes(range(256)) * 100)[:-30])
    with pytest.raises(InputError, match="cut"), unpack.open_stream(tmp_path / "cut.gz", 1 << 30) as stream:
        stream.read()


@given(names=st.lists(st.text(alphabet="ab./\\:~ \x01é", min_size=1, max_size=12), min_size=1, max_size=4), kind=st.sampled_from(["a.zip", "a.tar"]))
def test_whatever_the_names_nothing_lands_outside(tmp_path_factory: pytest.TempPathFactory, names: list[str], kind: str) -> None:
    root = tmp_path_factory.mktemp("root")
    folder = root / "in" / "to"
    folder.mkdir(parents=True)
    archive = MAKERS[kind](root / kind, dict.fromkeys(names, b"content"))
    with contextlib.suppress(InputError):
        unpack.take(archive, [("*",)], folder, Limits())
    outside = [path for path in root.rglob("*") if not path.is_dir() and path != archive and folder not in path.parents]
    assert outside == []
