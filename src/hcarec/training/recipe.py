"""The preset `modern`: settings that follow from what `inspect` measures of a log, and the machine.

One recipe for all logs. Its tables are below, each number once; docs/training.md has the reasons.
Nothing here depends on a clock: the same log and machine give the same settings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from hcarec import artefact, hardware
from hcarec.data.split import Part
from hcarec.data.statistics import statistics
from hcarec.errors import ConfigError, HcarecError
from hcarec.models import MODELS, Config, Model, make
from hcarec.sequences import Sequences
from hcarec.settings import MODERN
from hcarec.training import checkpoint
from hcarec.training.resources import plan

# -- what is told apart ----------------------------------------------------------------------------

FEW_REPEATS = 0.01
"""Share of events that are repeats below which a log counts as one without."""
SHORT, LONG = 20, 100
"""Mean events of a user below which a log has short histories, and from which on long ones."""
RARE = 50
"""Events of an item, on average, below which it is rare: its vector is short and regularized."""
LARGE = 300_000
"""Events from which on batches of prefixes are larger: as good, in half the time."""

# -- the tables ------------------------------------------------------------------------------------

ALWAYS: dict[str, Any] = {
    "d": 256, "epochs": 100, "patience": 10, "initial": "scaled", "padding": "masked",
    "fusion": "residual", "counting": True, "loss": "auto", "precision": "auto",
    "learning_rate": 1e-3, "warmup": 200, "clip": 5.0, "ema": 0.999, "weight_decay": 0.01,
}  # fmt: skip
ONCE: dict[str, Any] = {
    "blocks": 2, "scores": "cosine", "item_norm": True, "output_norm": False, "copy_window": 0,
    "input_dropout": 0.4, "hidden_dropout": 0.3, "output_dropout": 0.4,
}  # fmt: skip
"""Logs without repeats."""
RARE_ITEMS: dict[str, Any] = {"d": 128}
"""Logs of rare items."""
ONCE_RARE: dict[str, Any] = {"input_dropout": 0.5, "output_dropout": 0.5, "weight_decay": 0.1}
"""Of logs without repeats, those of rare items."""
REPEATS: dict[str, Any] = {
    "blocks": 0, "scores": "dot", "item_norm": False, "output_norm": True, "copy_window": 50,
    "input_dropout": 0.4, "hidden_dropout": 0.0, "output_dropout": 0.4,
}  # fmt: skip
"""Logs with repeats."""
SEQUENCES: dict[str, Any] = {"batches": "sequences", "batch_size": 128, "length": 100}
SEQUENCES_LONG: dict[str, Any] = {"length": 200, "blocks": 3}
SEQUENCES_REPEATS: dict[str, Any] = {
    "batches": "sequences", "batch_size": 64, "learning_rate": 1e-3, "patience": 10,
}  # fmt: skip
"""What a CPU takes of logs with repeats: positions would take three times as long."""
POSITIONS_REPEATS: dict[str, Any] = {
    "batches": "positions", "positions": 8, "batch_size": 256, "length": 100,
    "learning_rate": 2e-3, "patience": 5,
}  # fmt: skip
"""Logs with repeats and longer histories."""
PREFIXES: dict[str, Any] = {"batches": "prefixes", "batch_size": 256, "length": 50, "patience": 5}
"""Short histories."""
PREFIXES_LARGE: dict[str, Any] = {"batch_size": 1024, "learning_rate": 2e-3}
PREFIXES_REPEATS: dict[str, Any] = {"copy_window": 20}
POSITIONS: dict[str, Any] = {"batches": "positions", "batch_size": 128, "positions": 4}
"""What stands in for prefixes where a CPU would take too long: nearly as good, and cheaper."""
POSITIONS_LARGE: dict[str, Any] = {"batch_size": 1024}
SAMPLED: dict[str, Any] = {"loss": "sampled-softmax", "negatives": 1024, "evaluate_every": 2}
"""What a CPU takes where the whole catalog would leave it too small a network."""
SASREC: dict[str, Any] = {"heads": 4, "output_norm": True}
SASREC_BLOCKS, SASREC_HIDDEN_DROPOUT = 2, 0.2
"""The fewest blocks of SASRec, and the least that it drops inside of them."""

FIXED_EPOCHS = {"sequences": 50, "prefixes": 20, "positions": 20}
"""Epochs of a run without validation data, by what batches are made of."""
FIXED_EPOCHS_REPEATS = 15
"""The same, where items repeat."""

# -- the size on a CPU -----------------------------------------------------------------------------

SIZES = (32, 48, 64, 96, 128)
"""Values of d."""
BUDGET = 900.0
"""Seconds that all of a run may take, by the plan, at the speed of the plan's constants."""
NEEDED_EPOCHS = {"sequences": 30, "prefixes": 12, "positions": 12}
"""Epochs that must fit into the budget, by what batches are made of; a larger d comes after."""
NEEDED_SAMPLED = 30
"""The same, where the loss is against sampled items."""
MOST_BLOCKS = 2
"""Blocks of a network on a CPU, at most: a larger d is worth more there."""
LEAST_D = 64
"""The least d with which a CPU still scores the whole catalog of a log of short histories."""
MEMORY_SHARE = 0.5
"""Share of the machine's memory that a run may take."""
SIZING = {
    "d": SIZES, "seconds": BUDGET, "epochs": NEEDED_EPOCHS, "sampled": NEEDED_SAMPLED,
    "memory": MEMORY_SHARE, "blocks": MOST_BLOCKS, "least": LEAST_D, "loss": SAMPLED,
}  # fmt: skip
"""All of that, for what is to notice a change of it."""


