"""Fuse late: weigh what a trained network says against counting, on validation data."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hcarec import artefact, rankers, topk
from hcarec.data.split import Part
from hcarec.errors import ModelError
from hcarec.evaluation import USERS_AT_ONCE, take
from hcarec.metrics import evaluate_ranking
from hcarec.models.counting_term import FLOOR, LEAST, SCALE, count_table, sum_counts
from hcarec.models.network import NetworkModel
from hcarec.ops.streams import epoch_order
from hcarec.rankers import Ranker
from hcarec.settings import LARGEST
from hcarec.tables import Table

SCALES = (0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 12.0, 25.0)
"""Scales that are tried, beside 0."""
FLOORS = (0.01, 0.1, 1.0)
"""Floors that are tried with each scale."""
GRID = ((0.0, FLOOR), *((scale, floor) for scale in SCALES for floor in FLOORS))
"""All pairs of scale and floor, the smaller scales first."""
MOST_USERS = 10_000
"""Validation users that the pairs are tried on."""

WHY = {
    "default": "the defaults, without validation data",
    "evaluated model": "as the evaluated model chose",
}
"""Where scale and floor come from that were not chosen by the run itself, in words."""


class Judged(NamedTuple):
    """What a choice is judged by: predict `target` from `history` for the users of a mask."""

    history: Part
    target: Part
    users: np.ndarray


def fuse(
    model: NetworkModel,
    judged: Judged,
    metric: str,
    *,
    hide_seen: bool,
    seed: int,
    device: str = "cpu",
    threads: int | None = None,
) -> dict[str, Any]:
    """Return the scale and floor that are best by a metric such as ndcg@10, and how all pairs did.

    The table is counted on the history, which must not hold what is predicted; the model must be
    without a counting term. Equal pairs: the smaller scale, then the smaller floor.
    """
    assert model.counting_term is None
    ranker = rankers.ranker(model, device, threads)
    table = count_table(judged.history.items, judged.history.offsets, len(model.item_ids))
    users = sample_users(judged.users, seed)
    totals = np.zeros(len(GRID))
    for begin in range(0, len(users), USERS_AT_ONCE):
        some = users[begin : begin + USERS_AT_ONCE]
        for place, values in enumerate(
            _try_all(model, ranker, table, judged, some, metric, hide_seen, threads)
        ):
            totals[place] += values.sum()
    means = totals / len(users)
    best = int(np.argmax(means))  # the first of equal ones
    scale, floor = GRID[best]
    return {
        "scale": scale,
        "floor": floor,
        "by": "validation",
        "metric": metric,
        "alone": float(means[0]),
        "fused": float(means[best]),
        "users": len(users),
        "grid": [[*pair, float(mean)] for pair, mean in zip(GRID, means, strict=True)],
    }


def sample_users(mask: np.ndarray, seed: int) -> np.ndarray:
    """Return the users of a mask (n_users,), ascending, or MOST_USERS of them by a hash."""
    order = epoch_order(len(mask), seed, 0)  # epochs of training count from 1
    return np.sort(order[mask[order]][:MOST_USERS])


def _try_all(
    model: NetworkModel,
    ranker: Ranker,
    table: Table,
    judged: Judged,
    users: np.ndarray,
    metric: str,
    hide_seen: bool,
    threads: int | None,
) -> Iterator[np.ndarray]:
    """Yield the metric of some users (n,) for each pair of the grid; each is encoded once."""
    from hcarec.ops.tables import add_counts

    past, test = take(judged.history, users), take(judged.target, users)
    H, corrections = ranker.encode(*past)
    sums = sum_counts(table, *past, threads=threads)
    k = int(metric.partition("@")[2])
    tops = topk.rank_variants(
        H, model.item_vectors, model.tie_rank, k,
        (add_counts(corrections, sums, *pair) for pair in GRID),
        hidden=past if hide_seen else None, packed=model.packed, by_tie=model.by_tie,
        threads=threads,
    )  # fmt: skip
    for top in tops:
        yield evaluate_ranking(top, *test, len(model.item_ids), ks=(k,))[1][metric]


def fixed() -> dict[str, Any]:
    """Return what a run takes that has no validation data to choose by."""
    return {"scale": SCALE, "floor": FLOOR, "by": "default"}


def taken_from(folder: Path) -> dict[str, Any]:
    """Return what an evaluated model chose."""
    chosen = artefact.read_manifest(folder).get("training", {}).get("counting")
    if not isinstance(chosen, dict):
        raise ModelError(
            f"'{folder}' was trained without the counting term, so that it has not chosen how"
            " strong it is: give a model trained with --set counting=true, or leave counting out"
        )
    numbers = [chosen.get(name) for name in ("scale", "floor")]
    for number, least in zip(numbers, LEAST, strict=True):
        if not isinstance(number, float) or not least <= number <= LARGEST:
            raise ModelError(
                f"'{folder / artefact.MANIFEST}': training.counting has {number!r} for scale or"
                f" floor, expected a number from {least:g} to {LARGEST:g}: train again"
            )
    return {"scale": numbers[0], "floor": numbers[1], "by": "evaluated model"}


def words(chosen: dict[str, Any]) -> str:
    """Say in a line how strong the counting term is, and why."""
    numbers = f"scale {chosen['scale']:g}, floor {chosen['floor']:g}"
    if chosen["by"] != "validation":
        return f"counting: {numbers} ({WHY[chosen['by']]})"
    metric = chosen["metric"].upper()
    return (
        f"counting: {numbers}, validation {metric} {chosen['fused']:.2%}"
        f" instead of {chosen['alone']:.2%}"
    )
