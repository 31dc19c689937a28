"""The few numbers of methods that count, chosen on validation as networks choose their epoch."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from hcarec.models import Config, make

if TYPE_CHECKING:
    from hcarec.data.split import Split
    from hcarec.sequences import Sequences

_AFTER = ((1.0,), (1.0, 0.5, 0.3), (1.0, 0.5, 0.3, 0.2, 0.1))
_LAST = ((1.0,), (1.0, 0.3), (1.0, 0.5, 0.3, 0.2, 0.1), (1.0, 0.8, 0.6, 0.5, 0.4))
GRIDS: dict[str, list[dict[str, Any]]] = {
    "markov": [
        {"distance_weights": after, "history_weights": last}
        for after, last in product(_AFTER, _LAST)
    ],
    "item-knn": [
        {"neighbors": neighbors, "shrinkage": shrinkage, "decay": decay}
        for neighbors, shrinkage, decay in product((100, 500), (10.0, 100.0), (0.5, 0.8, 0.95))
    ],
}
"""What is tried of each method: twelve settings, as many as a network has trials."""


def candidates(model: str) -> tuple[Config, ...]:
    """Return the configurations that a method chooses from, none where it has no choice."""
    return tuple(make(model, **settings).config for settings in GRIDS.get(model, ()))


def choose(
    configs: tuple[Config, ...],
    data: Sequences,
    parts: Split,
    metric: str,
    *,
    hide_seen: bool,
    threads: int,
) -> tuple[Config, list[float]]:
    """Return the configuration that is best by a metric on validation, and the metric of each.

    Each is counted on the training part alone. Of equal ones the first is taken.
    """
    from hcarec.evaluation import evaluate_part

    assert parts.validation is not None
    items, offsets = np.asarray(parts.train.items), np.asarray(parts.train.offsets)
    values = []
    for config in configs:
        model = make(**config.as_dict())
        model.set_catalog(data, items)
        model.initialize(items, offsets, 0, threads)
        metrics, _, _ = evaluate_part(
            model, parts.train, parts.validation, parts.validated,
            hide_seen=hide_seen, threads=threads, ks=(int(metric.partition("@")[2]),),
        )  # fmt: skip
        values.append(float(metrics[metric]))
    return configs[int(np.argmax(values))], values
