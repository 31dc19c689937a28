"""Counts and sizes of a running service."""

from __future__ import annotations

from typing import Any

from hcarec.serve.live import Live
from hcarec.serve.serving import Serving
from hcarec.serve.workers import RankThread, StoreThread


def figures(live: Live, store: StoreThread, ranker: RankThread) -> dict[str, Any]:
    """Return what there is to say about model, store and threads; the sizes of the store are about a second old."""
    upkeep, serving = store.upkeep, live.serving
    assert upkeep is not None
    return {
        **serving.info._asdict(),
        **upkeep.figures._asdict(),
        "states": _by_model(upkeep.figures.states, serving),
        "store_down": store.unreachable,
        "store_not_durable": store.trouble is not None,
        "store_wait_seconds": store.waited_s,
        "store_failures": store.failures,
        "users_in_memory": len(live.people),
        "unsaved_states": len(live.unsaved),
        "replays": live.replays,
        "rebuilding": upkeep.sweeping,
        "waiting_events": store.waiting,
        "waiting_asks": ranker.inbox.waiting,
        "refused": store.refused + ranker.inbox.refused,
        "batches": ranker.batches,
        "ranked": ranker.ranked,
    }


def _by_model(states: dict[str, int], serving: Serving) -> dict[str, int]:
    """Return the states of the model being served under its name, and together those of others: of these only the keys are known."""
    own = states.get(serving.key, 0)
    others = sum(states.values()) - own
    return {serving.name: own} | ({"others": others} if others else {})
