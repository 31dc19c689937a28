"""The two rules for seen items, and which of them decides on a log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hcarec.training.recipe import FEW_REPEATS

F, U = "F", "U"
RULES = {F: "items of the history are hidden", U: "items of the history may be listed"}


def has_repeats(log: Mapping[str, Any]) -> bool:
    """Say whether users of a log, given by its statistics, come back to items that they had."""
    return float(log["repeats"]) >= FEW_REPEATS


def deciding_rule(log: Mapping[str, Any]) -> str:
    """Return the rule that decides on a log: F where nothing repeats, U elsewhere."""
    return U if has_repeats(log) else F
