"""The trainers by their names, and training without a loop around it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hcarec.data.split import Part
from hcarec.errors import ConfigError
from hcarec.extras import require
from hcarec.models import Model
from hcarec.models.network import NetworkModel
from hcarec.sequences import Sequences
from hcarec.settings import MODERN, PAPER, PRESETS, RunSettings
from hcarec.training.trainer import Progress, Trainer
from hcarec.training.user_sgd import UserSGD


def _minibatch() -> type[Trainer]:
    require("torch", "mini-batch training (--trainer minibatch)", extra="torch")
    from hcarec.training.minibatch import Minibatch

    return Minibatch


TRAINERS: dict[str, Callable[[], type[Trainer]]] = {
    "user-sgd": lambda: UserSGD,
    "minibatch": _minibatch,
}
"""The trainers by their names, imported when needed; their settings are in `hcarec.settings`."""


def trainer_of(model: Model) -> type[Trainer]:
    """Return the kind of trainer that a model's configuration names."""
    assert model.config.training is not None, "a model that counts has no trainer"
    if model.config.preset == MODERN:
        instead = f", or give --preset {PAPER}" if PRESETS[PAPER] in model.trainers else ""
        require("torch", f"the preset {MODERN}", extra="torch,serve", instead=instead)
    return TRAINERS[model.config.training.name]()


def check_learnable(model: Model, part: Part, where: str = "") -> None:
    """Refuse a training part that a network cannot learn from; `where` says which one it is."""
    if isinstance(model, NetworkModel) and not (part.lengths > 1).any():
        raise ConfigError(
            f"{where}no user has two events to train on, and {model.name} learns what follows what:"
            " give longer histories, or a model that counts, such as markov"
        )


def settle(model: Model, device: str) -> str | None:
    """Decide what a model's trainer leaves to the catalog and the device; return that in words."""
    assert model.config.training is not None
    settled, note = trainer_of(model).settle(model.config.training, len(model.item_ids), device)
    model.config = replace(model.config, training=settled)
    return note


def decide(model: Model, data: Sequences) -> None:
    """Decide what a model's settings leave to log and machine, to train on all of the log."""
    device = trainer_of(model).choose_device("auto")
    part = Part(data.items, data.offsets)
    check_learnable(model, part)
    if model.config.open:
        from hcarec.training import recipe, sizing  # it plans runs, and plans ask for trainers

        everything = sizing.Run(data, part, evaluated=0, judged=False, validates=False)
        recipe.decide(model, everything, sizing.Machine.here(device))
    settle(model, device)


def fit(
    model: Model, part: Part, seed: int, progress: Callable[[Progress], None] | None = None
) -> None:
    """Train a model, decided and with first values, for its number of epochs."""
    kind = trainer_of(model)
    trainer = kind(model, part, RunSettings(seed=seed, device=kind.choose_device("auto")))
    for number in range(1, model.config.epochs + 1):
        for now in trainer.epoch(number):
            if progress:
                progress(now)
    model.theta = trainer.parameters
    model.parameters_changed()
