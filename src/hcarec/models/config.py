"""The configuration of a model: the settings of its network, and those of its trainer where it learns in epochs."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hcarec.errors import ConfigError, nearest
from hcarec.settings import PRESETS, TRAINERS, NetworkSettings, TrainerSettings, check_known

VERSION = 1
"""Version of configuration files."""


@dataclass(frozen=True)
class Config:
    """What a model is and how it learns, resolved: nothing is left to a default. `training` is None for a model that counts."""

    model: str
    network: NetworkSettings
    training: TrainerSettings | None
    preset: str

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

    def as_dict(self) -> dict[str, Any]:
        """Return all settings side by side, as model.json has them."""
        flat = {"model": self.model, **dataclasses.asdict(self.network)}
        if self.training is not None:
            flat |= {"trainer": self.training.name, **dataclasses.asdict(self.training), "preset": self.preset}
        return flat


def resolve(model: str, network: type[NetworkSettings], trainers: tuple[str, ...], given: Mapping[str, Any]) -> Config:
    """Resolve what was given for a model: the preset's values where they apply, then the given ones; unknown settings are refused.

    `trainers` are those that can train the model, none for one that counts.
    """
    preset = given.get("preset", "paper")
    check_known("preset", preset, tuple(PRESETS))
    chosen = {**PRESETS[preset], **given}
    trainer: type[TrainerSettings] | None = None
    if trainers:
        if "trainer" not in given and chosen["trainer"] not in trainers:  # a preset of other models
            chosen["trainer"] = trainers[0]
        check_known("trainer", chosen["trainer"], tuple(TRAINERS))
        if chosen["trainer"] not in trainers:
            raise ConfigError(f"trainer '{chosen['trainer']}' cannot train {model}: give {' or '.join(trainers)}")
        trainer = TRAINERS[chosen["trainer"]]
    known = (*network.names(), *(trainer.names() if trainer is not None else ()))
    for name in given:
        if name not in (*known, "preset", *(("trainer",) if trainers else ())):
            raise ConfigError(f"there is no setting '{name}' of {model}: {_listed(known)}{nearest(name, known)}")
    return Config(model, network.pick(chosen), None if trainer is None else trainer.pick(chosen), preset)


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
