"""Yardsticks: what every model must beat, measured under the same protocol after a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hcarec import hardware
from hcarec.data.split import Split
from hcarec.evaluation import evaluate_part, finite
from hcarec.models import Markov, Model, Pop
from hcarec.sequences import Sequences
from hcarec.training.resources import counted

YARDSTICKS: tuple[type[Model], ...] = (Markov, Pop)
"""Counted in seconds; a model that does not beat them has learned nothing worth serving."""
MINUTE, SHARE = 60.0, 0.1
"""A yardstick is skipped where it takes longer than a minute and than this share of the run."""


def measure(
    data: Sequences,
    parts: Split,
    model: Model,
    run_seconds: float,
    *,
    metric: str,
    hide_seen: bool,
    ks: Sequence[int],
    threads: int | None,
) -> dict[str, Any]:
    """Return the metrics of every yardstick but the model itself, or why one was skipped.

    `run_seconds` is what the plan says of the whole run, `metric` the one that is compared.
    """
    found: dict[str, dict[str, float | None]] = {}
    skipped: dict[str, str] = {}
    for kind in YARDSTICKS:
        yardstick = kind()
        if kind.name == model.name:
            continue
        if reason := _too_much(yardstick, data, parts, run_seconds):
            skipped[yardstick.config.title] = reason
            continue
        yardstick.set_catalog(data, parts.history.items)
        yardstick.initialize(parts.history.items, parts.history.offsets, 0, threads)
        metrics, _, _ = evaluate_part(
            yardstick, parts.history, parts.test, parts.evaluated,
            hide_seen=hide_seen, threads=threads, ks=ks,
        )  # fmt: skip
        found[yardstick.config.title] = finite(metrics)
    return {"metric": metric, "models": found, "skipped": skipped}


def interrupted(model: Model, metric: str) -> dict[str, Any]:
    """Return what `measure` returns, for yardsticks that Ctrl-C has left unmeasured."""
    titles = [kind().config.title for kind in YARDSTICKS if kind.name != model.name]
    return {"metric": metric, "models": {}, "skipped": dict.fromkeys(titles, "interrupted")}


def _too_much(yardstick: Model, data: Sequences, parts: Split, run_seconds: float) -> str | None:
    """Say why a yardstick would take too much, or return None."""
    need = counted(yardstick, parts.history, data.n_items, int(parts.evaluated.sum()))
    free = hardware.memory().available
    if free is not None and need.memory > free:
        return f"it needs about {need.memory / 2**30:.1f} GiB and {free / 2**30:.1f} GiB are free"
    if need.seconds > max(MINUTE, SHARE * run_seconds):
        return f"it takes about {need.seconds / 60:.0f} min, more than a tenth of the run"
    return None


def words(title: str, metrics: Mapping[str, Any], yardsticks: Mapping[str, Any]) -> str:
    """Compare a model with its yardsticks in one line, and say plainly where it does not win."""
    metric = str(yardsticks.get("metric"))
    own, skipped = metrics.get(metric), _object(yardsticks.get("skipped"))
    figures = {
        name: value
        for name, one in _object(yardsticks.get("models")).items()
        if isinstance(value := _object(one).get(metric), (int, float))
    }
    parts = []
    if own is not None and figures:
        shown = ", ".join(f"{name} {100 * value:.3f}" for name, value in figures.items())
        better = [name for name, value in figures.items() if value > own]
        level = [name for name, value in figures.items() if value == own]
        parts.append(f"{metric.upper()} in %: {title} {100 * own:.3f}, {shown}: ")
        if better:
            which = "which only counts" if len(better) == 1 else "which only count"
            parts.append(f"{title} does NOT beat {' or '.join(better)}, {which}")
        elif level:
            parts.append(f"{title} is no better than {' or '.join(level)}")
        else:
            parts.append(f"{title} beats {'both' if len(figures) == 2 else 'it'}")
    for name, reason in skipped.items():
        parts.append(f"{'; ' if parts else ''}not compared with {name}: {reason}")
    return "".join(parts)


def _object(part: Any) -> Mapping[str, Any]:
    """Return a part of model.json, which anybody may have written, as an object."""
    return part if isinstance(part, Mapping) else {}
