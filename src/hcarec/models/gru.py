"""GRU: the same network with both levels of attention off."""

from __future__ import annotations

from typing import Any

from hcarec.errors import ConfigError
from hcarec.models.hca_gru import HCAGRU


class GRU(HCAGRU):
    """The plain recurrent network of the paper's Eq. 1."""

    name = "gru"

    def __init__(self, **settings: Any) -> None:
        for name in ("window_x", "window_h"):
            if settings.setdefault(name, 1) != 1:
                raise ConfigError(f"{name} is {settings[name]}, but gru has no attention: leave it out, or use the model hca-gru")
        super().__init__(**settings)
