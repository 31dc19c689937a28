"""Bring a known data set onto this machine, in a form that the reader understands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hcarec import atomic
from hcarec.data.sources import catalogue, fetch, local
from hcarec.data.sources.address import Policy
from hcarec.data.sources.cache import folder as cache_folder
from hcarec.data.sources.cache import read_json, record_of, write_json
from hcarec.data.sources.local import Found
from hcarec.data.sources.model import Converted, Obtained, Progress, Source, silent
from hcarec.errors import DownloadError, InputError


def obtain(
    source: Source,
    raw: Path | None = None,
    cache: Path | None = None,
    progress: Progress | None = None,
    policy: Policy | None = None,
) -> Obtained:
    """Return a data set from the user's own copy `raw`, or from the cache, fetched if need be.

    Nothing is fetched that cannot be checked against a known SHA-256; of an own copy without one the hash is recorded
    on first use and compared later.
    """
    if source.generated:
        raise InputError(f"{source.name} is generated and has no file to read")
    folder, report = cache or cache_folder(), progress or silent
    try:
        if raw is not None:
            return _ready(source, local.find(source, raw, folder, report), folder, report)
        allowed = policy or Policy(hosts=catalogue.hosts())
        return _ready(source, fetch.fetch(source, folder, allowed, report), folder, report)
    except OSError as error:
        problem = f"{error.strerror or error} ('{error.filename or folder}')"
        raise DownloadError(f"{source.name} could not be stored or read: {problem}; the cache folder is '{folder}', $HCAREC_CACHE names another") from None


def _ready(source: Source, found: Found, folder: Path, progress: Progress) -> Obtained:
    about: dict[str, Any] = {
        "name": source.name,
        "title": source.title,
        "licence": source.licence,
        "terms": source.terms,
        "citation": source.citation,
        "homepage": source.homepage,
        "mirror": found.mirror,
        "file": found.events.name,
        "sha256": found.sha256,
        "sha256_status": found.status,
    }
    if found.first_sha256 is not None:
        about["sha256_before"] = found.first_sha256
        record = record_of(source.name, folder)
        hashes = f"SHA-256 {found.sha256[:12]}.., on record {found.first_sha256[:12]}.."
        about["warning"] = f"this copy of {source.name} is not the one used first ({hashes}); if that is right, remove '{record}'"
    layout, events = found.layout, found.events
    titles = layout.titles.read(found.titles) if layout.titles is not None and found.titles is not None else None
    if layout.convert is not None:
        events, made = _converted(source, found, folder, progress)
        about |= {"raw_rows": made.rows, "removed": made.removed}
        titles = made.titles if made.titles is not None else titles
    return Obtained([events], layout.options, source.filters, titles, about)


def _converted(source: Source, found: Found, folder: Path, progress: Progress) -> tuple[Path, Converted]:
    """Convert the raw file, or find what was made of it before."""
    layout = found.layout
    assert layout.convert is not None
    place = folder / "converted" / f"{source.name}-{found.sha256[:16]}-{layout.edition}"
    events, note = place / "events.csv", place / "converted.json"
    known = read_json(note)
    if not events.is_file() or known.get("bytes") != events.stat().st_size:
        with atomic.folder(place) as work:
            made = layout.convert(found.events, work / events.name, layout.max_bytes, progress)
            size = (work / events.name).stat().st_size
            write_json(work / note.name, {"bytes": size, "rows": made.rows, "removed": dict(made.removed), "titles": made.titles})
        known = read_json(note)
    rows, removed, titles = known["rows"], known["removed"], known["titles"]
    assert isinstance(rows, int)
    assert isinstance(removed, dict)
    assert titles is None or isinstance(titles, dict)
    return events, Converted(rows, removed, titles)
