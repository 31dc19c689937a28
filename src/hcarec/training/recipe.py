"""The preset `modern`: settings that follow from what `inspect` measures of a log, and the machine.

One recipe for all logs. Its tables are below, each number once; docs/results/exploration.md
has the reasons.
Nothing here depends on a clock: the same log and machine give the same settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from hcarec import artefact
from hcarec.data.statistics import statistics
from hcarec.errors import ConfigError, HcarecError
from hcarec.models import MODELS, Config, Model, make
from hcarec.settings import MODERN
from hcarec.training import checkpoint, sizing
from hcarec.training.sizing import Machine, Run

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
    "d": 256, "epochs": 100, "initial": "scaled", "padding": "masked", "fusion": "residual",
    "counting": True, "loss": "auto", "precision": "auto", "warmup": 200, "clip": 5.0,
    "ema": 0.999, "weight_decay": 0.01, "fine_tuning": 2,
}  # fmt: skip
ONCE: dict[str, Any] = {
    "blocks": 2, "scores": "cosine", "item_norm": True, "output_norm": False, "copy_window": 0,
    "input_dropout": 0.4, "hidden_dropout": 0.3, "output_dropout": 0.4,
}  # fmt: skip
"""Logs without repeats."""
ONCE_LONG: dict[str, Any] = {"blocks": 3}
"""Of these, logs of long histories."""
RARE_ITEMS: dict[str, Any] = {"d": 128}
"""Logs of rare items."""
ONCE_RARE: dict[str, Any] = {"input_dropout": 0.5, "output_dropout": 0.5, "weight_decay": 0.1}
"""Of logs without repeats, those of rare items."""
REPEATS: dict[str, Any] = {
    "blocks": 0, "scores": "dot", "item_norm": False, "output_norm": True, "copy_window": 50,
    "input_dropout": 0.4, "hidden_dropout": 0.0, "output_dropout": 0.4,
}  # fmt: skip
"""Logs with repeats."""
REPEATS_SHORT: dict[str, Any] = {"copy_window": 20}
"""Of these, logs of short histories."""
SASREC: dict[str, Any] = {"heads": 4, "output_norm": True}
SASREC_BLOCKS, SASREC_HIDDEN_DROPOUT = 2, 0.2
"""The fewest blocks of SASRec, and the least that it drops inside of them."""

LENGTH, LENGTH_SHORT, LENGTH_LONG = 100, 50, 200
"""Events of a sample; those of long histories without repeats are the longest."""
SEQUENCES: dict[str, Any] = {"batch_size": 128, "learning_rate": 1e-3, "patience": 10}
SEQUENCES_REPEATS: dict[str, Any] = {"batch_size": 64}
PREFIXES: dict[str, Any] = {"batch_size": 256, "learning_rate": 1e-3, "patience": 5}
POSITIONS: dict[str, Any] = {
    "positions": 8, "batch_size": 256, "learning_rate": 2e-3, "patience": 5,
}  # fmt: skip
POSITIONS_SHORT: dict[str, Any] = {"positions": 4, "batch_size": 128, "learning_rate": 1e-3}
"""Positions of short histories: nearly as good as prefixes, and cheaper."""
SHORT_LARGE: dict[str, Any] = {"batch_size": 1024, "learning_rate": 2e-3}
"""Prefixes and positions of a large log of short histories."""
STEPS, SMALLEST_BATCH = 30, 8
"""Steps of an epoch for which batches of a small log are halved, down to so few samples."""

FIXED_EPOCHS = {"sequences": 50, "prefixes": 20, "positions": 20}
"""Epochs of a run without validation data, by what batches are made of."""
FIXED_EPOCHS_REPEATS, FIXED_EPOCHS_SAMPLED = 15, 20
"""The same, where items repeat, and where the loss is against sampled items."""

MOST_BLOCKS = 2
"""Blocks of a network on a CPU, at most: a larger d is worth more there."""
LEAST_D = 64
"""The least d with which a CPU scores the whole catalog, rather than sampled items."""
SAMPLED: dict[str, Any] = {
    "loss": "sampled-softmax", "negatives": 8192, "evaluate_every": 2,
    "input_dropout": 0.2, "output_dropout": 0.2,
}  # fmt: skip
"""What a CPU takes where the whole catalog would leave it too small a network."""
ON_A_CPU = {
    "sizes": sizing.ALL, "blocks": MOST_BLOCKS, "least": LEAST_D, "sampled": SAMPLED,
    "sequences": SEQUENCES | SEQUENCES_REPEATS, "positions": POSITIONS_SHORT, "large": SHORT_LARGE,
    "steps": [STEPS, SMALLEST_BATCH],
}  # fmt: skip
"""What decides on a CPU beside the settings of a GPU, for what is to notice a change of it."""


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
    def is_long(self) -> bool:
        """Say whether histories are long."""
        return self.mean_length >= LONG

    @property
    def is_short(self) -> bool:
        """Say whether histories are short."""
        return self.mean_length < SHORT

    def __str__(self) -> str:
        repeats = f"{self.repeats:.0%} repeats" if self.has_repeats else "no repeats"
        lengths = f"{self.mean_length:.1f} events a user, {self.events_per_item:.0f} an item"
        return f"{repeats}, {lengths}"


class Decision(NamedTuple):
    """What was decided in words: lines to print, and what a GPU would get, on a CPU."""

    lines: tuple[str, ...]
    elsewhere: str | None


def settings_for(model: str, log: Log, batches: str | None = None) -> dict[str, Any]:
    """Return the settings of a model on a log, at the size of a GPU.

    `batches` are those that were given, if any.
    """
    settings = ALWAYS | (REPEATS if log.has_repeats else ONCE)
    if log.has_repeats and log.is_short:
        settings |= REPEATS_SHORT
    if not log.has_repeats and log.is_long:
        settings |= ONCE_LONG
    if log.events_per_item < RARE:
        settings |= RARE_ITEMS if log.has_repeats else RARE_ITEMS | ONCE_RARE
    settings |= _batches(log, batches or _usual_batches(log))
    if model == "sasrec":
        dropped = max(settings["hidden_dropout"], SASREC_HIDDEN_DROPOUT)
        blocks = max(settings["blocks"], SASREC_BLOCKS)
        settings |= SASREC | {"hidden_dropout": dropped, "blocks": blocks}
    known = MODELS[model].setting_names()
    return {name: value for name, value in settings.items() if name in known}


def _usual_batches(log: Log) -> str:
    """Return what batches of a log are made of on a GPU."""
    if log.is_short:
        return "prefixes"
    return "positions" if log.has_repeats else "sequences"


def _batches(log: Log, batches: str) -> dict[str, Any]:
    """Return the settings that go with what batches of a log are made of."""
    length = LENGTH_SHORT if log.is_short else LENGTH
    if log.is_long and not log.has_repeats:
        length = LENGTH_LONG
    settings: dict[str, Any] = {"batches": batches, "length": length}
    if batches == "sequences":
        settings |= SEQUENCES | (SEQUENCES_REPEATS if log.has_repeats else {})
        samples = log.events / max(1.0, min(log.mean_length, length))
    elif batches == "prefixes":
        settings, samples = settings | PREFIXES, log.events
    else:
        settings |= POSITIONS | (POSITIONS_SHORT if log.is_short else {})
        samples = log.events / settings["positions"]
    if batches != "sequences" and log.is_short and log.events >= LARGE:
        settings |= SHORT_LARGE
    size = settings["batch_size"]
    while size > SMALLEST_BATCH and samples / size < STEPS:
        size //= 2
    return settings | {"batch_size": size}


def decide(model: Model, run: Run, machine: Machine) -> Decision:
    """Decide the settings of a model that the preset leaves open."""
    config, log = model.config, Log.of(vars(statistics(run.data)))
    batches = None if "batches" in config.open else config.as_dict()["batches"]
    settings = _without_idle_fine_tuning(settings_for(model.name, log, batches), config)
    elsewhere = None
    length = config.decide(settings).as_dict()["length"]
    settings["copy_window"] = min(settings["copy_window"], length)  # where a length was given
    unjudged = not run.judged and "epochs" in config.open
    if machine.device == "cpu":
        there = config.decide(settings)
        if unjudged:
            there = config.decide(settings | {"epochs": _fixed_epochs(log, there)})
        elsewhere = f"on a GPU: {_parts(there)}; {_size(there)}"
        settings["blocks"] = min(settings["blocks"], MOST_BLOCKS)
        settings |= sizing.fit(model, settings, _sizes(log, config, run.data.n_items), run, machine)
    lines = []
    if unjudged:
        most, fixed = settings["epochs"], _fixed_epochs(log, config.decide(settings))
        settings["epochs"] = min(most, fixed)
        why = "the preset's fixed number"
        if most < fixed:
            why = f"as many as a CPU has time for of the preset's {fixed}"
        lines.append(
            f"{_epochs(settings['epochs'])}, {why}: no validation data can choose a number;"
            " --epochs-from MODEL takes that of an evaluated model"
        )
    model.config = config.decide(settings)
    make(**model.config.as_dict())  # refuses what a given setting does not go with
    line = f"{MODERN}: {log}: {_parts(model.config)}; {_size(model.config)} for {machine}"
    return Decision((line, *lines), elsewhere)


def _without_idle_fine_tuning(settings: dict[str, Any], config: Config) -> dict[str, Any]:
    """Leave out fine-tuning where a schedule that was given ends at a rate of zero."""
    falls = "schedule" not in config.open and config.as_dict()["schedule"] != "constant"
    return settings | {"fine_tuning": 0} if falls else settings


def _sizes(log: Log, config: Config, n_items: int) -> list[dict[str, Any]]:
    """Return the sizes that a CPU may take, in the order in which they are preferred.

    What batches are made of, and the loss, change with the size where they are not given; a catalog
    of hardly more items than would be sampled is scored as a whole.
    """
    kinds = ["prefixes", "positions"] if log.is_short else ["sequences"]
    if "batches" not in config.open:
        kinds = [config.as_dict()["batches"]]
    largest_first = sorted(sizing.SIZES, reverse=True)
    whole = [{"d": d} | _batches(log, kind) for d in largest_first for kind in kinds]
    negatives = SAMPLED["negatives"]
    if "negatives" not in config.open:
        negatives = config.as_dict()["negatives"]
    if "loss" not in config.open or n_items < 2 * negatives:
        return whole
    cheapest = _batches(log, kinds[-1]) | SAMPLED
    large_enough = [size for size in whole if size["d"] >= LEAST_D]
    return large_enough + [{"d": d} | cheapest for d in largest_first]


def _fixed_epochs(log: Log, config: Config) -> int:
    """Return the number of epochs of a run that no validation data can judge."""
    has = config.as_dict()
    if has["loss"] == SAMPLED["loss"]:
        return FIXED_EPOCHS_SAMPLED
    return FIXED_EPOCHS_REPEATS if log.has_repeats else FIXED_EPOCHS[has["batches"]]


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
    return f"d {has['d']}, up to {_epochs(has['epochs'])}"


def _epochs(number: int) -> str:
    return f"{number} epoch{'s' * (number != 1)}"


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
    choices = _without_idle_fine_tuning(stored, model.config)
    model.config = model.config.decide(choices | {"precision": "auto"})
    return f"{MODERN}, as '{folder}' has it: {_parts(model.config)}; {_size(model.config)}"


def take_begun(model: Model, folder: Path) -> str | None:
    """Take over the choices of a run that is gone on with where they are open; say so in words.

    Where the folder has no checkpoint of a run like this, nothing is decided.
    """
    stored = checkpoint.read_config(folder)
    if stored is None or stored.get("preset") != MODERN or stored.get("model") != model.name:
        return None
    try:
        model.config = model.config.decide(_without_idle_fine_tuning(stored, model.config))
    except (HcarecError, TypeError) as error:
        raise checkpoint.damaged(folder, error) from None
    return f"{MODERN}, as the run began: {_parts(model.config)}; {_size(model.config)}"
