"""What a run will take, before it begins."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from hcarec import hardware
from hcarec.data.split import Part
from hcarec.errors import ConfigError
from hcarec.models import Model
from hcarec.training.trainers import trainer_of

RANKING = 2e10
"""Arithmetic operations a second of ranking the whole catalogue, on all cores, about."""
COUNTING = 2e6
"""Events a second that models count."""
BASE = 400 << 20
"""Memory of the program itself, with compiled code."""


@dataclass(frozen=True)
class Plan:
    """Estimates: `memory` in bytes, `seconds` of all epochs and evaluations, `events` an epoch.

    `notes` say what was decided by the size of the data.
    """

    users: int
    items: int
    events: int
    epochs: int
    parameters: int
    memory: int
    seconds: float
    notes: tuple[str, ...] = ()


class Need(NamedTuple):
    """What a model that counts needs to be counted and evaluated: seconds, and bytes of memory."""

    seconds: float
    memory: int


def plan(model: Model, train: Part, n_items: int, n_evaluated: int) -> Plan:
    """Estimate memory and time of a run."""
    users, events = len(train), len(train.items)
    sizes = [math.prod(shape) for shape in model.shapes(n_items, users).values() if -1 not in shape]
    parameters, d = sum(sizes), model.shapes(n_items, users)["X"][1]
    evaluation = _evaluation(n_evaluated, n_items, d)
    memory = BASE + 3 * 4 * parameters + 12 * events + n_evaluated * (4 * d + 400)
    if model.config.training is None:
        need = counted(model, train, n_items, n_evaluated)
        total = memory + need.memory
        return Plan(users, n_items, events, 1, parameters, total, need.seconds)
    cost, epochs = trainer_of(model).cost(model, train, n_items), model.config.epochs
    evaluations = -(-epochs // model.config.training.evaluate_every)
    seconds = epochs * cost.seconds + evaluations * evaluation
    return Plan(users, n_items, events, epochs, parameters, memory + cost.memory, seconds)


def counted(model: Model, train: Part, n_items: int, n_evaluated: int) -> Need:
    """Estimate what counting a model and evaluating it takes, beside what a run holds already."""
    n_events, d = len(train.items), model.shapes(n_items, len(train))["X"][1]
    seconds = n_events / COUNTING + _evaluation(n_evaluated, n_items, d)
    return Need(seconds, model.counting_memory(n_items, n_events))


def _evaluation(n_evaluated: int, n_items: int, d: int) -> float:
    return n_evaluated * n_items * (2.0 * d + 20) / RANKING


def check_fits(planned: Plan, available: int | None = None) -> None:
    """Refuse a run that cannot fit into memory."""
    free = hardware.memory().available if available is None else available
    if free is not None and planned.memory > free:
        raise ConfigError(
            f"this run needs about {planned.memory / (1 << 30):.1f} GiB"
            f" and {free / (1 << 30):.1f} GiB are free: use a smaller d (--set d=..),"
            " fewer items (prepare with --min-item-events), or a larger machine"
        )
