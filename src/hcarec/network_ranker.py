"""Encode histories and rank the catalog on a device, by the network that torch trains.

It needs torch alone; a model with a counting term also needs numba, which reads its table on the CPU.
Scores are those of the model's own engine but for rounding: relative differences of about 1e-6, so
that ranks may differ where scores are as close as that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hcarec import hardware
from hcarec.models.network import NetworkModel
from hcarec.ops.hca.copying import trimmed
from hcarec.ops.hca.shards import one_torch_thread
from hcarec.ops.rank import torch as device_rank
from hcarec.ops.rank.corrections import Corrections
from hcarec.rankers import Asked, Ranked
from hcarec.topk import Queries

EVENTS = 1 << 17
"""Events of a batch of histories, padding included."""


class NetworkRanker:
    """Ranks by a model's differentiable network, with the model's parameters as they are.

    A counting term joins what the network says.
    """

    def __init__(self, model: NetworkModel, device: str, threads: int | None = None) -> None:
        self._device = torch.device(device)
        self._network = model.differentiable(threads or hardware.cores())
        self._network.to(self._device).eval()
        self._counting_term, self._threads = model.counting_term, threads
        self._tie_rank = self._on_device(model.tie_rank)
        with torch.no_grad():
            self._item_vectors = self._network.item_vectors().float()

    @property
    def n_items(self) -> int:
        return len(self._item_vectors)

    def rank(self, asked: Asked, k: int, *, hide_seen: bool, exact: bool) -> Ranked:
        H, corrections = self.encode(*(asked.read or asked.past))
        past, test = self._ragged(asked.past), self._ragged(asked.test)
        both = np.stack([asked.test[0], np.maximum(asked.drawn, 0)], axis=1)  # one after the other
        how: dict[str, Any] = {"pairs": self._ragged((both.ravel(), 2 * asked.test[1]))}
        if exact:
            how |= {"test": test, "exclude": past}
        if corrections is not None:
            how["corrections"] = device_rank.Corrections(*map(self._on_device, corrections))
        found = device_rank.rank(
            self._on_device(H), self._item_vectors, self._tie_rank, k,
            hidden=past if hide_seen else None, **how,
        )  # fmt: skip
        test_scores, drawn_scores = _array(found.pair_scores).reshape(-1, 2).T
        negative_scores = np.where(asked.drawn >= 0, drawn_scores, np.nan)
        counts = (_array(found.below), _array(found.n_negatives)) if exact else (None, None)
        return Ranked(_array(found.items), test_scores, negative_scores, *counts)

    def encode(self, items: np.ndarray, offsets: np.ndarray, users: np.ndarray | None = None) -> Queries:
        """Return the queries of n histories given as packed items."""
        queries = self._encode(items, offsets)
        if self._counting_term is None:
            return queries
        return self._counting_term.add(queries, (items, offsets), self._threads)

    @torch.no_grad()
    def _encode(self, items: np.ndarray, offsets: np.ndarray) -> Queries:
        """Return what the network makes of n histories."""
        lengths = np.diff(offsets)
        if self._network.most_events is not None:
            lengths = np.minimum(lengths, self._network.most_events)
        begins = offsets[1:] - lengths
        order = np.argsort(-lengths, kind="stable")
        with one_torch_thread(), device_rank.ieee_products():
            found = [self._encode_batch(items, begins[rows], lengths[rows]) for rows in _batches(order, lengths)]
        back = np.argsort(order)
        H = np.concatenate([vectors for vectors, _ in found])[back]
        corrections = [part for _, part in found if part is not None]
        return Queries(H, Corrections.join(corrections).take(back) if corrections else None)

    def _encode_batch(self, items: np.ndarray, begins: np.ndarray, lengths: np.ndarray) -> Queries:
        """Return the queries of a batch of histories."""
        steps = np.arange(max(1, int(lengths.max(initial=0))))
        places = np.where(steps < lengths[:, None], begins[:, None] + steps, 0)
        padded = self._on_device(items[places].astype(np.int64) if len(items) else 0 * places)
        sizes, rows = self._on_device(lengths), torch.arange(len(lengths), device=self._device)
        last = sizes - 1
        o = self._network(padded, sizes)[rows, last]
        corrections = self._network.corrections(padded, rows, last, o)
        if corrections is not None:
            corrections = Corrections(*map(_array, trimmed(corrections)))
        return Queries(_array(self._network.queries(o)), corrections)

    def _on_device(self, array: np.ndarray) -> Tensor:
        return torch.tensor(array, device=self._device)  # a copy: the array may be read-only

    def _ragged(self, ragged: tuple[np.ndarray, np.ndarray]) -> tuple[Tensor, Tensor]:
        return self._on_device(ragged[0]), self._on_device(ragged[1])


def _batches(order: np.ndarray, lengths: np.ndarray) -> Iterator[np.ndarray]:
    """Cut histories, the longest first, into batches of at most EVENTS events."""
    begin = 0
    while begin == 0 or begin < len(order):
        longest = int(lengths[order[begin]]) if len(order) else 0
        end = begin + max(1, EVENTS // max(1, longest))
        yield order[begin:end]
        begin = end


def _array(tensor: Tensor) -> np.ndarray:
    array: np.ndarray = tensor.cpu().numpy()
    return array
