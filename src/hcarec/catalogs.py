"""Whether a model fits a data set: how many of the data's items it knows."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from hcarec.errors import DataError
from hcarec.ids import Ids

ENOUGH = 0.5
"""Share of the data's items that a model must know."""


class Catalog(Protocol):
    """What a model and a data set have in common."""

    @property
    def item_ids(self) -> Ids: ...

    @property
    def titles(self) -> Ids | None: ...


class Overlap(NamedTuple):
    """How many of the `items` of a data set a model knows; `types` says how their ids differ in type, where they do."""

    known: int
    items: int
    types: str = ""

    @property
    def fits(self) -> bool:
        """Say whether the model knows enough of the items."""
        return self.known >= ENOUGH * self.items

    def __str__(self) -> str:
        return f"{self.known:,} of {self.items:,} items known{f' ({self.types})' if self.types else ''}"

    def check(self, what: str, allowed: bool, option: str = "--allow-mismatch") -> None:
        """Refuse a model that does not fit `what`, unless that is allowed."""
        if not self.fits and not allowed:
            raise DataError(f"the model does not fit {what}: {self}; give the model that was trained on it, or {option} to go on all the same")


def overlap(model: Catalog, data: Catalog) -> Overlap:
    """Count the items of a data set that a model knows: equal ids, and equal titles where both have one.

    Whole numbers collide: without titles the items 1 to 1,000 of two shops look alike.
    """
    known = 0
    for index, item in enumerate(data.item_ids.texts()):
        if (place := model.item_ids.find(item)) >= 0:
            titles = _title(model, place), _title(data, index)
            known += not all(titles) or titles[0] == titles[1]
    ours, theirs = (kind(one.item_ids) for one in (model, data))
    types = "" if ours == theirs else f"the model's ids are {ours}, the data's {theirs}"
    return Overlap(known, len(data.item_ids), types)


def kind(ids: Ids) -> str:
    """Say of what type ids are."""
    return "whole numbers" if ids.integer else "texts"


def _title(catalog: Catalog, item: int) -> str:
    return catalog.titles.text(item) if catalog.titles is not None else ""
