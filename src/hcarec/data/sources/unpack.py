"""Take named files out of an archive without leaving the folder and without filling the disk."""

from __future__ import annotations

import contextlib
import fnmatch
import io
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from hcarec.data.files import COMPRESSED, InputFile, open_file
from hcarec.data.sources.model import GIB, MIB, Progress, silent
from hcarec.errors import InputError

_BLOCK = MIB
_TRUSTED = "refused; if you trust it, unpack it by hand and give the file inside"
_DAMAGE = (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, NotImplementedError)
_TAR_ENDINGS = (".tar", ".tgz", ".txz", ".tar.gz", ".tar.xz")


@dataclass(frozen=True)
class Limits:
    """How much an archive may hold."""

    bytes: int = 2 * GIB
    """Most bytes that come out."""
    ratio: int = 200
    """Most times that what comes out may exceed the archive, above the first 16 MiB."""
    members: int = 10_000
    """Most entries."""

    def allowance(self, packed: int) -> int:
        """Return the most bytes that may come out of `packed` bytes."""
        return min(self.bytes, max(16 * MIB, packed * self.ratio))


def is_archive(path: Path) -> bool:
    """Say whether a file is a zip or a tar, compressed or not."""
    return path.name.lower().endswith(_TAR_ENDINGS) or is_zip(path)


def is_zip(path: Path) -> bool:
    """Say whether a file begins as a zip; the standard library looks at the end, where a tar may carry a zip inside."""
    with open(path, "rb") as file:
        return file.read(4) in (b"PK\x03\x04", b"PK\x05\x06")


def take(archive: Path, wanted: Sequence[tuple[str, ...]], into: Path, limits: Limits, progress: Progress = silent) -> list[Path | None]:
    """Write the wanted members into the folder `into` and return their paths, None for what is not there.

    Each wanted file is given by patterns of its name, of which the first that is found counts. An archive that holds
    a name pointing outside, a link or a device is refused as a whole. Archives inside the archive stay packed.
    """
    left = _Allowance(archive, limits.allowance(archive.stat().st_size))
    try:
        if is_zip(archive):
            return _from_zip(archive, wanted, into, limits, left, progress)
        return _from_tar(archive, wanted, into, limits, left, progress)
    except _DAMAGE as error:
        raise InputError(f"'{archive}' cannot be unpacked ({_short(error)}): get it again, or unpack it by hand and give the file inside") from None


@contextlib.contextmanager
def open_stream(path: Path, max_bytes: int) -> Iterator[IO[bytes]]:
    """Open a file that may be packed with gz, xz or zst as bytes, and fail when too much comes out of it."""
    with _counted(path, _Allowance(path, Limits(bytes=max_bytes).allowance(path.stat().st_size))) as stream:
        yield stream


@contextlib.contextmanager
def _counted(path: Path, left: _Allowance) -> Iterator[IO[bytes]]:
    with open_file(InputFile(path, path.name)) as (raw, _), io.BufferedReader(_Counted(raw, left), _BLOCK) as stream:
        yield stream


