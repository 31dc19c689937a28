"""The network's operations: one specification (`reference`) and the engines that are tested against it."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from hcarec.errors import ConfigError, nearest

BACKENDS = ("cpu", "reference")
"""Engines by name; each is a module of this package, imported when it is asked for."""


def backend(name: str) -> ModuleType:
    """Return the engine of that name; one that is unknown or cannot run here is an error, never another in its place."""
    if name not in BACKENDS:
        raise ConfigError(f"back-end '{name}' is not known: give one of {', '.join(BACKENDS)}{nearest(name, BACKENDS)}")
    try:
        return import_module(f"hcarec.ops.{name}")
    except ImportError as error:
        raise ConfigError(f"back-end '{name}' cannot run here ({error}): install the missing package or choose another back-end") from error
