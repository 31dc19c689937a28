"""Training by mini-batches, as it is done today: AdamW, a schedule, averaged weights."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from hcarec import devices, hardware
from hcarec.data.split import Part
from hcarec.errors import ConfigError
from hcarec.hardware import Cost
from hcarec.models import Model
from hcarec.ops.hca.shards import one_torch_thread
from hcarec.ops.loss.torch import choose_backend, default_backend
from hcarec.ops.parameters import Theta
from hcarec.ops.rank.torch import default_backend as ranking_backend
from hcarec.ops.transfer import Send, to_device
from hcarec.settings import MinibatchSettings, RunSettings, TrainerSettings
from hcarec.training import minibatch_cost
from hcarec.training.batches import Batch, Batches, shape_of
from hcarec.training.graphs import Graphs
from hcarec.training.objective import Objective, narrow
from hcarec.training.trainer import Diverged, Progress, Trainer, TrainerState

REPORT = 16
"""Batches between two reports of progress, where checkpoints may be written."""
BOUND = 1e4
"""A mean loss above this has diverged."""
ADVICE = (
    "try a smaller learning rate (--set learning_rate=..) or a longer warm-up (--set warmup=..)"
)
WHOLE_CATALOG = 300_000
"""Items up to which every one is a negative at every step."""
MOMENTS = ("exp_avg", "exp_avg_sq")
"""What AdamW remembers of every parameter."""


class Inputs(NamedTuple):
    """What a step reads: a batch on the device, how it is laid out, and two numbers.

    The numbers, float64, are the learning rate and the share by which averaged parameters move.
    """

    items: Tensor
    rows: Tensor
    steps: Tensor
    targets: Tensor
    numbers: Tensor
    packings: Sequence[Any]


class Minibatch(Trainer):
    """Learns a model's differentiable network.

    Batches, dropout and negatives are pure functions of seed, epoch and step, so that parameters,
    moments, averages and the position are the whole state.
    """

    name = "minibatch"

    def __init__(self, model: Model, part: Part, run: RunSettings) -> None:
        super().__init__(model, part, run)
        assert isinstance(model.config.training, MinibatchSettings)
        self.settings: MinibatchSettings = model.config.training
        self.device = torch.device(run.device)
        if self.settings.precision != "float32" and self.device.type == "cpu":
            raise ConfigError(
                f"precision is {self.settings.precision}, which is for GPUs, and this run computes"
                " on the CPU: give --set precision=float32, or --device cuda"
            )
        threads = run.threads or hardware.cores()
        self.network = model.differentiable(threads).to(self.device)
        self.named: dict[str, Tensor] = self.network.named()
        self.learning_rate = torch.zeros((), device=self.device)
        self.optimizer = self._make_optimizer()
        self.averages = (
            {name: value.detach().clone() for name, value in self.named.items()}
            if self.settings.ema
            else {}
        )
        backend = self._loss_backend()
        self.objective = Objective(self.settings, model.item_events, self.device, threads, backend)
        self.graphs: Graphs[Inputs] | None = None
        # Layers in plain torch go by lengths that the host knows: no two batches are the same work.
        layers = model.backends(self.device.type).get("layers", "triton")
        if self.device.type == "cuda" and self.objective.static and layers == "triton":
            self.graphs = Graphs(self.device, self._rehearse, self._take_step)
        self.loss = torch.zeros((), device=self.device)
        """The loss since the last report, summed over targets."""
        self.step = 0

    def _loss_backend(self) -> str | None:
        """Return what computes cross-entropy at this size and precision; None for other losses."""
        if self.settings.loss != "cross-entropy":
            return None
        vectors = torch.empty(1, self.named["X"].shape[1], device=self.device)
        with self._precision(), self._autocast():
            return choose_backend(vectors, vectors)

    def _make_optimizer(self) -> torch.optim.AdamW:
        """Return AdamW with its moments, which a CUDA graph must find in their places."""
        optimizer = torch.optim.AdamW(
            self._groups(),
            lr=self.learning_rate,
            fused=True,
            capturable=self.device.type == "cuda",
        )
        for value in self.named.values():
            moments = {moment: torch.zeros_like(value) for moment in MOMENTS}
            optimizer.state[value] = {"step": torch.zeros((), device=self.device), **moments}
        return optimizer

    def _groups(self) -> list[dict[str, Any]]:
        """Return the parameters by whether they decay: matrices do, the others do not."""
        decays = [value for value in self.named.values() if value.ndim > 1 and value.shape[0] > 2]
        others = [
            value for value in self.named.values() if not (value.ndim > 1 and value.shape[0] > 2)
        ]
        return [
            {"params": decays, "weight_decay": self.settings.weight_decay},
            {"params": others, "weight_decay": 0.0},
        ]

    # -- learning --------------------------------------------------------------------------------

    def epoch(self, number: int) -> Iterator[Progress]:
        one, batches = self.settings, self._batches(number)
        if self.progress.epoch != number:
            self.progress = Progress(number, 0, len(batches))
        self.network.train()
        while not self.progress.complete:
            now, targets = self.progress, 0
            last = min(now.position + REPORT, len(batches))
            with one_torch_thread(), self._precision():  # the network has threads of its own
                for place in range(now.position, last):
                    batch = batches[place]
                    self._learn(batch, one.epochs * len(batches))
                    targets += len(batch.targets)
            total = float(self.loss)  # a GPU is waited for, here and where negatives are drawn
            self.loss.zero_()
            if not total <= BOUND * max(targets, 1):
                raise Diverged(number, f"batch {last} of {len(batches)}", ADVICE)
            self.progress = now._replace(
                position=last, targets=now.targets + targets, loss=now.loss + total
            )
            yield self.progress

    def _batches(self, number: int) -> Batches:
        one = self.settings
        return Batches(
            self.part, one.batches, one.batch_size, one.length, one.positions, self.run.seed, number
        )

    def _learn(self, batch: Batch, total: int) -> None:
        """Take the step of a batch; `total` steps are planned."""
        one = self.settings
        # Early on, while parameters change most, their averages forget sooner.
        keep = min(one.ema, (2 + self.step) / (11 + self.step))
        numbers = np.array([one.learning_rate * rate(one, self.step, total), 1 - keep])
        if self.graphs is None:
            inputs = self._place(batch, numbers, partial(to_device, self.device))
            self._seed()
            self._take_step(inputs)
        else:
            shape = shape_of(batch, one.batches, one.batch_size, one.length, one.positions)
            place = partial(self._place, batch.fill(shape), numbers)
            graph = self.graphs.prepare(shape, place)
            self._seed()
            graph.replay()
        self.step += 1

    def _seed(self) -> None:
        """Begin the random numbers of a step."""
        seed = (self.run.seed * 0x9E3779B97F4A7C15 + self.step) % 2**63
        torch.default_generator.manual_seed(seed)  # manual_seed looks for all devices, at each step
        if self.device.type == "cuda":
            torch.cuda.manual_seed(seed)

    def _place(self, batch: Batch, numbers: np.ndarray, send: Send) -> Inputs:
        """Send a batch to the device; what depends on lengths is laid out on the host."""
        items, rows, steps, targets, sent = send(
            batch.items, batch.rows, batch.steps, batch.targets, numbers.view(np.int64)
        )
        packings = self.network.lay_out(batch.lengths, batch.items.shape[1], send)
        return Inputs(items, rows, steps, targets, sent.view(torch.float64), packings)

    def _loss(self, inputs: Inputs) -> Tensor:
        """Return the mean loss of a batch."""
        items, rows, steps, targets, _, packings = inputs
        X, negatives = self.named["X"], self.objective.draw()
        if negatives is not None:
            occurring, items, targets, places = narrow(items, targets, negatives.items)
            X, negatives = X.index_select(0, occurring), negatives._replace(items=places)
        with self._autocast():
            # No position is trained on twice, so no two of them add to the gradient of one row;
            # those that fill up a batch share a row, and add zeros to its gradient.
            outputs = self.network.run(items, packings, X).flatten(0, 1)
            outputs = outputs.index_select(0, rows * items.shape[1] + steps)
            corrections = self.network.corrections(items, rows, steps, outputs, X)
            queries, vectors = self.network.queries(outputs), self.network.item_vectors(X)
            return self.objective(queries, vectors, targets, corrections, negatives)

    def _rehearse(self, inputs: Inputs) -> None:
        """Compute the gradients of a batch and forget them: all kernels are compiled then."""
        self._loss(inputs).backward()  # type: ignore[no-untyped-call]
        self.optimizer.zero_grad(set_to_none=True)

    def _take_step(self, inputs: Inputs) -> None:
        """Move all parameters and averages by the gradients of a batch, and note its loss."""
        loss = self._loss(inputs)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        if self.settings.clip:
            torch.nn.utils.clip_grad_norm_(list(self.named.values()), self.settings.clip)
        learning_rate, share = inputs.numbers.float()
        self.learning_rate.copy_(learning_rate)
        self.optimizer.step()
        with torch.no_grad():
            for name, average in self.averages.items():
                average.lerp_(self.named[name], share)
            self.loss += loss.detach() * (inputs.targets >= 0).sum()

    @contextmanager
    def _precision(self) -> Iterator[None]:
        """Let products of float32 be computed as the settings say, and set back what was before."""
        if self.device.type == "cpu":
            yield
            return
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision(
            "high" if self.settings.precision == "tf32" else "highest"
        )
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)

    def _autocast(self) -> torch.autocast:
        """Return what makes the forward pass compute in bfloat16, where the settings say so."""
        low = self.settings.precision == "bfloat16"
        return torch.autocast(self.device.type, torch.bfloat16, enabled=low)

    # -- state -----------------------------------------------------------------------------------

    @property
    def parameters(self) -> Theta:
        return _arrays(self.averages or self.named)

    def state(self) -> TrainerState:
        tensors = _arrays(self.named) | {
            f"ema.{name}": array for name, array in _arrays(self.averages).items()
        }
        if self.step:
            tensors |= _arrays(self._moments())
        return TrainerState({"progress": self.progress._asdict(), "step": self.step}, tensors)

    def restore(self, state: TrainerState) -> None:
        progress, step = Progress.of(state.values["progress"]), state.values["step"]
        size = len(self._batches(max(1, progress.epoch)))
        progress.check(size)
        done = max(0, progress.epoch - 1) * size + progress.position
        if type(step) is not int or step != done:
            raise ValueError(f"it is at step {step!r}, but {done} are done")
        self._load(state)
        self.progress = progress

    def take_over(self, state: TrainerState) -> None:
        self._load(state)
        self.progress = Progress()

    @torch.no_grad()
    def _load(self, state: TrainerState) -> None:
        """Take over parameters, averages, and what the optimizer remembers after so many steps."""
        step = state.values["step"]
        averages = {f"ema.{name}": average for name, average in self.averages.items()}
        targets = self.named | averages | (self._moments() if step else {})
        if odd := sorted(state.tensors.keys() ^ targets.keys()):
            raise ValueError(f"{odd[0]} is missing, or not of this network")
        for name, target in targets.items():
            _take(name, target, state.tensors[name])
        for value in self.named.values():
            self.optimizer.state[value]["step"].fill_(step)
        self.step = step

    def _moments(self) -> dict[str, Tensor]:
        """Return what the optimizer remembers, by the names of a checkpoint."""
        return {
            f"optimizer.{name}.{moment}": self.optimizer.state[value][moment]
            for name, value in self.named.items()
            for moment in MOMENTS
        }

    # -- before ----------------------------------------------------------------------------------

    @classmethod
    def settle(
        cls, settings: TrainerSettings, n_items: int, device: str
    ) -> tuple[TrainerSettings, str | None]:
        assert isinstance(settings, MinibatchSettings)
        if settings.precision == "auto":
            settings = replace(settings, precision="float32" if device == "cpu" else "bfloat16")
        if settings.loss != "auto":
            return settings, None
        if n_items <= WHOLE_CATALOG:
            return replace(settings, loss="cross-entropy"), None
        why = f"{n_items:,} items are too many to score all of them at every step"
        note = f"the loss is sampled-softmax, against {settings.negatives:,} items a batch: {why}"
        return replace(settings, loss="sampled-softmax"), note

    @classmethod
    def choose_device(cls, asked: str) -> str:
        return devices.choose(asked)

    @classmethod
    def describe_device(cls, device: str, model: Model) -> str:
        assert isinstance(model.config.training, MinibatchSettings)
        backends = model.backends(device)
        if model.config.training.loss not in ("bpr-max", "bce"):
            in_torch = model.config.training.loss == "sampled-softmax" and device != "cpu"
            backends |= {"loss": "torch" if in_torch else default_backend(device)}
        if device == "cuda":
            backends |= {"ranking": ranking_backend(device)}
        listed = "".join(f", {what} by {name}" for what, name in backends.items())
        return f"computing on {devices.describe(device)}{listed}"

    @classmethod
    def cost(cls, model: Model, part: Part, n_items: int, threads: int) -> Cost:
        return minibatch_cost.estimate(model, part, n_items, threads)


def rate(settings: MinibatchSettings, step: int, total: int) -> float:
    """Return the share of the learning rate at a step: a rise, then 1 or a fall to 0 at `total`."""
    rising = (step + 1) / settings.warmup if step < settings.warmup else 1.0
    if settings.schedule == "constant":
        return rising
    done = min(1.0, max(0, step - settings.warmup) / max(1, total - settings.warmup))
    return rising * (
        1 - done if settings.schedule == "linear" else 0.5 * (1 + math.cos(math.pi * done))
    )


def _take(name: str, target: Tensor, array: np.ndarray) -> None:
    """Copy an array of a checkpoint, refusing one of another shape or type, or not finite."""
    if array.shape != tuple(target.shape) or array.dtype != np.float32:
        expected = f"float32 of {tuple(target.shape)}"
        raise ValueError(f"{name} is {array.dtype} of {array.shape} instead of {expected}")
    if not np.isfinite(array).all() or (name.endswith(".exp_avg_sq") and (array < 0).any()):
        raise ValueError(f"{name} has values that no training gives")
    target.copy_(torch.from_numpy(np.ascontiguousarray(array)))


def _array(tensor: Tensor) -> np.ndarray:
    array: np.ndarray = tensor.detach().float().cpu().numpy()
    return array.copy()


def _arrays(tensors: dict[str, Tensor]) -> Theta:
    return {name: _array(tensor) for name, tensor in tensors.items()}
