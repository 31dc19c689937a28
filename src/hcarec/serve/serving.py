"""A model made ready to answer: loaded, checked, compiled, and with everything at hand that an answer needs."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from hcarec import artefact, topk
from hcarec.errors import DataError, ModelError
from hcarec.models import Model, load
from hcarec.models.base import Recommendation, check_k
from hcarec.serve.codec import Codec, Rows
from hcarec.serve.messages import ModelInfo
from hcarec.serve.search import Names
from hcarec.topk import Queries

REPLAYED_AT_ONCE = 4096
"""Events of a user taken in at once: the work space of the network grows with them."""
NOTHING = np.zeros(0, np.int32)


class Serving:
    """A model, and what is made of it once.

    `name` is the beginning of its hash. `key` names the states made by it: they depend on parameters, catalogue, what a state is and
    on how it is stored. `stateful` says whether there are states at all; the other models look at the whole log. `folder` is
    what the model's folder is called.
    """

    folder = "model"

    def __init__(self, model: Model, digest: str, half_states: bool = False) -> None:
        if not len(model.item_ids):
            raise ModelError("the model has no items, so there is nothing to recommend: train it on data with events")
        self.model, self.name = model, digest[:12]
        self.stateful = model.state_dtype is not None
        key = hashlib.sha256(f"{digest} {model.state_dtype} {half_states} ".encode())
        for array in (model.item_ids.offsets, model.item_ids.blob):
            key.update(np.ascontiguousarray(array).tobytes())
        self.key = key.hexdigest()
        if self.stateful:
            self.codec = Codec(model)
            self.blank = self.codec.encode(self.codec.decode([None]))[0]
            self._stored = Codec(model, half=True) if half_states else self.codec
        self._warm()

    @classmethod
    def load(cls, folder: Path, half_states: bool = False) -> Serving:
        """Load a model from its folder and make it ready, or fail with `ModelError`."""
        digest = artefact.model_hash(folder)
        model = load(folder)
        if artefact.model_hash(folder) != digest:
            raise ModelError(f"'{folder}' changed while it was read: try again when it is whole")
        made = cls(model, digest, half_states)
        made.folder = Path(os.path.abspath(folder)).name
        return made

    def _warm(self) -> None:
        """Touch everything that is made on first use, so that no answer waits for it."""
        topk.warm()
        self.find("")
        self.popular(1)
        queries = self.queries([None], [np.zeros(1, np.int32)])
        items, scores = self.model.top(queries, 1)
        if not (np.isfinite(queries.vectors).all() and np.isfinite(scores).all() and (items >= 0).all()):
            raise ModelError("the model's scores are not numbers: it has diverged, train it again with a lower learning rate")

    @property
    def info(self) -> ModelInfo:
        """What an answer to a swap says."""
        return ModelInfo(self.name, self.model.config.title, len(self.model.item_ids))

    def find(self, item: str) -> int:
        """Return the index of an item, or -1."""
        return self.model.item_ids.find(item)

    def known(self, items: Sequence[str]) -> np.ndarray:
        """Return the indices of those items that the model knows, in order."""
        return np.array([index for item in items if (index := self.find(item)) >= 0], np.int32)

    # -- histories to queries ------------------------------------------------------------------------------------

    def advance(self, rows: Sequence[bytes | None], items: Sequence[np.ndarray]) -> list[bytes]:
        """Let every user's state take in some events, and return the new rows."""
        return self.codec.encode(self._advanced(rows, items))

    def _advanced(self, rows: Sequence[bytes | None], items: Sequence[np.ndarray]) -> Rows:
        """Let states take in events: the bits do not depend on who else is there or on how the events are cut into pieces."""
        states, counts = self.codec.decode(rows)
        lengths = np.array([len(each) for each in items], np.int64)
        for begin in range(0, int(lengths.max(initial=0)), REPLAYED_AT_ONCE):
            parts = [each[begin : begin + REPLAYED_AT_ONCE] for each in items]
            self.model.advance(states, np.concatenate(parts).astype(np.int32), np.cumsum([0, *map(len, parts)]))
        return Rows(states, counts + lengths)

    def queries(self, rows: Sequence[bytes | None], items: Sequence[np.ndarray]) -> Queries:
        """Return the queries of users: of their states after some more events, or what a model without states makes of all events."""
        if not self.stateful:
            return self.model.encode(np.concatenate(items).astype(np.int32), np.cumsum([0, *map(len, items)]))
        return self.model.queries(self._advanced(rows, items).states)

    def counts(self, rows: Sequence[bytes | None]) -> list[int]:
        """Return how many events each row has taken in."""
        return [0 if row is None else int.from_bytes(row[:8], "little") for row in rows]

    def to_store(self, rows: Sequence[bytes]) -> list[bytes]:
        """Return rows as they are stored."""
        return list(rows) if self._stored is self.codec else self._stored.encode(self.codec.decode(rows))

    def from_store(self, row: bytes | None) -> bytes | None:
        """Return a row that was stored, or None where it cannot be used."""
        if not self.stateful or (row := self._stored.checked(row)) is None:
            return None
        return row if self._stored is self.codec else self.codec.encode(self._stored.decode([row]))[0]

    # -- items without a user ------------------------------------------------------------------------------------

    @cached_property
    def _popular(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """All items, the most frequent in training first, the place of each in this order, and their scores; as `Model.popular` has it."""
        scores = self.model.item_events.astype(np.float32)
        order = np.lexsort((self.model.tie_rank, -scores)).astype(np.int32)
        return order, np.argsort(order), scores

    def popular(self, k: int, hidden: np.ndarray = NOTHING, allowed: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return up to k of the most frequent items that are not hidden, and how often they occur."""
        order, places, scores = self._popular
        if allowed is not None:
            order = allowed[np.argsort(places[allowed])]
        first = order[: k + len(hidden)]
        items = first[~np.isin(first, hidden)][:k] if len(hidden) else first[:k]
        return items, scores[items]

    @cached_property
    def names(self) -> Names:
        """What items are searched by; made when somebody searches."""
        return Names(self.model, self._popular[0])

    def similar(self, item: str, k: int) -> list[Recommendation]:
        """Return what `Model.similar_items` does."""
        check_k(k)
        return self.model.named(*self.model.similar(self.index(item), k), "similar")

    def index(self, item: str) -> int:
        """Return the index of an item, or fail without looking through the whole catalogue for one that is spelled alike."""
        if (index := self.find(item)) < 0:
            raise DataError(f"item {item!r} is not among the {len(self.model.item_ids):,} items of the model: give one that is")
        return index
