"""What experiments can be told; every default is the paper's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hcarec.errors import ConfigError, nearest
from hcarec.metrics import KS
from hcarec.models import MODELS, Config, make
from hcarec.models.hca_gru import HCAGRUSettings
from hcarec.settings import PAPER, RunSettings, UserSGDSettings

NAMES = ("datasets", "methods", "widths", "complete", "attention", "all")
"""The experiments: the paper's Tables 3 and 2, Figure 2, Tables 4 and 5, and all of them."""
TEST, VALIDATION, BOTH = "best-epoch-on-test", "validation", "both"


@dataclass(frozen=True)
class Settings:
    """How experiments are run."""

    d: int = HCAGRUSettings.d
    """Size of item and hidden vectors."""
    learning_rate: float = UserSGDSettings.learning_rate
    """Step of plain SGD."""
    l2: float = UserSGDSettings.l2
    """The paper's lambda."""
    epochs: int = UserSGDSettings.epochs
    """Times through all users; every epoch is evaluated."""
    runs: int = 4
    """Seeds of every method."""
    first_seed: int = 0
    """The first of these seeds."""
    widths: tuple[int, ...] = (2, 3, 4, 5)
    """Window widths that are tried."""
    ks: tuple[int, ...] = KS
    """Lengths of the list that metrics are cut at."""
    selection: str = TEST
    """best-epoch-on-test as in the paper, validation, or both for `methods` (the others follow the paper's)."""
    window_x: int | None = None
    """Width of HCA-GRU-x in `methods`; by default the best one of `widths`, or the paper's where that has not been run."""
    window_h: int | None = None
    """Width of HCA-GRU-h there."""
    window_both: tuple[int, int] | None = None
    """Widths of HCA-GRU-x-h there, and of `attention`; by default the best ones of `complete`."""

    def __post_init__(self) -> None:
        self.config("hca-gru")  # refuses what makes no sense
        RunSettings(seed=self.first_seed)
        if self.epochs < 1:
            raise ConfigError("epochs is 0: give at least 1")
        if not isinstance(self.runs, int) or self.runs < 1:
            raise ConfigError(f"runs is {self.runs!r}: give a whole number of at least 1")
        widths = [*self.widths, *(w for w in (self.window_x, self.window_h, *(self.window_both or ())) if w is not None)]
        if not self.widths or any(not isinstance(width, int) or width < 2 for width in widths):
            raise ConfigError(f"widths are {', '.join(map(str, widths))}: give whole numbers of at least 2 (1 is the plain GRU)")
        if not self.ks or any(not isinstance(k, int) or k < 1 for k in self.ks):
            raise ConfigError(f"k is {self.ks!r}: give whole numbers of at least 1")
        if self.selection not in (TEST, VALIDATION, BOTH):
            known = (TEST, VALIDATION, BOTH)
            raise ConfigError(f"selection '{self.selection}' is not known: give one of {', '.join(known)}{nearest(self.selection, known)}")
        same = {"learning_rate": float(self.learning_rate), "l2": float(self.l2), "widths": tuple(sorted(set(self.widths))), "ks": tuple(sorted(set(self.ks)))}
        for name, value in same.items():  # one way to write each, so that one run has one key
            object.__setattr__(self, name, value)

    @property
    def seeds(self) -> range:
        """Return the seeds of every method."""
        return range(self.first_seed, self.first_seed + self.runs)

    @property
    def main_selection(self) -> str:
        """Return the selection that `widths`, `complete` and `attention` follow."""
        return VALIDATION if self.selection == VALIDATION else TEST

    @property
    def selections(self) -> tuple[str, ...]:
        """Return the selections of `methods`, the main one first."""
        return (TEST, VALIDATION) if self.selection == BOTH else (self.selection,)

    @property
    def last_k(self) -> int:
        """Return the k that single figures are given at."""
        return max(self.ks)

    def config(self, model: str, window_x: int = 1, window_h: int = 1) -> Config:
        """Return the configuration of a method under these settings."""
        given: dict[str, Any] = {"preset": PAPER, "window_x": window_x, "window_h": window_h}
        given |= {name: getattr(self, name) for name in ("d", "learning_rate", "l2", "epochs")}
        return make(model, **{name: value for name, value in given.items() if name in MODELS[model].setting_names()}).config

    def matches(self, record: Mapping[str, Any]) -> bool:
        """Say whether a finished run was made under these settings, whatever its seed; methods that learn nothing differ in k alone."""
        config = record["config"]
        same = not MODELS[config["model"]].trainers or all(config[name] == getattr(self, name) for name in ("d", "learning_rate", "l2", "epochs"))
        return same and self.same_ks(record)

    def same_ks(self, record: Mapping[str, Any]) -> bool:
        """Say whether the metrics of a finished run are cut at these k and no others."""
        return {name for name in record["best"] if name.startswith("ndcg@")} == {f"ndcg@{k}" for k in self.ks}
