"""The models: the paper's network and the methods that it is compared with."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Unpack

from hcarec import artefact
from hcarec.errors import ConfigError, HcarecError, ModelError
from hcarec.models.base import Model
from hcarec.models.bpr import BPR
from hcarec.models.config import Config, read_toml, resolve
from hcarec.models.gru import GRU
from hcarec.models.hca_gru import HCAGRU, HCAGRUOptions
from hcarec.models.item_knn import ItemKNN, ItemKNNOptions
from hcarec.models.markov import Markov, MarkovOptions
from hcarec.models.pop import Pop
from hcarec.models.random import Random
from hcarec.models.sasrec import SASRec, SASRecOptions
from hcarec.settings import PAPER, check_known

__all__ = [
    "BPR",
    "GRU",
    "HCAGRU",
    "MODELS",
    "Config",
    "ItemKNN",
    "Markov",
    "Model",
    "Options",
    "Pop",
    "Random",
    "SASRec",
    "load",
    "make",
    "read_config",
    "stored_settings",
]

MODELS: dict[str, type[Model]] = {kind.name: kind for kind in (Random, Pop, Markov, ItemKNN, BPR, GRU, HCAGRU, SASRec)}
"""The models by their names."""
SCHEMA_1 = ("window_x", "window_h", "d", "learning_rate", "l2", "epochs", "preset")
"""What a folder of schema 1 lists for every model, whether it has such a setting or not."""


class Options(HCAGRUOptions, SASRecOptions, MarkovOptions, ItemKNNOptions, total=False):
    """What any model may be made with, for type checkers; a model refuses the settings that it does not have."""


def make(model: str = "hca-gru", **settings: Unpack[Options]) -> Model:
    """Make an untrained model by its name."""
    return _make(model, settings)


def _make(model: Any, settings: Any) -> Model:
    check_known("model", model, tuple(MODELS))
    kind = MODELS[model]
    if "self" in settings:  # a name that Python would take for its own
        resolve(kind.name, kind.Network, kind.trainers, settings)
    return kind(**settings)


def load(path: str | Path) -> Model:
    """Load a model from its folder; every file is checked, nothing in it is ever executed."""
    folder = Path(path)
    contents = artefact.read(folder)
    try:
        model = _make(contents.config.get("model"), stored_settings(contents.config, contents.schema))
    except (HcarecError, TypeError) as error:
        raise ModelError(f"'{folder}': {error}") from None
    try:
        return model.restore(contents)
    except ModelError as error:
        raise ModelError(f"'{folder / artefact.TENSORS}': {error}: train again or restore it") from None


def read_config(path: str | Path, model: str | None = None) -> dict[str, Any]:
    """Read a configuration, a TOML file or a model folder: the settings that `--set` takes, and the name of the model where it is given.

    `model` is the model that was asked for; a configuration of another one is refused.
    """
    path = Path(path)
    if path.is_dir():
        found = _folder_settings(path)
    else:
        found = read_toml(path)
    named = found.get("model")
    if model is not None and named is not None and named != model:
        raise ConfigError(f"'{path}' is a configuration of {named}, but the model is {model}: leave out the model, or give another configuration")
    try:
        if named is not None or model is not None:
            _make(model if named is None else named, {name: value for name, value in found.items() if name != "model"})
    except HcarecError as error:
        raise ConfigError(f"'{path}': {error}") from None
    return found


def _folder_settings(folder: Path) -> dict[str, Any]:
    """Return the settings of a model folder, the name of its model among them."""
    if not (folder / artefact.MANIFEST).exists():
        raise ConfigError(f"'{folder}' is not a model folder (no {artefact.MANIFEST}): give a TOML file or a model folder as the configuration")
    manifest = artefact.read_manifest(folder)
    stored = manifest["config"]
    try:
        return {"model": stored.get("model"), **stored_settings(stored, manifest["schema"])}
    except ConfigError as error:
        raise ConfigError(f"'{folder}': {error}") from None


def stored_settings(stored: dict[str, Any], schema: int = artefact.SCHEMA) -> dict[str, Any]:
    """Return the settings of a stored configuration that apply to its model; a folder of schema 1 lists others too.

    A configuration that names no preset is older than presets: it is the paper's.
    """
    check_known("model", stored.get("model"), tuple(MODELS))
    kind = MODELS[stored["model"]]
    foreign = set(SCHEMA_1) - kind.setting_names() if schema == 1 else set()
    older = {"preset": PAPER} if kind.trainers else {}
    return older | {name: value for name, value in stored.items() if name != "model" and name not in foreign}
