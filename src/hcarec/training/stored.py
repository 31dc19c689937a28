"""The types of what checkpoint.json holds, and the checks of it; imported where one is read."""

from __future__ import annotations

import math
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct

from hcarec.models import make

T = TypeVar("T")

Count = Annotated[int, Meta(ge=0, le=10**15)]
Seconds = Annotated[float, Meta(ge=0.0, le=1e12)]


class Run(Struct):
    """What a run is, see `Task.identity`."""

    config: dict[str, Any]
    data: str
    split: dict[str, Any]
    selection: str
    seen: bool
    k: list[int]
    seed: Count
    device: str


class Best(Struct, forbid_unknown_fields=True):
    value: float
    epoch: Count


class Logged(Struct):
    """What every epoch of the log has, beside the sums of its trainer and the metrics."""

    epoch: Count
    loss: float
    seconds: Seconds
    events_per_second: Annotated[int, Meta(ge=0, le=2**62)]
    evaluation_seconds: Seconds = 0.0


class File(Struct):
    name: str
    sha256: str


class Files(Struct, forbid_unknown_fields=True):
    state: File
    best: File | None = None
    chosen: File | None = None


class Stored(Struct, forbid_unknown_fields=True):
    """What checkpoint.json holds."""

    version: int
    run: Run
    epoch: Count
    seconds: Seconds
    epoch_seconds: Seconds
    best: dict[str, Best]
    chosen: Count | None
    waited: Count
    log: list[Logged]
    trainer: dict[str, Any]
    files: Files
    chosen_trainer: dict[str, Any] | None = None


class Progress(Struct, forbid_unknown_fields=True):
    """The types of `hcarec.training.trainer.Progress`."""

    epoch: Annotated[int, Meta(ge=0, le=2**62)]
    position: Annotated[int, Meta(ge=0, le=2**62)]
    size: Annotated[int, Meta(ge=0, le=2**62)]
    targets: Annotated[int, Meta(ge=0, le=2**62)]
    loss: float
    sums: dict[str, int | float]


def convert(content: Any) -> Stored:
    """Return what a checkpoint holds, or raise ValueError or an error of ours."""
    stored = _converted(content, Stored)
    _check(stored)
    return stored


def progress_fields(values: Any) -> dict[str, Any]:
    """Return the fields of a `Progress`, or raise ValueError."""
    return msgspec.structs.asdict(_converted(values, Progress))


def _converted(values: Any, kind: type[T]) -> T:
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None


def _check(stored: Stored) -> None:
    """Refuse values that cannot stand side by side in a checkpoint."""
    done = len(stored.log)
    if [record.epoch for record in stored.log] != list(range(1, done + 1)):
        raise ValueError("the log does not have every epoch once")
    if done not in (stored.epoch, stored.epoch - 1):
        raise ValueError(f"it is in epoch {stored.epoch}, and its log has {done}")
    if not all(math.isfinite(record.loss) for record in stored.log):
        raise ValueError("the log has a loss that is not finite")
    epochs = [one.epoch for one in stored.best.values()]
    if stored.chosen is not None:
        epochs.append(stored.chosen)
    if not all(1 <= epoch <= done for epoch in epochs):
        raise ValueError("a best epoch is not in the log")
    if (stored.chosen is None) != (stored.files.best is None):
        raise ValueError("chosen and best do not belong together")
    if (stored.chosen_trainer is None) != (stored.files.chosen is None):
        raise ValueError("the trainer's state of the chosen epoch is not whole")
    if "model" not in stored.run.config:
        raise ValueError("it does not name the model")
    make(**stored.run.config)  # refuses what is no configuration
