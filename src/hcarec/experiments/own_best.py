"""The figures per user of each metric at its own best epoch, kept while a run goes on.

The paper's tables give every metric at the epoch that is best for it, so its paired tests need the users' figures of that epoch. They are
written the moment an epoch is the best so far: a run that is killed and goes on from its last checkpoint repeats the epochs since, and with them the files.
They are not forced to the disk; where a power cut loses some, `run` notices and begins again.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from hcarec.training import Callback

COLUMN = {"recall": "hits", "map": "ap", "ndcg": "ndcg", "auc": "auc"}
"""The column per user that a metric is made of."""


class OwnBest(Callback):
    """Keeps the columns of best epochs in a folder, and tells another callback everything; does nothing of its own unless `active`."""

    def __init__(self, folder: Path, active: bool, told: Callback) -> None:
        self._folder, self._active, self._told, self.resumed = folder, active, told, False

    def judged(self, epoch: int, users: dict[str, np.ndarray], better: set[str]) -> None:
        for name in better if self._active else ():
            metric, at, k = name.partition("@")
            if metric in COLUMN:
                self._write(f"{COLUMN[metric]}{at}{k}", users)
        self._told.judged(epoch, users, better)

    def _write(self, column: str, users: dict[str, np.ndarray]) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        half = self._folder / f".{column}"
        with open(half, "wb") as file:
            np.save(file, users[column], allow_pickle=False)
        os.replace(half, self._folder / f"{column}.npy")

    def columns(self) -> dict[str, np.ndarray]:
        """Return the columns kept so far, without files that a power cut has left unreadable."""
        found = {}
        for path in sorted(self._folder.glob("*.npy")):
            with contextlib.suppress(ValueError, EOFError):
                found[path.stem] = np.load(path, allow_pickle=False)
        return found

    def clear(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def planned(self, planned: Any, config: Any, resumed_at: int | None) -> None:
        self.resumed = resumed_at is not None
        if not self.resumed:
            self.clear()  # what a run that left no checkpoint had begun
        self._told.planned(planned, config, resumed_at)

    @contextlib.contextmanager
    def busy(self, what: str) -> Iterator[None]:
        with self._told.busy(what):
            yield

    def chunk(self, now: Any, events_per_second: float) -> None:
        self._told.chunk(now, events_per_second)

    def epoch(self, record: dict[str, Any], best: bool) -> None:
        self._told.epoch(record, best)

    def note(self, text: str) -> None:
        self._told.note(text)

    def stops(self) -> bool:
        return self._told.stops()
