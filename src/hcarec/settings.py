"""Settings that check themselves: of a network, of a trainer, of a run; each default is written here or beside its model, once.

A setting of the wrong type or out of range is refused in one line that says what was given and what is expected.
"""

from __future__ import annotations

import dataclasses
import math
import numbers as abstract
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, TypedDict

from hcarec.errors import ConfigError, nearest

Check = Callable[[str, Any], Any]
"""Refuses a value, or returns it as it is kept."""


def whole(default: int, least: int = 0, most: int | None = None) -> Any:
    """Declare a setting that is a whole number."""
    if most is not None:
        expected = f"at least {least} and at most {most:,}"
    else:
        expected = "0 or more" if least == 0 else f"at least {least}"

    def check(name: str, value: Any) -> int:
        fits = not isinstance(value, bool) and isinstance(value, abstract.Integral) and int(value) >= least
        if not fits or (most is not None and value > most):
            raise ConfigError(f"{name} is {_shown(value)}: give a whole number of {expected}")
        return int(value)

    return field(default=default, metadata={"check": check})


def number(default: float, least: float = 0.0, most: float = math.inf) -> Any:
    """Declare a setting that is a finite number."""
    expected = f"a number of {least:g} or more" if math.isinf(most) else f"a number from {least:g} to {most:g}"

    def check(name: str, value: Any) -> float:
        if not _is_number(value) or not least <= value <= most:
            raise ConfigError(f"{name} is {_shown(value)}: give {expected}")
        return float(value)

    return field(default=default, metadata={"check": check})


SMALLEST, LARGEST, MOST_NUMBERS = 1e-6, 1e6, 1000
"""Bounds of a number in a list that is not 0, and of how many there are."""


def numbers(default: tuple[float, ...]) -> Any:
    """Declare a setting that is a list of numbers, each 0 or within bounds, at least one; a text has commas between them."""
    example = ",".join(f"{part:g}" for part in default)
    expected = f"1 to {MOST_NUMBERS:,} numbers, each 0 or from {SMALLEST:g} to {LARGEST:g}, such as {example}"

    def check(name: str, value: Any) -> tuple[float, ...]:
        parts = _listed(value)
        fits = isinstance(parts, (list, tuple)) and 1 <= len(parts) <= MOST_NUMBERS
        if not fits or not all(_is_number(part) and (part == 0 or SMALLEST <= part <= LARGEST) for part in parts):
            raise ConfigError(f"{name} is {_shown(value)}: give {expected}")
        return tuple(map(float, parts))

    return field(default=default, metadata={"check": check})


def _listed(value: Any) -> Any:
    """Return the parts of a text, an array or a single number as a list; anything else as it is."""
    if isinstance(value, str):
        try:
            return [float(part) for part in value.split(",")]
        except ValueError:
            return None
    if hasattr(value, "tolist"):
        value = value.tolist()
    return [value] if _is_number(value) else value


def _is_number(value: Any) -> bool:
    """Say whether a value is a finite number that a float can hold."""
    try:
        return not isinstance(value, bool) and isinstance(value, abstract.Real) and math.isfinite(value)
    except OverflowError:
        return False


def _shown(value: Any) -> str:
    """Return a value as an error shows it: in one line, not too long."""
    try:
        text = " ".join(repr(value).split())
    except ValueError:  # a whole number of thousands of digits
        text = "too large"
    return text if len(text) <= 80 else f"{text[:80]}.."


def choice(default: str, known: Sequence[str]) -> Any:
    """Declare a setting that is one of some names."""

    def check(name: str, value: Any) -> str:
        check_known(name, value, known)
        return str(value)

    return field(default=default, metadata={"check": check})


def flag(default: bool) -> Any:
    """Declare a setting that is true or false."""

    def check(name: str, value: Any) -> bool:
        if not isinstance(value, bool):
            raise ConfigError(f"{name} is {value!r}: give true or false")
        return value

    return field(default=default, metadata={"check": check})


def optional_whole(least: int) -> Any:
    """Declare a setting that is a whole number, or None."""
    inner: Check = whole(least, least).metadata["check"]

    def check(name: str, value: Any) -> int | None:
        return None if value is None else inner(name, value)

    return field(default=None, metadata={"check": check})


def check_known(name: str, value: Any, known: Sequence[str]) -> None:
    """Refuse a value that is not one of the known names."""
    if value not in known:
        suggestion = nearest(value, known) if isinstance(value, str) else ""
        raise ConfigError(f"{name} '{value}' is not known: give one of {', '.join(known)}{suggestion}")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Base of all settings: every field is checked when an object is made."""

    def __post_init__(self) -> None:
        for one in dataclasses.fields(self):
            object.__setattr__(self, one.name, one.metadata["check"](one.name, getattr(self, one.name)))

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Return the names of the settings."""
        return tuple(one.name for one in dataclasses.fields(cls))

    @classmethod
    def pick(cls, given: Mapping[str, Any]) -> Self:
        """Make the settings from those of the given values that belong to them."""
        return cls(**{name: given[name] for name in cls.names() if name in given})


@dataclass(frozen=True, kw_only=True)
class RunSettings(Settings):
    """How a run is carried out; a result does not depend on `threads`."""

    seed: int = whole(0, 0, 2**63 - 1)
    """Seed of all random numbers."""
    threads: int | None = optional_whole(1)
    """Threads; None takes all cores."""
    device: str = choice("auto", ("auto", "cpu", "cuda"))
    """What computes; auto is a GPU where there is one and the trainer can use it."""


@dataclass(frozen=True, kw_only=True)
class NetworkSettings(Settings, ABC):
    """What a model computes; each model has a class of its own beside it."""

    @property
    @abstractmethod
    def title(self) -> str:
        """Return the name that people know the model by."""