class Log(NamedTuple):
    """What the rule knows of a log: the share of repeats, events, their means by user and item."""

    repeats: float
    mean_length: float
    events_per_item: float
    events: int

    @classmethod
    def of(cls, figures: Mapping[str, Any]) -> Log:
        """Return that from the statistics of a log."""
        events_per_item = figures["events"] / max(figures["items"], 1)
        repeats, mean_length = figures["repeats"], figures["mean_length"]
        return cls(repeats, mean_length, events_per_item, figures["events"])

    @property
    def has_repeats(self) -> bool:
        """Say whether users come back to items that they had."""
        return self.repeats >= FEW_REPEATS

    @property
    def is_short(self) -> bool:
        """Say whether histories are short."""
        return self.mean_length < SHORT

    def __str__(self) -> str:
        repeats = f"{self.repeats:.0%} repeats" if self.has_repeats else "no repeats"
        lengths = f"{self.mean_length:.1f} events a user, {self.events_per_item:.0f} an item"
        return f"{repeats}, {lengths}"


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
    """What is trained on and judged by: `evaluated` users; `judged` says whether epochs are."""

    data: Sequences
    part: Part
    evaluated: int
    judged: bool


class Decision(NamedTuple):
    """What was decided in words: lines to print, and what a GPU would get, on a CPU."""

    lines: tuple[str, ...]
    elsewhere: str | None


def settings_for(model: str, log: Log) -> dict[str, Any]:
    """Return the settings of a model on a log, at the size of a GPU."""
    settings = ALWAYS | (REPEATS if log.has_repeats else ONCE)
    if log.events_per_item < RARE:
        settings |= RARE_ITEMS if log.has_repeats else RARE_ITEMS | ONCE_RARE
    if log.is_short:
        settings |= PREFIXES | (PREFIXES_REPEATS if log.has_repeats else {})
        settings |= PREFIXES_LARGE if log.events >= LARGE else {}
    elif log.has_repeats:
        settings |= POSITIONS_REPEATS
    else:
        settings |= SEQUENCES | (SEQUENCES_LONG if log.mean_length >= LONG else {})
    if model == "sasrec":
        dropped = max(settings["hidden_dropout"], SASREC_HIDDEN_DROPOUT)
        blocks = max(settings["blocks"], SASREC_BLOCKS)
        settings |= SASREC | {"hidden_dropout": dropped, "blocks": blocks}
    known = MODELS[model].setting_names()
    return {name: value for name, value in settings.items() if name in known}


def decide(model: Model, run: Run, machine: Machine) -> Decision:
    """Decide the settings of a model that the preset leaves open."""
    config, log = model.config, Log.of(vars(statistics(run.data)))
    settings, elsewhere = settings_for(model.name, log), None
    length = config.decide(settings).as_dict()["length"]
    settings["copy_window"] = min(settings["copy_window"], length)  # where a length was given
    if machine.device == "cpu":
        there = config.decide(settings)
        elsewhere = f"on a GPU: {_size(there)}, {there.as_dict()['batches']}"
        settings["blocks"] = min(settings["blocks"], MOST_BLOCKS)
        if settings["batches"] == "positions":
            settings |= SEQUENCES_REPEATS
        settings |= _sized(model, settings, run, machine)
    lines = []
    if not run.judged and "epochs" in config.open:
        batches = config.decide(settings).as_dict()["batches"]
        fixed = FIXED_EPOCHS_REPEATS if log.has_repeats else FIXED_EPOCHS[batches]
        settings["epochs"] = min(settings["epochs"], fixed)
        lines.append(
            f"{settings['epochs']} epochs, the preset's fixed number: no validation data can choose"
            " one; --epochs-from MODEL takes that of an evaluated model"
        )
    model.config = config.decide(settings)
    make(**model.config.as_dict())  # refuses what a given setting does not go with
    line = f"{MODERN}: {log}: {_parts(model.config)}; {_size(model.config)} for {machine}"
    return Decision((line, *lines), elsewhere)


