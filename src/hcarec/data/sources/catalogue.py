"""The list of known data sets."""

from __future__ import annotations

import re

from hcarec.data.sources import known_movielens, known_others, known_paper, known_shops
from hcarec.data.sources.model import Https, Source
from hcarec.errors import InputError, nearest

_AMAZON = re.compile(r"amazon-([a-z0-9]+(?:-[a-z0-9]+)*)")


def known() -> dict[str, Source]:
    """Return the known data sets by name; 'amazon-*' stands for any category."""
    sources = (*known_paper.SOURCES, *known_movielens.SOURCES, *known_shops.SOURCES, *known_others.SOURCES)
    return {source.name: source for source in sources}


def find(name: str) -> Source:
    """Return a known data set by its name."""
    sources = known()
    if category := _AMAZON.fullmatch(name):
        return known_others.amazon(category[1])
    if name == "amazon-*":
        raise InputError("'amazon-*' stands for many data sets: put a category in place of the star, such as amazon-beauty or amazon-video-games")
    if name not in sources:
        raise InputError(f"data set '{name}' is not known{nearest(name, [*sources, 'amazon-beauty'])}: 'hcarec prepare --list' shows all")
    return sources[name]


def hosts() -> frozenset[str]:
    """Return the names of all servers that the known data sets are fetched from."""
    urls = [mirror.url for source in known().values() for mirror in source.mirrors if isinstance(mirror, Https)]
    return frozenset(url.split("/")[2] for url in urls)
