"""From an ask and what is known of its user to a wish that can be ranked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hcarec.errors import ConfigError
from hcarec.models.base import check_k
from hcarec.serve.live import Known
from hcarec.serve.messages import Ask, Basis
from hcarec.serve.ranking import Wish
from hcarec.serve.serving import NOTHING, Serving
from hcarec.serve.stores.records import encode


class Asked(NamedTuple):
    """A wish, what its answer will rest on, the items of the ask that the model does not know, and whether those of the history are left out."""

    wish: Wish
    basis: Basis
    skipped: list[str]
    hide_seen: bool


def check(ask: Ask) -> None:
    """Refuse an ask that makes no sense."""
    check_k(ask.k)
    if ask.user is not None:
        encode("user", ask.user)
        if ask.history is not None:
            raise ConfigError("both a user and a history are given: give one of them, and what comes after it as the visit")
    if not 0 <= ask.variety <= 1:
        raise ConfigError(f"variety is {ask.variety}: give a number from 0 (off) to 1")


def understand(ask: Ask, known: Known) -> Asked:
    """Return what is to be ranked for an ask."""
    serving, person = known
    if ask.variety > 0 and not serving.model.compares_items:
        raise ConfigError(f"variety is {ask.variety}, but {serving.model.config.title} has no item vectors to tell items apart by: leave variety out")
    history, visit = serving.known(ask.history or ()), serving.known(ask.visit)
    log = NOTHING if (whole := person.items) is None else whole
    tail = person.latest
    before = serving.counts([person.row])[0] + len(tail) if serving.stateful else len(log)
    basis = _basis(serving, before + len(history), len(visit))
    hide_seen = hides_seen(ask, serving)
    seen = np.unique(np.concatenate([log, history, visit])) if hide_seen else NOTHING
    items = np.concatenate([tail, history, visit]) if serving.stateful else np.concatenate([log, history, visit])
    wish = Wish(
        serving,
        person.row,
        items,
        before + len(history) + len(visit) > 0,
        ask.k,
        np.union1d(seen, serving.known(ask.deny)) if len(ask.deny) else seen,
        None if ask.allow is None else np.unique(serving.known(ask.allow)),
        ask.variety,
    )
    return Asked(wish, basis, skipped(serving, [*(ask.history or ()), *ask.visit]), hide_seen)


def hides_seen(ask: Ask, serving: Serving) -> bool:
    """Say whether items of the history are left out: as the ask says, or by the rule of the model."""
    return serving.model.hide_seen if ask.hide_seen is None else ask.hide_seen


def skipped(serving: Serving, items: Sequence[str]) -> list[str]:
    """Return the items that a model does not know, each once, in order."""
    return list(dict.fromkeys(item for item in items if serving.find(item) < 0))


def _basis(serving: Serving, before: int, visit: int) -> Basis:
    own = serving.model.basis
    if own != "personal":
        return "random" if own == "random" and before + visit else "popular"
    return "personal" if before else "visit" if visit else "popular"
