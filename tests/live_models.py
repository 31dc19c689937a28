"""What tests of the live service share: small trained models, a quick place for stores, a running service."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from hcarec import BPR, GRU, HCAGRU, ItemKNN, Markov, Pop, Random, SASRec, Sequences, synthetic
from hcarec.models import Model
from hcarec.serve.service import Service, ServiceOptions
from hcarec.serve.stores.sqlite import SqliteStore


@cache
def data() -> Sequences:
    return synthetic(users=60, items=50, mean_length=12)


@cache
def models() -> dict[str, Model]:
    """Return trained models; some share a name and differ in parameters, windows or catalogue."""
    made: dict[str, Model] = {
        "hca-gru": HCAGRU(preset="paper", d=6, window_x=3, window_h=2),
        "other": HCAGRU(preset="paper", d=5, window_x=2, window_h=4),
        "gru": GRU(preset="paper", d=7),
        "bpr": BPR(d=6, learning_rate=0.05),
        "pop": Pop(),
        "random": Random(d=6),
        "markov": Markov(),
        "item-knn": ItemKNN(neighbors=12, history=4),
        "sasrec": SASRec(preset="paper", d=6, length=8, copy_window=3, batch_size=16, warmup=5),
        "counting": HCAGRU(preset="paper", d=6, window_x=3, window_h=2, trainer="minibatch", copy_window=3, counting=True, batch_size=16, warmup=5),
    }
    return {name: model.fit(data(), epochs=2, seed=number) for number, (name, model) in enumerate(made.items())}


def saved(folder: Path, name: str) -> Path:
    """Return the folder of a model, written there if it was not yet."""
    target = folder / name
    if not target.exists():
        models()[name].save(target)
    return target


@contextmanager
def quick_folder() -> Iterator[Path]:
    """Yield an empty folder, in memory where there is such a place: many stores are made, and none needs to outlive the test."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as folder:
        yield Path(folder)


class Shared:
    """A store of which a server does not know that nobody else writes to it; `before_commit` runs before each commit."""

    exclusive = False

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self.before_commit: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def commit(self, changes: Any) -> Any:
        if self.before_commit is not None:
            self.before_commit()
        return self._store.commit(changes)


@asynccontextmanager
async def running(folder: Path, store: Any, name: str = "hca-gru", **options: Any) -> AsyncIterator[Service]:
    """Run a service by a model of that name."""
    service = await Service.open(saved(folder, name), store, options=ServiceOptions(**{"store_apart": False} | options))
    try:
        yield service
    finally:
        await service.close()


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run a test in an event loop, but not for ever."""
    asyncio.run(asyncio.wait_for(work, 100))


async def until(true: Callable[[], bool], seconds: float = 5.0) -> None:
    """Wait for something to become true."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        await asyncio.sleep(0.01)
