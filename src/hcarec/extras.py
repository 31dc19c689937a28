"""Import a package that not every installation has, or say in one line how to get it."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from hcarec.errors import ConfigError


def require(package: str, what: str, extra: str | None = None, instead: str = "") -> ModuleType:
    """Import a package that `what` needs and return it.

    `extra` is the extra of hcarec that it comes with; None for a package that is installed by its own name; `instead` is what can be done without it.
    A package that is missing, or that is there and cannot be imported, is a ConfigError.
    """
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        if error.name == package:
            target = package if extra is None else f"'hcarec[{extra}]'"
            raise ConfigError(f"{what} needs the package {package}, which is not installed: pip install {target}{instead}") from None
        fault: Exception = error
    except (ImportError, OSError) as error:  # OSError: a shared library that does not load
        fault = error
    raise ConfigError(f"{what} needs the package {package}, which cannot be imported ({fault}): install it again")
