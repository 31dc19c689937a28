"""The model folder: what it holds, how it is written, and what is refused when it is read.

    model.safetensors   the parameters, by the paper's letters
    model.json          schema, configuration, data fingerprint, protocol, metrics, versions, a hash of every other file
    items.parquet       the catalogue in row order: item_id, title and other texts where known, events in training
    users.parquet       the users in row order, where the model has vectors for them
    log.jsonl           the training log
    checkpoint/         what `hcarec train --resume` goes on from

Nothing in a folder is executed: tensors are safetensors, tables are Parquet, the rest is JSON.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hcarec import atomic
from hcarec.errors import HcarecError, ModelError
from hcarec.ids import Ids
from hcarec.ops.parameters import Theta

FORMAT, SCHEMA = "hcarec-model", 2
READS = (1, SCHEMA)
"""Schemas that are read; in the first one every model listed the settings of all models."""
MANIFEST, TENSORS, ITEMS, USERS, LOG = "model.json", "model.safetensors", "items.parquet", "users.parquet", "log.jsonl"
CHECKPOINT = "checkpoint"
KNOWN_COLUMNS = ("item_id", "title", "events")
OWN = ("format", "schema", "model", "title", "config", "integer_ids", "files", "versions")
"""What model.json says of the folder itself; the rest is about how the model was made."""


class Contents(NamedTuple):
    """What a folder holds; `config` has all settings side by side, the model's name among them."""

    config: dict[str, Any]
    title: str
    theta: Theta
    item_ids: Ids
    titles: Ids | None
    item_events: np.ndarray
    user_ids: Ids | None
    about: dict[str, Any]
    log: bytes = b""
    fields: dict[str, Ids] = {}  # noqa: RUF012 - a tuple's default, never changed
    schema: int = SCHEMA


