"""Checkpoints: all that an interrupted run needs to go on as if nothing had happened.

    checkpoint/checkpoint.json          where training stands, the log so far, and which tensor files belong to it
    checkpoint/state-*.safetensors      the parameters
    checkpoint/best-*.safetensors       the parameters of the best epoch so far, where one is chosen

The negatives and the order of users are pure functions of seed, epoch, user and step, so the position is the whole state
of the random numbers. checkpoint.json is put in place last and in one step: it always names files that are whole.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hcarec import atomic
from hcarec.artefact import CHECKPOINT
from hcarec.errors import ModelError
from hcarec.models.base import Progress
from hcarec.ops.parameters import Theta

NAME, VERSION = "checkpoint.json", 1


@dataclass
class Checkpoint:
    """The state of a run: what it is (`run`), where it stands, what it has found."""

    run: dict[str, Any]
    at: Progress
    epoch_seconds: float
    theta: Theta
    best_theta: Theta | None = None
    best: dict[str, dict[str, float]] = field(default_factory=dict)
    chosen: int | None = None
    """The epoch that `best_theta` is of."""
    log: list[dict[str, Any]] = field(default_factory=list)


def write(model_folder: Path, state: Checkpoint) -> None:
    """Write a checkpoint; the one before is removed only when this one is whole."""
    folder = model_folder / CHECKPOINT
    folder.mkdir(parents=True, exist_ok=True)
    files = {"state": _write_tensors(folder, f"state-{state.at.epoch}-{state.at.position}", state.theta)}
    if state.best_theta is not None:
        files["best"] = _write_tensors(folder, f"best-{state.chosen}", state.best_theta)
    content = {
        "version": VERSION,
        "run": state.run,
        "at": state.at._asdict(),
        "epoch_seconds": state.epoch_seconds,
        "best": state.best,
        "chosen": state.chosen,
        "files": files,
        "log": state.log,
    }
    atomic.write_bytes(folder / NAME, json.dumps(content).encode())
    for path in folder.iterdir():
        if path.name not in (NAME, *(file["name"] for file in files.values())):
            path.unlink()


def read(model_folder: Path) -> Checkpoint | None:
    """Read the checkpoint of a model folder, if there is one."""
    folder = model_folder / CHECKPOINT
    try:
        content = json.loads((folder / NAME).read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ModelError(f"'{folder / NAME}' cannot be read ({error}): remove {folder} and train again") from None
    if not isinstance(content, dict) or content.get("version") != VERSION:
        found = content.get("version") if isinstance(content, dict) else None
        raise ModelError(f"'{folder}' has checkpoint version {found}, this hcarec reads {VERSION}: finish the run with the version that began it")
    try:
        files = content["files"]
        return Checkpoint(
            content["run"],
            Progress(**content["at"]),
            content["epoch_seconds"],
            _read_tensors(folder, files["state"]),
            _read_tensors(folder, files["best"]) if "best" in files else None,
            content["best"],
            content["chosen"],
            content["log"],
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"'{folder / NAME}' does not describe a checkpoint ({error}): remove {folder} and train again") from None


def _write_tensors(folder: Path, name: str, theta: Theta) -> dict[str, str]:
    from safetensors.numpy import save

    content = save({letter: np.ascontiguousarray(array) for letter, array in theta.items()})
    digest = hashlib.sha256(content).hexdigest()
    path = folder / f"{name}-{digest[:8]}.safetensors"
    if not path.exists():
        atomic.write_bytes(path, content)
    return {"name": path.name, "sha256": digest}


def _read_tensors(folder: Path, file: dict[str, str]) -> Theta:
    from safetensors.numpy import load

    try:
        content = (folder / Path(file["name"]).name).read_bytes()
    except OSError as error:
        raise ModelError(f"the checkpoint '{folder}' is not whole ({error.strerror}): remove it and train again") from None
    if hashlib.sha256(content).hexdigest() != file["sha256"]:
        raise ModelError(f"'{folder / file['name']}' is damaged: remove {folder} and train again")
    return {letter: np.array(array) for letter, array in load(content).items()}
