"""The Triton kernels of the recurrence against the cell of the reference.

On a card they run for real; without one Triton's interpreter runs them, on small sizes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

CARD = torch.cuda.is_available()
if not CARD:
    os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported
pytest.importorskip("triton")

from hcarec.errors import ConfigError  # noqa: E402
from hcarec.ops import reference  # noqa: E402
from hcarec.ops.hca import triton_cell  # noqa: E402
from hcarec.ops.hca.packing import pack  # noqa: E402
from hcarec.ops.hca.triton_cell import Launch, recurrence  # noqa: E402

DEVICE = "cuda" if CARD else "cpu"
LENGTHS = {"one": [3], "ragged": [4, 0, 1, 6, 2, 0, 6], "many": [5, 1, 2] * 13, "even": [3] * 16}
SIZES = [(1, "one"), (5, "ragged"), (20, "many"), (64, "ragged"), (40, "even"), (100, "one")]
SIZES += [(128, "ragged"), (136, "one"), (200, "ragged")]
if CARD:  # above d = 128 programs share the weights on a card alone: the interpreter runs one
    LENGTHS["large"] = [50, 3, 20, 7, 50] * 8
    SIZES += [(d, "large") for d in (16, 20, 64, 128, 256, 512)]


@pytest.fixture(autouse=True)
def poisoned(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fill new memory with NaN: what a kernel leaves unwritten is found."""
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def inputs(lengths: list[int], d: int) -> tuple[Tensor, Tensor, np.ndarray, Tensor]:
    """Return g, W, starts and the gradient of the states, which differs by powers of ten."""
    starts = pack(np.array(lengths), np.arange(len(lengths)), max(lengths), 1).starts
    n = int(starts[-1])
    sizes = 10.0 ** torch.randint(-9, 3, (n, 1), generator=torch.Generator().manual_seed(3))
    return normal(n, 3, d), normal(3, d, d, seed=1) / d**0.5, starts, normal(n, d, seed=2) * sizes


def by_reference(g: Tensor, W: Tensor, starts: np.ndarray) -> Tensor:
    """Run the reference's cell over packed rows, one sequence after another."""
    d, counts = g.shape[2], np.diff(starts)
    theta = {"U": torch.zeros(3, d, d, dtype=g.dtype), "W": W}
    rows: dict[int, Tensor] = {}
    for rank in range(int(counts[0])):
        h = g.new_zeros(d)
        for t in range(int((counts > rank).sum())):
            row = int(starts[t]) + rank
            rows[row] = h = reference.cell(theta | {"b": g[row]}, h, g.new_zeros(d), None)
    return torch.stack([rows[row] for row in range(len(g))])


def results(function: Any, g: Tensor, W: Tensor, starts: Any, d_h: Tensor) -> list[Tensor]:
    """Return the states and the gradients of g and W."""
    leaves = g.detach().requires_grad_(), W.detach().requires_grad_()
    h = function(*leaves, starts)
    return [h.detach(), *torch.autograd.grad(h, leaves, d_h)]


def on_device(case: tuple[Tensor, Tensor, np.ndarray, Tensor], dtype: torch.dtype) -> list[Tensor]:
    g, W, starts, d_h = case
    given = g.to(DEVICE, dtype), W.to(DEVICE, torch.float32), torch.from_numpy(starts).to(DEVICE)
    return results(recurrence, *given, d_h.to(DEVICE, dtype))


def error(own: Tensor, truth: Tensor) -> float:
    """Return the relative error in norm."""
    return float((own.cpu().double() - truth).norm() / truth.norm())


@pytest.mark.parametrize(("d", "lengths"), SIZES)
def test_float32(d: int, lengths: str) -> None:
    case = inputs(LENGTHS[lengths], d)
    truth = results(by_reference, *case)
    own, again = (on_device(case, torch.float32) for _ in range(2))
    assert max(map(error, own, truth)) < 1e-6
    assert all(map(torch.equal, own, again)), "two runs differ"


@pytest.mark.parametrize(("d", "lengths"), SIZES)
def test_bfloat16(d: int, lengths: str) -> None:
    g, W, starts, d_h = inputs(LENGTHS[lengths], d)
    case = g.bfloat16().double(), W, starts, d_h.bfloat16().double()
    truth, own = results(by_reference, *case), on_device(case, torch.bfloat16)
    assert [part.dtype for part in own] == [torch.bfloat16, torch.bfloat16, torch.float32]
    assert max(map(error, own, truth)) < 0.02


