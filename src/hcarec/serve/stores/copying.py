"""Copy a store of one kind into a new one of any kind: the backup of a Redis store, its restoring, and moving between the two."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from pathlib import Path

from hcarec import atomic
from hcarec.errors import InputError
from hcarec.serve.stores.errors import StoreError
from hcarec.serve.stores.interface import Change, Event, Loaded, Progress, Rebuilt, Store, Wanted

USERS = 200  # copied in one transaction


def copy(source: Store, target: Store, progress: Progress | None = None) -> None:
    """Copy all logs and current states into an empty store; versions are given anew.

    Each user is copied as of one moment, not all users as of the same. A user whose events were all let go by
    `retain` has no log to copy and is left out.
    """
    if target.figures().users:
        raise StoreError("the store to copy into is not empty: give a new one")
    seeds = finished_seeds(source)
    total = source.figures().users
    models = list(source.figures().states)
    done, after = 0, None
    while True:
        page = source.users(after, USERS)
        _copy_users(source, target, page.users, models)
        done += len(page.users)
        if progress is not None:
            progress(done, total)
        if page.after is None:
            break
        after = page.after
    for fingerprint in seeds:
        target.seed(fingerprint, (), again=True)


def finished_seeds(store: Store) -> dict[str, bool]:
    """Return the data sets that were imported into a store, or fail where one is not finished."""
    seeds = store.seeded()
    if not all(seeds.values()):
        raise StoreError("an import of histories is not finished: copy the store when it is, or finish it by starting with the same data")
    return seeds


def _copy_users(source: Store, target: Store, users: list[str], models: list[str]) -> None:
    changes: list[Change] = []
    others: list[list[Rebuilt]] = []
    for user in users:
        events, states = _snapshot(source, user, models)
        if events:
            first = next(iter(states), "none")
            changes.append(Change(user, 0, events, first, states.get(first)))
            others.append([Rebuilt(user, 0, model, state) for model, state in states.items() if model != first])
    versions = target.commit(changes)
    if not all(versions):
        raise StoreError("somebody else writes to the store that is copied into: copy while nobody uses it")
    target.put_states([state._replace(version=version or 0) for version, states in zip(versions, others, strict=True) for state in states])


def _snapshot(source: Store, user: str, models: list[str]) -> tuple[list[Event], dict[str, bytes]]:
    """Read a user's log and its current states as of one version."""
    while True:
        version, events = source.history(user)
        loaded: dict[str, Loaded] = {model: source.load([Wanted(user)], model)[0] for model in models}
        if all(each.version == version for each in loaded.values()):
            # Equal times keep their order, since the copy numbers the events in the order of the log.
            return events, {model: each.state for model, each in loaded.items() if each.state is not None}


def backup(source: Store, target: Path, progress: Progress | None) -> None:
    """Copy a store into an SQLite file that appears whole or not at all."""
    from hcarec.serve.stores.sqlite import SqliteStore

    try:
        with atomic.file(target) as work:
            try:
                with closing(SqliteStore(work)) as store:
                    copy(source, store, progress)
            finally:
                for ending in ("-mark", "-wal"):
                    work.with_name(work.name + ending).unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(f"the backup {target} cannot be written ({os.strerror(error.errno or 0)}): give a folder with enough room") from None


def fill(store: Store, marked: Callable[[], AbstractContextManager[None]], source: Path, progress: Progress | None) -> None:
    """Copy a backup, once all of it was found right, into an empty store, within the block `marked`."""
    from hcarec.serve.stores.sqlite import SqliteStore
    from hcarec.serve.stores.sqlite_restore import copied

    if store.figures().users:
        raise InputError("the store is not empty: a backup is restored into an empty one")
    with tempfile.TemporaryDirectory() as folder, closing(SqliteStore(copied(source, Path(folder), progress), verify=False)) as backup:
        finished_seeds(backup)  # before the block: nothing is written if that fails
        with marked():
            copy(backup, store, progress)
