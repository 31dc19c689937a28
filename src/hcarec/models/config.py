"""The configuration of a model: the settings of its network, and those of its trainer where it learns in epochs."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hcarec.errors import ConfigError, nearest
from hcarec.settings import DEFAULT_PRESET, MODERN, PAPER, PAPER_ONLY, PRESETS, TRAINERS, NetworkSettings, TrainerSettings, check_known

VERSION = 1
"""Version of configuration files."""


@dataclass(frozen=True)
class Config:
    """What a model is and how it learns. `training` is None for a model that counts.

    Nothing is left to a default but, until training begins, what the preset `modern` decides by log and machine.
    """

    model: str
    network: NetworkSettings
    training: TrainerSettings | None
    preset: str
    given: frozenset[str] = field(default=frozenset(), compare=False)
    """The names of the settings that were given."""

    @property
    def title(self) -> str:
        """Return the name that people know the model by."""
        return self.network.title

    @property
    def trains(self) -> bool:
        """Say whether the model learns in epochs."""
        return self.training is not None

    @property
    def epochs(self) -> int:
        """Return the number of epochs, 0 for a model that counts."""
        return 0 if self.training is None else self.training.epochs

    @property
    def open(self) -> frozenset[str]:
        """Return the settings that the preset has yet to decide by log and machine."""
        if self.preset != MODERN or self.training is None:
            return frozenset()
        return frozenset((*self.network.names(), *self.training.names())) - self.given

    def decide(self, settings: Mapping[str, Any]) -> Config:
        """Return the configuration in which those of the settings that were open have these values, and nothing is open any more."""
        assert self.training is not None
        decided = {name: value for name, value in settings.items() if name in self.open}
        network = replace(self.network, **{name: value for name, value in decided.items() if name in self.network.names()})
        training = replace(self.training, **{name: value for name, value in decided.items() if name in self.training.names()})
        return replace(self, network=network, training=training, given=self.given | self.open)

    def as_dict(self) -> dict[str, Any]:
        """Return all settings side by side, as model.json has them."""
        flat = {"model": self.model, **dataclasses.asdict(self.network)}
        if self.training is not None:
            flat |= {"trainer": self.training.name, **dataclasses.asdict(self.training), "preset": self.preset}
        return flat


def resolve(model: str, network: type[NetworkSettings], trainers: tuple[str, ...], given: Mapping[str, Any]) -> Config:
    """Resolve what was given for a model: the preset's trainer where it applies, then the given settings; unknown ones are refused.

    `trainers` are those that can train the model, none for one that counts.
    """
    preset = _preset(trainers, given)
    trainer = _trainer(model, preset, trainers, given) if trainers else None
    known = (*network.names(), *(trainer.names() if trainer is not None else ()))
    for name in given:
        if name not in (*known, "preset", *(("trainer",) if trainers else ())):
            raise ConfigError(f"there is no setting '{name}' of {model}: {_listed(known)}{nearest(name, known)}")
    return Config(model, network.pick(given), None if trainer is None else trainer.pick(given), preset, frozenset(given) & frozenset(known))


def _preset(trainers: tuple[str, ...], given: Mapping[str, Any]) -> str:
    """Return the preset by its name, or the one that follows from what is given, or the default.

    A model that `modern` cannot train has one recipe, whatever preset is named.
    """
    preset = given.get("preset") or (PAPER if implies_paper(trainers, given) else DEFAULT_PRESET)
    check_known("preset", preset, tuple(PRESETS))
    return preset if preset != MODERN or PRESETS[MODERN] in trainers else PAPER


def implies_paper(trainers: tuple[str, ...], given: Mapping[str, Any]) -> bool:
    """Say whether what is given goes with the paper's trainer alone: that trainer, or a setting that no other has."""
    paper = PRESETS[PAPER]
    if given.get("trainer") is None:
        return paper in trainers and not PAPER_ONLY.isdisjoint(given)
    return bool(given["trainer"] == paper)


def _trainer(model: str, preset: str, trainers: tuple[str, ...], given: Mapping[str, Any]) -> type[TrainerSettings]:
    """Return the settings of the trainer that was given, or of the preset's, or of the only one that the model has."""
    usual = PRESETS[preset] if PRESETS[preset] in trainers else trainers[0]
    name = given.get("trainer", usual)
    check_known("trainer", name, tuple(TRAINERS))
    if name not in trainers:
        raise ConfigError(f"trainer '{name}' cannot train {model}: give {' or '.join(trainers)}")
    if preset == MODERN and name != PRESETS[MODERN]:
        raise ConfigError(f"trainer '{name}' does not go with the preset {MODERN}, which is one of {PRESETS[MODERN]}: leave it out, or give --preset {PAPER}")
    return TRAINERS[name]


def _listed(known: tuple[str, ...]) -> str:
    return f"the settings are {', '.join(known)}" if known else "it has none"


def read_toml(path: Path) -> dict[str, Any]:
    """Read the settings of a configuration file: what `--set` takes, and the name of the model where it is given."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigError(f"'{path}' is not there: give a TOML file or a model folder as the configuration") from None
    except OSError as error:
        raise ConfigError(f"cannot read '{path}': {error.strerror}") from None
    except (ValueError, RecursionError) as error:  # a number of thousands of digits among them
        raise ConfigError(f"'{path}' is not a TOML file ({error}): write a setting a line, such as d = 32") from None
    if "version" not in found:
        raise ConfigError(f"'{path}' has no version: begin it with version = {VERSION}")
    version = found.pop("version")
    if version != VERSION or isinstance(version, bool):
        raise ConfigError(f"'{path}' is of version {version!r}, this hcarec reads configurations of version {VERSION}: update hcarec or rewrite the file")
    settings: dict[str, Any] = {}
    for name, value in found.items():
        plain = name.replace("-", "_")  # as --set takes names
        if plain in settings:
            raise ConfigError(f"'{path}' gives {plain} twice: leave one of them out")
        settings[plain] = value
    return settings
