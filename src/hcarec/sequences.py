"""`Sequences`: the prepared event log, compact in memory and mapped from disk."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hcarec import atomic
from hcarec.errors import DataError
from hcarec.ids import Ids

if TYPE_CHECKING:
    import polars as pl

FORMAT = "hcarec-sequences"
VERSION = 1
MANIFEST = "sequences.json"


@dataclass(frozen=True)
class Sequences:
    """All events, by user and in order.

    `items` (n_events,) int32, the item index of every event; `offsets` (n_users + 1,) int64, where each user's
    events begin; `times` (n_events,) int64 or float64 in `time_unit` since 1970, or None where only the order is
    known; `titles` names the items where names are known (an empty text where not), `fields` holds what else is known of
    them, such as a category. `about` says where the data came from and what was done to it (source, columns, filters, counts).
    """

    items: np.ndarray
    offsets: np.ndarray
    user_ids: Ids
    item_ids: Ids
    times: np.ndarray | None = None
    time_unit: str | None = None
    titles: Ids | None = None
    about: dict[str, Any] = field(default_factory=dict)
    fields: dict[str, Ids] = field(default_factory=dict)

    @property
    def n_users(self) -> int:
        return len(self.offsets) - 1

    @property
    def n_items(self) -> int:
        return len(self.item_ids)

    @property
    def n_events(self) -> int:
        return len(self.items)

    @cached_property
    def lengths(self) -> np.ndarray:
        """Events per user, (n_users,)."""
        return np.diff(self.offsets)

    def __len__(self) -> int:
        return self.n_users

    def __getitem__(self, user: int) -> np.ndarray:
        """Return one user's item indices, oldest first."""
        if not 0 <= user < self.n_users:
            raise IndexError(f"user {user} of {self.n_users}")
        return self.items[self.offsets[user] : self.offsets[user + 1]]

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[user] for user in range(self.n_users))

    def title(self, item: int) -> str | None:
        """Return an item's title, or None where it is not known."""
        return (self.titles.text(item) or None) if self.titles is not None else None

    def label(self, item: int) -> str:
        """Return an item's title, or its id where it has none."""
        return self.title(item) or self.item_ids.text(item)

    def __repr__(self) -> str:
        return f"Sequences({self.n_users:,} users, {self.n_items:,} items, {self.n_events:,} events)"

    def to_frame(self) -> pl.DataFrame:
        """Return the events as a Polars frame, in order; ids have the type that they had in the log."""
        import polars as pl

        user_ids, item_ids = self.user_ids.to_series(), self.item_ids.to_series()
        columns = {"user_id": user_ids.gather(np.repeat(np.arange(self.n_users), self.lengths)), "item_id": item_ids.gather(np.asarray(self.items))}
        return pl.DataFrame(columns if self.times is None else columns | {"timestamp": np.asarray(self.times)})

    # -- identity ------------------------------------------------------------------------------------------------

    @cached_property
    def fingerprint(self) -> str:
        """Return a SHA-256 of content and order: both id tables, every sequence, every time."""
        stored = self.about.get("fingerprint")
        return str(stored) if stored else self._hash()

    def _hash(self) -> str:
        digest = hashlib.sha256(f"{FORMAT}/{VERSION}/{self.time_unit}".encode())
        for name, array in _arrays(self).items():
            if not name.startswith(("titles", "field_")):  # what items are called changes nothing of what is learnt
                digest.update(f"/{name}:{array.dtype.str}{array.shape}".encode())
                digest.update(np.ascontiguousarray(array).view(np.uint8).data if array.size else b"")
        return digest.hexdigest()

    def verify(self) -> None:
        """Read everything that was written to disk and fail if it is not what was written."""
        if self.about.get("fingerprint") and (found := self._hash()) != self.fingerprint:
            raise DataError(f"the data has fingerprint {found[:12]}, its manifest says {self.fingerprint[:12]}: it is damaged, prepare it again")

    # -- on disk -------------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write the folder `path`, atomically; an older prepared set of that name is replaced."""
        check_replaceable(Path(path))
        with atomic.folder(Path(path)) as work:
            self.write_into(work)

    def write_into(self, folder: Path) -> None:
        """Write the files of a prepared set into an existing folder."""
        arrays = _arrays(self)
        with ThreadPoolExecutor(1) as other:
            fingerprint = other.submit(self._hash)
            for name, array in arrays.items():
                np.save(folder / f"{name}.npy", array, allow_pickle=False)
        manifest = {
            "format": FORMAT,
            "version": VERSION,
            "fingerprint": fingerprint.result(),
            "users": self.n_users,
            "items": self.n_items,
            "events": self.n_events,
            "time_unit": self.time_unit,
            "integer_ids": {"user": self.user_ids.integer, "item": self.item_ids.integer},
            "fields": list(self.fields),
            "arrays": {name: {"dtype": array.dtype.str, "shape": list(array.shape)} for name, array in arrays.items()},
            "about": {key: value for key, value in self.about.items() if key != "fingerprint"},
        }
        (folder / MANIFEST).write_text(json.dumps(manifest, indent=1, ensure_ascii=False) + "\n", encoding="utf-8", errors="backslashreplace")

    @classmethod
    def open(cls, path: str | Path) -> Sequences:
        """Map a prepared set from disk; offsets and item numbers are checked, all else is read when it is touched."""
        folder = Path(path)
        manifest = _read_manifest(folder)
        arrays = {name: _map(folder / f"{name}.npy", spec) for name, spec in manifest["arrays"].items()}
        integer = manifest["integer_ids"]
        about = {**manifest["about"], "fingerprint": manifest["fingerprint"], "path": os.path.abspath(folder)}
        try:
            found = cls(
                items=arrays["items"],
                offsets=arrays["offsets"],
                user_ids=Ids(arrays["user_ids"], arrays["user_ids_offsets"], integer["user"]),
                item_ids=Ids(arrays["item_ids"], arrays["item_ids_offsets"], integer["item"]),
                times=arrays.get("times"),
                time_unit=manifest["time_unit"],
                titles=Ids(arrays["titles"], arrays["titles_offsets"]) if "titles" in arrays else None,
                about=about,
                fields={str(name): Ids(arrays[f"field_{n}"], arrays[f"field_{n}_offsets"]) for n, name in enumerate(manifest.get("fields", ()))},
            )
        except KeyError as missing:
            raise DataError(f"'{folder}' has no array {missing} in its {MANIFEST}: it is damaged, prepare it again") from None
        if (found.n_users, found.n_items, found.n_events) != (manifest["users"], manifest["items"], manifest["events"]):
            raise DataError(f"'{folder}' does not hold what its {MANIFEST} says: it is damaged, prepare it again")
        if fault := _fault(found):
            raise DataError(f"'{folder}': {fault}: it is damaged, prepare it again")
        return found

    def with_titles(self, titles: dict[str, str], fields: dict[str, dict[str, str]] | None = None) -> Sequences:
        """Return the same data with item names attached, and what else is known of items, by column."""

        def column(texts: dict[str, str]) -> Ids:
            return Ids.of(texts.get(item, "") for item in self.item_ids.texts())

        return replace(self, titles=column(titles), fields={name: column(texts) for name, texts in (fields or {}).items()})


