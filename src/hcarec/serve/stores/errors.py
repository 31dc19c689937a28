"""What can go wrong with a store.

StoreError
├── StoreBusy         another process owns the store
├── StoreFull         no room to write; reads go on, and writes succeed again once there is room
├── StoreUnreachable  the server of the store did not answer in time; whether a write was made is unknown
└── StoreDamaged      what was read is not what was written
"""

from __future__ import annotations

from hcarec.errors import HcarecError


class StoreError(HcarecError):
    """A store that cannot do what was asked."""


class StoreBusy(StoreError):
    """A store that another process owns."""


class StoreFull(StoreError):
    """A store without room: nothing was written, reads go on, writes succeed again once there is room."""


class StoreUnreachable(StoreError):
    """A store that did not answer in time: a write may or may not have been made, so load again before repeating it."""


class StoreDamaged(StoreError):
    """A store of which a part is not what was written."""


KINDS: dict[str, type[StoreError]] = {kind.__name__: kind for kind in (StoreError, StoreBusy, StoreFull, StoreUnreachable, StoreDamaged)}


def failure(kind: str, words: str) -> StoreError:
    """Return an error that was sent by another process, by the name of its kind."""
    return KINDS[kind](words)
