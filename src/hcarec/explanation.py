"""Explain a recommendation: what the network attended to, and what leaving each event out does to the score.

The weights are the paper's a_x and a_h (its Table 5). They say where the attention looked, not what moved the score: so the
effect of each event is measured as well, and how far the two agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from hcarec.errors import ConfigError, either
from hcarec.models import MODELS, Model
from hcarec.models.base import Recommendation
from hcarec.recommendation import unknown_items
from hcarec.topk import pair_scores

WORDS = (
    (0.7, "the weights agree well with what leaving events out does"),
    (0.3, "the weights agree in part with what leaving events out does"),
    (-0.3, "the weights agree little with what leaving events out does: do not read them as reasons"),
    (-np.inf, "the weights do not agree at all with what leaving events out does, they point the other way: do not read them as reasons"),
)
"""What a rank correlation of at least so much means."""


class Event(NamedTuple):
    """One event of the history: how much attention it got in all (None without attention), and what it did to the score."""

    item: str | int
    title: str | None
    weight: float | None
    effect: float

    @property
    def label(self) -> str:
        """Return the item's title, or its id where it has none."""
        return self.title or str(self.item)


class Explanation(NamedTuple):
    """Why an item is recommended after a history.

    `a_x`: a row of w_x weights for each step of the last hidden window, `a_h`: w_h weights; both from the oldest to the newest,
    steps before the start included, None where the level is off. `events`: the last events, oldest first. `agreement`: Spearman's
    rank correlation of weights and effects, None where there is none; `verdict` says it in words. `skipped`: unknown items.
    """

    model: str
    recommended: Recommendation
    a_x: list[list[float]] | None
    a_h: list[float] | None
    events: list[Event]
    agreement: float | None
    verdict: str
    skipped: list[str]

    @property
    def columns(self) -> int:
        """Return how many places the windows reach over: w_x + w_h - 1, or no places without attention."""
        w_x, w_h = len(self.a_x[0]) if self.a_x else 1, len(self.a_h) if self.a_h else 1
        return w_x + w_h - 1 if self.a_x or self.a_h else 0

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {
            "model": self.model,
            "item": self.recommended.item,
            "title": self.recommended.title,
            "score": self.recommended.score,
            "a_x": self.a_x,
            "a_h": self.a_h,
            "events": [event._asdict() for event in self.events],
            "agreement": self.agreement,
            "verdict": self.verdict,
            "skipped": self.skipped,
        }


def explain(model: Model, history: Sequence[str | int], item: str | int | None = None) -> Explanation:
    """Explain why `item` (by default the best one) is recommended after a history of outside ids."""
    if not model.explained_events:
        able = [name for name, kind in MODELS.items() if kind().explained_events]
        raise ConfigError(f"{model.config.title} has no attention and does not read the order of events: explain a model {either(able)}")
    skipped = unknown_items(model, history)
    known = np.array([index for one in history if (index := model.item_ids.find(one)) >= 0], np.int32)
    if not len(known):
        raise ConfigError("there is nothing to explain: no item of the history is in the model's catalogue, so the popular items are recommended")
    recommended = _recommended(model, known, item)
    a_x, a_h = attention(model, known)
    reach = model.explained_events
    weights, changes = combined(a_x, a_h, min(reach, len(known))), effects(model, known, model.item_ids.index(recommended.item), reach)
    last = known[-reach:].tolist()
    events = [Event(model.item_ids[one], model.title(one), None if weights is None else float(weights[n]), float(changes[n])) for n, one in enumerate(last)]
    agreement = None if weights is None else spearman(weights, changes)
    return Explanation(model.config.title, recommended, a_x, a_h, events, agreement, _verdict(weights, agreement, len(events)), skipped)


def _recommended(model: Model, known: np.ndarray, item: str | int | None) -> Recommendation:
    queries = model.encode(known, np.array([0, len(known)]))
    if item is None:
        hidden = (np.unique(known), np.array([0, len(np.unique(known))])) if model.hide_seen else None
        items, scores = model.top(queries, 1, hidden)
        if items[0, 0] < 0:
            raise ConfigError("there is nothing to explain: every item is in the history, and the model hides seen items; name an item")
        return model.named(items[0], scores[0], model.basis)[0]
    index = np.array([model.item_ids.index(item)], np.int32)
    scores = pair_scores(queries.vectors, model.item_vectors, index, np.array([0, 1]), corrections=queries.corrections)
    return model.named(index, scores, model.basis)[0]


def attention(model: Model, items: np.ndarray) -> tuple[list[list[float]] | None, list[float] | None]:
    """Return a_x of the last w_h steps and a_h of the last step, oldest to newest; None for a level that is off.

    Before the start of the sequence stand zero vectors, which keep their share: a step before the start has equal weights.
    """
    w_x, w_h = model.windows
    inputs, hidden = model.attention(items, last=w_h)
    before = [[1 / w_x] * w_x] * max(0, w_h - len(items))
    return None if inputs is None else [*before, *inputs.tolist()], None if hidden is None else hidden[-1].tolist()


def combined(a_x: list[list[float]] | None, a_h: list[float] | None, n: int) -> np.ndarray | None:
    """Return the attention that each of the last n events got in all, (n,): the sum over steps of a_h times a_x."""
    if a_x is None and a_h is None:
        return None
    steps = a_h or [1.0]
    inputs = a_x or [[1.0]] * len(steps)
    total = np.zeros(max(n, len(steps) + len(inputs[0]) - 1))
    for place, (step, row) in enumerate(zip(reversed(steps), reversed(inputs), strict=True)):
        end = len(total) - place
        total[end - len(row) : end] += step * np.array(row)
    return total[len(total) - n :]


def effects(model: Model, items: np.ndarray, item: int, last: int) -> np.ndarray:
    """Return for each of the last events how much lower the score of `item` is when that event is left out, (min(n, last),)."""
    n = len(items)
    without = [np.delete(items, place) for place in range(max(0, n - last), n)]
    offsets = np.cumsum([0, n, *map(len, without)])
    H, corrections = model.encode(np.concatenate([items, *without]), offsets)
    asked = np.full(len(H), item, np.int32), np.arange(len(H) + 1)
    scores = pair_scores(H, model.item_vectors, *asked, corrections=corrections).astype(np.float64)
    changes: np.ndarray = scores[0] - scores[1:]
    return changes


def spearman(a: np.ndarray, b: np.ndarray) -> float | None:
    """Return the rank correlation of two lists, ties sharing their mean rank; None under three values or where one is constant."""
    if len(a) < 3:
        return None
    ranks = [(np.searchsorted(ordered, x, "left") + np.searchsorted(ordered, x, "right")) / 2 for x in (a, b) for ordered in (np.sort(x),)]
    u, v = (rank - rank.mean() for rank in ranks)
    length = np.sqrt((u @ u) * (v @ v))
    return float(u @ v / length) if length > 0 else None


def _verdict(weights: np.ndarray | None, agreement: float | None, n: int) -> str:
    if weights is None:
        return "this model has no attention: the measured effects are all there is to read"
    if agreement is None:
        return f"too little to compare: with {n} event{'s' * (n != 1)}, or with all weights or effects equal, there is no order to agree on"
    words = next(words for least, words in WORDS if agreement >= least)
    chance = "; over so few events chance alone could give that" if abs(agreement) * np.sqrt(n - 1) < 1.96 else ""
    return f"{words} (rank correlation {agreement:+.2f} over {n} events{chance})"
