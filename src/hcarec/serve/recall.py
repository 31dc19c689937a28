"""Measure the index: how much of the true top-k it finds on the model's own vectors, and how much quicker it is."""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np

from hcarec.models import Model
from hcarec.topk import pack, rank, warm

SAMPLE, LENGTH, K = 32, 5, 20
"""Histories that are tried, items in each, and the depth of the ranking."""
NO_GAIN = 1.05
"""A ranking that is less than so many times as quick is as quick as the other, but for chance."""


class Measured(NamedTuple):
    """What part of the true top-k was found with the very same scores, and the time of a plain ranking over that of a screened one."""

    recall: float
    speedup: float
    screened: bool
    items: int

    @property
    def gains(self) -> bool:
        """Say whether the index saves time."""
        return self.speedup >= NO_GAIN


def measure(model: Model, seed: int = 0) -> Measured:
    """Rank a few histories of items drawn by frequency, once through the index and once by scoring everything."""
    draw = np.random.default_rng(seed)
    weights = model.item_events + 1.0
    items = draw.choice(len(model.item_ids), (SAMPLE, LENGTH), p=weights / weights.sum()).astype(np.int32)
    queries = model.encode(items.ravel(), np.arange(0, SAMPLE * LENGTH + 1, LENGTH))
    X, k = model.item_vectors, min(K, len(model.item_ids))
    warm()  # what is compiled or loaded now is nobody's time
    screened = pack(X)
    plain = screened._replace(codes=None)
    hits, seconds = 0, {True: 0.0, False: 0.0}
    for n in range(SAMPLE):  # one at a time, as a lone request is
        H, corrections = queries.take(np.array([n]))
        pairs: list[set[tuple[int, float]]] = []
        for catalogue in (plain, screened):
            began = time.perf_counter()
            found = rank(H, X, model.tie_rank, k, corrections=corrections, packed=catalogue, by_tie=model.by_tie)
            seconds[catalogue is screened] += time.perf_counter() - began
            pairs.append(set(zip(found.items[0].tolist(), found.scores[0].tolist(), strict=True)))
        hits += len(pairs[0] & pairs[1])
    return Measured(hits / (SAMPLE * k), seconds[False] / seconds[True], screened.codes is not None, len(model.item_ids))
