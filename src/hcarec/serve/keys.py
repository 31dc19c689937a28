"""API keys: 256 random bits each, of which the file holds only a hash, and what each key may do.

A slow hash protects passwords, which people choose and so can be guessed. A key of 256 random bits cannot: SHA-256 is
enough, and costs a request a microsecond. A key reads `hcarec_ID_SECRET`; the ID finds the line of the file, and hashes
are compared in constant time.
"""

from __future__ import annotations

import datetime
import hashlib
import hmac
import json
import os
import secrets
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

from hcarec import atomic
from hcarec.errors import ConfigError, nearest

SCOPES = ("read", "write", "admin")
"""`read`: recommend, explain, items, models, a user's history, figures. `write`: events and their removal. `admin`: list and forget users, swap the
model, back up."""
LOOK_AGAIN = 1.0
"""Seconds after which the file is looked at again: a key taken out of it stops working within that time."""


class Key(NamedTuple):
    """A line of the file."""

    name: str
    scopes: frozenset[str]
    digest: bytes


class Keys:
    """The keys of a file, which is read again when it changes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp, self._looked = _stamp(path), time.monotonic()
        self._keys = read(path)
        self.trouble: str | None = None
        """Why the file could not be read again; the keys known before are used until it can."""
        if not self._keys:
            raise ConfigError(f"'{path}' holds no key: make one with hcarec serve --keys {path} --make-key read,write")

    def __len__(self) -> int:
        return len(self._keys)

    def find(self, given: bytes) -> Key | None:
        """Return the key that a caller gave, if it is one."""
        self._look_again()
        digest = hashlib.sha256(given).digest()
        parts = given.split(b"_", 2)
        key = self._keys.get(parts[1].decode("latin-1")) if len(parts) == 3 else None
        # A name that is not known takes the same path as one that is, so that time tells nothing.
        return key if hmac.compare_digest(digest, key.digest if key else bytes(32)) and key else None

    def _look_again(self) -> None:
        now = time.monotonic()
        if now - self._looked < LOOK_AGAIN:
            return
        self._looked = now
        stamp = _stamp(self._path)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._keys, self.trouble = read(self._path), None
        except ConfigError as error:
            self.trouble = str(error)


def make(path: Path, scopes: str) -> str:
    """Add a new key with the scopes, as in "read,write", to a file; return the key, which is not kept anywhere."""
    wanted = [scope.strip() for scope in scopes.split(",") if scope.strip()]
    _check_scopes(wanted, f"--make-key '{scopes}'")
    held = _lines(path) if path.exists() else []
    name = secrets.token_hex(4)
    key = f"hcarec_{name}_{secrets.token_urlsafe(32)}"
    made = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
    held.append({"name": name, "scopes": sorted(set(wanted), key=SCOPES.index), "sha256": hashlib.sha256(key.encode()).hexdigest(), "made": made})
    try:
        with atomic.file(path) as work:
            work.touch(mode=0o600)
            work.write_text(json.dumps({"keys": held}, indent=1) + "\n")
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


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