@dataclass(frozen=True, kw_only=True)
class TrainerSettings(Settings):
    """What all trainers share: how long they learn, and how often that is judged."""

    name: ClassVar[str]

    epochs: int = whole(100, 0, 10**9)
    """Times that training goes through all users."""
    evaluate_every: int = whole(1, 1, 10**9)
    """Epochs from one evaluation to the next; the last epoch is always evaluated."""
    patience: int = whole(0, 0, 10**9)
    """Stop after this many evaluations in a row without a better one; 0 never stops early."""

    @property
    def depends_on_epochs(self) -> bool:
        """Say whether an epoch depends on how many there will be, so that their number cannot grow later."""
        return False

    @property
    def epochs_after_choice(self) -> int:
        """Return the epochs that follow once one is chosen on validation events, which are learned then."""
        return 0


@dataclass(frozen=True, kw_only=True)
class UserSGDSettings(TrainerSettings):
    """The paper's trainer: one step of plain SGD per user and epoch."""

    name: ClassVar[str] = "user-sgd"

    learning_rate: float = number(0.01)
    """Step of plain SGD."""
    l2: float = number(0.001)
    """The paper's lambda: weight of the penalty on every parameter."""


LOSSES = ("auto", "cross-entropy", "sampled-softmax", "bpr-max", "bce")


@dataclass(frozen=True, kw_only=True)
class MinibatchSettings(TrainerSettings):
    """Training as it is done today: mini-batches, AdamW, averaged weights."""

    name: ClassVar[str] = "minibatch"

    patience: int = whole(10, 0, 10**9)
    """Stop after this many evaluations in a row without a better one; 0 never stops early."""
    batches: str = choice("sequences", ("sequences", "prefixes", "positions"))
    """What a batch is made of: whole sequences, each prefix as a sample of its own, or a few random positions of many users."""
    batch_size: int = whole(128, 1, 10**6)
    """Sequences or samples in a batch."""
    length: int = whole(200, 1, 100_000)
    """Most events of a sample; longer sequences are cut into pieces."""
    positions: int = whole(4, 1, 100_000)
    """Positions of a sample that are trained on, where batches are made of positions."""
    loss: str = choice("auto", LOSSES)
    """What is minimized; auto is cross-entropy over the whole catalog, or sampled-softmax where that is too large."""
    negatives: int = whole(2048, 1, 10**7)
    """Draws of items that a batch shares as negatives, for the losses other than cross-entropy; sampled-softmax takes each item once."""
    sampling: str = choice("popularity", ("uniform", "popularity"))
    """How negatives are drawn; sampled-softmax corrects for it, by the chance of each item to be among them."""
    learning_rate: float = number(0.001)
    """Step of AdamW."""
    weight_decay: float = number(0.01)
    """Weight decay of AdamW on matrices and item vectors."""
    warmup: int = whole(200, 0, 10**9)
    """Steps over which the learning rate rises from zero."""
    schedule: str = choice("constant", ("constant", "linear", "cosine"))
    """The learning rate after the warm-up: constant, or how it falls to zero towards the last epoch."""
    clip: float = number(5.0)
    """Greatest norm of a step's gradient; 0 leaves it as it is."""
    ema: float = number(0.999, 0.0, 1.0)
    """Weight of the past in the averaged parameters, which are those that are evaluated and kept; 0 keeps the last ones."""
    fine_tuning: int = whole(0, 0, 10**9)
    """Epochs over training and validation events together that follow the chosen epoch; 0 leaves the validation events to the counting term."""
    precision: str = choice("float32", ("auto", "float32", "tf32", "bfloat16"))
    """Arithmetic of matrix products; tf32 and bfloat16 are for GPUs, auto is bfloat16 there and float32 on a CPU."""

    @property
    def depends_on_epochs(self) -> bool:
        return self.schedule != "constant"

    @property
    def epochs_after_choice(self) -> int:
        return self.fine_tuning

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.fine_tuning and self.depends_on_epochs:
            raise ConfigError(
                f"fine_tuning is {self.fine_tuning} with the schedule {self.schedule}, which leaves no learning rate to go on with:"
                " give schedule=constant, or fine_tuning=0"
            )


TRAINERS: dict[str, type[TrainerSettings]] = {one.name: one for one in (UserSGDSettings, MinibatchSettings)}
"""The settings of each trainer by its name."""
PAPER, MODERN = "paper", "modern"
PRESETS: dict[str, str] = {PAPER: UserSGDSettings.name, MODERN: MinibatchSettings.name}
"""The trainer of each preset. The defaults above are the paper's; `hcarec.training.recipe` has the settings of `modern`, which depend on log and machine."""
DEFAULT_PRESET = MODERN
"""The preset of the models that have it, unless one is named or follows from what is given."""
PAPER_ONLY = frozenset(UserSGDSettings.names()) - frozenset(MinibatchSettings.names())
"""Settings that the paper's trainer alone has; one of them without a preset means the preset `paper`."""


class PresetOptions(TypedDict, total=False):
    """What every model may be made with, for type checkers; the classes above hold the defaults."""

    preset: str


class TrainerOptions(PresetOptions, total=False):
    """What a model that learns in epochs may be made with."""

    trainer: str
    epochs: int
    evaluate_every: int
    patience: int
    learning_rate: float


class UserSGDOptions(TrainerOptions, total=False):
    """What a model that the paper's trainer trains may be made with."""

    l2: float


class MinibatchOptions(TrainerOptions, total=False):
    """What a model that is trained by mini-batches may be made with."""

    batches: str
    batch_size: int
    length: int
    positions: int
    loss: str
    negatives: int
    sampling: str
    weight_decay: float
    warmup: int
    schedule: str
    clip: float
    ema: float
    fine_tuning: int
    precision: str
