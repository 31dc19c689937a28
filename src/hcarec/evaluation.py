"""Evaluate a model: full ranking over the whole catalogue, under a protocol that the result carries."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hcarec import atomic
from hcarec import protocol as protocols
from hcarec.data.split import Part, Split, split
from hcarec.errors import DataError, ModelError
from hcarec.ids import Ids
from hcarec.metrics import KS, evaluate_ranking
from hcarec.models import Model
from hcarec.ops.auc_negatives import sample_negatives
from hcarec.rankers import Asked, Ranker, ranker
from hcarec.sequences import Sequences
from hcarec.settings import RunSettings
from hcarec.topk import Ragged

USERS_AT_ONCE = 4096
"""Users ranked together: bounds the memory of what their scores are corrected by."""


@dataclass(frozen=True)
class Result:
    """Figures of one model: `metrics` as fractions, `users` columns (n_evaluated,) per user, and the protocol."""

    model: str
    metrics: dict[str, float]
    users: dict[str, np.ndarray]
    user_ids: Ids
    protocol: dict[str, Any]
    about: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """Return one flat object: the metrics, then the protocol."""
        head = {"model": self.model, **finite(self.metrics)}
        return head | {"protocol": self.protocol, "protocol_fingerprint": protocols.fingerprint(self.protocol), "about": self.about}

    def save(self, path: str | Path) -> None:
        """Write R.json, and R.users.parquet beside it with a row per user."""
        import io
        import json

        import polars as pl

        path = Path(path)
        buffer = io.BytesIO()
        pl.DataFrame({"user_id": self.user_ids.to_series(), **self.users}).write_parquet(buffer)
        try:
            atomic.write_bytes(users_file(path), buffer.getvalue())
            atomic.write_bytes(path, (json.dumps(self.as_dict(), indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode())
        except OSError as error:
            raise ModelError(f"cannot write '{path}': {error.strerror}") from None


def finite(metrics: Mapping[str, float | None]) -> dict[str, float | None]:
    """Replace what is not a number, which JSON cannot say, by null."""
    return {name: float(value) if value is not None and math.isfinite(value) else None for name, value in metrics.items()}


def users_file(path: Path) -> Path:
    """Return the file of per-user figures that belongs to a result."""
    return path.with_suffix(".users.parquet")


def evaluate(model: Model, data: Sequences, *, hide_seen: bool | None = None, threads: int | None = None) -> Result:
    """Evaluate a trained model on its test part, under its own split and seen rule."""
    rules = model.about.get("protocol")
    if rules is not None and not {"data", "split", "seen"} <= set(rules):
        raise ModelError("the model's protocol is not whole: it is damaged, train again")
    if rules is None or rules["split"].get("split") == "none":
        raise ModelError(f"{model.config.title} was trained on everything, so nothing is left to test it on: train with --split ratio, leave-one-out or time")
    RunSettings(threads=threads)
    if rules["data"]["fingerprint"] != data.fingerprint:
        known, given = rules["data"]["fingerprint"][:12], data.fingerprint[:12]
        raise DataError(f"the model was trained on data {known}, this is {given}: give the data set it was trained on")
    parts = resplit(data, rules["split"])
    hide = rules["seen"] == "hidden" if hide_seen is None else hide_seen
    ks = tuple(rules.get("metrics", {}).get("k", KS))
    metrics, users, chosen = evaluate_part(model, parts.history, parts.test, parts.evaluated, hide_seen=hide, exact=True, threads=threads, ks=ks)
    about = {"config": model.config.as_dict(), **{name: model.about.get(name) for name in ("seed", "selection")}}
    about["fine_tuning"] = model.about.get("training", {}).get("fine_tuning")
    return Result(model.config.title, metrics, users, data.user_ids.take(chosen), {**rules, "seen": "hidden" if hide else "kept"}, about)


def resplit(data: Sequences, rules: dict[str, Any]) -> Split:
    """Split data again as a protocol says."""
    try:
        return split(data, rules["split"], ratio=rules.get("ratio", 0.8), at=rules.get("at"), validation=rules["validation"])
    except (KeyError, TypeError) as error:
        raise ModelError(f"the model's protocol does not describe a split ({error}): it is damaged, train again") from None


def evaluate_part(
    model: Model,
    history: Part,
    target: Part,
    mask: np.ndarray,
    *,
    hide_seen: bool = False,
    exact: bool = False,
    threads: int | None = None,
    device: str = "cpu",
    ks: Sequence[int] = KS,
    last: int | None = None,
) -> tuple[dict[str, float], dict[str, np.ndarray], np.ndarray]:
    """Predict `target` from `history` for the users of a mask (n_users,): return metrics, per-user columns and the users.

    `exact` adds the AUC over all negatives, which costs more than the ranking itself. `last` lets the model read so many of the latest events
    of a history and no more; seen items are those of all of it.
    """
    how: dict[str, Any] = {"hide_seen": hide_seen, "exact": exact, "ks": ks, "item_events": model.item_events, "last": last}
    return evaluate_by(ranker(model, device, threads), history, target, mask, **how)


def evaluate_by(
    ranker: Ranker,
    history: Part,
    target: Part,
    mask: np.ndarray,
    *,
    hide_seen: bool = False,
    exact: bool = False,
    ks: Sequence[int] = KS,
    item_events: np.ndarray | None = None,
    last: int | None = None,
) -> tuple[dict[str, float], dict[str, np.ndarray], np.ndarray]:
    """Do what `evaluate_part` does, whatever ranks."""
    users = np.flatnonzero(mask)
    pieces = [
        ranker.rank(_asked(history, target, users[begin : begin + USERS_AT_ONCE], ranker.n_items, last), max(ks), hide_seen=hide_seen, exact=exact)
        for begin in range(0, max(1, len(users)), USERS_AT_ONCE)
    ]
    items, test_scores, negative_scores, below, n_negatives = (np.concatenate(parts) if parts[0] is not None else None for parts in zip(*pieces, strict=True))
    assert items is not None
    metrics, columns = evaluate_ranking(
        items,
        *take(target, users),
        ranker.n_items,
        ks=ks,
        test_scores=test_scores,
        negative_scores=negative_scores,
        below=below,
        n_negatives=n_negatives,
        item_events=item_events,
    )
    return metrics, columns, users


def _asked(history: Part, target: Part, users: np.ndarray, n_items: int, last: int | None) -> Asked:
    """Gather what is asked of some users, (n,), and draw their negatives."""
    past, test = take(history, users), take(target, users)
    drawn = sample_negatives(_together(past, test), np.diff(test[1]), n_items, protocols.AUC_SEED, users)
    return Asked(users, past, test, drawn, None if last is None else latest(past, last))


def latest(histories: Ragged, n: int) -> Ragged:
    """Return the last n events of every history."""
    items, ends = histories[0], histories[1][1:]
    lengths = np.minimum(np.diff(histories[1]), n)
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return items[np.arange(offsets[-1]) + np.repeat(ends - offsets[1:], lengths)], offsets


def take(part: Part, users: np.ndarray) -> Ragged:
    """Return the sequences of some users, packed."""
    lengths = part.lengths[users]
    offsets = np.zeros(len(users) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    if len(users) == len(part):
        return part.items, np.asarray(part.offsets)
    places = np.arange(offsets[-1]) + np.repeat(np.asarray(part.offsets)[users] - offsets[:-1], lengths)
    return np.asarray(part.items)[places], offsets


def _together(first: Ragged, second: Ragged) -> Ragged:
    """Join two ragged arrays user by user."""
    offsets = first[1] + second[1]
    items = np.empty(offsets[-1], np.int32)
    for (values, own), before in ((first, second[1][:-1]), (second, first[1][1:])):
        items[np.arange(len(values)) + np.repeat(before, np.diff(own))] = values
    return items, offsets
