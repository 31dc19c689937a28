"""The settings that networks are trained with by mini-batches in the contest and the ablation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hcarec.settings import MODERN
from hcarec.training.recipe import Log, settings_for


def modern(model: str, log: Mapping[str, Any], batches: str | None = None) -> dict[str, Any]:
    """Return the settings of a network on a log, given by its statistics, at the size of a GPU.

    `batches` are those that were given, if any.
    """
    return {"preset": MODERN, **settings_for(model, Log.of(log), batches)}
