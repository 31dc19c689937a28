"""The cache folder: where it is, and what is known of the files in it and of files seen before."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from hcarec import atomic
from hcarec.data.sources.model import MIB, Progress, silent

REHASH_BELOW = 50 * MIB
"""Files up to this size are hashed again each time they are used; larger ones are trusted while size and time stay."""


def folder() -> Path:
    """Return the user's cache folder for this package: $HCAREC_CACHE, or the platform's own."""
    if given := os.environ.get("HCAREC_CACHE"):
        return Path(given).expanduser()
    if given := os.environ.get("XDG_CACHE_HOME"):
        return Path(given) / "hcarec"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "hcarec"
    if sys.platform == "win32" and (given := os.environ.get("LOCALAPPDATA")):
        return Path(given) / "hcarec" / "cache"
    return Path.home() / ".cache" / "hcarec"


def sha256(path: Path, progress: Progress = silent) -> str:
    """Return the SHA-256 of a file."""
    digest, done, total = hashlib.sha256(), 0, path.stat().st_size
    with open(path, "rb") as file:
        while block := file.read(MIB):
            digest.update(block)
            done += len(block)
            progress(f"checking {path.name}", done, total)
    return digest.hexdigest()


def remembered_sha256(path: Path, cache: Path, progress: Progress = silent) -> str:
    """Return the SHA-256 of a file; of a large one that has not changed since, the one computed before."""
    path = path.resolve()
    stat = path.stat()
    if stat.st_size <= REHASH_BELOW:
        return sha256(path, progress)
    note = cache / "hashes" / (hashlib.sha256(os.fsencode(path)).hexdigest()[:24] + ".json")
    mark = [str(path), stat.st_size, stat.st_mtime_ns]
    known = read_json(note)
    if known.get("mark") == mark and isinstance(known.get("sha256"), str):
        return str(known["sha256"])
    found = sha256(path, progress)
    write_json(note, {"mark": mark, "sha256": found})
    return found


def status(source: str, file: str, found: str, pinned: set[str], cache: Path) -> tuple[str, str | None]:
    """Judge the hash of a user's own copy: verified, recorded or changed, and the hash recorded first where it changed.

    The first hash seen stays on record: a file that changed is reported until the record is removed.
    """
    if found in pinned:
        return "verified", None
    note = record_of(source, cache)
    known = read_json(note)
    first = known.get(file)
    if first is None:
        write_json(note, {**known, file: found})
        return "recorded", None
    return ("recorded", None) if first == found else ("changed", str(first))


def record_of(source: str, cache: Path) -> Path:
    """Return the file that holds the first hashes seen of a data set's files."""
    return cache / "recorded" / f"{source}.json"


def read_json(path: Path) -> dict[str, object]:
    """Read a small note; a missing or damaged one counts as empty."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def write_json(path: Path, content: dict[str, object]) -> None:
    """Write a small note, whole or not at all."""
    atomic.write_bytes(path, json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False).encode() + b"\n")


@contextlib.contextmanager
def locked(cache: Path, name: str) -> Iterator[None]:
    """Let one process at a time work on `name`; where files cannot be locked, do without."""
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / f".{name}.lock", "ab") as file:
        with contextlib.suppress(ImportError, OSError):
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        yield