class _Allowance:
    """How many bytes may still come out."""

    def __init__(self, archive: Path, total: int) -> None:
        self.archive, self.total, self.left = archive, total, total

    def spend(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise InputError(f"'{self.archive}' unpacks to more than the {self.total:,} bytes that may be expected of it: {_TRUSTED}")


class _Counted(io.RawIOBase):
    """A stream that spends an allowance as it is read."""

    def __init__(self, raw: IO[bytes], left: _Allowance) -> None:
        self._raw, self._left = raw, left

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        block = self._raw.read(min(len(buffer), _BLOCK))
        self._left.spend(len(block))
        buffer[: len(block)] = block
        return len(block)


def _from_zip(archive: Path, wanted: Sequence[tuple[str, ...]], into: Path, limits: Limits, left: _Allowance, progress: Progress) -> list[Path | None]:
    with zipfile.ZipFile(archive) as opened:
        entries = opened.infolist()
        _check_count(archive, len(entries), limits)
        for entry in entries:
            _check_name(archive, entry.filename)
            if (kind := entry.external_attr >> 28) not in (0, 4, 8):  # the type bits of a Unix mode: 4 folder, 8 plain file
                raise InputError(f"'{archive}' holds '{_shown(entry.filename)}', which is no plain file (type {kind:#x}): {_TRUSTED}")
        by_name = {entry.filename: entry for entry in entries if not entry.is_dir()}
        taken: list[Path | None] = []
        for patterns in wanted:
            name = choose(by_name, patterns)
            if name is None:
                taken.append(None)
                continue
            if by_name[name].flag_bits & 1:
                raise InputError(f"'{archive}' is protected by a password: unpack it by hand and give the file inside")
            with opened.open(by_name[name]) as stream:
                taken.append(_copy(stream, into / PurePosixPath(name).name, by_name[name].file_size, left, progress))
        return taken


def _from_tar(archive: Path, wanted: Sequence[tuple[str, ...]], into: Path, limits: Limits, left: _Allowance, progress: Progress) -> list[Path | None]:
    # Twice through the stream: first the names, since the best match may come last, then the members themselves.
    with _counted(archive, left) as stream, tarfile.open(fileobj=stream, mode="r|") as opened:
        names = []
        for count, entry in enumerate(opened, 1):
            _check_count(archive, count, limits)
            _check_name(archive, entry.name)
            if entry.issparse() or not (entry.isreg() or entry.isdir()):
                raise InputError(f"'{archive}' holds '{_shown(entry.name)}', which is a link or no plain file: {_TRUSTED}")
            if entry.isreg():
                names.append(entry.name)
    left.left = left.total
    chosen = {name: index for index, patterns in enumerate(wanted) if (name := choose(names, patterns)) is not None}
    taken: list[Path | None] = [None] * len(wanted)
    with _counted(archive, left) as stream, tarfile.open(fileobj=stream, mode="r|") as opened:
        for entry in opened:
            if entry.name in chosen and (member := opened.extractfile(entry)) is not None:
                uncounted = _Allowance(archive, limits.bytes)  # the outer stream counts already
                taken[chosen[entry.name]] = _copy(member, into / PurePosixPath(entry.name).name, entry.size, uncounted, progress)
    return taken


def _copy(stream: IO[bytes], target: Path, size: int, left: _Allowance, progress: Progress) -> Path:
    done = 0
    with open(target, "wb") as out:
        while block := stream.read(_BLOCK):
            left.spend(len(block))
            done += len(block)
            out.write(block)
            progress(f"unpacking {target.name}", done, size)
    return target


def choose(names: Iterable[str], patterns: tuple[str, ...]) -> str | None:
    """Return the name that fits the first fitting pattern, the least deep one, packed or not."""
    ordered = sorted(names, key=lambda name: (name.count("/"), name))
    for pattern in patterns:
        for name in ordered:
            last = PurePosixPath(name).name.lower()
            if last and any(fnmatch.fnmatchcase(last, pattern.lower() + ending) for ending in ("", *COMPRESSED)):
                return name
    return None


def _check_count(archive: Path, count: int, limits: Limits) -> None:
    if count > limits.members:
        raise InputError(f"'{archive}' holds more than {limits.members:,} files, more than may be expected of it: {_TRUSTED}")


def _check_name(archive: Path, name: str) -> None:
    parts = name.replace("\\", "/").split("/")
    if name.startswith(("/", "\\")) or ".." in parts or "\0" in name or ":" in parts[0]:
        raise InputError(f"'{archive}' holds '{_shown(name)}', a name that points outside its folder: refused, get the archive from its home page")


def _shown(name: str) -> str:
    return ascii(name)[1:-1][:80]


def _short(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:120] or type(error).__name__
