"""Look users up by the beginning of their ids."""

from __future__ import annotations

from itertools import takewhile
from typing import NamedTuple

from hcarec.serve.stores.interface import Store, Wanted


class Listed(NamedTuple):
    """A user, and how many events its log holds."""

    user: str
    events: int


def find_users(store: Store, beginning: str, limit: int) -> list[Listed]:
    """Return up to `limit` users with events whose ids begin with a text, in the order of their bytes; all do with an empty one."""
    after = store.users(beginning or None, limit).users
    names = [*([beginning] if beginning else []), *takewhile(lambda name: name.startswith(beginning), after)]
    found = store.load([Wanted(name) for name in names], "none")  # no model: no states are read
    return [Listed(name, loaded.n_events) for name, loaded in zip(names, found, strict=True) if loaded.n_events][:limit]
