"""Training in plain torch operations, as on a GPU: the same curve as the reference, the same bits.

Everything runs on a card, where there is one, and on the CPU with the operations of a card. No test
needs Numba, so that a machine for GPUs without it can run them all.
"""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import Module, Parameter, ParameterDict
from torch.nn.functional import pad

from hcarec.data.split import Part
from hcarec.models.hca_gru import HCAGRU
from hcarec.models.sasrec import SASRec
from hcarec.ops import reference
from hcarec.ops.hca import backends, parameters, windows
from hcarec.ops.loss import sampled
from hcarec.ops.loss import torch as losses
from hcarec.ops.sas import parameters as sas
from hcarec.settings import RunSettings
from hcarec.training import minibatch, objective
from hcarec.training.minibatch import Minibatch
from hcarec.training.trainer import Trainer, TrainerState

LOSS, PARAMETERS = 1e-5, 1e-3
"""Greatest relative differences from the reference in float64, of losses and, in norm, parameters.

AdamW divides a gradient by its own size: where that is next to nothing, rounding decides.
"""
N_ITEMS = 40
PLAIN: dict[str, Any] = {
    "preset": "paper",
    "trainer": "minibatch",
    "loss": "cross-entropy",
    "d": 6,
    "window_x": 3,
    "window_h": 4,
    "length": 9,
    "batch_size": 8,
    "learning_rate": 0.01,
    "warmup": 3,
    "epochs": 2,
    "negatives": 15,
}
EVERYTHING: dict[str, Any] = {
    "fusion": "residual",
    "padding": "masked",
    "attention_x": "dot",
    "attention_h": "dot",
    "blocks": 2,
    "item_norm": True,
    "output_norm": True,
    "scores": "cosine",
    "copy_window": 5,
}
CASES: dict[str, dict[str, Any]] = {
    "paper": {},
    "gru": {"window_x": 1, "window_h": 1},
    "x-level alone": {"window_h": 1},
    "h-level alone": {"window_x": 1},
    "residual": {"fusion": "residual"},
    "masked": {"padding": "masked"},
    "dot products": {"attention_x": "dot", "attention_h": "dot"},
    "block": {"blocks": 1},
    "norms": {"item_norm": True, "output_norm": True},
    "cosine": {"scores": "cosine"},
    "copy term": {"copy_window": 4},
    "everything": EVERYTHING,
    "prefixes": EVERYTHING | {"batches": "prefixes"},
    "positions": EVERYTHING | {"batches": "positions", "positions": 3},
    "sampled softmax": EVERYTHING | {"loss": "sampled-softmax"},
    "uniform negatives": EVERYTHING | {"loss": "sampled-softmax", "sampling": "uniform"},
    "bpr-max": EVERYTHING | {"loss": "bpr-max"},
    "bce": EVERYTHING | {"loss": "bce"},
    "chunks of positions": {"copy_window": 4, "chunk": 7 * N_ITEMS},
    "schedule": {"schedule": "cosine", "clip": 0.5, "ema": 0.9, "weight_decay": 0.1},
}
DROPOUT = {"input_dropout": 0.3, "hidden_dropout": 0.2, "output_dropout": 0.1}
WIDE: dict[str, Any] = {"d": 48, "length": 40, "negatives": 500}
"""Sizes at which a GPU works in many blocks at once."""


@pytest.fixture(params=["cpu", "cuda"])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a device: a CPU with plain torch operations, or a GPU with what is its default."""
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("torch finds no GPU here")
    if request.param == "cpu":
        use_plain_operations(monkeypatch)
    return str(request.param)


def use_plain_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a CPU compute by the torch operations of a GPU."""
    for module in (backends, losses):
        monkeypatch.setattr(module, "default_backend", lambda *_: "torch")
    for name in ("sum", "dot", "spread"):
        monkeypatch.setattr(windows, f"_{name}", getattr(windows, f"{name}_in_torch"))
    for module in ("hca", "sas"):
        monkeypatch.setattr(f"hcarec.ops.{module}.layers.drop", plain_drop)


def plain_drop(x: Tensor, p: float, keys: Any) -> Tensor:
    return torch.nn.functional.dropout(x, p, training=keys is not None)


