"""The size of a network on a CPU: the largest for which there is time and memory.

Time is what the plan says at the speed of its constants, never what a clock says: the same log on
the same kind of machine gives the same size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from hcarec import hardware
from hcarec.data.split import Part
from hcarec.models import Model
from hcarec.sequences import Sequences
from hcarec.settings import MinibatchSettings
from hcarec.training.resources import Plan, plan
from hcarec.training.trainers import trainer_of

SIZES = (32, 48, 64, 96, 128)
"""Values of d."""
BUDGET = 900.0
"""Seconds that all of a run may take, by the plan, at the speed of the plan's constants."""
NEEDED_EPOCHS = {"sequences": 30, "prefixes": 12, "positions": 12}
"""Epochs that must fit into the budget, by what batches are made of; a larger d comes after."""
NEEDED_SAMPLED = 20
"""The same, where the loss is against sampled items."""
MEMORY_SHARE = 0.5
"""Share of the machine's memory that a run may take."""
ALL = {
    "d": SIZES, "seconds": BUDGET, "epochs": NEEDED_EPOCHS, "sampled": NEEDED_SAMPLED,
    "memory": MEMORY_SHARE,
}  # fmt: skip
"""All of that, for what is to notice a change of it."""


class Machine(NamedTuple):
    """What the size of a network depends on: cpu or cuda, cores, and bytes of memory if known."""

    device: str
    cores: int
    memory: int | None

    @classmethod
    def here(cls, device: str) -> Machine:
        """Return this machine."""
        return cls(device, hardware.cores(), hardware.memory().total)

    def __str__(self) -> str:
        if self.device != "cpu":
            return "a GPU"
        return f"{self.cores} core{'s' * (self.cores != 1)}"


class Run(NamedTuple):
    """What is trained on and judged by: `evaluated` users.

    `judged` says whether epochs are, and `validates` whether it is on validation events.
    """

    data: Sequences
    part: Part
    evaluated: int
    judged: bool
    validates: bool


def fit(
    model: Model,
    settings: Mapping[str, Any],
    sizes: Sequence[Mapping[str, Any]],
    run: Run,
    machine: Machine,
) -> dict[str, Any]:
    """Return the first size for which there is time and memory, and how many epochs that leaves.

    `sizes` are settings that replace some of `settings`, the best first. Where there is time for
    none, the last one gets as many epochs as there is time for; where there is memory for none, the
    one that needs the least is taken.
    """
    config = model.config

    def planned(size: Mapping[str, Any], epochs: int | None = None) -> Plan:
        """Plan a run of so many epochs, or of as many as its size needs."""
        decided = config.decide({**settings, **size})
        assert decided.training is not None
        training, _ = trainer_of(model).settle(decided.training, run.data.n_items, machine.device)
        assert isinstance(training, MinibatchSettings)
        if epochs is None:
            epochs = _needed(training)
            if "epochs" not in config.open:
                epochs = min(epochs, training.epochs)
        model.config = replace(decided, training=replace(training, epochs=max(1, epochs)))
        return plan(model, run.part, run.data.n_items, run.evaluated, machine.cores, run.validates)

    try:
        plans = [(size, planned(size)) for size in sizes]
        if machine.memory is not None:
            most = MEMORY_SHARE * machine.memory
            fitting = [pair for pair in plans if pair[1].memory <= most]
            plans = fitting or [min(plans, key=lambda pair: pair[1].memory)]
        in_time = (size for size, its_plan in plans if its_plan.seconds <= BUDGET)
        size = next(in_time, plans[-1][0])
        low, high = 1, settings["epochs"]
        while low < high:
            middle = (low + high + 1) // 2
            enough = planned(size, middle).seconds <= BUDGET
            low, high = (middle, high) if enough else (low, middle - 1)
        return {**size, "epochs": low}
    finally:
        model.config = config


def _needed(training: MinibatchSettings) -> int:
    """Return the epochs that must fit into the budget."""
    return NEEDED_SAMPLED if training.loss == "sampled-softmax" else NEEDED_EPOCHS[training.batches]
