"""A layer by Triton kernels against the reference: values and all gradients, form by form.

On a card the kernels run for real; without one Triton's interpreter runs them, on small sizes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

CARD = torch.cuda.is_available()
if not CARD:
    os.environ["TRITON_INTERPRET"] = "1"  # read when the kernels are imported
pytest.importorskip("triton")

from hcarec.errors import ConfigError  # noqa: E402
from hcarec.ops import reference  # noqa: E402
from hcarec.ops.hca import backends  # noqa: E402
from hcarec.ops.hca.backends import choose_backend, default_backend  # noqa: E402
from hcarec.ops.hca.layers import run_layers  # noqa: E402
from hcarec.ops.hca.packing import pack  # noqa: E402
from hcarec.ops.hca.parameters import Network, shapes  # noqa: E402
from hcarec.ops.hca.torch import HCANetwork  # noqa: E402
from hcarec.ops.transfer import to_device  # noqa: E402

DEVICE = "cuda" if CARD else "cpu"
BOTH = {"w_x": 3, "w_h": 4}
OPTIONS: dict[str, dict[str, Any]] = {
    "paper": BOTH,
    "residual": BOTH | {"fusion": "residual"},
    "masked": BOTH | {"padding": "masked"},
    "winner": {"w_x": 5, "w_h": 5, "fusion": "residual", "padding": "masked"},
    "x-level alone": {"w_x": 3, "w_h": 1, "padding": "masked"},
    "h-level alone": {"w_x": 1, "w_h": 3},
    "no level": {"w_x": 1, "w_h": 1},
    "windows wider than any sequence": {"w_x": 15, "w_h": 11},
    "dot product on inputs": BOTH | {"attention_x": "dot"},
    "dot product on hidden states": BOTH | {"attention_h": "dot", "fusion": "residual"},
    "two blocks": BOTH | {"blocks": 2, "fusion": "residual", "padding": "masked"},
    "products of parts": BOTH | {"d": 40},
    "products of parts, winner": {"d": 64, "w_x": 5, "w_h": 5}
    | {"fusion": "residual", "padding": "masked"},
    "several blocks of columns": BOTH | {"d": 130, "padding": "masked"},
    "size of one": BOTH | {"d": 1},
    "size of sixteen": BOTH | {"d": 16},
}
LENGTHS = [7, 1, 3, 12, 2, 0, 12, 1]
if CARD:
    OPTIONS |= {f"d {d}": {"w_x": 5, "w_h": 5, "d": d} for d in (100, 128, 256, 512)}
    OPTIONS |= {f"winner, d {d}": OPTIONS["winner"] | {"d": d} for d in (20, 64, 128, 256)}
TOLERANCE = 1e-5


@pytest.fixture(autouse=True)
def poison(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fill tensors that are not initialized with NaN, so that reading them cannot go unseen."""
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


def draw(network: Network, seed: int = 0) -> dict[str, Tensor]:
    rng = np.random.default_rng(seed)
    named = ((name, shape) for name, shape in shapes(network, 1).items() if name != "X")
    bound = 1.4 / network.d**0.5
    return {name: torch.from_numpy(rng.uniform(-bound, bound, shape)) for name, shape in named}


def by_reference(network: Network, theta: dict[str, Tensor], x: Tensor, lengths: list[int]) -> Any:
    """Run the reference over packed rows, one sequence after another, in float64."""
    packing = pack(np.array(lengths), np.arange(len(lengths)), max(lengths), 1)
    order = np.argsort(-np.array(lengths), kind="stable")
    y = torch.zeros_like(x)
    for rank, row in enumerate(order):
        rows = torch.from_numpy(packing.starts[: lengths[row]] + rank)
        z = x[rows]
        for prefix in network.prefixes if lengths[row] else ():
            z = reference.layer_outputs(reference.layer_of(theta, prefix), network, z)
        y = y.index_put((rows,), z)
    return y


def run(
    network: Network, theta: dict[str, Tensor], x: Tensor, d_y: Tensor, lengths: list[int]
) -> dict[str, Tensor]:
    """Return the output and all gradients of the kernels, in float32."""
    theta = {name: value.float().to(DEVICE).requires_grad_() for name, value in theta.items()}
    x = x.float().to(DEVICE).requires_grad_()
    packing = pack(
        np.array(lengths), np.arange(len(lengths)), max(lengths), 20, partial(to_device, DEVICE)
    )
    y = run_layers(theta, network, x, packing, backend="triton")
    gradients = torch.autograd.grad(y, [x, *theta.values()], d_y.to(y))
    named = dict(zip(["x", *theta], gradients, strict=True)) | {"y": y.detach()}
    return {name: value.double().cpu() for name, value in named.items()}


def case(network: Network, lengths: list[int], seed: int = 1) -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(seed)
    x, d_y = (torch.from_numpy(rng.standard_normal((sum(lengths), network.d))) for _ in range(2))
    return x.float().double(), d_y.float().double()


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_values_and_all_gradients(options: dict[str, Any]) -> None:
    network = Network(**{"d": 7, **options})
    theta = {name: value.float().double() for name, value in draw(network).items()}
    x, d_y = case(network, LENGTHS)
    found = run(network, theta, x, d_y, LENGTHS)
    exact = {name: value.clone().requires_grad_() for name, value in theta.items()}
    x.requires_grad_()
    y = by_reference(network, exact, x, LENGTHS)
    gradients = torch.autograd.grad(y, [x, *exact.values()], d_y)
    true = dict(zip(["x", *exact], gradients, strict=True)) | {"y": y.detach()}
    for name, value in true.items():
        assert value.norm() > 1e-6, name
        assert (found[name] - value).norm() <= TOLERANCE * value.norm(), name


