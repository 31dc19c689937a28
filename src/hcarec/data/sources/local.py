"""Find the files of a data set in a user's own copy: a file, a folder or an archive."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hcarec import atomic
from hcarec.data.files import COMPRESSED
from hcarec.data.sources import cache, unpack
from hcarec.data.sources.model import Https, Layout, Progress, Source, Wheel
from hcarec.errors import InputError

_BY_HAND = (".7z", ".rar", ".bz2", ".zipx")
_SHEETS = (".xlsx", ".xls", ".ods")


@dataclass(frozen=True)
class Found:
    """The files of a data set on this machine."""

    layout: Layout
    events: Path
    titles: Path | None
    mirror: str
    """Where they came from, in words."""
    sha256: str
    """Of the file that was given or fetched."""
    status: str
    """verified, recorded or changed."""
    first_sha256: str | None = None
    """The hash on record, where the file has changed since."""


def find(source: Source, raw: Path, folder: Path, progress: Progress) -> Found:
    """Find the files of `source` in the user's copy `raw`; archives are unpacked into the cache `folder`."""
    if not raw.exists():
        raise InputError(f"'{raw}' does not exist: expected {_expected(source)} ({source.get})")
    if raw.is_dir():
        names = [path.relative_to(raw).as_posix() for path in sorted(raw.rglob("*")) if path.is_file()]
        layout, name = _choose(source, names, raw)
        given = raw / name
    else:
        given = raw
    if given.name.lower().endswith(_BY_HAND):
        raise InputError(f"'{given.name}' is a kind of archive that is not unpacked here: unpack it by hand and give {_expected(source)}")
    if given.name.lower().endswith(_SHEETS):
        raise InputError(f"'{given.name}' is a spreadsheet, which is not read here: save its sheet as CSV and give that file")
    digest = cache.remembered_sha256(given, folder, progress)
    status, first = cache.status(source.name, given.name, digest, _pinned(source), folder)
    if unpack.is_archive(given):
        layout, events, titles = unpacked(source.layouts, source.name, given, digest, folder, progress)
    else:
        layout, events = _layout_of(source, given), given
        titles = titles_beside(given, layout)
    return Found(layout, events, titles, "own copy", digest, status, first)


def unpacked(layouts: tuple[Layout, ...], name: str, archive: Path, digest: str, folder: Path, progress: Progress) -> tuple[Layout, Path, Path | None]:
    """Unpack the files of the first layout that an archive holds, once, and return layout, events and titles."""
    for number, layout in enumerate(layouts):
        place = folder / "unpacked" / f"{name}-{digest[:16]}-{number}"
        note = cache.read_json(place / "files.json")
        if not note:
            limits = unpack.Limits(bytes=layout.max_bytes)
            wanted = [layout.events, *([(layout.titles.name,)] if layout.titles else [])]
            with atomic.folder(place) as work:
                taken = unpack.take(archive, wanted, work, limits, progress)
                note = {"files": [path.name if path else None for path in taken]}
                cache.write_json(work / "files.json", note)
        files = note.get("files")
        if isinstance(files, list) and files and files[0] is not None:
            return layout, place / files[0], place / files[1] if len(files) > 1 and files[1] else None
    raise InputError(f"'{archive}' holds none of the files of {name}: expected {' or '.join(layout.events[0] for layout in layouts)} inside")


def _choose(source: Source, names: list[str], raw: Path) -> tuple[Layout, str]:
    for layout in source.layouts:
        if (name := unpack.choose(names, layout.events)) is not None:
            return layout, name
    raise InputError(f"the folder '{raw}' holds none of the files of {source.name}: expected {_expected(source)}")


def _layout_of(source: Source, given: Path) -> Layout:
    """Choose the layout by the file's name; a file of any other name is taken to have the first one."""
    return next((layout for layout in source.layouts if unpack.choose([given.name], layout.events)), source.layouts[0])


def titles_beside(events: Path, layout: Layout) -> Path | None:
    """Return the file of item names that stands beside the events, if there is one."""
    if layout.titles is None:
        return None
    path = events.with_name(layout.titles.name)
    return path if path.is_file() else None


def _expected(source: Source) -> str:
    return f"{' or '.join(layout.events[0] for layout in source.layouts)} (plain or {' '.join(COMPRESSED)}), or the archive or folder with it"


def _pinned(source: Source) -> set[str]:
    """Return the hashes that are known to be right."""
    hashes: set[str] = set()
    for mirror in source.mirrors:
        hashes |= set(mirror.members.values()) if isinstance(mirror, Wheel) else {mirror.sha256} if isinstance(mirror, Https) else set()
    return hashes
