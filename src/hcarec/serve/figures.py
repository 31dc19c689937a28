"""Counts and sizes of a running service."""

from __future__ import annotations

from typing import Any

from hcarec.serve.live import Live
from hcarec.serve.workers import RankThread, StoreThread


def figures(live: Live, store: StoreThread, ranker: RankThread) -> dict[str, Any]:
    """Return what there is to say about model, store and threads; the sizes of the store are about a second old."""
    upkeep = store.upkeep
    assert upkeep is not None
    return {
        **live.serving.info._asdict(),
        **upkeep.figures._asdict(),
        "store_down": store.down,
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