def _fault(data: Sequences) -> str | None:
    """Return what is wrong with the places and numbers that others trust without a look, or None."""
    tables = {"user_ids": data.user_ids, "item_ids": data.item_ids, **({} if data.titles is None else {"titles": data.titles}), **data.fields}
    cuts = {"offsets": (data.offsets, data.n_events), **{name: (texts.offsets, len(texts.blob)) for name, texts in tables.items()}}
    for name, (offsets, size) in cuts.items():
        at = np.asarray(offsets)
        if at.dtype != np.int64 or at.ndim != 1 or not len(at) or at[0] != 0 or at[-1] != size or (at[1:] < at[:-1]).any():
            return f"the places in {name} do not go from 0 to {size:,}"
    for name, texts in tables.items():
        if texts.blob.dtype != np.uint8:
            return f"{name} are not texts"
        if name not in ("user_ids", "item_ids") and len(texts) != data.n_items:
            return f"{name} are of {len(texts):,} items instead of {data.n_items:,}"
    items = np.asarray(data.items)
    if items.dtype != np.int32 or items.ndim != 1 or (len(items) and (items.min() < 0 or items.max() >= data.n_items)):
        return f"an event has an item outside 0 to {data.n_items - 1:,}"
    if data.times is not None and (data.times.shape != items.shape or data.times.dtype.kind not in "if"):
        return "there is not a time for each event"
    return None


