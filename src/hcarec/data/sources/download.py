"""Fetch one file over https, within limits, and keep it only when its hash is right."""

from __future__ import annotations

import http.client
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from urllib.parse import urljoin

from hcarec.data.sources import cache
from hcarec.data.sources.address import Policy, check_url, connect
from hcarec.data.sources.model import MIB, Progress, silent
from hcarec.errors import DownloadError

_BLOCK = MIB // 4
_TRIES = 3
_REDIRECTS = (301, 302, 303, 307, 308)


class _Interrupted(Exception):
    """The connection broke; what came so far is good."""


@dataclass(frozen=True)
class _Answer:
    """An open answer, and the connection it comes through."""

    connection: http.client.HTTPSConnection
    response: http.client.HTTPResponse


def download(url: str, target: Path, sha256: str, size: int, policy: Policy, progress: Progress = silent) -> None:
    """Fetch `url` into the file `target`, or fail and leave no such file.

    What has come of an interrupted transfer is kept beside it as `.part` and carried on next time. `size` is the
    most that is read; a file with another hash than `sha256` is thrown away.
    """
    part = target.with_name(target.name + ".part")
    target.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + policy.seconds
    for attempt in range(1, _TRIES + 1):
        resumed = part.exists()
        try:
            _transfer(url, part, size, policy, deadline, progress)
        except _Interrupted as broken:
            if attempt == _TRIES or time.monotonic() > deadline:
                raise DownloadError(f"{url} broke off after {_length(part):,} bytes ({broken})") from None
            continue
        found = cache.sha256(part)
        if found == sha256:
            with open(part, "rb") as file:
                os.fsync(file.fileno())
            os.replace(part, target)
            _validator_file(part).unlink(missing_ok=True)
            return
        discard(part)
        if not resumed:  # a resumed file may be half an old one and half a new one: once more from the start
            raise DownloadError(f"{url} is not the file that was expected (SHA-256 {found[:12]}.., expected {sha256[:12]}..): thrown away")
    raise DownloadError(f"{url} could not be fetched whole in {_TRIES} tries")


def discard(part: Path) -> None:
    """Remove what has come of a file so far."""
    part.unlink(missing_ok=True)
    _validator_file(part).unlink(missing_ok=True)


def _transfer(url: str, part: Path, size: int, policy: Policy, deadline: float, progress: Progress) -> None:
    """Bring `part` to completion, from where it stands if the server can."""
    have = _length(part)
    if have > size:
        discard(part)
        have = 0
    answer = _ask(url, _range_headers(part, have), policy)
    try:
        response = answer.response
        if response.status == 416:  # nothing beyond what we have: it is whole, or of another length
            if have != size:
                discard(part)
                raise _Interrupted("the server does not know the rest of the file")
            return
        if response.status == 206 and _range_start(response) != have:
            discard(part)
            raise _Interrupted("the server sent another part than was asked for")
        if response.status not in (200, 206):
            raise DownloadError(f"{url} was answered with {response.status} {response.reason[:60]}")
        start = have if response.status == 206 else 0
        length = response.length  # what the server says is still to come, None where it does not say
        if length is not None and start + length > size:
            discard(part)
            raise DownloadError(f"{url} is {start + length:,} bytes long, expected were at most {size:,}: refused")
        if start == 0:
            _remember_validator(part, response)
        with open(part, "ab" if start else "wb") as out:
            _receive(url, response, out, start, size, deadline, progress)
    except DownloadError:
        if _length(part) > size:
            discard(part)
        raise
    finally:
        answer.connection.close()


def _receive(url: str, response: http.client.HTTPResponse, out: IO[bytes], start: int, size: int, deadline: float, progress: Progress) -> None:
    """Write the body to `out`, of which `start` bytes are there already."""
    done, name, length = start, Path(url).name, response.length
    while True:
        try:
            block = response.read1(_BLOCK)
        except (OSError, http.client.HTTPException) as error:
            raise _Interrupted(_reason(error)) from None
        if not block:
            break
        done += len(block)
        out.write(block)
        if done > size:
            out.flush()
            raise DownloadError(f"{url} sends more than the {size:,} bytes that were expected: refused")
        progress(f"fetching {name}", done, size)
        if time.monotonic() > deadline:
            raise _Interrupted("it takes too long")
    if length is not None and done < start + length:
        raise _Interrupted("the connection was closed early")


def _ask(url: str, headers: dict[str, str], policy: Policy) -> _Answer:
    """Send the request, following a few redirects, each checked like the first address."""
    for _ in range(policy.redirects + 1):
        host, path = check_url(url, policy)
        connection = http.client.HTTPSConnection(host, policy.port, timeout=policy.timeout)
        connection.auto_open = 0  # only ever the socket whose address was checked
        connection.sock = connect(host, policy)
        try:
            connection.request("GET", path, headers={"User-Agent": "hcarec", "Accept-Encoding": "identity", **headers})
            response = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise _Interrupted(_reason(error)) from None
        if response.status not in _REDIRECTS:
            return _Answer(connection, response)
        connection.close()
        url = urljoin(url, response.headers.get("Location") or "")
    raise DownloadError(f"{url} redirects more than {policy.redirects} times: refused")


def _range_headers(part: Path, have: int) -> dict[str, str]:
    if not have:
        return {}
    validator = cache.read_json(_validator_file(part)).get("validator")
    return {"Range": f"bytes={have}-", **({"If-Range": str(validator)} if validator else {})}


def _remember_validator(part: Path, response: http.client.HTTPResponse) -> None:
    """Note what tells this edition of the file from another; a weak tag cannot be used with If-Range."""
    etag = response.headers.get("ETag") or ""
    validator = etag if etag.startswith('"') else response.headers.get("Last-Modified")
    cache.write_json(_validator_file(part), {"validator": validator})


def _range_start(response: http.client.HTTPResponse) -> int:
    unit, _, rest = (response.headers.get("Content-Range") or "").partition(" ")
    first = rest.partition("-")[0]
    return int(first) if unit == "bytes" and first.isdigit() else -1


def _validator_file(part: Path) -> Path:
    return part.with_name(part.name + ".json")


def _length(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _reason(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error or type(error).__name__).splitlines()[0][:120]
