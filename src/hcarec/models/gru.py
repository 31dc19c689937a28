"""GRU: the same network with both levels of attention off."""

from __future__ import annotations

from dataclasses import dataclass

from hcarec.errors import ConfigError
from hcarec.models.hca_gru import HCAGRU, HCAGRUSettings
from hcarec.settings import whole


@dataclass(frozen=True, kw_only=True)
class GRUSettings(HCAGRUSettings):
    """The plain recurrent network."""

    window_x: int = whole(1, 1, 1000)
    window_h: int = whole(1, 1, 1000)

    def __post_init__(self) -> None:
        for name in ("window_x", "window_h"):
            if getattr(self, name) != 1:
                raise ConfigError(f"{name} is {getattr(self, name)!r}, but gru has no attention: leave it out, or use the model hca-gru")
        super().__post_init__()


class GRU(HCAGRU):
    """The plain recurrent network of the paper's Eq. 1."""

    name = "gru"
    Network = GRUSettings