@pytest.fixture(autouse=True)
def frequent_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minibatch, "REPORT", 2)


class ReferenceNetwork(Module):
    """The network by the reference, in float64; what it returns are the scores of all items."""

    def __init__(self, network: parameters.Network, theta: dict[str, np.ndarray]) -> None:
        super().__init__()
        self.network, self.names = network, {name.replace(".", "_"): name for name in theta}
        values = {key: torch.tensor(theta[name]).double() for key, name in self.names.items()}
        self.tensors = ParameterDict({key: Parameter(value) for key, value in values.items()})

    def named(self) -> dict[str, Parameter]:
        return {name: self.tensors[key] for key, name in self.names.items()}

    def lay_out(self, lengths: np.ndarray, T: int, send: Any) -> list[int]:
        sizes: list[int] = lengths.tolist()
        return sizes

    def run(self, items: Tensor, lengths: list[int], X: Tensor) -> Tensor:
        theta: dict[str, Tensor] = {**self.named(), "X": X}
        rows = []
        for row, n in zip(items, lengths, strict=True):
            outputs = reference.network_outputs(theta, self.network, row[:n])
            scores = reference.score_all(theta, self.network, row[:n], outputs)
            rows.append(pad(scores, (0, 0, 0, len(row) - n)))
        return torch.stack(rows)

    def queries(self, o: Tensor) -> Tensor:
        return o

    def item_vectors(self, X: Tensor) -> Tensor:
        return torch.eye(len(X), dtype=torch.float64)

    def corrections(self, *_: Any) -> None:
        return None


class ReferenceModel(HCAGRU):
    """Trains the network of the reference."""

    def differentiable(self, threads: int) -> Any:
        return ReferenceNetwork(self.network, self.theta)


def make_part(users: int, longest: int, n_items: int) -> Part:
    """Draw sequences; items repeat within them."""
    rng = np.random.default_rng(3)
    offsets = np.concatenate([[0], np.cumsum(rng.integers(2, longest, users))])
    return Part((n_items * rng.random(offsets[-1]) ** 2).astype(np.int32), offsets)


def make(
    kind: type[HCAGRU | SASRec], device: str, part: Part, n_items: int, **settings: Any
) -> Minibatch:
    names = kind.setting_names()
    chosen = {name: value for name, value in {**PLAIN, **settings}.items() if name in names}
    model = kind(**chosen)
    model.item_events = np.bincount(part.items, minlength=n_items)
    first = sas.initialize if isinstance(model, SASRec) else parameters.initialize
    model.theta = first(model.network, n_items, seed=5)  # type: ignore[arg-type]
    return Minibatch(model, part, RunSettings(seed=1, threads=1, device=device))


def run(trainer: Trainer, epochs: int = 2) -> list[float]:
    """Train; return the sums of losses after every report."""
    first = max(1, trainer.progress.epoch)
    return [now.loss for number in range(first, epochs + 1) for now in trainer.epoch(number)]


def sampled_by_reference(
    s: Tensor, Z: Tensor, targets: Tensor, drawn: Tensor, log_chances: Tensor, *_: Any
) -> Tensor:
    """Take the scores, of which no item vectors are left."""
    chances = torch.ones(len(Z), dtype=s.dtype).index_copy(0, drawn, log_chances.exp().to(s.dtype))
    return reference.sampled_softmax(s, targets, drawn, chances)


