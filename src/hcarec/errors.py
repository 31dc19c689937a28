"""Everything that can go wrong for a user, as one tree of exceptions.

    HcarecError
    ├── InputError      a file, folder or frame that cannot be read as an event log
    ├── ConfigError     an option or setting that makes no sense
    ├── DataError       a prepared data set that is missing, damaged or newer than this version
    ├── DownloadError   a known data set that could not be fetched or verified
    ├── ModelError      a model folder or model state that cannot be used
    ├── DeviceError     a GPU that failed, or a device without enough memory
    ├── ProtocolError   results that must not be compared
    ├── StoreError      a store of the live service that cannot do what was asked (hcarec.serve.stores.errors)
    │   ├── StoreBusy         another process owns it
    │   ├── StoreFull         it has no room
    │   ├── StoreUnreachable  it did not answer in time
    │   └── StoreDamaged      what was read is not what was written
    └── Overloaded      more is asked of the live service than it can do (hcarec.serve.messages)

Each message is one line: what was given, what was expected, what to do next. The command prints it and exits with 2.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class HcarecError(Exception):
    """Base of all errors that are the user's to solve."""


class InputError(HcarecError):
    """An input that cannot be read as an event log."""


class ConfigError(HcarecError):
    """An option or setting that makes no sense."""


class DataError(HcarecError):
    """A prepared data set that is missing, damaged, foreign or newer than this version."""


class DownloadError(HcarecError):
    """A known data set that could not be fetched or verified."""


class ModelError(HcarecError):
    """A model folder or model state that cannot be used."""


class DeviceError(HcarecError):
    """A GPU that failed, or a device that has too little memory."""


class ProtocolError(HcarecError):
    """Results made under different protocols."""


def either(names: Iterable[str]) -> str:
    """Return ``a, b or c``."""
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last


def nearest(given: str, known: Iterable[str]) -> str:
    """Return ``; did you mean 'x'?`` for the closest known name, or nothing."""
    by_lower = {name.lower(): name for name in known}
    close = difflib.get_close_matches(given.lower(), list(by_lower), n=1, cutoff=0.5)
    return f"; did you mean '{by_lower[close[0]]}'?" if close else ""
