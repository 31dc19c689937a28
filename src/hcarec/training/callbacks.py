"""`Callback`: told what a run does; the command draws it, a notebook may ignore it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from hcarec.training.trainer import Progress

if TYPE_CHECKING:
    import numpy as np

    from hcarec.models import Config
    from hcarec.training.resources import Plan


class Callback:
    """Does nothing; override what you want to hear."""

    def planned(self, planned: Plan, config: Config, resumed_at: int | None) -> None:
        """Hear the plan, before anything is done; `resumed_at` is the epoch of a checkpoint."""

    @contextlib.contextmanager
    def busy(self, what: str) -> Iterator[None]:
        """Be told of something that takes a while."""
        yield

    def chunk(self, now: Progress, events_per_second: float) -> None:
        """Hear how far an epoch is."""

    def judged(self, epoch: int, users: dict[str, np.ndarray], better: set[str]) -> None:
        """Hear figures per user of an epoch, and the metrics in which it is the best so far."""

    def epoch(self, record: dict[str, Any], best: bool) -> None:
        """Hear the figures of an epoch, and whether it is the best so far."""

    def note(self, text: str) -> None:
        """Hear a line on what was decided on the way."""

    def stops(self) -> bool:
        """Say whether the run is to end at its next checkpoint, as after Ctrl-C."""
        return False