def run_by_reference(trainer: Trainer, epochs: int = 2) -> list[float]:
    """Train with the loss of the reference; see `run`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            objective,
            "cross_entropy",
            lambda H, Z, targets, *_, **__: reference.cross_entropy(H, Z, targets),
        )
        patch.setattr(sampled, "sampled_softmax", sampled_by_reference)
        return run(trainer, epochs)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_same_curve_and_parameters_as_the_reference(
    case: dict[str, Any], device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = dict(case)
    monkeypatch.setattr(losses, "_CHUNK", settings.pop("chunk", losses._CHUNK))
    plain_draw = sampled.draw  # on the CPU, so that all draw alike

    def draw(n: int, weights: Tensor | None, n_items: int, to: torch.device) -> Tensor:
        own = weights.cpu() if weights is not None else None
        return plain_draw(n, own, n_items, torch.device("cpu")).to(to)

    monkeypatch.setattr(sampled, "draw", draw)
    part = make_part(30, 14, N_ITEMS)
    trainer = make(HCAGRU, device, part, N_ITEMS, **settings)
    curve = run(trainer)
    truth = make(ReferenceModel, "cpu", part, N_ITEMS, **settings)
    assert curve == pytest.approx(run_by_reference(truth), rel=LOSS)
    assert len(curve) > 4 and trainer.parameters.keys() == truth.parameters.keys()
    for tensors in ("parameters", "state"):
        own, true = getattr(trainer, tensors), getattr(truth, tensors)
        if tensors == "state":
            own, true = own().tensors, true().tensors
        for name, value in true.items():
            if "optimizer" not in name:
                difference = np.linalg.norm(own[name] - value)
                assert difference <= PARAMETERS * np.linalg.norm(value), name


def wide(device: str, **settings: Any) -> Minibatch:
    """Make a trainer of many blocks of work, in which everything is random that can be."""
    part, size = (make_part(300, 60, 700), 64) if device == "cuda" else (make_part(60, 60, 700), 16)
    given = {**EVERYTHING, **DROPOUT, **WIDE, "batch_size": size, **settings}
    return make(HCAGRU, device, part, 700, **given)


def bits(state: TrainerState) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in state.tensors.items()}


RANDOM: dict[str, dict[str, Any]] = {
    "sequences": {},
    "prefixes": {"batches": "prefixes", "batch_size": 512},
    "positions": {"batches": "positions"},
    "sampled softmax": {"loss": "sampled-softmax"},
    "bpr-max": {"loss": "bpr-max"},
    "bce": {"loss": "bce", "sampling": "uniform"},
}


@pytest.mark.parametrize("settings", RANDOM.values(), ids=RANDOM)
def test_the_same_bits_resumed_or_not(settings: dict[str, Any], device: str) -> None:
    pytest.importorskip("msgspec", reason="what checks a checkpoint is not installed")
    whole, again = wide(device, **settings), wide(device, **settings)
    assert run(whole) == run(again) and bits(whole.state()) == bits(again.state())
    cut = wide(device, **settings)
    states = [cut.state() for number in (1, 2) for _ in cut.epoch(number)]
    assert bits(states[-1]) == bits(whole.state())
    for state in (states[0], states[len(states) // 2]):
        resumed = wide(device, **settings)
        resumed.restore(state)
        run(resumed)
        assert bits(resumed.state()) == bits(whole.state())


def test_a_state_that_is_taken_over_is_gone_on_from(device: str) -> None:
    one = wide(device)
    run(one, epochs=1)
    state = one.state()
    same, other, again = (wide(device) for _ in range(3))
    other.part = again.part = Part(
        one.part.items[:-50], np.minimum(one.part.offsets, len(one.part.items) - 50)
    )
    for trainer in (same, other, again):
        trainer.take_over(state)
        assert bits(trainer.state()) == bits(state) and trainer.step == one.step
    for trainer in (one, same, other, again):
        assert list(trainer.epoch(2))[-1].complete
    assert bits(same.state()) == bits(one.state()) != bits(other.state())
    assert bits(other.state()) == bits(again.state())


# -- on a card alone -------------------------------------------------------------------------------


@pytest.fixture
def card() -> None:
    if not torch.cuda.is_available():
        pytest.skip("torch finds no GPU here")


SAS: dict[str, Any] = {"d": 16, "blocks": 2, "heads": 2, "scores": "cosine", "copy_window": 4}
SAS |= dict.fromkeys(DROPOUT, 0.0)


@pytest.mark.usefixtures("card")
@pytest.mark.parametrize("way", ["sequences", "prefixes", "positions"])
def test_sasrec_on_a_card_learns_as_on_a_cpu(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    part, settings = make_part(60, 30, N_ITEMS), {**SAS, "length": 20, "batches": way}
    curve = run(make(SASRec, "cuda", part, N_ITEMS, **settings))
    dropping = {**settings, **DROPOUT}
    dropped = [make(SASRec, "cuda", part, N_ITEMS, **dropping) for _ in range(2)]
    assert run(dropped[0]) == run(dropped[1])
    assert bits(dropped[0].state()) == bits(dropped[1].state())
    use_plain_operations(monkeypatch)
    assert curve == pytest.approx(run(make(SASRec, "cpu", part, N_ITEMS, **settings)), rel=LOSS)


@pytest.mark.usefixtures("card")
@pytest.mark.parametrize(("precision", "near"), [("tf32", 1e-2), ("bfloat16", 5e-2)])
@pytest.mark.parametrize("loss", ["cross-entropy", "sampled-softmax", "bpr-max", "bce"])
def test_lower_precision_learns_alike_and_gives_the_same_bits(
    precision: str, near: float, loss: str
) -> None:
    settings: dict[str, Any] = {"precision": precision, "loss": loss}
    one, two = wide("cuda", **settings), wide("cuda", **settings)
    curve = run(one)
    assert curve == run(two) and bits(one.state()) == bits(two.state())
    assert curve == pytest.approx(run(wide("cuda", loss=loss)), rel=near)
    assert torch.get_float32_matmul_precision() == "highest"


@pytest.mark.usefixtures("card")
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
def test_no_step_waits_for_the_card() -> None:
    trainer = wide("cuda")
    run(trainer, epochs=1)
    assert trainer.graphs is not None
    try:
        torch.cuda.set_sync_debug_mode("error")
        for batch in trainer._batches(1):  # of known shapes: a new one is captured first
            trainer._learn(batch, 100)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.usefixtures("card")
def test_garbage_is_not_collected_while_a_step_is_captured() -> None:
    earlier = wide("cuda")
    run(earlier, epochs=1)
    earlier.itself = earlier  # type: ignore[attr-defined]  # its graphs are freed by collection
    del earlier
    thresholds = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    try:
        trainer = wide("cuda")
        assert run(trainer, epochs=1) == run(wide("cuda"), epochs=1)
    finally:
        gc.set_threshold(*thresholds)


@pytest.mark.usefixtures("card")
@pytest.mark.parametrize("copy_window", [0, 4])
def test_sizes_that_kernels_do_not_take_run_step_by_step(copy_window: int) -> None:
    part = make_part(30, 14, N_ITEMS)
    settings = {"d": 520, "copy_window": copy_window, "initial": "scaled", "learning_rate": 1e-4}
    trainer = make(HCAGRU, "cuda", part, N_ITEMS, **settings)
    assert trainer.graphs is None and not trainer.objective.static
    truth = make(ReferenceModel, "cpu", part, N_ITEMS, **settings)
    assert run(trainer, epochs=1) == pytest.approx(run_by_reference(truth, epochs=1), rel=LOSS)


@pytest.mark.usefixtures("card")
def test_a_batch_that_does_not_fit_is_said_in_one_line() -> None:
    from hcarec import devices
    from hcarec.errors import DeviceError

    taken = torch.cuda.memory_reserved() + (64 << 20)
    torch.cuda.set_per_process_memory_fraction(taken / torch.cuda.mem_get_info()[1])
    try:
        with (
            pytest.raises(DeviceError, match="the GPU has no memory left in epoch 1: use smaller"),
            devices.failures(lambda: "in epoch 1", "smaller batches"),
        ):
            run(wide("cuda", d=1024, batch_size=300))
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


# -- without Triton --------------------------------------------------------------------------------


def test_a_gpu_without_triton_says_what_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA torch alone: each back-end is named, and none is Triton's; one asked for is refused."""
    from hcarec.errors import ConfigError
    from hcarec.ops.rank import torch as rank

    for module in (backends, rank):
        monkeypatch.setattr(module, "find_spec", lambda name: None)
    monkeypatch.setattr(losses, "_HAS_TRITON", False)
    monkeypatch.setattr("hcarec.devices.describe", lambda device: f"a {device} device")
    model = HCAGRU(**PLAIN)
    line = Minibatch.describe_device("cuda", model)
    assert line == "computing on a cuda device, layers by torch, loss by torch, ranking by torch"
    with pytest.raises(ConfigError, match="Triton is not installed"):
        backends.choose_backend("triton", torch.zeros(2, 6))
