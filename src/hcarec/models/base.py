"""What every model is: vectors of histories against vectors of items, plus a correction of some items' scores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np

from hcarec import artefact
from hcarec.data.split import Part
from hcarec.errors import ConfigError, ModelError, either
from hcarec.hardware import Cost
from hcarec.ids import Ids
from hcarec.models.config import Config, resolve
from hcarec.ops.parameters import Theta, Trained
from hcarec.sequences import Sequences
from hcarec.settings import TRAINERS, NetworkSettings, RunSettings, UserSGDSettings
from hcarec.ties import in_order, tie_rank
from hcarec.topk import Catalogue, Queries, Ragged, pack, rank

if TYPE_CHECKING:
    from hcarec.training.trainer import Progress


class Recommendation(NamedTuple):
    """One recommended item; `basis` says what it rests on: the history (personal) or all users' (popular).

    The id has the type that it had in the log; `title` is None where it is not known.
    """

    item: str | int
    score: float
    basis: str
    title: str | None

    @property
    def label(self) -> str:
        """Return the item's title, or its id where it has none."""
        return self.title or str(self.item)


class Model(ABC):
    """A recommender whose score is the product of a history's vector and an item's vector, corrected for some items.

    `theta` holds the parameters by the paper's letters, `item_ids` the catalogue in row order, `titles` and `fields` what is
    known of it, `item_events` (n_items,) how often each item occurs in training, `about` what model.json says beside the configuration.
    Other parts ask the model for what they need; none looks at its name.
    """

    name: ClassVar[str]
    basis: ClassVar[str] = "personal"
    Network: ClassVar[type[NetworkSettings]]
    """The settings of what the model computes."""
    trainers: ClassVar[tuple[str, ...]] = ()
    """The trainers that can train it; none for a model that counts."""
    integers: ClassVar[tuple[str, ...]] = ()
    """The parameters that are whole numbers."""
    seeded: ClassVar[bool] = True
    """Whether another seed gives another model."""
    compares_items: ClassVar[bool] = True
    """Whether the directions of item vectors say which items are alike."""

    def __init__(self, /, **settings: Any) -> None:
        self.config: Config = resolve(self.name, self.Network, self.trainers, settings)
        self.theta: Theta = {}
        self.item_ids, self.titles, self.user_ids = Ids.of([]), None, None  # type: tuple[Ids, Ids | None, Ids | None]
        self.fields: dict[str, Ids] = {}
        self.item_events = np.zeros(0, np.int64)
        self.about: dict[str, Any] = {}

    @classmethod
    def setting_names(cls) -> set[str]:
        """Return the names of all settings that the model may be made with."""
        of_trainers = {name for trainer in cls.trainers for name in TRAINERS[trainer].names()}
        return {*cls.Network.names(), *of_trainers, *(("preset", "trainer") if cls.trainers else ("preset",))}

    # -- what models differ in -----------------------------------------------------------------------------------

    @abstractmethod
    def shapes(self, n_items: int, n_users: int) -> dict[str, tuple[int, ...]]:
        """Return the shape of every parameter; -1 stands for a size that the data decides."""

    @abstractmethod
    def initialize(self, items: np.ndarray, offsets: np.ndarray, seed: int, threads: int | None = None) -> None:
        """Set all parameters from the training part: their first values, or what a model that counts has counted."""

    @abstractmethod
    def encode(self, items: np.ndarray, offsets: np.ndarray, users: np.ndarray | None = None, threads: int | None = None) -> Queries:
        """Return the queries of n histories given as packed items; `users` (n,) are their indices in training, where known."""

    def train_users(self, items: np.ndarray, offsets: np.ndarray, order: np.ndarray, settings: UserSGDSettings, seed: int, epoch: int) -> Trained:
        """Train on the users of `order`, one step each."""
        raise ConfigError(f"{self.config.title} does not learn one user at a time")

    def differentiable(self, threads: int) -> Any:
        """Return what torch trains by mini-batches on so many threads, see `hcarec.ops.network.torch.SequenceNetwork`."""
        raise ConfigError(f"{self.config.title} is not trained by mini-batches")

    def backends(self, device: str) -> dict[str, str]:
        """Name what torch computes parts of the network by on a device, where that is not torch alone in any case."""
        return {}

    def warm_training(self) -> None:  # noqa: B027 - most models have nothing to do
        """Compile what `train_users` needs, or load it compiled."""

    def operations_per_event(self, n_items: int, n_users: int) -> float:
        """Return the arithmetic operations that learning from an event needs, about, forward and backward; 0 for a model that counts."""
        return 0.0

    def counting_cost(self, part: Part, n_items: int) -> Cost:
        """Estimate what it takes to count a training part, beside the parameters of known shape."""
        return Cost(0.0, 0)

    def corrected_items(self, part: Part, n_items: int) -> float:
        """Estimate how many items of a user have their scores corrected."""
        return 0.0

    @property
    def smaller(self) -> str:
        """Say what to set for a model that needs less memory."""
        return "a smaller d (--set d=..)"

    def complete(self, trained: Ragged, history: Ragged) -> None:  # noqa: B027 - most models have nothing to do
        """Take in the whole history (packed items, offsets) before the test, once training is over: what needs no epochs."""

    # -- attention -------------------------------------------------------------------------------------------------

    @property
    def windows(self) -> tuple[int, int]:
        """Return the widths of the attention on the input and on the hidden state; 1 for a level that is off."""
        return 1, 1

    @property
    def has_attention(self) -> bool:
        """Say whether there are attention weights to show."""
        return max(self.windows) > 1

    def attention(self, items: np.ndarray, last: int) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Return the weights of the last steps of a history, over inputs (n, w_x) and hidden states (n, w_h); None for a level that is off."""
        return None, None

    @property
    def explained_events(self) -> int:
        """Return how many of the last events move a score the most; 0 where the order of events does not count."""
        return 0

    # -- one event at a time -----------------------------------------------------------------------------------------

    @property
    def state_dtype(self) -> np.dtype[Any] | None:
        """Return the type of the state of a user, of constant size whatever the history; None for a model that looks at the whole log."""
        return None

    def start(self, n: int = 1) -> np.ndarray:
        """Return the states of n users before their first event, (n,) of `state_dtype`."""
        raise ConfigError(f"{self.config.title} keeps no state per user")

    def advance(self, states: np.ndarray, items: np.ndarray, offsets: np.ndarray) -> None:
        """Let every state take in a user's further events, in place; the bits do not depend on how events are cut into pieces."""
        raise ConfigError(f"{self.config.title} keeps no state per user")

    def queries(self, states: np.ndarray) -> Queries:
        """Return the queries of users in these states, bit for bit those of `encode`."""
        raise ConfigError(f"{self.config.title} keeps no state per user")

    def usable(self, states: np.ndarray) -> np.ndarray:
        """Say which states (n,), read from elsewhere, the model can go on from."""
        raise ConfigError(f"{self.config.title} keeps no state per user")

    def step(self, states: np.ndarray, items: Sequence[int] | np.ndarray) -> np.ndarray:
        """Return the states after one more event each, at a cost that does not depend on the history."""
        after = states.copy()
        self.advance(after, np.asarray(items, np.int32), np.arange(len(states) + 1))
        return after

    # -- learning ------------------------------------------------------------------------------------------------

    def set_catalog(self, data: Sequences, items: np.ndarray) -> None:
        """Take over the catalogue of a data set and count the items (n,) of its training part."""
        self.item_ids, self.titles, self.fields = data.item_ids, data.titles, data.fields
        self.item_events = np.bincount(items, minlength=data.n_items).astype(np.int64)
        for made in ("tie_rank", "by_tie"):  # for the catalogue before
            self.__dict__.pop(made, None)
        self.parameters_changed()

    def parameters_changed(self) -> None:
        """Let go of what was made of the parameters as they were."""
        self._packed = self._directions = None

    def fit(
        self,
        data: Sequences,
        *,
        epochs: int | None = None,
        seed: int = 0,
        threads: int | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> Self:
        """Train on all of `data`; for splits, selection and checkpoints use `hcarec.train`."""
        from hcarec.training.trainers import decide, fit

        run = RunSettings(seed=seed, threads=threads)
        if epochs is not None and self.config.training is not None:
            training = replace(self.config.training, epochs=epochs)
            self.config = replace(self.config, training=training, given=self.config.given | {"epochs"})
        self.set_catalog(data, np.asarray(data.items))
        if self.config.trains:
            decide(self, data)
        self.initialize(np.asarray(data.items), np.asarray(data.offsets), run.seed, run.threads)
        if self.config.trains:
            fit(self, Part(data.items, data.offsets), run.seed, progress)
            self.complete((np.asarray(data.items), np.asarray(data.offsets)), (np.asarray(data.items), np.asarray(data.offsets)))
        self.about = {"data": {"fingerprint": data.fingerprint}, "seed": run.seed}
        return self

    # -- recommending --------------------------------------------------------------------------------------------

    @property
    def hide_seen(self) -> bool:
        """Say whether items of the history are left out of recommendations, as the model was trained and evaluated."""
        protocol = self.about.get("protocol")
        return isinstance(protocol, dict) and protocol.get("seen") == "hidden"

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

    @property
    def packed(self) -> Catalogue:
        """The item vectors in the layout of the kernels, made when they are first needed."""
        if self._packed is None:
            self._packed = pack(self.item_vectors)
        return self._packed

    _packed: Catalogue | None = None
    _directions: tuple[np.ndarray, Catalogue] | None = None

    def top(
        self, queries: Queries, k: int, hidden: Ragged | None = None, allowed: np.ndarray | None = None, threads: int | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the k best items (n, k) of every query and their scores; -1 where there are fewer."""
        H, corrections = queries
        k = min(k, len(self.item_ids))
        found = rank(
            H, self.item_vectors, self.tie_rank, k,
            hidden=hidden, allowed=allowed, corrections=corrections, packed=self.packed, by_tie=self.by_tie, threads=threads,
        )  # fmt: skip
        return found.items, found.scores

    def popular(self, k: int, hidden: Ragged | None = None, allowed: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return the k items that occur most in training, (1, k), and how often."""
        found = rank(
            np.ones((1, 1), np.float32), self.item_events.astype(np.float32)[:, None], self.tie_rank, min(k, len(self.item_ids)), hidden=hidden, allowed=allowed
        )
        return found.items, found.scores

    def recommend(
        self,
        history: Sequence[str | int],
        k: int = 10,
        *,
        hide_seen: bool | None = None,
        allow: Sequence[str | int] | None = None,
        deny: Sequence[str | int] = (),
    ) -> list[Recommendation]:
        """Recommend what comes next after a history of outside ids, oldest first; unknown items are skipped.

        `hide_seen` leaves out the items of the history; None follows the model's own rule.
        """
        check_k(k)
        known = np.array([index for item in history if (index := self.item_ids.find(item)) >= 0], np.int32)
        hide = self.hide_seen if hide_seen is None else hide_seen
        hidden = (np.unique(known), np.array([0, len(np.unique(known))])) if hide else None
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
        """Return the items most like one."""
        check_k(k)
        items, scores = self.similar(self.item_ids.index(item), k)
        return self.named(items, scores, "similar")

    def similar(self, item: int, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Return up to k items whose vectors point in the most similar direction, best first, and the cosines."""
        if not self.compares_items:
            from hcarec.models import MODELS

            able = [name for name, kind in MODELS.items() if kind.basis == "personal" and (kind.compares_items or kind.similar is not Model.similar)]
            raise ConfigError(f"{self.config.title} does not know which items are alike: use {either(able)}")
        if self._directions is None:
            X = self.item_vectors.astype(np.float32)
            X = X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), np.float32(1e-12))
            self._directions = X, pack(X)
        X, packed = self._directions
        itself = np.array([item], np.int32), np.array([0, 1])
        found = rank(X[item : item + 1], X, self.tie_rank, min(k, len(X)), hidden=itself, packed=packed, by_tie=self.by_tie)
        there = found.items[0] >= 0
        return found.items[0][there], found.scores[0][there]

    def title(self, item: int) -> str | None:
        """Return an item's title, or None where it is not known."""
        return (self.titles.text(item) or None) if self.titles is not None else None

    def label(self, item: int) -> str:
        """Return an item's title, or its id where it has none."""
        return self.title(item) or self.item_ids.text(item)

    @property
    def tensors(self) -> Theta:
        """Return all that model.safetensors holds."""
        return self.theta

    def set_tensors(self, tensors: Theta) -> None:
        """Take over what model.safetensors holds; `check_parameters` follows."""
        self.theta = tensors

    # -- on disk -------------------------------------------------------------------------------------------------

    def save(self, path: str | Path, log: bytes = b"", keep_checkpoint: bool = False) -> None:
        """Write the model as a folder, atomically; `keep_checkpoint` keeps the one that is there, of the same run."""
        config, title, texts = self.config.as_dict(), self.config.title, (self.item_ids, self.titles)
        artefact.write(
            Path(path),
            artefact.Contents(config, title, self.tensors, *texts, self.item_events, self.user_ids, dict(self.about), log, self.fields),
            keep_checkpoint,
        )

    def restore(self, contents: artefact.Contents) -> Self:
        """Take over what a folder holds; parameters that do not fit are refused."""
        self.item_ids, self.titles, self.item_events, self.user_ids = contents.item_ids, contents.titles, contents.item_events, contents.user_ids
        self.about, self.fields = contents.about, contents.fields
        self.set_tensors(contents.theta)
        self.check_parameters()
        return self

    def check_parameters(self) -> None:
        """Refuse parameters that do not fit the configuration and the catalogue, or that are not finite."""
        expected = self.shapes(len(self.item_ids), len(self.user_ids or ()))
        found = {name: array.shape for name, array in self.theta.items()}
        if found.keys() != expected.keys() or not all(_fits(found[name], shape) for name, shape in expected.items()):
            raise ModelError(f"it holds {found}, but this model has {expected}")
        for name, array in self.theta.items():
            if name not in self.integers and (array.dtype not in (np.float32, np.float64) or not np.isfinite(array).all()):
                raise ModelError(f"{name} is not finite numbers (float32)")

    def __repr__(self) -> str:
        return f"{self.config.title} ({len(self.item_ids):,} items)"


def _fits(found: tuple[int, ...], expected: tuple[int, ...]) -> bool:
    return len(found) == len(expected) and all(b in (a, -1) for a, b in zip(found, expected, strict=True))


def check_k(k: int) -> None:
    """Refuse a number of recommendations that makes no sense."""
    if not isinstance(k, int) or k < 1:
        raise ConfigError(f"k is {k!r}: give a whole number of at least 1")
