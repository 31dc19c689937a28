"""SASRec: self-attention over the last events."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np

from hcarec.errors import ConfigError
from hcarec.models.counting_term import LAST
from hcarec.models.engines import Engine, sas_engine
from hcarec.models.network import NetworkModel
from hcarec.ops.sas import parameters
from hcarec.settings import MinibatchOptions, MinibatchSettings, NetworkSettings, choice, flag, number, whole

EXPLAINED = 20
"""Events that an explanation leaves out one by one; all that are read would be more than anybody looks at."""


@dataclass(frozen=True, kw_only=True)
class SASRecSettings(NetworkSettings):
    """A transformer over the last events; how many is the trainer's `length`."""

    d: int = whole(64, 1, 65536)
    """Size of item and hidden vectors."""
    blocks: int = whole(2, 1, 16)
    """Blocks of self-attention and FFN."""
    heads: int = whole(2, 1, 1024)
    """Heads of the self-attention; they share the d numbers of a vector evenly."""
    ffn: int = whole(4, 1, 64)
    """Width of a block's FFN in multiples of d."""
    item_norm: bool = flag(False)
    """LayerNorm on item vectors."""
    output_norm: bool = flag(True)
    """LayerNorm on outputs."""
    scores: str = choice("dot", ("dot", "cosine"))
    """Product of output and item vector, or of their directions times a learned temperature."""
    copy_window: int = whole(0, 0, 1000)
    """Last events whose items the copy term raises, at most the trainer's `length`; 0 turns it off."""
    counting: bool = flag(False)
    """Add to the scores what followed the last five events in the log, as `markov` counts it; how strongly is chosen on validation data after training."""
    input_dropout: float = number(0.2, 0.0, 0.99)
    """Share of the inputs that is dropped in training."""
    hidden_dropout: float = number(0.2, 0.0, 0.99)
    """Share that is dropped of what attention and FFN add inside a block."""
    output_dropout: float = number(0.0, 0.0, 0.99)
    """Share of the outputs that is dropped."""
    initial: str = choice("scaled", ("paper", "scaled"))
    """First values: scaled to the size of each matrix, with blocks and positions at zero effect, or uniform as the paper's."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.d % self.heads:
            raise ConfigError(f"d is {self.d}, which {self.heads} heads cannot share evenly: give a d that is a multiple of heads")

    @property
    def title(self) -> str:
        return "SASRec"


class SASRecOptions(MinibatchOptions, total=False):
    """What `SASRec` may be made with."""

    d: int
    blocks: int
    heads: int
    ffn: int
    item_norm: bool
    output_norm: bool
    scores: str
    copy_window: int
    counting: bool
    input_dropout: float
    hidden_dropout: float
    output_dropout: float
    initial: str


class SASRec(NetworkModel):
    """Self-attention over a user's last `length` events, trained by mini-batches."""

    name = "sasrec"
    Network = SASRecSettings
    trainers = ("minibatch",)

    def __init__(self, /, **settings: Unpack[SASRecOptions]) -> None:
        super().__init__(**settings)
        if self.settings.copy_window > self.length:
            raise ConfigError(f"copy_window is {self.settings.copy_window}, but {self.name} reads the last {self.length} events: give at most its length")
        if self.settings.counting and self.length < LAST:
            raise ConfigError(f"length is {self.length}, but counting reads the last {LAST} events: give a length of at least {LAST}, or counting=false")

    @property
    def settings(self) -> SASRecSettings:
        """Return the settings of the network."""
        assert isinstance(self.config.network, SASRecSettings)
        return self.config.network

    @property
    def length(self) -> int:
        """Return how many of the last events are read."""
        assert isinstance(self.config.training, MinibatchSettings)
        return self.config.training.length

    @property
    def network(self) -> parameters.Network:
        """Return what the network computes, as the operations take it."""
        options = {name: value for name, value in dataclasses.asdict(self.settings).items() if name != "counting"}
        return parameters.Network(length=self.length, **options)

    def shapes(self, n_items: int, n_users: int) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the network's parameters."""
        return parameters.shapes(self.network, n_items)

    def initialize(self, items: np.ndarray, offsets: np.ndarray, seed: int, threads: int | None = None) -> None:
        """Draw all parameters."""
        self.theta = parameters.initialize(self.network, len(self.item_ids), seed)

    def operations_per_event(self, n_items: int, n_users: int) -> float:
        """Return six for each parameter of a block, and for each number of the queries, keys and values that meet in its attention."""
        own, outside = self.shapes(n_items, n_users), ("X", "P")
        dense = sum(float(np.prod(shape)) for name, shape in own.items() if name not in outside)
        return 6.0 * (dense + self.settings.blocks * self.length * self.settings.d)

    def differentiable(self, threads: int) -> Any:
        """Return the network as torch trains it."""
        from hcarec.ops.sas.torch import SASNetwork

        return SASNetwork(self.network, self.theta, threads)

    def make_engine(self) -> Engine:
        """Make the engine of the network."""
        return sas_engine(self.theta, self.network)

    @property
    def explained_events(self) -> int:
        """Return the last of the events that are read."""
        return min(EXPLAINED, self.length)
