"""Read item names out of the files in which data sets keep them."""

from __future__ import annotations

import csv
from pathlib import Path


def delimited(path: Path, delimiter: str) -> dict[str, str]:
    """Read `id<delimiter>name<delimiter>..` lines without a header, as in MovieLens' u.item and movies.dat."""
    names: dict[str, str] = {}
    for line in path.read_bytes().decode("latin-1").split("\n"):
        fields = line.rstrip("\r").split(delimiter)
        if len(fields) >= 2 and fields[0]:
            names.setdefault(fields[0], fields[1].strip())
    return names


def u_item(path: Path) -> dict[str, str]:
    """Read MovieLens-100k's u.item."""
    return delimited(path, "|")


def movies_dat(path: Path) -> dict[str, str]:
    """Read MovieLens-1M's movies.dat."""
    return delimited(path, "::")


def movies_csv(path: Path) -> dict[str, str]:
    """Read the movies.csv of the later MovieLens sets."""
    with open(path, encoding="utf-8-sig", errors="replace", newline="") as file:
        return {row["movieId"]: row["title"].strip() for row in csv.DictReader(file) if row.get("movieId") and row.get("title")}


def atomic_item(path: Path) -> dict[str, str]:
    """Read a RecBole .item file: id, name and year, written as MovieLens does, 'Name (1995)'."""
    names: dict[str, str] = {}
    for line in path.read_bytes().decode("utf-8", errors="replace").split("\n")[1:]:
        fields = line.rstrip("\r").split("\t")
        if len(fields) >= 3:
            year = f" ({fields[2]})" if fields[2].isdigit() else ""
            names.setdefault(fields[0], fields[1] + year)
    return names
