"""The models: the paper's network and the methods that it is compared with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hcarec import artefact
from hcarec.config import ModelConfig
from hcarec.models.base import Model
from hcarec.models.bpr import BPR
from hcarec.models.gru import GRU
from hcarec.models.hca_gru import HCAGRU
from hcarec.models.pop import Pop
from hcarec.models.random import Random

__all__ = ["BPR", "GRU", "HCAGRU", "Model", "Pop", "Random", "load", "make"]

_CLASSES: dict[str, type[Model]] = {kind.name: kind for kind in (Random, Pop, BPR, GRU, HCAGRU)}


def make(model: str = "hca-gru", **settings: Any) -> Model:
    """Make an untrained model by its name."""
    checked = ModelConfig(model=model)
    return _CLASSES[checked.model](**settings)


def load(path: str | Path) -> Model:
    """Load a model from its folder; every file is checked, nothing in it is ever executed."""
    contents = artefact.read(Path(path))
    return _CLASSES[contents.config.model]().restore(contents)
