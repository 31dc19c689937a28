"""Find the files of an input and open them, whatever their compression."""

from __future__ import annotations

import codecs
import contextlib
import glob
import gzip
import io
import lzma
import os
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from hcarec.errors import InputError

ENDINGS = (".csv", ".tsv", ".txt", ".dat", ".data", ".json", ".jsonl", ".ndjson", ".parquet", ".pq", ".arrow", ".feather", ".ipc", ".inter")
COMPRESSED = (".gz", ".xz", ".zst")
_MAGIC = {b"\x1f\x8b": "gz", b"\xfd7zXZ\x00": "xz", b"\x28\xb5\x2f\xfd": "zst"}


@dataclass(frozen=True)
class InputFile:
    """One file of an input; `name` is its path relative to what was given, as it stands in reports."""

    path: Path
    name: str

    @property
    def size(self) -> int:
        return self.path.stat().st_size

    @property
    def ending(self) -> str:
        """Return the ending that tells the format, without that of a compression."""
        name = self.path.name.lower()
        for ending in COMPRESSED:
            name = name.removesuffix(ending)
        return os.path.splitext(name)[1]


def find_files(given: str | Path) -> list[InputFile]:
    """List the files of an input (a file, a folder or a glob) in byte order of their relative paths."""
    path = Path(given)
    try:
        if path.is_dir():
            found = [InputFile(file, file.relative_to(path).as_posix()) for file in _walk(path) if _is_event_file(file)]
            if not found:
                raise InputError(f"folder '{given}' holds no event file: expected files ending in {' '.join(ENDINGS)}, plain or {' '.join(COMPRESSED)}")
        elif path.is_file():
            return [InputFile(path, path.name)]
        elif glob.has_magic(str(given)):
            found = [InputFile(Path(name), Path(name).as_posix()) for name in glob.glob(str(given), recursive=True) if os.path.isfile(name)]
            if not found:
                raise InputError(f"no file matches '{given}'")
        elif path.exists():
            raise InputError(f"'{given}' is neither a file nor a folder")
        else:
            raise InputError(f"'{given}' does not exist: give a file, a folder, a glob, or the name of a known data set ('hcarec prepare --list')")
    except PermissionError as error:
        raise InputError(f"no permission to read '{error.filename or given}'") from None
    except OSError as error:
        raise InputError(f"cannot look for '{str(given)[:80]}': {error.strerror}") from None
    return sorted(found, key=lambda file: os.fsencode(file.name))


@contextlib.contextmanager
def open_file(file: InputFile) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """Open a file for reading as (decompressed stream, the raw file underneath, whose position tells the progress)."""
    try:
        with open(file.path, "rb") as raw:
            head = raw.read(8)
            raw.seek(0)
            if head.startswith(b"PK\x03\x04"):
                raise InputError(f"'{file.name}' is a zip archive: unpack it first, or pack it as gz, xz or zst")
            kind = next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), None)
            try:
                with _decompressed(raw, kind) as stream:
                    yield stream, raw
            except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
                raise InputError(f"'{file.name}' is damaged or cut off: its {kind} stream ends badly ({error}); fetch or copy it again") from None
    except PermissionError:
        raise InputError(f"no permission to read '{file.path}'") from None
    except OSError as error:
        raise InputError(f"cannot read '{file.path}': {error.strerror or error}") from None


def _decompressed(raw: BinaryIO, kind: str | None) -> contextlib.AbstractContextManager[BinaryIO]:
    if kind == "gz":
        return contextlib.closing(cast(BinaryIO, gzip.GzipFile(fileobj=raw, mode="rb")))
    elif kind == "xz":
        return contextlib.closing(cast(BinaryIO, lzma.LZMAFile(raw)))
    elif kind == "zst":
        return _open_zst(raw)
    return contextlib.nullcontext(raw)


@contextlib.contextmanager
def _open_zst(raw: BinaryIO) -> Iterator[BinaryIO]:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    try:
        with zstd.ZstdFile(raw) as stream:
            yield cast(BinaryIO, stream)
    except zstd.ZstdError as error:
        raise EOFError(str(error)) from None


def recode(stream: BinaryIO, encoding: str) -> BinaryIO:
    """Return a stream of the same text in UTF-8; bytes that are not in the encoding become invalid UTF-8, to be found later."""
    try:
        decoder = codecs.getincrementaldecoder(encoding)(errors="surrogateescape")
        if not isinstance(decoder.decode(b""), str):
            raise LookupError(encoding)
    except (LookupError, TypeError, ValueError):
        raise InputError(f"encoding '{encoding}' is not known: give a name such as utf-8, latin-1 or utf-16") from None
    return cast(BinaryIO, _Recoded(stream, decoder))


class _Recoded(io.RawIOBase):
    def __init__(self, stream: BinaryIO, decoder: codecs.IncrementalDecoder) -> None:
        self._stream, self._decoder, self._left = stream, decoder, b""

    def readable(self) -> bool:
        return True

    def readinto(self, into: object) -> int:
        view = memoryview(into)  # type: ignore[arg-type]
        while not self._left:
            block = self._stream.read(1 << 20)
            self._left = self._decoder.decode(block, final=not block).encode("utf-8", errors="surrogateescape")
            if not block:
                break
        count = min(len(view), len(self._left))
        view[:count] = self._left[:count]
        self._left = self._left[count:]
        return count


def _walk(folder: Path) -> Iterator[Path]:
    def refuse(error: OSError) -> None:
        raise error

    for root, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith((".", "_")) and not os.path.isfile(os.path.join(root, name, "sequences.json"))]
        for name in names:
            yield Path(root) / name


def _is_event_file(file: Path) -> bool:
    return not file.name.startswith((".", "_")) and InputFile(file, file.name).ending in ENDINGS