def write(folder: Path, contents: Contents, keep_checkpoint: bool = False) -> None:
    """Write a model folder in one step; an older one is replaced, its checkpoint too unless it is to stay."""
    import polars as pl
    from safetensors.numpy import save

    columns: dict[str, Any] = {"item_id": contents.item_ids.to_series()}
    if contents.titles is not None:
        columns["title"] = list(contents.titles.texts())
    columns |= {name: list(texts.texts()) for name, texts in contents.fields.items() if name not in KNOWN_COLUMNS}
    files: dict[str, bytes] = {
        TENSORS: save({name: np.ascontiguousarray(array) for name, array in contents.theta.items()}),
        ITEMS: _parquet(pl.DataFrame(columns | {"events": contents.item_events})),
        LOG: contents.log,
    }
    if contents.user_ids is not None:
        files[USERS] = _parquet(pl.DataFrame({"user_id": contents.user_ids.to_series()}))
    manifest = {
        "format": FORMAT,
        "schema": SCHEMA,
        "model": contents.config["model"],
        "title": contents.title,
        "config": contents.config,
        "integer_ids": {"item": contents.item_ids.integer, "user": contents.user_ids is not None and contents.user_ids.integer},
        "files": {name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
        **contents.about,
        "versions": versions(),
    }
    files[MANIFEST] = (json.dumps(manifest, indent=1, ensure_ascii=False) + "\n").encode()
    check_replaceable(folder)
    try:
        with atomic.folder(folder) as work:
            for name, content in files.items():
                (work / name).write_bytes(content)
            if keep_checkpoint and (folder / CHECKPOINT).is_dir():  # links, not copies: going on with a finished run costs no space
                shutil.copytree(folder / CHECKPOINT, work / CHECKPOINT, copy_function=_link)
    except OSError as error:
        raise ModelError(f"cannot write '{folder}': {error.strerror or error}; nothing was changed there") from None


def check_replaceable(folder: Path) -> None:
    """Refuse to write over anything that is not a model, an unfinished run or an empty folder."""
    if not os.path.lexists(folder):
        return
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else [""]
    foreign = [name for name in names if name not in (MANIFEST, TENSORS, ITEMS, USERS, LOG, CHECKPOINT)]
    ours = (folder / MANIFEST).is_file() or (folder / CHECKPOINT / f"{CHECKPOINT}.json").is_file()
    if names and not ours and (foreign or not _only_begun(folder)):
        raise ModelError(f"'{folder}' exists and is not a model folder: choose another -o, or remove it first")
    if foreign:
        raise ModelError(f"'{folder}' is a model folder but also holds '{foreign[0]}', which would be lost: move that away, or choose another -o")


def _only_begun(folder: Path) -> bool:
    """Say whether a folder holds no more than what a run leaves that was killed while it wrote its first checkpoint."""
    inside = os.listdir(folder / CHECKPOINT) if os.path.isdir(folder / CHECKPOINT) else []
    return os.listdir(folder) == [CHECKPOINT] and all(".safetensors" in name or name.startswith(f".{CHECKPOINT}.json.partial-") for name in inside)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def read(folder: Path) -> Contents:
    """Read a model folder, refusing whatever is damaged, foreign or newer."""
    manifest = read_manifest(folder)
    files = {name: _checked(folder, name, digest) for name, digest in manifest["files"].items()}
    try:
        theta = _tensors(files[TENSORS], folder)
        items = _table(files[ITEMS], folder / ITEMS, "item_id")
        users = _table(files[USERS], folder / USERS, "user_id") if USERS in files else None
        integer = manifest["integer_ids"]
        return Contents(
            manifest["config"],
            str(manifest["title"]),
            theta,
            _ids(items["item_id"], integer["item"]),
            Ids.of(items["title"].fill_null("").to_list()) if "title" in items.columns else None,
            items["events"].to_numpy() if "events" in items.columns else np.zeros(items.height, np.int64),
            _ids(users["user_id"], integer["user"]) if users is not None else None,
            {name: value for name, value in manifest.items() if name not in OWN},
            files.get(LOG, b""),
            _fields(items),
            manifest["schema"],
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"'{folder / MANIFEST}' does not describe a model ({error}): it is damaged or foreign, train again") from None
    except HcarecError as error:
        raise ModelError(f"'{folder}': {error}") from None


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read model.json alone, and check that it is one that this version understands."""
    try:
        manifest = json.loads(atomic.read_bytes(folder / MANIFEST))
    except FileNotFoundError:
        raise ModelError(f"'{folder}' is not a model folder (no {MANIFEST}): make one with 'hcarec train DATA -o {folder}'") from None
    except (ValueError, RecursionError):
        raise ModelError(f"'{folder / MANIFEST}' is not valid JSON: the model is damaged, train again or restore it") from None
    except OSError as error:
        raise ModelError(f"cannot read '{folder / MANIFEST}': {error.strerror}") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ModelError(f"'{folder / MANIFEST}' is not of the format {FORMAT}: give a folder made by 'hcarec train'")
    if manifest.get("schema") not in READS:
        raise ModelError(f"'{folder}' has model schema {manifest.get('schema')}, this hcarec reads up to {SCHEMA}: update hcarec or train again")
    if not isinstance(manifest.get("files"), dict) or not {TENSORS, ITEMS} <= set(manifest["files"]) <= {TENSORS, ITEMS, USERS, LOG}:
        raise ModelError(f"'{folder / MANIFEST}' does not list the files of a model: it is damaged or foreign, train again")
    for name in (
        "config",
        "integer_ids",
        *(name for name in ("data", "protocol", "selection", "metrics", "training", "yardsticks", "evaluated") if name in manifest),
    ):
        if not isinstance(manifest.get(name), dict):
            raise ModelError(f"'{folder / MANIFEST}': {name} is not an object: it is damaged or foreign, train again")
    if "protocol" in manifest and not isinstance(manifest["protocol"].get("split"), dict):
        raise ModelError(f"'{folder / MANIFEST}': protocol.split is not an object: it is damaged or foreign, train again")
    return manifest


def is_finished(folder: Path) -> bool:
    """Say whether a folder holds a model whose training came to its end."""
    try:
        return bool(read_manifest(folder).get("finished", True))
    except ModelError:
        return False


def model_hash(folder: Path) -> str:
    """Return a hash that is the model's identity: that of its parameters."""
    return str(read_manifest(folder)["files"][TENSORS])


def versions() -> dict[str, str]:
    """Return the versions that a model was made with."""
    names = ("hcarec", "numpy", "numba", "polars", "safetensors")
    found: dict[str, str] = {"python": platform.python_version()}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _parquet(frame: Any) -> bytes:
    import io

    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    return buffer.getvalue()


def _checked(folder: Path, name: str, digest: str) -> bytes:
    try:
        content = atomic.read_bytes(folder / name)
    except OSError as error:
        raise ModelError(f"cannot read '{folder / name}': {error.strerror}; the model is not whole, train again or restore it") from None
    if hashlib.sha256(content).hexdigest() != digest:
        raise ModelError(f"'{folder / name}' is not the file that {MANIFEST} describes: it was damaged or changed, train again or restore it")
    return content


def _tensors(content: bytes, folder: Path) -> Theta:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        return {name: np.asarray(array) for name, array in load(content).items()}
    except (SafetensorError, ValueError, TypeError, KeyError) as error:
        raise ModelError(f"'{folder / TENSORS}' is not a safetensors file ({error}): train again or restore it") from None


def _table(content: bytes, path: Path, first: str) -> Any:
    import io

    import polars as pl

    try:
        table = pl.read_parquet(io.BytesIO(content))
    except Exception as error:
        raise ModelError(f"'{path}' is not a Parquet file ({str(error).splitlines()[0][:80]}): train again or restore it") from None
    if not table.columns or table.columns[0] != first or table[first].dtype not in (pl.String, pl.Int64) or table[first].has_nulls():
        raise ModelError(f"'{path}' has no first column {first} of texts or whole numbers: train again or restore it")
    if not table[first].is_unique().all():
        raise ModelError(f"'{path}' names an {first} twice: train again or restore it")
    if "title" in table.columns and table["title"].dtype != pl.String:
        raise ModelError(f"'{path}' has titles that are not texts: train again or restore it")
    if "events" in table.columns and (not table["events"].dtype.is_integer() or table["events"].has_nulls() or (table["events"] < 0).any()):
        raise ModelError(f"'{path}' has events that are not counts: train again or restore it")
    return table


def _fields(items: Any) -> dict[str, Ids]:
    """Return the texts about items that a catalogue has beside their names."""
    import polars as pl

    return {name: Ids.of(items[name].fill_null("").to_list()) for name in items.columns if name not in KNOWN_COLUMNS and items[name].dtype == pl.String}


def _ids(column: Any, integer: bool) -> Ids:
    ids = Ids.of(column.to_list())
    if ids.integer != bool(integer) and not (integer and column.str.contains(r"^(0|-?[1-9][0-9]*)$").all()):
        raise ModelError(f"{column.name} is not of the type that {MANIFEST} says: train again or restore it")
    return Ids(ids.blob, ids.offsets, bool(integer))
