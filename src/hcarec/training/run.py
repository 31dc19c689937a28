"""`train`: from data and settings to a trained model."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Unpack

from hcarec import artefact
from hcarec.errors import ConfigError, ModelError
from hcarec.metrics import KS
from hcarec.models import MODELS, Model, Options, make, read_config
from hcarec.models.config import implies_paper
from hcarec.models.network import has_counting
from hcarec.sequences import Sequences
from hcarec.settings import PAPER, RunSettings, check_known
from hcarec.training import checkpoint
from hcarec.training.callbacks import Callback
from hcarec.training.fusing import taken_from
from hcarec.training.loop import Loop
from hcarec.training.recipe import take_begun, take_evaluated
from hcarec.training.task import Rules, Task
from hcarec.training.trainers import trainer_of

SELECTIONS = ("validation", "best-epoch-on-test")
MOST_K = 1000
"""Largest k of a metric."""
CHECKPOINT_SECONDS = 20.0
"""Least seconds between two checkpoints, so that short epochs are not slowed down by the disk."""


def train(
    data: Sequences,
    out: str | Path | None = None,
    *,
    model: str | None = None,
    config: str | Path | None = None,
    split: str = "ratio",
    ratio: float = 0.8,
    at: str | int | float | None = None,
    selection: str = "validation",
    hide_seen: bool = False,
    seed: int = 0,
    threads: int | None = None,
    device: str = "auto",
    resume: bool = False,
    overwrite: bool = False,
    epochs_from: str | Path | None = None,
    callback: Callback | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    ks: Sequence[int] = KS,
    compare: bool = True,
    keep_model: bool = True,
    **settings: Unpack[Options],
) -> Model:
    """Train a model on the training part of `data`, choose an epoch, write it to `out` if given.

    `model` is a name, hca-gru by default; `config` a TOML file or a model folder whose settings are
    taken, under those given here. The default preset of networks is modern, which needs torch;
    `preset` paper does without. Where none is given, `resume` and `epochs_from` take that of the
    earlier run, if it is of the same model. `split` none trains on everything, with no test;
    `epochs_from` takes the number of epochs that an evaluated model chose, how strong its counting
    term is, and what the preset modern decided for it. A
    folder that holds a model is refused unless `resume` goes on with it or `overwrite` lets it be
    replaced, once the new one is whole. `hide_seen` makes it the model's rule to leave out items of
    the history. `compare` measures the yardsticks, Markov and POP, too. The
    returned model's `about` has metrics, protocol, selection, yardsticks; its "finished" is false
    where Ctrl-C or a diverging loss ended the run early. `ks` are the k of the metrics.
    Without `keep_model` nothing but checkpoints is written to `out`.
    """
    check_known("selection", selection, SELECTIONS)
    run = RunSettings(seed=seed, threads=threads, device=device)
    if out is not None:
        out = Path(os.path.realpath(out))
        if data.about.get("path") and os.path.realpath(data.about["path"]) == str(out):
            raise ConfigError(
                f"'{out}' is the data set itself: give another folder for the model with -o"
            )
    given: dict[str, Any] = {"model": model or "hca-gru"}
    if config is not None:
        given |= read_config(config, model)
    given |= settings
    if epochs_from is not None:
        given["epochs"] = chosen_epochs(Path(epochs_from))
    if given.get("preset") is None:
        given |= _earlier_preset(given, epochs_from, out if resume else None)
    data.verify()
    made, callback = make(**given), callback or Callback()
    if made.config.trains:
        trainer_of(made)  # a package that is missing is asked for before anything is said
    if made.config.open and (line := _earlier(made, epochs_from, out if resume else None)):
        callback.note(line)
    counting = None
    if has_counting(made) and epochs_from is not None:
        counting = taken_from(Path(epochs_from))
    rules = Rules(selection, hide_seen, _cutoffs(ks), counting)
    task = Task(made, data, out, rules, run, callback, keep_model)
    task.divide(split, ratio, at)
    return Loop(task, checkpoint_seconds).go(resume, overwrite, compare)


def _earlier_preset(
    given: dict[str, Any], evaluated: str | Path | None, begun: Path | None
) -> dict[str, Any]:
    """Return the preset of an earlier run of the same model that this one follows, if any.

    A run that names none is older than presets, and the paper's.
    """
    stored: dict[str, Any] | None = None
    if evaluated is not None:
        stored = artefact.read_manifest(Path(evaluated))["config"]
    elif begun is not None:
        stored = checkpoint.read_config(begun)
    kind = MODELS.get(given["model"])
    if kind is None or stored is None or stored.get("model") != kind.name:
        return {}
    if not kind.trainers or implies_paper(kind.trainers, given):
        return {}
    return {"preset": stored.get("preset", PAPER)}


def _earlier(model: Model, evaluated: str | Path | None, begun: Path | None) -> str | None:
    """Take over what the preset decided for an earlier run, where there is one; say so in words."""
    if evaluated is not None:
        return take_evaluated(model, Path(evaluated))
    return take_begun(model, begun) if begun is not None else None


def chosen_epochs(folder: Path) -> int:
    """Return the number of epochs that an evaluated run chose."""
    epoch = artefact.read_manifest(folder).get("selection", {}).get("epoch")
    if not isinstance(epoch, int):
        raise ModelError(
            f"'{folder}' has not chosen an epoch:"
            " --epochs-from needs a model trained with an evaluated split"
        )
    return epoch


def _cutoffs(ks: Sequence[int]) -> tuple[int, ...]:
    """Check the places k that metrics are cut at."""
    if not ks or not all(isinstance(k, int) and 1 <= k <= MOST_K for k in ks):
        raise ConfigError(f"k is {list(ks)!r}: give whole numbers from 1 to {MOST_K:,}")
    return tuple(sorted(set(ks)))
