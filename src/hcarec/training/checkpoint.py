"""Checkpoints: all that an interrupted run needs to go on as if nothing had happened.

    checkpoint/checkpoint.json        where training stands, the log so far, the names of the others
    checkpoint/state-*.safetensors    the trainer's state: parameters, optimizer, random numbers
    checkpoint/best-*.safetensors     the parameters of the best epoch so far, where one is chosen
    checkpoint/chosen-*.safetensors   the trainer's state after that epoch, where it is fine-tuned

checkpoint.json is put in place last and in one step: it always names files that are whole.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hcarec import atomic
from hcarec.artefact import CHECKPOINT
from hcarec.errors import HcarecError, ModelError
from hcarec.ops.parameters import Theta
from hcarec.training.trainer import TrainerState

if TYPE_CHECKING:
    from hcarec.training.stored import File

NAME, VERSION = "checkpoint.json", 2


@dataclass
class Checkpoint:
    """The state of a run: what it is (`run`), where its trainer stands, what it has found.

    `epoch` is the one that the trainer is in, `seconds` the wall-clock time of the run so far,
    `epoch_seconds` the training time of this epoch.
    """

    run: dict[str, Any]
    epoch: int = 0
    trainer: TrainerState | None = None
    seconds: float = 0.0
    epoch_seconds: float = 0.0
    best_theta: Theta | None = None
    best: dict[str, dict[str, float]] = field(default_factory=dict)
    chosen: int | None = None
    """The epoch that `best_theta` is of."""
    chosen_trainer: TrainerState | None = None
    """The trainer's state after the chosen epoch, where fine-tuning goes on from there."""
    chosen_files: dict[str, dict[str, str]] = field(default_factory=dict)
    """The files of the chosen epoch that are written already."""
    waited: int = 0
    """Evaluations since the chosen epoch."""
    log: list[dict[str, Any]] = field(default_factory=list)


PLAIN = ("run", "epoch", "seconds", "epoch_seconds", "best", "chosen", "waited", "log")
"""The fields that checkpoint.json holds itself."""


def damaged(model_folder: Path, reason: object) -> ModelError:
    """Return the error of a checkpoint that cannot be gone on from, whatever is wrong with it."""
    why = " ".join(str(reason).split())[:200]
    return ModelError(
        f"the checkpoint '{model_folder / CHECKPOINT}' is damaged ({why}):"
        " remove it and train again"
    )


def write(model_folder: Path, state: Checkpoint) -> None:
    """Write a checkpoint; the one before is removed only when this one is whole."""
    assert state.trainer is not None
    folder = model_folder / CHECKPOINT
    folder.mkdir(parents=True, exist_ok=True)
    if not state.chosen_files:
        state.chosen_files = _write_chosen(folder, state)
    files = dict(state.chosen_files)
    if state.trainer is state.chosen_trainer:
        files["state"] = files["chosen"]
    else:
        files["state"] = _write_tensors(folder, f"state-{state.epoch}", state.trainer.tensors)
    chosen = {} if state.chosen_trainer is None else {"chosen_trainer": state.chosen_trainer.values}
    content = {
        "version": VERSION,
        **{name: getattr(state, name) for name in PLAIN},
        "trainer": state.trainer.values,
        **chosen,
        "files": files,
    }
    atomic.write_bytes(folder / NAME, json.dumps(content).encode())
    for path in folder.iterdir():
        if path.name not in (NAME, *(file["name"] for file in files.values())):
            path.unlink()


def _write_chosen(folder: Path, state: Checkpoint) -> dict[str, dict[str, str]]:
    """Write what is kept of the chosen epoch, if there is one."""
    files = {}
    if state.best_theta is not None:
        files["best"] = _write_tensors(folder, f"best-{state.chosen}", state.best_theta)
    if state.chosen_trainer is not None:
        tensors = state.chosen_trainer.tensors
        files["chosen"] = _write_tensors(folder, f"chosen-{state.chosen}", tensors)
    return files


def exists(model_folder: Path) -> bool:
    """Say whether a model folder has a checkpoint."""
    return (model_folder / CHECKPOINT / NAME).exists()


def read_log(model_folder: Path) -> list[dict[str, Any]]:
    """Return the log of the epochs of a checkpoint; none where there is no checkpoint."""
    try:
        content = json.loads(atomic.read_bytes(model_folder / CHECKPOINT / NAME))
    except FileNotFoundError:
        return []
    return list(content["log"])


def read_config(model_folder: Path) -> dict[str, Any] | None:
    """Return the settings of the run that a checkpoint is of, None where there is none.

    Whether the checkpoint is whole is for `read` to say.
    """
    try:
        run = json.loads(atomic.read_bytes(model_folder / CHECKPOINT / NAME))["run"]
        epochs = {"epochs": run["epochs"]} if "epochs" in run else {}
        return {**run["config"], **epochs}
    except (OSError, ValueError, RecursionError, LookupError, TypeError):
        return None


def read(model_folder: Path) -> Checkpoint | None:
    """Read the checkpoint of a model folder, if there is one; a damaged one is refused."""
    folder = model_folder / CHECKPOINT
    try:
        content = json.loads(atomic.read_bytes(folder / NAME))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise damaged(model_folder, error) from None
    version = content.get("version") if isinstance(content, dict) else None
    if type(version) is int and version != VERSION:
        raise ModelError(
            f"'{folder}' has checkpoint version {version}, this hcarec reads {VERSION}:"
            " finish the run with the version that began it, or train again into another folder"
        )
    from hcarec.training.stored import convert

    try:
        stored = convert(content)
        state = TrainerState(content["trainer"], _read_tensors(folder, stored.files.state))
        best = _read_tensors(folder, stored.files.best) if stored.files.best else None
        chosen = None
        if stored.files.chosen is not None:
            tensors = _read_tensors(folder, stored.files.chosen)
            chosen = TrainerState(content["chosen_trainer"], tensors)
    except (HcarecError, OSError, ValueError) as error:
        raise damaged(model_folder, error) from None
    # As it was written: whole numbers stay whole, whatever the types above make of them.
    plain = {name: content[name] for name in PLAIN}
    return Checkpoint(trainer=state, best_theta=best, chosen_trainer=chosen, **plain)


def _write_tensors(folder: Path, name: str, tensors: Theta) -> dict[str, str]:
    from safetensors.numpy import save

    content = save({letter: np.ascontiguousarray(array) for letter, array in tensors.items()})
    digest = hashlib.sha256(content).hexdigest()
    path = folder / f"{name}-{digest[:8]}.safetensors"
    if not path.exists():
        atomic.write_bytes(path, content)
    return {"name": path.name, "sha256": digest}


def _read_tensors(folder: Path, file: File) -> Theta:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    path = folder / Path(file.name).name
    content = atomic.read_bytes(path)
    if hashlib.sha256(content).hexdigest() != file.sha256:
        raise ValueError(f"{path.name} is not the file that was written")
    try:
        return {letter: np.array(array) for letter, array in load(content).items()}
    except (SafetensorError, KeyError, TypeError) as error:
        raise ValueError(f"{path.name} is not a safetensors file: {error}") from None
