"""Next-item recommendation from event logs, built around HCA-GRU.

The verbs below are imported when they are first used, so that `import hcarec` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hcarec.comparison import compare
    from hcarec.config import Filters, ReadOptions
    from hcarec.data.prepare import prepare
    from hcarec.data.read import read_events
    from hcarec.data.split import split
    from hcarec.data.synthetic import synthetic
    from hcarec.errors import HcarecError
    from hcarec.evaluation import evaluate
    from hcarec.explanation import explain
    from hcarec.models import BPR, GRU, HCAGRU, ItemKNN, Markov, Pop, Random, SASRec, load
    from hcarec.recommendation import recommend
    from hcarec.sequences import Sequences
    from hcarec.training import train

__version__ = "0.1.0"

_HOME = {
    "BPR": "hcarec.models",
    "Filters": "hcarec.config",
    "GRU": "hcarec.models",
    "HCAGRU": "hcarec.models",
    "HcarecError": "hcarec.errors",
    "ItemKNN": "hcarec.models",
    "Markov": "hcarec.models",
    "Pop": "hcarec.models",
    "Random": "hcarec.models",
    "ReadOptions": "hcarec.config",
    "SASRec": "hcarec.models",
    "Sequences": "hcarec.sequences",
    "compare": "hcarec.comparison",
    "evaluate": "hcarec.evaluation",
    "explain": "hcarec.explanation",
    "load": "hcarec.models",
    "prepare": "hcarec.data.prepare",
    "read_events": "hcarec.data.read",
    "recommend": "hcarec.recommendation",
    "split": "hcarec.data.split",
    "synthetic": "hcarec.data.synthetic",
    "train": "hcarec.training",
}

__all__ = [
    "BPR",
    "GRU",
    "HCAGRU",
    "Filters",
    "HcarecError",
    "ItemKNN",
    "Markov",
    "Pop",
    "Random",
    "ReadOptions",
    "SASRec",
    "Sequences",
    "compare",
    "evaluate",
    "explain",
    "load",
    "prepare",
    "read_events",
    "recommend",
    "split",
    "synthetic",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'hcarec' has no attribute '{name}'")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
