"""`Trainer`: what learns during an epoch; the loop around it knows nothing of how."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from hcarec.errors import ConfigError, ModelError
from hcarec.hardware import Cost
from hcarec.ops.parameters import Theta
from hcarec.settings import RunSettings, TrainerSettings

if TYPE_CHECKING:
    from hcarec.data.split import Part
    from hcarec.models import Model


class Progress(NamedTuple):
    """How far an epoch is: `position` of `size` users or batches, and sums over the epoch so far.

    `loss` is summed over `targets`, the events that were predicted; `sums` has what a trainer adds
    of its own, by name. Epochs count from 1; epoch 0 stands for a run that has not begun.
    """

    epoch: int = 0
    position: int = 0
    size: int = 0
    targets: int = 0
    loss: float = 0.0
    sums: Mapping[str, float] = {}

    @property
    def complete(self) -> bool:
        """Say whether the epoch is at its end."""
        return self.position >= self.size

    @classmethod
    def of(cls, values: Any) -> Progress:
        """Return the progress that `_asdict` made these values of, or raise ValueError."""
        from hcarec.training.stored import progress_fields

        found = cls(**progress_fields(values))
        if not all(map(math.isfinite, (found.loss, *found.sums.values()))):
            raise ValueError("a sum over the epoch is not finite")
        return found

    def check(self, size: int, sums: Collection[str] = ()) -> None:
        """Refuse a place that no epoch of `size` has, or other sums than these, by ValueError."""
        if self.epoch == 0:
            fits = self == Progress()
        else:
            fits = 0 <= self.position <= self.size == size
        if not fits:
            raise ValueError(
                f"it is at {self.position} of {self.size} in epoch {self.epoch},"
                f" but an epoch has {size}"
            )
        if self.epoch and self.sums.keys() != set(sums):
            raise ValueError(f"it has the sums {sorted(self.sums)} instead of {sorted(sums)}")


def check_parameters(model: Model, theta: Theta) -> None:
    """Refuse parameters that are not like the present ones of an initialized model."""
    before = model.theta
    for name in theta.keys() & before.keys():
        if theta[name].dtype != before[name].dtype:
            raise ModelError(f"{name} is {theta[name].dtype} instead of {before[name].dtype}")
    model.theta = theta
    try:
        model.check_parameters()
    finally:
        model.theta = before


class TrainerState(NamedTuple):
    """All that a trainer goes on from: plain `values` and `tensors`.

    The tensors are the parameters by their letters, and what else the trainer has, such as
    `optimizer.*` and `random.*`, by names with a dot.
    """

    values: dict[str, Any]
    tensors: Theta


class Trainer(ABC):
    """Learns the parameters of a model from a training part, an epoch at a time.

    The same part, settings and seed give the same bits, however often training is interrupted
    between two progress reports and resumed from its state.
    """

    name: ClassVar[str]

    def __init__(self, model: Model, part: Part, run: RunSettings) -> None:
        self.model, self.part, self.run = model, part, run
        self.progress = Progress()
        """Where training stands."""

    @classmethod
    def settle(
        cls, settings: TrainerSettings, n_items: int, device: str
    ) -> tuple[TrainerSettings, str | None]:
        """Decide what the settings leave to the catalog and the device; say in words what."""
        return settings, None

    @classmethod
    def choose_device(cls, asked: str) -> str:
        """Return the device that a run takes, or refuse the one asked for; auto is the best one."""
        if asked not in ("auto", "cpu"):
            raise ConfigError(
                f"device is {asked}, but this model is trained on the CPU: leave --device out"
            )
        return "cpu"

    @classmethod
    def describe_device(cls, device: str, model: Model) -> str:
        """Say what a run computes on, and by which back-ends where there are several."""
        return "computing on the CPU"

    @classmethod
    @abstractmethod
    def cost(cls, model: Model, part: Part, n_items: int, threads: int) -> Cost:
        """Estimate what an epoch over a training part needs, on the machine of the constants.

        The memory is what comes on top of the parameters themselves.
        """

    @property
    @abstractmethod
    def parameters(self) -> Theta:
        """Return the parameters as they are now."""

    @abstractmethod
    def epoch(self, number: int) -> Iterator[Progress]:
        """Run an epoch from where it stands to its end, yielding after every piece of it."""

    @abstractmethod
    def state(self) -> TrainerState:
        """Return what a checkpoint holds."""

    @abstractmethod
    def restore(self, state: TrainerState) -> None:
        """Go on from the state of a checkpoint; raise an error where anything in it is wrong.

        The loop says in one line that the checkpoint is damaged, whichever error it is.
        """

    def take_over(self, state: TrainerState) -> None:
        """Go on from the state of a trainer of another part, at the beginning of an epoch."""
        raise ConfigError(f"the trainer {self.name} does not go on over another part")

    def warm(self) -> None:  # noqa: B027 - not every trainer compiles
        """Compile what an epoch needs, or load it compiled."""


class Diverged(ModelError):
    """A loss that is not a number or far too large; `user` is an index in the data, where known."""

    def __init__(self, epoch: int, where: str, advice: str, user: int | None = None) -> None:
        super().__init__(
            f"training diverged in epoch {epoch} at {where}:"
            f" the loss is not finite or far too large; {advice}"
        )
        self.epoch, self.user = epoch, user