@pytest.mark.parametrize(
    ("d", "sequences", "members"), [(20, 8, 1), (20, 16, 1), (20, 32, 1), (136, 8, 4), (136, 16, 4)]
)
def test_any_number_of_sequences_in_a_program(
    d: int, sequences: int, members: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("forward_launch", "backward_launch"):
        monkeypatch.setattr(triton_cell, name, lambda *_: Launch(sequences, 4, members=members))
    case = inputs([2, 4, 1] * 12, d)
    own = on_device(case, torch.float32)
    assert max(map(error, own, results(by_reference, *case))) < 1e-6


def test_large_and_small_weights_keep_their_precision() -> None:
    g, W, starts, d_h = inputs(LENGTHS["ragged"], 24)
    W = W * 10.0 ** torch.arange(-6, 2).repeat(3)[:, None]  # rows of W
    case = g, W, starts, d_h
    truth, own = results(by_reference, *case), on_device(case, torch.float32)
    assert max(map(error, own, truth)) < 1e-6


def test_without_gradients_the_states_are_the_same() -> None:
    g, W, starts, _ = inputs(LENGTHS["ragged"], 20)
    g, W = g.to(DEVICE, torch.float32), W.to(DEVICE, torch.float32)
    with torch.no_grad():
        quick = recurrence(g, W, starts)
    assert torch.equal(quick, recurrence(g.requires_grad_(), W, starts))


@pytest.mark.parametrize("lengths", [[0], [0, 0, 0]])
def test_no_events(lengths: list[int]) -> None:
    starts = pack(np.array(lengths), np.arange(len(lengths)), 1, 1).starts
    g, W = torch.zeros(0, 3, 20, device=DEVICE), torch.ones(3, 20, 20, device=DEVICE)
    h, d_g, d_W = results(recurrence, g, W, starts, torch.zeros(0, 20, device=DEVICE))
    assert h.shape == (0, 20) and d_g.shape == g.shape and torch.equal(d_W, torch.zeros_like(W))


def test_torch_knows_the_operation() -> None:
    """Shapes without a device, gradients and tracing, as torch.compile needs them."""
    g, W, starts, _ = inputs([2, 1], 16)
    given = g.to(DEVICE, torch.float32), W.to(DEVICE, torch.float32), torch.from_numpy(starts)
    leaves = [part.requires_grad_() for part in given[:2]]
    checks = ("test_schema", "test_autograd_registration", "test_faketensor")
    operation = torch.ops.hcarec.recurrence.default
    torch.library.opcheck(operation, (*leaves, given[2].to(DEVICE), True), test_utils=checks)


@pytest.mark.skipif(not CARD, reason="needs a card")
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is:DeprecationWarning")
def test_a_captured_graph_and_a_compiled_function_give_the_same_bits() -> None:
    g, W, starts, d_h = inputs(LENGTHS["large"], 64)
    g, W, d_h = (part.to(DEVICE, torch.float32) for part in (g, W, d_h))
    on_card = torch.from_numpy(starts).to(DEVICE)
    truth = results(recurrence, g, W, on_card, d_h)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = results(recurrence, g, W, on_card, d_h)
    graph.replay()
    assert all(map(torch.equal, captured, truth))
    assert all(map(torch.equal, results(torch.compile(recurrence), g, W, on_card, d_h), truth))


def test_what_the_kernels_cannot_do_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    g, W, starts, _ = inputs([2], 16)
    with pytest.raises(ConfigError, match=r"float32 or bfloat16, not torch\.float64"):
        recurrence(g.to(DEVICE), W.to(DEVICE), starts)
    with pytest.raises(ConfigError, match="d up to 512, not 513"):
        recurrence(torch.zeros(2, 3, 513, device=DEVICE), W.to(DEVICE), starts)
    monkeypatch.setattr(triton_cell.triton.knobs.runtime, "interpret", False)
    with pytest.raises(ConfigError, match="on cpu"):
        recurrence(g.float(), W.float(), starts)