def is_prepared(path: Path) -> bool:
    """Say whether a folder is a prepared data set, of whatever version."""
    try:
        manifest = json.loads((path / MANIFEST).read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(manifest, dict) and manifest.get("format") == FORMAT


def check_replaceable(target: Path) -> None:
    """Refuse to write over anything that is not an earlier prepared set or an empty folder."""
    if os.path.isdir(target) and os.path.samefile(target, os.curdir):
        raise DataError(f"'{target}' is the current folder, which cannot be replaced: give -o a folder inside or beside it")
    if is_prepared(target) and (foreign := sorted(name for name in os.listdir(target) if not _is_ours(name))):
        raise DataError(f"'{target}' is a prepared data set but also holds '{foreign[0]}', which would be lost: move that away, or choose another -o")
    if not os.path.lexists(target) or is_prepared(target) or (os.path.isdir(target) and os.access(target, os.R_OK) and not os.listdir(target)):
        return
    raise DataError(f"'{target}' exists and is not a prepared data set: choose another -o, or remove it first")


def _is_ours(name: str) -> bool:
    return name.endswith(".npy") or name in (MANIFEST, "quarantine.csv", "inspect.png")


def _arrays(data: Sequences) -> dict[str, np.ndarray]:
    arrays = {
        "items": data.items,
        "offsets": data.offsets,
        "user_ids": data.user_ids.blob,
        "user_ids_offsets": data.user_ids.offsets,
        "item_ids": data.item_ids.blob,
        "item_ids_offsets": data.item_ids.offsets,
    }
    if data.times is not None:
        arrays["times"] = data.times
    if data.titles is not None:
        arrays |= {"titles": data.titles.blob, "titles_offsets": data.titles.offsets}
    for n, texts in enumerate(data.fields.values()):
        arrays |= {f"field_{n}": texts.blob, f"field_{n}_offsets": texts.offsets}
    return arrays


def _read_manifest(folder: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
    except FileNotFoundError:
        raise DataError(f"'{folder}' is not a prepared data set (no {MANIFEST}): make one with 'hcarec prepare INPUT -o {folder}'") from None
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise DataError(f"'{folder}/{MANIFEST}' is not valid JSON: the data set is damaged, prepare it again") from None
    except OSError as error:
        raise DataError(f"cannot read '{folder}/{MANIFEST}': {error.strerror}") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise DataError(f"'{folder}/{MANIFEST}' is not of the format {FORMAT}: give a folder made by 'hcarec prepare'")
    if manifest.get("version") != VERSION:
        raise DataError(f"'{folder}' has data format {manifest.get('version')}, this hcarec reads {VERSION}: update hcarec or prepare the data again")
    return manifest


def _map(file: Path, spec: dict[str, Any]) -> np.ndarray:
    try:
        if spec["shape"] == [0]:  # an empty file cannot be mapped
            return np.zeros(0, spec["dtype"])
        array: np.ndarray = np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"'{file}' cannot be read ({error}): the data set is damaged, prepare it again") from None
    if array.dtype.str != spec["dtype"] or list(array.shape) != spec["shape"]:
        raise DataError(f"'{file}' is not the array that the manifest describes: the data set is damaged, prepare it again")
    return array
