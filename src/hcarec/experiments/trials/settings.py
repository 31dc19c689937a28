"""What contest and ablation can be told, each default written once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hcarec.errors import ConfigError
from hcarec.experiments.trials.modern import modern
from hcarec.models import MODELS, Config, make
from hcarec.settings import RunSettings


@dataclass(frozen=True)
class TrialSettings:
    """How trials are run."""

    runs: int = 3
    """Seeds of every method."""
    first_seed: int = 0
    """The first of these seeds."""
    epochs: int | None = None
    """The most epochs of any trial; by default each method has its own."""
    device: str = "auto"
    """What computes mini-batches: auto, cpu or cuda."""
    methods: tuple[str, ...] = ()
    """Only these methods of the contest, or networks of the ablation; by default all."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the networks trained by mini-batches that are changed."""

    def __post_init__(self) -> None:
        RunSettings(seed=self.first_seed, device=self.device)
        if not isinstance(self.runs, int) or self.runs < 1:
            raise ConfigError(f"runs is {self.runs!r}: give a whole number of at least 1")
        if self.epochs is not None and (not isinstance(self.epochs, int) or self.epochs < 1):
            raise ConfigError(f"epochs is {self.epochs!r}: give a whole number of at least 1")
        known = {name for model in ("gru", "hca-gru", "sasrec") for name in _names(model)}
        for name in self.changes:
            if name not in known:
                raise ConfigError(f"there is no setting '{name}' of gru, hca-gru and sasrec")

    @property
    def seeds(self) -> range:
        """Return the seeds of every method."""
        return range(self.first_seed, self.first_seed + self.runs)

    def config(self, model: str, **settings: Any) -> Config:
        """Return the configuration of a method, with no more epochs than allowed."""
        if self.epochs is not None and "epochs" in MODELS[model].setting_names():
            most = make(model, **settings).config.epochs
            settings["epochs"] = min(most, self.epochs)
        return make(model, **settings).config

    def given(self, model: str) -> dict[str, Any]:
        """Return the settings of a network that the preset does not decide on."""
        changes = {name: value for name, value in self.changes.items() if name in _names(model)}
        return changes if self.epochs is None else changes | {"epochs": self.epochs}

    def modern(self, model: str, log: Mapping[str, Any], **other: Any) -> Config:
        """Return the configuration of a network on a log, with `other` settings than usual.

        What goes with other batches follows from these.
        """
        given = self.given(model) | other
        return self.config(model, **modern(model, log, given.get("batches")) | given)


def _names(model: str) -> set[str]:
    """Return the settings of a model that a trial may change."""
    return set(MODELS[model].setting_names()) - {"epochs", "trainer", "preset", "model"}
