"""Go on with a run: which checkpoint belongs to it, and whether that is whole."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from hcarec import artefact, devices
from hcarec import protocol as protocols
from hcarec.errors import ConfigError, ModelError, ProtocolError
from hcarec.evaluation import finite
from hcarec.settings import PAPER
from hcarec.training import checkpoint
from hcarec.training.checkpoint import Checkpoint
from hcarec.training.resources import less_memory
from hcarec.training.trainer import Trainer, check_parameters

EPOCHS = "epochs"
"""What two runs need not share for one to go on with the other."""

Best = dict[str, dict[str, float]]
"""The best value of each metric, and its epoch."""


def begin(
    out: Path | None, run: dict[str, Any], epochs: int, resume: bool, overwrite: bool = False
) -> Checkpoint:
    """Return where to begin: at the checkpoint of a run like `run`, or at the start.

    `run` is what two runs must share for one to go on with the other. A folder that holds a model
    or a run is refused unless one of `resume` and `overwrite` says what is to become of it.
    """
    if resume and overwrite:
        raise ConfigError("--resume goes on and --overwrite starts anew: give one of them")
    if out is None or overwrite:
        return Checkpoint(run)
    if (out / artefact.MANIFEST).exists() and not resume:
        raise ConfigError(
            f"'{out}' already holds {_held(out)}: go on with --resume, replace it with --overwrite,"
            " or choose another -o"
        )
    found = checkpoint.read(out)
    if found is None and (out / artefact.MANIFEST).exists():
        raise ConfigError(
            f"'{out}' holds {_held(out)} without a checkpoint, so that there is nothing to go on"
            " with: replace it with --overwrite, or choose another -o"
        )
    if found is None:
        return Checkpoint(run)
    if not resume:
        raise ConfigError(
            f"'{out}' holds an unfinished run (epoch {found.epoch}):"
            " go on with --resume, or start anew with --overwrite"
        )
    theirs, ours = ({n: v for n, v in each.items() if n != EPOCHS} for each in (found.run, run))
    if "preset" in ours["config"]:
        theirs["config"] = {"preset": PAPER} | theirs["config"]  # a run older than presets
    if "fine_tuning" in ours["config"]:
        theirs["config"] = {"fine_tuning": 0} | theirs["config"]  # one older than that
    _check_preset(out, theirs["config"].get("preset"), ours["config"].get("preset"))
    began_by = theirs.get("config", {}).get("trainer")
    if began_by != ours["config"].get("trainer"):
        raise ConfigError(
            f"--resume cannot go on: '{out}' holds a checkpoint of the trainer {began_by},"
            f" this command trains with {ours['config'].get('trainer')};"
            f" give --trainer {began_by}, or another -o"
        )
    try:
        protocols.check_equal(theirs, ours, ("the checkpoint", "this command"))
    except ProtocolError as error:
        differs = str(error).partition(": ")[2].partition(";")[0]
        raise ConfigError(
            f"--resume cannot go on: {differs}; give the same settings, or another -o"
        ) from None
    if found.epoch > epochs:
        raise ConfigError(
            f"--resume cannot go on: '{out}' is in epoch {found.epoch} already, and this"
            f" command trains {epochs}: give more epochs, or another -o"
        )
    found.run = run
    return found


def _check_preset(out: Path, theirs: Any, ours: Any) -> None:
    if theirs != ours:
        raise ConfigError(
            f"--resume cannot go on: '{out}' holds a run of the preset {theirs}, this command is of"
            f" {ours}; give --preset {theirs}, or another -o"
        )


def _held(out: Path) -> str:
    """Say which model a folder holds."""
    try:
        manifest = artefact.read_manifest(out)
    except ModelError:
        return "a model that is damaged"
    early = "" if manifest.get("finished", True) else ", stopped early"
    name = (manifest.get("data") or {}).get("name")
    return f"{manifest.get('title')}{f' trained on {name}' if name else ''}{early}"


def restore(
    out: Path, trainer: Trainer, state: Checkpoint, metric: str | None, tunes: bool
) -> None:
    """Let a trainer go on from a checkpoint; whatever is wrong with it is said in one line.

    `metric` chooses the epoch; None where nothing is evaluated. `tunes` says whether the run is
    fine-tuned in the end.
    """
    assert state.trainer is not None
    try:
        if state.best_theta is not None:
            check_parameters(trainer.model, state.best_theta)
        with devices.failures(lambda: "while the checkpoint was read", less_memory(trainer.model)):
            _check_chosen(trainer, state, tunes)
            trainer.restore(state.trainer)
        now = trainer.progress
        if now.epoch != state.epoch or len(state.log) != now.epoch - (not now.complete):
            raise ValueError(f"epoch {state.epoch} is not where the trainer stands")
        settings = trainer.model.config.training
        assert settings is not None
        _check_best(state, metric, settings.evaluate_every)
    except (ModelError, ArithmeticError, AttributeError, LookupError, RuntimeError,
            TypeError, ValueError) as error:  # fmt: skip
        raise checkpoint.damaged(out, error) from None


def _check_chosen(trainer: Trainer, state: Checkpoint, tunes: bool) -> None:
    """Refuse a state of the chosen epoch that training cannot go on from, by restoring it."""
    if state.chosen_trainer is None:
        if tunes and state.chosen is not None:
            raise ValueError(f"the trainer's state after epoch {state.chosen} is missing")
        return
    trainer.restore(state.chosen_trainer)
    if trainer.progress.epoch != state.chosen or not trainer.progress.complete:
        raise ValueError(f"the trainer's state is not that after the chosen epoch {state.chosen}")


def _check_best(state: Checkpoint, metric: str | None, every: int) -> None:
    """Refuse best epochs that are not those of the log, by ValueError."""
    best: Best = {}
    chosen, waited = None, 0
    for record in state.log:
        if metric is None:
            chosen = record["epoch"]
            continue
        if ("on" in record) != (record["epoch"] % every == 0):
            raise ValueError(f"epoch {record['epoch']} of the log was not evaluated in turn")
        if "on" in record:
            names = list(record)[list(record).index("on") + 1 :]
            if set(names) != state.best.keys():
                raise ValueError(f"epoch {record['epoch']} of the log has other metrics")
            metrics = {name: _number(record[name]) for name in names}
            chose = metric in note_better(best, metrics, record["epoch"])
            chosen, waited = (record["epoch"], 0) if chose else (chosen, waited + 1)
    values = finite({name: one["value"] for name, one in state.best.items()})
    found = {name: (_number(values[name]), one["epoch"]) for name, one in state.best.items()}
    expected = {name: (one["value"], one["epoch"]) for name, one in best.items()}
    if (repr(sorted(found.items())), state.chosen, state.waited) != (
        repr(sorted(expected.items())),  # as text, in which NaN is equal to itself
        chosen,
        waited,
    ):
        raise ValueError("best, chosen and waited are not those of the log")


def note_better(best: Best, metrics: dict[str, float], epoch: int) -> set[str]:
    """Remember each metric's best epoch, the first on ties; return the better metrics."""
    better = {
        name for name, value in metrics.items() if name not in best or value > best[name]["value"]
    }
    best |= {name: {"value": metrics[name], "epoch": epoch} for name in metrics if name in better}
    return better


def _number(value: Any) -> float:
    """Return a metric of a checkpoint, in which null stands for NaN; else raise ValueError."""
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e9:
        raise ValueError(f"a metric is {value!r}")
    return float(value)