@pytest.mark.parametrize("size", [1e-25, 1e-12, 1e4, 1e25])
def test_gradients_of_any_size(size: float) -> None:
    network = Network(d=40, **OPTIONS["winner"])
    theta, (x, d_y) = draw(network), case(network, LENGTHS)
    plain, scaled = (run(network, theta, x, d_y * by, LENGTHS) for by in (1.0, size))
    for name, value in plain.items():
        factor = 1 if name == "y" else size
        assert (scaled[name] - factor * value).norm() <= 3e-6 * factor * value.norm(), name


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, in the interpreter
@pytest.mark.parametrize("size", [1e-6, 300.0])
def test_inputs_of_any_size(size: float) -> None:
    network = Network(d=40, **BOTH)
    theta, (x, d_y) = draw(network), case(network, LENGTHS)
    x *= size
    true = by_reference(network, theta, x, LENGTHS)
    found = run(network, theta, x, d_y, LENGTHS)["y"]
    assert (found - true).norm() <= TOLERANCE * true.norm()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, in the interpreter
def test_a_number_that_is_none_stays_visible() -> None:
    network = Network(d=40, **BOTH)
    theta, (x, d_y) = draw(network), case(network, LENGTHS)
    x[0, 0] = float("nan")
    assert run(network, theta, x, d_y, LENGTHS)["y"][0].isnan().any()


@pytest.mark.parametrize("d", [20, 64])
def test_a_run_again_gives_the_same_bits(d: int) -> None:
    network, lengths = Network(d=d, **BOTH), LENGTHS * (200 if CARD else 1)
    theta, (x, d_y) = draw(network), case(network, lengths)
    first, second = (run(network, theta, x, d_y, lengths) for _ in range(2))
    assert all(torch.equal(value, second[name]) for name, value in first.items())


def test_no_events_at_all() -> None:
    network = Network(d=7, **BOTH)
    theta = {
        name: value.float().to(DEVICE).requires_grad_() for name, value in draw(network).items()
    }
    x = torch.zeros(0, 7, device=DEVICE, requires_grad=True)
    packing = pack(np.array([0, 0]), np.arange(2), 3, 4, partial(to_device, DEVICE))
    y = run_layers(theta, network, x, packing, backend="triton")
    y.sum().backward()
    assert y.shape == (0, 7) and not any(value.grad.any() for value in theta.values())


def test_the_network_takes_a_back_end() -> None:
    network = Network(d=20, **BOTH)
    rng = np.random.default_rng(0)
    theta = {name: rng.uniform(-0.3, 0.3, shape) for name, shape in shapes(network, 9).items()}
    theta = {name: value.astype(np.float32) for name, value in theta.items()}
    items, lengths = torch.from_numpy(rng.integers(0, 9, (3, 6))), torch.tensor([6, 0, 4])
    plain = HCANetwork(network, theta)(items, lengths)
    model = HCANetwork(network, theta, backend="triton").to(DEVICE)
    found = model(items.to(DEVICE), lengths)
    torch.testing.assert_close(found.cpu(), plain, rtol=0, atol=2e-6)


def test_a_back_end_that_cannot_run_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.zeros(2, 4)
    with pytest.raises(ConfigError, match="'cuda' of the network: expected one of numba, torch"):
        choose_backend("cuda", x)
    with pytest.raises(
        ConfigError, match="'torch' of the network does not run on cpu: use 'numba'"
    ):
        choose_backend("torch", x)
    with pytest.raises(ConfigError, match=r"float64 and d = 4: .*; use 'torch'"):
        choose_backend("triton", x.double().to(DEVICE))
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(ConfigError, match="'triton' of the network does not run on cpu"):
        choose_backend("triton", x)
    assert default_backend("cuda", 64) == "triton"
    assert default_backend("cuda", 513) == default_backend("cuda", 64, torch.float64) == "torch"
    monkeypatch.setattr(backends, "find_spec", lambda name: None)
    assert default_backend("cuda", 64) == "torch" and default_backend("cpu", 64) == "numba"
    with pytest.raises(ConfigError, match="Triton is not installed"):
        choose_backend("triton", x)


@pytest.mark.skipif(not CARD, reason="there is no CUDA device")
@pytest.mark.parametrize("d", [20, 64, 256])
def test_autocast_computes_in_bfloat16(d: int) -> None:
    network = Network(d=d, **OPTIONS["winner"])
    theta, (x, d_y) = draw(network), case(network, LENGTHS)
    with torch.autocast("cuda", torch.bfloat16):
        found = run(network, theta, x, d_y, LENGTHS)
    exact = run(network, theta, x, d_y, LENGTHS)
    for name, value in exact.items():
        error = (found[name] - value).norm() / value.norm()
        assert 1e-5 < error < 0.05, name


@pytest.mark.skipif(not CARD, reason="there is no CUDA device")
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is:DeprecationWarning")
def test_torch_compile_gives_the_same() -> None:
    network = Network(d=20, **BOTH)
    theta = {name: value.float().cuda().requires_grad_() for name, value in draw(network).items()}
    x, d_y = (value.float().cuda() for value in case(network, LENGTHS))
    packing = pack(np.array(LENGTHS), np.arange(len(LENGTHS)), 12, 4, partial(to_device, "cuda"))

    def layers(x: Tensor) -> Tensor:
        return run_layers(theta, network, x, packing, backend="triton").sin()

    plain = torch.autograd.grad(layers(x), list(theta.values()), d_y)
    compiled = torch.autograd.grad(torch.compile(layers)(x), list(theta.values()), d_y)
    for one, other in zip(plain, compiled, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-5, atol=1e-5)
