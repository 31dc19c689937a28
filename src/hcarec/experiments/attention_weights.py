"""The attention of a trained network: one user's last steps (the paper's Table 5), and how weights behave over all users."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hcarec.errors import ConfigError, DataError
from hcarec.experiments.results import ATTENTION, Results, read_json, write_json
from hcarec.experiments.run import Run, perform

FIELDS = ("run", "data", "method", "seed", "user", "items", "a_x", "a_h", "users", "hidden", "input")
"""What a record of weights holds."""
MOST_USERS = 1_000
"""Users that the behaviour of weights is measured on, spread evenly over those with full windows."""


def measure_attention(run: Run, results: Results, user_id: str | None = None) -> dict[str, Any]:
    """Measure the attention of a run's network on the histories that its test is predicted from, and write attention/DATA.json.

    The user shown is `user_id`, or the first whose history fills the windows. The network is trained again where it was not kept.
    """
    path = results.folder / ATTENTION / f"{run.data.name}.json"
    if path.exists() and (found := read_json(path, *FIELDS))["run"] == run.key and user_id in (None, found["user"]):
        return found
    from hcarec.data.split import split
    from hcarec.explanation import attention
    from hcarec.models import load
    from hcarec.sequences import Sequences

    if not (results.models / run.key).exists() and perform(run, results) is None:
        raise KeyboardInterrupt
    data, model = Sequences.open(run.data.path), load(results.models / run.key)
    if not model.has_attention:
        raise ConfigError(f"{model.config.title} has no attention to measure: give a method with a window above 1")
    parts = split(data, "ratio")
    w_x, w_h = model.windows
    reach = w_x + w_h - 1
    full = np.flatnonzero(parts.evaluated & (parts.history.lengths >= reach))
    if not len(full):
        raise DataError(f"no user of '{run.data.name}' has a history of {reach} events, which {model.config.title} looks back over: try narrower windows")
    shown = _user(data, full, user_id, reach)
    places = np.unique(np.linspace(0, len(full) - 1, MOST_USERS).astype(np.int64))
    weights = [attention(model, np.asarray(parts.history[user])) for user in full[places]]
    items = np.asarray(parts.history[shown])
    a_x, a_h = attention(model, items)
    record = {
        "run": run.key,
        "data": run.data.name,
        "method": run.config.title,
        "seed": run.seed,
        "user": data.user_ids[shown],
        "items": [{"item": data.item_ids[item], "title": data.title(item)} for item in items[-reach:].tolist()],
        "a_x": a_x,
        "a_h": a_h,
        "users": len(weights),
        "hidden": _behaviour(np.array([h for _, h in weights])) if a_h else None,
        "input": _behaviour(np.array([x[-1] for x, _ in weights if x])) if a_x else None,
    }
    write_json(path, record)
    return record


def _user(data: Any, full: np.ndarray, user_id: str | None, reach: int) -> int:
    if user_id is None:
        return int(full[0])
    user = data.user_ids.find(user_id)
    if user < 0 or user not in full:
        raise DataError(f"user '{user_id}' is not among the {len(full):,} users with a history of {reach} events or more: give another with --user")
    return int(user)


def _behaviour(weights: np.ndarray) -> dict[str, Any]:
    """Describe windows of weights (n, w), oldest to newest: their mean, and how many only rise or only fall with time, against chance."""
    w = weights.shape[1]
    steps = np.diff(weights, axis=1)
    spread = weights.max(1) / np.maximum(weights.min(1), 1e-30)
    return {
        "width": w,
        "mean": [float(value) for value in weights.mean(0)],
        "rising": float((steps > 0).all(1).mean()),
        "falling": float((steps < 0).all(1).mean()),
        "chance": 1 / math.factorial(w),
        "newest_highest": float((weights.argmax(1) == w - 1).mean()),
        "median_ratio": float(np.median(spread)),
    }


def tidy_weights(record: dict[str, Any]) -> list[dict[str, Any]]:
    """Turn a record into rows: data, user, level (hidden or input), step and lag (0 is the newest), item, weight."""
    items = [one["item"] for one in record["items"]]
    head = {"data": record["data"], "user": record["user"]}
    rows = []
    for step, weights in enumerate(reversed(record["a_x"] or [])):
        rows += [
            {**head, "level": "input", "step": step, "lag": step + lag, "item": items[-1 - step - lag], "weight": weight}
            for lag, weight in enumerate(reversed(weights))
        ]
    rows += [
        {**head, "level": "hidden", "step": 0, "lag": lag, "item": items[-1 - lag], "weight": weight}
        for lag, weight in enumerate(reversed(record["a_h"] or []))
    ]
    return rows
