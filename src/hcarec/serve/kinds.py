"""What kind of value a setting of the service takes; one of another kind would be found out by a request, later."""

from __future__ import annotations

from typing import Any, get_args, get_type_hints

from hcarec.errors import ConfigError

MOST = 10**9
"""No number of the service has a use for more; beyond it times and counts would no longer fit into what they are handed to."""
_KINDS: dict[Any, str] = {bool: "true or false", int: "a whole number", float: "a finite number"}


def check_kinds(settings: object) -> None:
    """Refuse a dataclass of truths and numbers in which a value is not what the annotation of its field says."""
    for name, annotation in get_type_hints(type(settings)).items():
        value = getattr(settings, name)
        kind, *none = get_args(annotation) or (annotation,)
        if not _is(value, kind) and not (none and value is None):
            raise ConfigError(f"{name} is {value!r}: give {_KINDS[kind]}{', or leave it out' if none else ''}")


def _is(value: Any, kind: Any) -> bool:
    if kind is bool or isinstance(value, bool):  # which Python takes for a number
        return kind is bool and isinstance(value, bool)
    if kind is int:
        return isinstance(value, int)
    return isinstance(value, (int, float)) and float("-inf") < value < float("inf")
