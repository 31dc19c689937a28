"""The trainers by their names, and training without a loop around it."""

from __future__ import annotations

from collections.abc import Callable

from hcarec.data.split import Part
from hcarec.models import Model
from hcarec.settings import RunSettings
from hcarec.training.trainer import Progress, Trainer
from hcarec.training.user_sgd import UserSGD

TRAINERS: dict[str, type[Trainer]] = {one.name: one for one in (UserSGD,)}
"""The trainers by their names; their settings are in `hcarec.settings.TRAINERS`."""


def trainer_of(model: Model) -> type[Trainer]:
    """Return the kind of trainer that a model's configuration names."""
    assert model.config.training is not None, "a model that counts has no trainer"
    return TRAINERS[model.config.training.name]


def fit(
    model: Model, part: Part, seed: int, progress: Callable[[Progress], None] | None = None
) -> None:
    """Train a model, whose parameters have their first values, for its number of epochs."""
    trainer = trainer_of(model)(model, part, RunSettings(seed=seed))
    for number in range(1, model.config.epochs + 1):
        for now in trainer.epoch(number):
            if progress:
                progress(now)
    model.theta = trainer.parameters
    model.parameters_changed()
