"""What every model is: vectors of histories against vectors of items."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from hcarec import artefact
from hcarec.config import ModelConfig
from hcarec.errors import ConfigError, ModelError
from hcarec.ids import Ids
from hcarec.ops.parameters import Theta, Trained
from hcarec.sequences import Sequences
from hcarec.ties import in_order, tie_rank
from hcarec.topk import Catalogue, Ragged, pack, rank

CHUNK = 1024
"""Users trained between two looks at the clock, at Ctrl-C and at the loss."""


class Progress(NamedTuple):
    """Where training stands after a chunk of users: `position` of `n_users` in `epoch`, with sums over the epoch so far."""

    epoch: int
    position: int
    n_users: int
    loss: float
    l2: float
    steps: int
    without_negative: int


class Recommendation(NamedTuple):
    """One recommended item; `basis` says what it rests on: the history (personal) or all users' (popular)."""

    item: str | int
    score: float
    basis: str
    title: str


class Model(ABC):
    """A recommender whose score is the product of a history's vector and an item's vector.

    `theta` holds the parameters by the paper's letters, `item_ids` the catalogue in row order, `titles` and `fields` what is
    known of it, `item_events` (n_items,) how often each item occurs in training, `about` what model.json says beside the configuration.
    """

    name: ClassVar[str]
    basis: ClassVar[str] = "personal"

    def __init__(self, **settings: Any) -> None:
        self.config = ModelConfig(model=self.name, **settings)
        self.theta: Theta = {}
        self.item_ids, self.titles, self.user_ids = Ids.of([]), None, None  # type: tuple[Ids, Ids | None, Ids | None]
        self.fields: dict[str, Ids] = {}
        self.item_events = np.zeros(0, np.int64)
        self.about: dict[str, Any] = {}

    # -- what models differ in -----------------------------------------------------------------------------------

    @abstractmethod
    def initialise(self, n_users: int, seed: int) -> None:
        """Draw the first values of all parameters; the catalogue is known."""

    @abstractmethod
    def encode(self, items: np.ndarray, offsets: np.ndarray, users: np.ndarray | None = None, threads: int | None = None) -> np.ndarray:
        """Return the vectors (n, d) of histories given as packed items; `users` (n,) are their indices in training, where known."""

    def train_users(self, items: np.ndarray, offsets: np.ndarray, order: np.ndarray, seed: int, epoch: int) -> Trained:
        """Train on the users of `order`, one step each."""
        raise ConfigError(f"{self.config.title} does not learn in epochs")

    # -- learning ------------------------------------------------------------------------------------------------

    def adopt(self, data: Sequences, items: np.ndarray) -> None:
        """Take over the catalogue of a data set and count the items (n,) of its training part."""
        self.item_ids, self.titles, self.fields = data.item_ids, data.titles, data.fields
        self.item_events = np.bincount(items, minlength=data.n_items).astype(np.int64)
        self._packed = None
        for made in ("tie_rank", "by_tie"):  # for the catalogue before
            self.__dict__.pop(made, None)

    def epochs(self, part: Any, seed: int, at: Progress | None = None) -> Iterator[Progress]:
        """Train epoch by epoch, yielding after every chunk of users; `at` goes on from where an earlier run stood.

        Epochs count from 1. Chunks begin at fixed places, so that a run gives the same bits however often it is interrupted.
        """
        from hcarec.ops.negatives import epoch_order

        n_users = len(part.offsets) - 1
        first = at.epoch if at else 1
        for epoch in range(first, self.config.epochs + 1):
            now = at if at and epoch == first else Progress(epoch, 0, n_users, 0.0, 0.0, 0, 0)
            order = epoch_order(n_users, seed, epoch)
            while now.position < n_users:
                chunk = order[now.position : now.position + CHUNK]
                done = self.train_users(part.items, part.offsets, chunk, seed, epoch)
                self._packed = None
                if done.bad_position >= 0:
                    raise RanAway(epoch, int(chunk[done.bad_position]), done.bad_step)
                now = Progress(epoch, now.position + len(chunk), n_users, now.loss + done.loss, now.l2 + done.l2, now.steps + done.steps,
                               now.without_negative + done.without_negative)  # fmt: skip
                yield now

    def fit(self, data: Sequences, *, epochs: int | None = None, seed: int = 0, progress: Callable[[Progress], None] | None = None) -> Self:
        """Train on all of `data`; for splits, selection and checkpoints use `hcarec.training`."""
        if epochs is not None:
            self.config = replace(self.config, epochs=epochs)
        self.adopt(data, np.asarray(data.items))
        self.initialise(data.n_users, seed)
        if self.config.trains:
            for now in self.epochs(data, seed):
                if progress:
                    progress(now)
        self.about = {"data": {"fingerprint": data.fingerprint}, "seed": seed}
        return self

    def complete(self, trained: Ragged, history: Ragged) -> None:  # noqa: B027 - most models have nothing to do
        """Learn what users need who have a history (packed items, offsets) but no training event, where a model knows users one by one."""

    # -- recommending --------------------------------------------------------------------------------------------

    @cached_property
    def tie_rank(self) -> np.ndarray:
        """The order of items with equal scores, (n_items,) int32."""
        return tie_rank(self.item_ids.blob, self.item_ids.offsets)

    @cached_property
    def by_tie(self) -> np.ndarray:
        """The items in that order, (n_items,) int32; to make it anew for every ranking would take longer than the ranking."""
        return in_order(self.tie_rank)

    @property
    def item_vectors(self) -> np.ndarray:
        """The vectors of all items, (n_items, d) float32."""
        return self.theta["X"]

    def top(
        self, H: np.ndarray, k: int, hidden: Ragged | None = None, allowed: np.ndarray | None = None, threads: int | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the k best items (n, k) of every vector (n, d) and their scores; -1 where there are fewer."""
        if self._packed is None:
            self._packed = pack(self.item_vectors)
        k = min(k, len(self.item_ids))
        found = rank(H, self.item_vectors, self.tie_rank, k, hidden=hidden, allowed=allowed, packed=self._packed, by_tie=self.by_tie, threads=threads)
        return found.items, found.scores

    _packed: Catalogue | None = None

    def popular(self, k: int, hidden: Ragged | None = None, allowed: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return the k items that occur most in training, (1, k), and how often."""
        found = rank(
            np.ones((1, 1), np.float32), self.item_events.astype(np.float32)[:, None], self.tie_rank, min(k, len(self.item_ids)), hidden=hidden, allowed=allowed
        )
        return found.items, found.scores

    def recommend(
        self, history: Sequence[str | int], k: int = 10, *, hide_seen: bool = False, allow: Sequence[str | int] | None = None, deny: Sequence[str | int] = ()
    ) -> list[Recommendation]:
        """Recommend what comes next after a history of outside ids, oldest first; unknown items are skipped."""
        check_k(k)
        known = np.array([index for item in history if (index := self.item_ids.find(item)) >= 0], np.int32)
        hidden = (np.unique(known), np.array([0, len(np.unique(known))])) if hide_seen else None
        allowed = self.mask(allow, deny)
        if len(known) and self.basis != "popular":
            items, scores = self.top(self.encode(known, np.array([0, len(known)])), k, hidden, allowed)
            basis = self.basis
        else:
            (items, scores), basis = self.popular(k, hidden, allowed), "popular"
        return self.named(items[0], scores[0], basis)

    def named(self, items: np.ndarray, scores: np.ndarray, basis: str) -> list[Recommendation]:
        """Turn indices into outside ids and names."""
        pairs = zip(items.tolist(), scores.tolist(), strict=True)
        return [Recommendation(self.item_ids[item], score, basis, self.title(item)) for item, score in pairs if item >= 0]

    def mask(self, allow: Sequence[str | int] | None, deny: Sequence[str | int]) -> np.ndarray | None:
        """Return which items may be recommended, (n_items,) bool, or None where all may; ids that are not in the catalogue change nothing."""
        if allow is None and not deny:
            return None
        allowed = np.full(len(self.item_ids), allow is None)
        for ids, value in ((allow or (), True), (deny, False)):
            allowed[[index for item in ids if (index := self.item_ids.find(item)) >= 0]] = value
        return allowed

    def similar_items(self, item: str | int, k: int = 10) -> list[Recommendation]:
        """Return the items whose vectors point in the most similar direction, by cosine."""
        check_k(k)
        index = self.item_ids.index(item)
        X = self.item_vectors.astype(np.float32)
        X = X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), np.float32(1e-12))
        found = rank(X[index : index + 1], X, self.tie_rank, min(k, len(X)), hidden=(np.array([index], np.int32), np.array([0, 1])))
        return self.named(found.items[0], found.scores[0], "similar")

    def title(self, item: int) -> str:
        """Return an item's name where there is one, else its id."""
        name = self.titles.text(item) if self.titles is not None else ""
        return name or self.item_ids.text(item)

    # -- on disk -------------------------------------------------------------------------------------------------

    def save(self, path: str | Path, log: bytes = b"") -> None:
        """Write the model as a folder, atomically."""
        artefact.write(
            Path(path),
            artefact.Contents(self.config, self.theta, self.item_ids, self.titles, self.item_events, self.user_ids, dict(self.about), log, self.fields),
        )

    def restore(self, contents: artefact.Contents) -> Self:
        """Take over what a folder holds."""
        self.config, self.theta = contents.config, contents.theta
        self.item_ids, self.titles, self.item_events, self.user_ids = contents.item_ids, contents.titles, contents.item_events, contents.user_ids
        self.about, self.fields = contents.about, contents.fields
        return self

    def __repr__(self) -> str:
        return f"{self.config.title} (d {self.config.d}, {len(self.item_ids):,} items)"


class RanAway(ModelError):
    """A loss that turned into nonsense; `user` is the index in the training data."""

    def __init__(self, epoch: int, user: int, step: int) -> None:
        super().__init__(
            f"training ran away in epoch {epoch} at user {user}, step {step}: the loss is not finite or far too large;"
            " try a smaller learning rate (--set learning_rate=..) or a larger l2 (--set l2=..)"
        )
        self.epoch, self.user, self.step = epoch, user, step


def check_k(k: int) -> None:
    """Refuse a number of recommendations that makes no sense."""
    if not isinstance(k, int) or k < 1:
        raise ConfigError(f"k is {k!r}: give a whole number of at least 1")