def _sized(model: Model, settings: dict[str, Any], run: Run, machine: Machine) -> dict[str, Any]:
    """Return the largest size for which a CPU has time and memory, and how many epochs that leaves.

    Time is what the plan says at the speed of its constants. Where nothing is small enough, the
    smallest size gets as many epochs as there is time for.
    """
    config, most = model.config, settings["epochs"]

    def fits(size: dict[str, Any], epochs: int) -> bool:
        model.config = config.decide(settings | size | {"epochs": epochs})
        planned = plan(model, run.part, run.data.n_items, run.evaluated, machine.cores)
        enough = machine.memory is None or planned.memory <= MEMORY_SHARE * machine.memory
        return enough and planned.seconds <= BUDGET

    try:
        size: dict[str, Any] = {}
        for size in _sizes(settings):
            chosen = config.decide(settings | size).as_dict()
            sampled = chosen["loss"] == SAMPLED["loss"]
            if fits(size, NEEDED_SAMPLED if sampled else NEEDED_EPOCHS[chosen["batches"]]):
                break
        low, high = 1, most
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if fits(size, middle) else (low, middle - 1)
        return size | {"epochs": low}
    finally:
        model.config = config


def _sizes(settings: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the sizes in the order in which they are preferred."""
    if settings["batches"] != "prefixes":
        yield from ({"d": d} for d in reversed(SIZES))
        return
    large = settings["batch_size"] == PREFIXES_LARGE["batch_size"]
    positions = POSITIONS | POSITIONS_LARGE if large else POSITIONS
    for d in reversed(SIZES):
        if d >= LEAST_D:
            yield from ({"d": d}, {"d": d, **positions})
    yield from ({"d": d, **positions, **SAMPLED} for d in reversed(SIZES))


def _parts(config: Config) -> str:
    """Return what a network and its training are made of, in words."""
    has = config.as_dict()
    blocks, copied = has["blocks"], has["copy_window"]
    parts = [
        f"{blocks} block{'s' * (blocks != 1)}" if blocks else "bare cell",
        f"{has['scores']} scores",
        f"copy term over {copied} events" if copied else "",
        f"{has['batches']} of {has['length']}",
        "sampled softmax" if has["loss"] == SAMPLED["loss"] else "",
        f"dropout {has['input_dropout']:g}",
        "counting" if has["counting"] else "",
    ]
    return ", ".join(filter(None, parts))


def _size(config: Config) -> str:
    """Return the size of a network and its training, in words."""
    has = config.as_dict()
    return f"d {has['d']}, up to {has['epochs']} epoch{'s' * (has['epochs'] != 1)}"


# -- choices of earlier runs -----------------------------------------------------------------------


def take_evaluated(model: Model, folder: Path) -> str:
    """Take over the choices of an evaluated model where they are open; return that in words.

    Arithmetic is left to this machine's device.
    """
    stored = artefact.read_manifest(folder)["config"]
    theirs, ours = ((c.get("model"), c.get("preset")) for c in (stored, model.config.as_dict()))
    if theirs != ours:
        raise ConfigError(
            f"'{folder}' holds {theirs[0]} of the preset {theirs[1] or 'paper'}, this run is"
            f" {ours[0]} of the preset {ours[1]}: --epochs-from takes a model like this one"
        )
    model.config = model.config.decide(stored | {"precision": "auto"})
    return f"{MODERN}, as '{folder}' has it: {_parts(model.config)}; {_size(model.config)}"


def take_begun(model: Model, folder: Path) -> str | None:
    """Take over the choices of a run that is gone on with where they are open; say so in words.

    Where the folder has no checkpoint of a run like this, nothing is decided.
    """
    stored = checkpoint.read_config(folder)
    if stored is None or stored.get("preset") != MODERN or stored.get("model") != model.name:
        return None
    try:
        model.config = model.config.decide(stored)
    except (HcarecError, TypeError) as error:
        raise checkpoint.damaged(folder, error) from None
    return f"{MODERN}, as the run began: {_parts(model.config)}; {_size(model.config)}"
