"""What a run will take, before it begins."""

from __future__ import annotations

from dataclasses import dataclass

from hcarec import hardware
from hcarec.config import ModelConfig
from hcarec.data.split import Part
from hcarec.errors import ConfigError
from hcarec.ops.parameters import shapes

TRAINING = 7e9
"""Arithmetic operations a second that one core reaches in training, about (see benchmarks/train_cpu.py)."""
RANKING = 2e10
"""The same for ranking the whole catalogue, on all cores."""
BPR_EVENTS = 2e6
"""Events a second of BPR."""
BASE = 400 << 20
"""Memory of the program itself, with compiled code."""


@dataclass(frozen=True)
class Plan:
    """Estimates: `memory` in bytes, `seconds` for all epochs with their evaluation, over `events` each epoch."""

    users: int
    items: int
    events: int
    epochs: int
    parameters: int
    memory: int
    seconds: float


def plan(config: ModelConfig, train: Part, n_items: int, n_evaluated: int) -> Plan:
    """Estimate memory and time of a run."""
    users, events = len(train), len(train.items)
    if config.model == "bpr":
        parameters = (users + n_items) * config.d
        per_epoch = events / BPR_EVENTS
    elif config.trains:
        named = shapes(n_items, config.d, config.window_x, config.window_h)
        sizes = {name: _product(shape) for name, shape in named.items()}
        parameters = sum(sizes.values())
        per_epoch = events * 6.0 * sum(size for name, size in sizes.items() if name != "X") / TRAINING
    else:
        parameters, per_epoch = n_items * config.d, 0.0
    evaluation = n_evaluated * n_items * (2.0 * config.d + 20) / RANKING
    longest = int(train.lengths.max(initial=1))
    memory = BASE + 3 * 4 * parameters + 64 * longest * config.d * 4 + 12 * events + n_evaluated * (4 * config.d + 400)
    epochs = config.epochs if config.trains else 1
    return Plan(users, n_items, events, epochs, parameters, memory, epochs * (per_epoch + evaluation))


def check_fits(planned: Plan, available: int | None = None) -> None:
    """Refuse a run that cannot fit into memory."""
    free = hardware.memory().available if available is None else available
    if free is not None and planned.memory > free:
        raise ConfigError(
            f"this run needs about {planned.memory / (1 << 30):.1f} GiB and {free / (1 << 30):.1f} GiB are free: "
            "use a smaller d (--set d=..), fewer items (prepare with --min-item-events), or a larger machine"
        )


def _product(shape: tuple[int, ...]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total
