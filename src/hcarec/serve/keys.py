"""API keys: 256 random bits each, of which the file holds only a hash, and what each key may do.

A slow hash protects passwords, which people choose and so can be guessed. A key of 256 random bits cannot: SHA-256 is
enough, and costs a request a microsecond. A key reads `hcarec_ID_SECRET`; the ID finds the line of the file, and hashes
are compared in constant time.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import hmac
import json
import os
import secrets
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from hcarec import atomic
from hcarec.errors import ConfigError, nearest

SCOPES = ("read", "write", "admin")
"""`read`: recommend, explain, items, models, a user's history, figures. `write`: events and their removal. `admin`: list and forget users, swap the
model, back up."""
LOOK_AGAIN = 1.0
"""Seconds after which the file is looked at again: a key taken out of it stops working within that time."""
UNREADABLE_S = 60.0
"""Seconds for which the keys known before are used while the file cannot be read; after them none is, since one of them may have been revoked."""
SETTLED_NS = 2_000_000_000
"""A file that was changed less than so long ago may change again without another stamp."""


class Key(NamedTuple):
    """A line of the file."""

    name: str
    scopes: frozenset[str]
    digest: bytes


class Keys:
    """The keys of a file, which is read again when it changes, and every second while that fails."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._looked = time.monotonic()
        self._stamp = _stamp(path)
        self._keys = read(path)
        self._failing_since: float | None = None
        self.trouble: str | None = None
        """Why the file cannot be read now."""
        if not self._keys:
            raise ConfigError(f"'{path}' holds no key: make one with hcarec serve --keys {path} --make-key read,write")

    def __len__(self) -> int:
        return len(self._keys)

    def find(self, given: bytes) -> Key | None:
        """Return the key that a caller gave, if it is one."""
        usable = not self.unreadable()
        digest = hashlib.sha256(given).digest()
        parts = given.split(b"_", 2)
        key = self._keys.get(parts[1].decode("latin-1")) if len(parts) == 3 and usable else None
        # A name that is not known takes the same path as one that is, so that time tells nothing.
        return key if hmac.compare_digest(digest, key.digest if key else bytes(32)) and key else None

    def unreadable(self) -> bool:
        """Say whether the file could not be read for so long that no key is accepted."""
        self._look_again()
        return self._failing_since is not None and self._looked - self._failing_since >= UNREADABLE_S

    def _look_again(self) -> None:
        now = time.monotonic()
        if now - self._looked < LOOK_AGAIN:
            return
        self._looked = now
        stamp = _stamp(self._path)
        if stamp is not None and stamp == self._stamp and self.trouble is None:
            return
        try:
            self._keys = read(self._path)
        except ConfigError as error:
            self.trouble = str(error)
            self._failing_since = now if self._failing_since is None else self._failing_since
        else:  # only what has been read need not be read again
            self._stamp, self.trouble, self._failing_since = stamp, None, None


def make(path: Path, scopes: str) -> str:
    """Add a new key with the scopes, as in "read,write", to a file; return the key, which is not kept anywhere."""
    wanted = [scope.strip() for scope in scopes.split(",") if scope.strip()]
    _check_scopes(wanted, f"--make-key '{scopes}'")
    name = secrets.token_hex(4)
    key = f"hcarec_{name}_{secrets.token_urlsafe(32)}"
    made = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
    line = {"name": name, "scopes": sorted(set(wanted), key=SCOPES.index), "sha256": hashlib.sha256(key.encode()).hexdigest(), "made": made}
    try:
        with _lock(path):  # who adds a key at the same time adds it to this one
            held = _lines(path) if path.exists() else []
            with atomic.file(path) as work:
                work.touch(mode=0o600)
                work.write_text(json.dumps({"keys": [*held, line]}, indent=1) + "\n")
    except OSError as error:
        raise ConfigError(f"cannot write the keys to '{path}': {error.strerror or error}") from None
    return key


def read(path: Path) -> dict[str, Key]:
    """Read the keys of a file, by name."""
    keys = {}
    for line in _lines(path):
        name, scopes, digest = line.get("name"), line.get("scopes"), line.get("sha256")
        if not (isinstance(name, str) and isinstance(scopes, list) and isinstance(digest, str) and len(digest) == 64):
            raise ConfigError(f"'{path}' is not a file of keys: each needs name, scopes and sha256; make keys with --make-key")
        _check_scopes(scopes, f"key '{name}' of '{path}'")
        try:
            keys[name] = Key(name, frozenset(scopes), bytes.fromhex(digest))
        except ValueError:
            raise ConfigError(f"'{path}' is not a file of keys: the sha256 of '{name}' is not 64 hexadecimal digits") from None
    return keys


def _lines(path: Path) -> list[dict[str, Any]]:
    try:
        held = json.loads(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"cannot read the keys in '{path}': {error.strerror or error}; make one with --make-key read,write") from None
    except (ValueError, RecursionError):
        held = None
    lines = held.get("keys") if isinstance(held, dict) else None
    if not isinstance(lines, list) or not all(isinstance(line, dict) for line in lines):
        raise ConfigError(f"'{path}' is not a file of keys: make one with --make-key read,write")
    return lines


def _check_scopes(scopes: Collection[Any], where: str) -> None:
    bad = next((scope for scope in scopes if scope not in SCOPES), None)
    if bad is not None or not scopes:
        raise ConfigError(f"{where}: the scopes are {', '.join(SCOPES)}{nearest(str(bad), SCOPES) if bad else ''}")


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Let one process at a time into the block; the empty file beside the keys stays, since another may wait for it."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _stamp(path: Path) -> tuple[int, ...] | None:
    """Return what changes when a file does, or None where that cannot be told."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    if abs(time.time_ns() - found.st_ctime_ns) < SETTLED_NS:
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino, found.st_dev
