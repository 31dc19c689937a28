"""Start from the histories of a prepared log, or from a backup."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from hcarec.config import TIME_UNITS
from hcarec.errors import ConfigError
from hcarec.sequences import Sequences
from hcarec.serve.policy import SECOND
from hcarec.serve.stores.interface import Event, Store


def seed(store: Store, folder: Path) -> int:
    """Import all histories of a data set into a store, once; return how many events were added."""
    data = Sequences.open(folder)
    data.verify()
    return store.seed(data.fingerprint, histories(data))


def fill(store: Store, backup: Path) -> None:
    """Fill an empty store from a backup."""
    if users := store.figures().users:
        raise ConfigError(
            f"--restore fills an empty store, and this one is not (users: {users:,}): start without --restore, or with another --store; "
            "an SQLite store is replaced while the service runs, by POST /admin/restore"
        )
    store.restore(backup)


def histories(data: Sequences) -> Iterator[tuple[str, list[Event]]]:
    """Yield every user's events, oldest first and in the order of the data set.

    Where a data set knows no times, an event's place counts as its time: microseconds after 1970, before all that happens live.
    """
    items = list(data.item_ids.texts())
    for user, name in enumerate(data.user_ids.texts()):
        own = slice(data.offsets[user], data.offsets[user + 1])
        times = np.arange(own.stop - own.start) if data.times is None else microseconds(np.asarray(data.times[own]), data.time_unit or "s")
        yield name, [Event(time, items[item]) for time, item in zip(times.tolist(), data.items[own].tolist(), strict=True)]


def microseconds(times: np.ndarray, unit: str) -> np.ndarray:
    """Return times (n,) of a unit as whole microseconds, in an order that never goes back."""
    per_second = TIME_UNITS[unit]
    if times.dtype.kind == "f":
        whole = np.floor(times * (SECOND / per_second)).astype(np.int64)
    else:
        whole = times.astype(np.int64) // (per_second // SECOND) if per_second > SECOND else times.astype(np.int64) * (SECOND // per_second)
    ordered: np.ndarray = np.maximum.accumulate(whole) if len(whole) else whole
    return ordered
