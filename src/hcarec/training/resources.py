"""What a run will take, before it begins."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from hcarec import hardware
from hcarec.data.split import Part
from hcarec.errors import ConfigError
from hcarec.evaluation import USERS_AT_ONCE
from hcarec.hardware import Cost
from hcarec.models import Model
from hcarec.topk import WORTH_SCREENING
from hcarec.training.fusing import GRID, MOST_USERS
from hcarec.training.trainers import trainer_of

RANKING, SCREENING = 2e10, 1.5e11
"""Arithmetic operations a second of ranking the whole catalogue, on all cores, about: counting
all that score lower, and finding the best alone for many users."""
CORRECTING = 6e6
"""Corrected scores a second, about: summed up, ranked and counted."""
TRYING = 3e7
"""Corrected scores a second, about, when many values of the same items' corrections are tried."""
CORRECTION = 40
"""Bytes of a corrected score while users are ranked."""
BASE = 400 << 20
"""Memory of the program itself, with compiled code."""


@dataclass(frozen=True)
class Plan:
    """Estimates: `memory` in bytes, `seconds` of all epochs and evaluations, `events` an epoch.

    Times are NaN where they are not estimated, as on a GPU. `epochs` are the most there will be, 0
    for a model that counts. `notes` say what was decided by the size of the data.
    """

    users: int
    items: int
    events: int
    epochs: int
    parameters: int
    memory: int
    epoch_seconds: float
    seconds: float
    notes: tuple[str, ...] = ()

    def on_machine(self, slowness: float) -> Plan:
        """Return the plan for a machine that takes so many times as long."""
        epoch, all_of_it = slowness * self.epoch_seconds, slowness * self.seconds
        return replace(self, epoch_seconds=epoch, seconds=all_of_it)

    def without_times(self) -> Plan:
        """Return the plan for a machine whose times are not known: they were fitted to CPUs."""
        return replace(self, epoch_seconds=math.nan, seconds=math.nan)


def plan(
    model: Model,
    train: Part,
    n_items: int,
    n_evaluated: int,
    threads: int | None = None,
    validates: bool = True,
) -> Plan:
    """Estimate memory and time of a run on so many threads, by default all cores.

    `validates` says whether validation events choose the epoch.
    """
    users, events = len(train), len(train.items)
    shapes = model.shapes(n_items, users)
    parameters, d = (
        sum(math.prod(shape) for shape in shapes.values() if -1 not in shape),
        shapes["X"][1],
    )
    memory = BASE + 3 * 4 * parameters + 12 * events + n_evaluated * (4 * d + 400)
    if model.config.training is None:
        cost = counted(model, train, n_items, n_evaluated)
        return Plan(users, n_items, events, 0, parameters, memory + cost.memory, 0.0, cost.seconds)
    cost = trainer_of(model).cost(model, train, n_items, threads or hardware.cores())
    epochs = model.config.epochs
    evaluations = -(-epochs // model.config.training.evaluate_every)
    screened = _ranking(model, train, n_items, n_evaluated)
    if n_evaluated >= WORTH_SCREENING:
        screened *= RANKING / SCREENING
    tuning = model.config.training.epochs_after_choice if validates else 0
    memory += 4 * 4 * parameters * (tuning > 0)  # the trainer's state after the chosen epoch
    seconds = (epochs + tuning) * cost.seconds + evaluations * screened
    tests = 2 if tuning else 1  # the test part is ranked before fine-tuning, too
    seconds += tests * _ranking(model, train, n_items, n_evaluated)
    fused = _fused(model, train, n_items, n_evaluated, tests)
    memory, seconds = memory + cost.memory + fused.memory, seconds + fused.seconds
    return Plan(users, n_items, events, epochs, parameters, memory, cost.seconds, seconds)


def counted(model: Model, train: Part, n_items: int, n_evaluated: int) -> Cost:
    """Estimate what counting a model and evaluating it takes, beside what a run holds already."""
    counting = model.counting_cost(train, n_items)
    each = model.corrected_items(train, n_items)
    seconds = counting.seconds + _ranking(model, train, n_items, n_evaluated)
    seconds += n_evaluated * each / CORRECTING
    return Cost(seconds, counting.memory + _corrections(n_evaluated, each))


def _fused(model: Model, train: Part, n_items: int, n_evaluated: int, tests: int) -> Cost:
    """Estimate what the counting term of a network adds: counted and tried, and for each test too.

    It is counted anew, and its scores are ranked, every time that the test part is evaluated.
    """
    each = model.corrected_items(train, n_items)
    if not each:
        return Cost(0.0, 0)
    counting, tried = model.counting_cost(train, n_items), min(n_evaluated, MOST_USERS)
    seconds = (1 + tests) * counting.seconds + _ranking(model, train, n_items, tried)
    seconds += each * (tests * n_evaluated / CORRECTING + len(GRID) * tried / TRYING)
    return Cost(seconds, counting.memory + _corrections(n_evaluated, each))


def _corrections(n_evaluated: int, each: float) -> int:
    """Return the bytes of the corrected scores of users that are ranked together."""
    return int(CORRECTION * min(n_evaluated, USERS_AT_ONCE) * each)


def _ranking(model: Model, train: Part, n_items: int, n_evaluated: int) -> float:
    """Return the seconds of ranking all items for users."""
    d = model.shapes(n_items, len(train))["X"][1]
    return n_evaluated * n_items * (2.0 * d + 20) / RANKING


def less_memory(model: Model) -> str:
    """Say what a run can be told to need less memory."""
    training = model.config.training
    batches = training is not None and "batch_size" in training.names()
    told = ("smaller batches (--set batch_size=..)" if batches else "", model.smaller)
    return ", ".join([*filter(None, told), "fewer items (prepare with --min-item-events)"])


def check_fits(planned: Plan, smaller: str, available: int | None = None) -> None:
    """Refuse a run that cannot fit into memory; `smaller` says what the model can be told."""
    free = hardware.memory().available if available is None else available
    if free is not None and planned.memory > free:
        raise ConfigError(
            f"this run needs about {planned.memory / (1 << 30):.1f} GiB"
            f" and {free / (1 << 30):.1f} GiB are free: use {smaller}, or a larger machine"
        )
