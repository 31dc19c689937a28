"""HCA-GRU: a GRU with attention over the last inputs and the last hidden states."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np

from hcarec.errors import ConfigError
from hcarec.models.counting_term import LAST
from hcarec.models.engines import Engine, engine
from hcarec.models.network import NetworkModel
from hcarec.ops.hca import parameters
from hcarec.ops.parameters import Trained
from hcarec.settings import MinibatchOptions, NetworkSettings, UserSGDOptions, UserSGDSettings, choice, flag, number, whole

PAPER = ("window_x", "window_h", "d")
"""The settings of the paper's network."""
EXPLAINED = 5
"""Events that are always looked at in an explanation, however narrow the windows."""


@dataclass(frozen=True, kw_only=True)
class HCAGRUSettings(NetworkSettings):
    """The paper's network."""

    window_x: int = whole(5, 1, 1000)
    """Inputs that the attention on the input looks at, the current one among them; 1 turns the level off."""
    window_h: int = whole(5, 1, 1000)
    """Hidden states that the attention on the hidden state looks at; 1 turns the level off."""
    d: int = whole(20, 1, 65536)
    """Size of item and hidden vectors."""
    fusion: str = choice("paper", ("paper", "residual"))
    """How the contextual hidden state joins the hidden state: tanh(E h + F h_c), or h + F h_c."""
    padding: str = choice("zero", ("zero", "masked"))
    """What stands before the start of a sequence: the paper's zero rows, which keep their share of the attention, or nothing."""
    attention_x: str = choice("additive", ("additive", "dot"))
    """How inputs are scored: each by itself, as in the paper, or by a product with the current one."""
    attention_h: str = choice("additive", ("additive", "dot"))
    """How hidden states are scored."""
    blocks: int = whole(0, 0, 16)
    """Layers of a cell inside a block (residual from its input, LayerNorm, FFN); 0 is the bare cell."""
    ffn: int = whole(4, 1, 64)
    """Width of a block's FFN in multiples of d."""
    item_norm: bool = flag(False)
    """LayerNorm on item vectors."""
    output_norm: bool = flag(False)
    """LayerNorm on outputs."""
    scores: str = choice("dot", ("dot", "cosine"))
    """Product of output and item vector, or of their directions times a learned temperature."""
    copy_window: int = whole(0, 0, 1000)
    """Last events whose items the copy term raises; 0 turns it off."""
    counting: bool = flag(False)
    """Add to the scores what followed the last five events in the log, as `markov` counts it; how strongly is chosen on validation data after training."""
    input_dropout: float = number(0.0, 0.0, 0.99)
    """Share of the inputs that is dropped in training."""
    hidden_dropout: float = number(0.0, 0.0, 0.99)
    """Share that is dropped inside a block."""
    output_dropout: float = number(0.0, 0.0, 0.99)
    """Share of the outputs that is dropped."""
    initial: str = choice("paper", ("paper", "scaled"))
    """First values: the paper's, or scaled to the size of each matrix, with both levels at zero effect."""

    @property
    def title(self) -> str:
        levels = f"-x{self.window_x}" * (self.window_x > 1) + f"-h{self.window_h}" * (self.window_h > 1)
        return f"HCA-GRU{levels}" if levels else "GRU"


class HCAGRUOptions(UserSGDOptions, MinibatchOptions, total=False):
    """What `HCAGRU` may be made with."""

    window_x: int
    window_h: int
    d: int
    fusion: str
    padding: str
    attention_x: str
    attention_h: str
    blocks: int
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


class HCAGRU(NetworkModel):
    """The paper's network; `window_x` or `window_h` of 1 turns that level off."""

    name = "hca-gru"
    Network = HCAGRUSettings
    trainers = ("user-sgd", "minibatch")

    def __init__(self, /, **settings: Unpack[HCAGRUOptions]) -> None:
        super().__init__(**settings)
        if isinstance(self.config.training, UserSGDSettings) and (beyond := self._beyond_the_paper()):
            raise ConfigError(
                f"{beyond} is not the paper's, and the trainer user-sgd trains the paper's network alone: leave it out, or give --trainer minibatch"
            )

    def _beyond_the_paper(self) -> str | None:
        """Return the first setting of the network that the paper's trainer cannot train, with its value, or None."""
        plain, own = HCAGRUSettings(), self.settings
        beyond = (name for name in own.names() if name not in PAPER and getattr(own, name) != getattr(plain, name))
        return next((f"{name} {getattr(own, name)!r}" for name in beyond), None)

    @property
    def settings(self) -> HCAGRUSettings:
        """Return the settings of the network."""
        assert isinstance(self.config.network, HCAGRUSettings)
        return self.config.network

    @property
    def network(self) -> parameters.Network:
        """Return what the network computes, as the operations take it."""
        outside = ("window_x", "window_h", "counting")
        options = {name: value for name, value in dataclasses.asdict(self.settings).items() if name not in outside}
        w_x, w_h = self.windows
        return parameters.Network(w_x=w_x, w_h=w_h, last_items=LAST if self.settings.counting else 0, **options)

    @property
    def windows(self) -> tuple[int, int]:
        """Return w_x and w_h."""
        return self.settings.window_x, self.settings.window_h

    def shapes(self, n_items: int, n_users: int) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the network's parameters."""
        return parameters.shapes(self.network, n_items)

    # -- learning ------------------------------------------------------------------------------------------------

    def initialize(self, items: np.ndarray, offsets: np.ndarray, seed: int, threads: int | None = None) -> None:
        """Draw all parameters."""
        self.theta = parameters.initialize(self.network, len(self.item_ids), seed)

    def train_users(self, items: np.ndarray, offsets: np.ndarray, order: np.ndarray, settings: UserSGDSettings, seed: int, epoch: int) -> Trained:
        """Take one step per user."""
        from hcarec.ops import cpu

        w_x, w_h = self.windows
        rates = {"learning_rate": settings.learning_rate, "lam": settings.l2}
        return cpu.train_users(self.theta, items, offsets, order, seed=seed, epoch=epoch, w_x=w_x, w_h=w_h, **rates)

    def warm_training(self) -> None:
        """Compile the kernels of a step and of encoding."""
        from hcarec.ops import cpu

        cpu.warm()

    def operations_per_event(self, n_items: int, n_users: int) -> float:
        """Return six for each dense parameter: a product and a sum, forward and twice backward."""
        return 6.0 * sum(float(np.prod(shape)) for name, shape in self.shapes(n_items, n_users).items() if name != "X")

    def differentiable(self, threads: int) -> Any:
        """Return the network as torch trains it."""
        from hcarec.ops.hca.torch import HCANetwork

        return HCANetwork(self.network, self.theta, threads)

    def backends(self, device: str) -> dict[str, str]:
        """Say by what the layers are computed when torch trains them."""
        from hcarec.ops.hca.backends import default_backend

        return {"layers": default_backend(device, self.network.d)}

    def make_engine(self) -> Engine:
        """Make the paper's engine, or the one that knows today's options."""
        return engine(self.theta, self.network)

    @property
    def explained_events(self) -> int:
        """Return the events that the windows reach over."""
        return max(EXPLAINED, sum(self.windows) - 1)
