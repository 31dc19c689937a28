"""Examine an installation: versions, the machine, what is missing for what, and what is kept on disk. Nothing heavy is imported."""

from __future__ import annotations

import os
import platform
import sqlite3
import sys
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

from hcarec import compiled_cache, hardware

USES = {
    "serve": "hcarec serve, and the page of hcarec demo",
    "redis": "hcarec serve --store redis://..",
    "torch": "gru, hca-gru and sasrec by the default preset, and hcarec train --tensorboard",
    "triton": "kernels for a GPU (torch for CUDA on Linux brings it along)",
    "docs": "make site",
    "dev": "make test and make check",
}
"""What each extra is for."""
SHOWN = 3
"""Packages of an extra that are named when they are missing."""
COMPILED = (".nbi", ".nbc")
"""Endings of the files that Numba keeps compiled code in."""


def examine() -> dict[str, Any]:
    """Return what was found as plain values; `missing` lists what hcarec cannot do without, in words."""
    from hcarec import __version__

    needed, extras = _packages()
    memory = hardware.memory()
    found: dict[str, Any] = {
        "hcarec": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "processor": hardware.processor(),
        "cores": hardware.cores(),
        "memory_bytes": memory.total,
        "memory_available_bytes": memory.available,
        "gpus": hardware.gpus(),
        "sqlite": sqlite3.sqlite_version,
        "packages": needed,
        "extras": extras,
        "downloads": _downloads(),
        "compiled": _compiled(),
    }
    faults = [f"{name} {_fault(one)}" for name, one in needed.items() if not one["fits"]]
    if not any(place["writable"] for place in found["compiled"]):
        faults.append("no folder for compiled code can be written to: set NUMBA_CACHE_DIR to one")
    return found | {"missing": faults}


# -- packages ----------------------------------------------------------------------------------------------------------


def _packages() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the packages that are always needed, and those of each extra, with the versions asked for and installed."""
    from packaging.requirements import Requirement

    try:
        written = [Requirement(text) for text in metadata.requires("hcarec") or ()]
    except metadata.PackageNotFoundError:  # run from its sources, not installed
        return {"hcarec": {"asked": "", "version": None, "fits": False}}, {}
    needed = {one.name: _installed(one) for one in written if one.marker is None or one.marker.evaluate({"extra": ""})}
    extras = {}
    for extra, use in USES.items():
        own = [one for one in written if one.marker is not None and not one.marker.evaluate({"extra": ""}) and one.marker.evaluate({"extra": extra})]
        if own:
            extras[extra] = {"for": use, "packages": {one.name: _installed(one) for one in own}}
    return needed, extras


def _installed(requirement: Any) -> dict[str, Any]:
    try:
        version = metadata.version(requirement.name)
    except metadata.PackageNotFoundError:
        return {"asked": str(requirement.specifier), "version": None, "fits": False}
    return {"asked": str(requirement.specifier), "version": version, "fits": requirement.specifier.contains(version, prereleases=True)}


def _fault(package: dict[str, Any]) -> str:
    return "is missing" if package["version"] is None else f"is {package['version']}, needed is {package['asked']}"


# -- on disk -----------------------------------------------------------------------------------------------------------


def _downloads() -> dict[str, Any]:
    """Return where data sets are kept once fetched, and how much lies there."""
    from hcarec.data.sources import cache

    folder = cache.folder()
    return {"folder": str(folder), **_content(_below(folder))}


def _compiled() -> list[dict[str, Any]]:
    """Return the places of compiled code in the order in which they are tried, and how much lies there."""
    given = os.environ.get("NUMBA_CACHE_DIR")
    places = [Path(given)] if given else [Path(__file__).parent, compiled_cache.usual()[-1]]
    return [
        {"folder": str(place), "writable": _writable(place), **_content(path for path in _below(place) if path.suffix in COMPILED)}
        for place in places
        if place.exists() or place != places[-1] or len(places) == 1
    ]


def _below(folder: Path) -> Iterable[Path]:
    return (Path(place) / name for place, _, names in os.walk(folder) for name in names)


def _content(files: Iterable[Path]) -> dict[str, int]:
    sizes = []
    for path in files:
        try:
            sizes.append(path.stat().st_size)
        except OSError:  # gone meanwhile
            continue
    return {"files": len(sizes), "bytes": sum(sizes)}


def _writable(folder: Path) -> bool:
    """Say whether files can be made in a folder, or in the nearest one above it that is there; nothing is made."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return os.access(folder, os.W_OK)


# -- in words ----------------------------------------------------------------------------------------------------------


def words(found: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what was found as lines of a name and a text."""
    lines = [
        ("hcarec", f"{found['hcarec']}, Python {found['python']}, {found['system']}, SQLite {found['sqlite']}"),
        ("machine", _machine(found)),
        ("GPU", f"{', '.join(found['gpus']) or 'none found'}; not needed, hcarec computes on the CPU"),
        ("needed", ", ".join(f"{name} {one['version'] or 'MISSING'}" for name, one in found["packages"].items())),
    ]
    lines += [(f"[{extra}]", _extra(extra, one)) for extra, one in found["extras"].items()]
    downloads = found["downloads"]
    lines.append(("downloads", f"{downloads['folder']}: {_amount(downloads)}; remove it at will, data sets are fetched again"))
    for place in found["compiled"]:
        lines.append(("compiled", f"{place['folder']}: {_amount(place)}{'' if place['writable'] else ', cannot be written to'}"))
    return [*lines, ("verdict", "; ".join(found["missing"]) + _advice() if found["missing"] else "everything that hcarec needs is there")]


def _machine(found: dict[str, Any]) -> str:
    total, free = found["memory_bytes"], found["memory_available_bytes"]
    room = "" if total is None else f", {total / hardware.GIB:.1f} GiB of memory"
    room += "" if free is None else f", {free / hardware.GIB:.1f} free"
    return f"{found['processor']}, {found['cores']} core{'s' * (found['cores'] != 1)}{room}"


def _extra(extra: str, one: dict[str, Any]) -> str:
    bad = [f"{name} {_fault(package)}" for name, package in one["packages"].items() if not package["fits"]]
    if not bad:
        return f"all there, for {one['for']}"
    listed = ", ".join(bad[:SHOWN]) + (f" and {len(bad) - SHOWN} more" if len(bad) > SHOWN else "")
    return f"{listed}; for {one['for']}: pip install 'hcarec[{extra}]'"


def _advice() -> str:
    return f": install hcarec again, with {Path(sys.executable).name} -m pip install hcarec"


def _amount(place: dict[str, int]) -> str:
    return f"{place['files']:,} files, {place['bytes'] / 1e6:,.1f} MB" if place["files"] else "empty"
