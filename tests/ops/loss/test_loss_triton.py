"""Cross-entropy by Triton against the reference: interpreted on a CPU, for real on a GPU."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from loss_cases import CORRECTED, check, expect, make

from hcarec.errors import ConfigError
from hcarec.ops.loss import torch as differentiable
from hcarec.ops.rank.corrections import Corrections

REAL = torch.cuda.is_available()
DEVICE = torch.device("cuda" if REAL else "cpu")
if not REAL:
    os.environ["TRITON_INTERPRET"] = "1"  # before the kernels are imported

triton = pytest.importorskip("hcarec.ops.loss.triton", exc_type=ImportError)

# A float32 logit of 60 is off by 4e-6 before anything is done with it.
TOLERANCES = {"float32": 1e-5, "tf32": 2e-3, "bf16": 1e-2}
SIZES = [(1, 1, 1), (1, 2, 1), (2, 95, 7), (5, 96, 8), (47, 193, 33), (131, 70, 20), (7, 300, 130)]
if REAL:
    SIZES += [(64, 333, 300), (300, 5001, 65), (513, 3416, 128), (257, 12101, 20), (1025, 999, 64)]


@pytest.fixture(autouse=True)
def precision() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    yield
    torch.set_float32_matmul_precision(before)


@pytest.fixture(autouse=True)
def bfloat16_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the interpreter multiply bfloat16 numbers, and not the bits that it keeps of them."""
    from triton.language import bfloat16, float32
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    multiply = InterpreterBuilder.create_dot

    def widened(factor: Any) -> Any:
        if factor.dtype.scalar != bfloat16:
            return factor
        return TensorHandle((factor.data.astype(np.uint32) << 16).view(np.float32), float32)

    def create_dot(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        return multiply(self, widened(a), widened(b), *rest)

    monkeypatch.setattr(InterpreterBuilder, "create_dot", create_dot)


def leaves_of(task: Any, dtype: torch.dtype = torch.float32) -> tuple[list[Any], Any, Any]:
    """Return the tensors that may have gradients, the targets, and corrections or None."""
    H, Z, targets, corrections = task
    leaves = [torch.from_numpy(rows).to(DEVICE, dtype).requires_grad_() for rows in (H, Z)]
    ragged = None
    if corrections is not None:
        items, offsets, values = (torch.from_numpy(part).to(DEVICE) for part in corrections)
        leaves.append(values.requires_grad_())
        ragged = items, offsets, values
    return leaves, torch.from_numpy(targets).to(DEVICE), ragged


def solve(task: Any, dtype: torch.dtype = torch.float32, loss: Any = None) -> list[Any]:
    """Return loss, dH, dZ and dvalues."""
    leaves, targets, ragged = leaves_of(task, dtype)
    value = (loss or differentiable.cross_entropy)(*leaves[:2], targets, ragged, "triton")
    (3 * value).backward()
    assert all(leaf.grad.dtype == leaf.dtype for leaf in leaves)
    return [value.item(), *(leaf.grad.cpu().double().numpy() / 3 for leaf in leaves)]


def same(one: list[Any], other: list[Any]) -> bool:
    return one[0] == other[0] and all(
        (a == b).all() for a, b in zip(one[1:], other[1:], strict=True)
    )


def rounded(task: Any) -> Any:
    """Return the task with the vectors that bfloat16 holds."""
    H, Z, *rest = task
    return *(torch.from_numpy(rows).bfloat16().float().numpy() for rows in (H, Z)), *rest


@pytest.mark.parametrize("corrected", CORRECTED)
@pytest.mark.parametrize("size", SIZES)
def test_kernels_agree_with_the_reference(size: tuple[int, int, int], corrected: str) -> None:
    if corrected == "all" and size[0] * size[1] > 600 and not REAL:
        pytest.skip("too slow for the interpreter")
    H, Z, *rest = make(*size, corrected)
    H *= np.float32(min(1, (130 / size[2]) ** 0.5))  # logits as of d = 130: float32 can hold them
    task = H, Z, *rest
    check(solve(task), expect(*task), TOLERANCES["float32"], floor=1e-6)


@pytest.mark.parametrize("precision_", ["tf32", "bf16"])
@pytest.mark.parametrize("corrected", ["none", "some"])
@pytest.mark.parametrize("size", SIZES[2:])
def test_lower_precisions(size: tuple[int, int, int], corrected: str, precision_: str) -> None:
    task = rounded(make(*size, corrected))
    torch.set_float32_matmul_precision("high")
    dtype = torch.bfloat16 if precision_ == "bf16" else torch.float32
    check(solve(task, dtype), expect(*task), TOLERANCES[precision_])


def padded(corrections: Corrections, n_items: int) -> Corrections:
    """Return corrections with some behind the last offset that stand for none."""
    items, offsets, values = corrections
    more = np.full(37, n_items, np.int32), np.zeros(37, np.float32)
    return Corrections(np.append(items, more[0]), offsets, np.append(values, more[1]))


@pytest.mark.parametrize("corrected", ["none", "some", "target"])
@pytest.mark.parametrize("size", SIZES[3:6])
def test_what_fills_up_a_batch_does_not_count(size: tuple[int, int, int], corrected: str) -> None:
    H, Z, targets, corrections = make(*size, corrected)
    n = len(targets) - len(targets) // 3
    targets = np.append(targets[:n], np.full(len(targets) - n, -1))
    truth = expect(H, Z, targets, corrections)
    if corrections is not None:
        corrections = padded(corrections, size[1])
    loss, dH, dZ, *dvalues = solve((H, Z, targets, corrections))
    assert not dH[n:].any()
    if dvalues:
        assert not dvalues[0][-37:].any()
        dvalues = [dvalues[0][:-37]]
    check([loss, dH, dZ, *dvalues], truth, TOLERANCES["float32"], floor=1e-6)


@pytest.mark.parametrize("precision_", TOLERANCES)
def test_corrections_that_take_away_the_greatest_logits(precision_: str) -> None:
    """The sum of exponentials without corrections is e^20 times too large, or more."""
    H, Z, targets, _ = make(40, 150, 24, "none")
    products = H @ Z.T
    H *= np.float32(30) / products.max(1, keepdims=True)
    greatest = np.sort(np.argsort(-products, 1)[:, :4], 1)
    values = np.full(greatest.size, -25, np.float32)
    values[::7] = 20  # and some that raise a logit
    offsets = np.arange(len(H) + 1) * 4
    task = rounded((H, Z, targets, Corrections(greatest.ravel().astype(np.int32), offsets, values)))
    torch.set_float32_matmul_precision("highest" if precision_ == "float32" else "high")
    dtype = torch.bfloat16 if precision_ == "bf16" else torch.float32
    check(solve(task, dtype), expect(*task), TOLERANCES[precision_])


def test_logits_far_beyond_float32_exponentials() -> None:
    Z = (np.arange(400, dtype=np.float32)[:, None] - 200) * np.ones((1, 3), np.float32)
    H = np.array([[1, 1, 1], [-1, -1, -1], [0, 0, 0], [0.5, 0.5, 0.5]], np.float32)
    task = H, Z, np.array([399, 399, 7, 2]), None
    check(solve(task), expect(*task), 1e-5)  # logits of 600


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of NumPy, in the interpreter
@pytest.mark.parametrize("corrected", ["none", "some"])
@pytest.mark.parametrize("where", ["H", "Z"])
def test_a_value_that_is_no_number_is_not_hidden(where: str, corrected: str) -> None:
    H, Z, targets, corrections = make(20, 90, 9, corrected)
    (H if where == "H" else Z)[17, 3] = np.nan
    value, dH, dZ, *_ = solve((H, Z, targets, corrections))
    assert np.isnan(value) and np.isnan(dH).any() and np.isnan(dZ).any()


@pytest.mark.parametrize("precision_", TOLERANCES)
def test_uninitialized_memory_is_never_read_and_bits_repeat(precision_: str) -> None:
    task = make(70, 200, 33, "some")
    torch.set_float32_matmul_precision("highest" if precision_ == "float32" else "high")
    dtype = torch.bfloat16 if precision_ == "bf16" else torch.float32
    before = solve(task, dtype)
    torch.use_deterministic_algorithms(True)  # fills new memory with NaN
    try:
        assert torch.empty(1).isnan() and torch.zeros(1).new_empty(1).isnan()
        after = solve(task, dtype)
    finally:
        torch.use_deterministic_algorithms(False)
    assert same(before, after)


def test_autocast_computes_in_bfloat16_and_returns_float32() -> None:
    task = rounded(make(30, 100, 16, "some"))

    def under_autocast(*arguments: Any) -> torch.Tensor:
        with torch.autocast(DEVICE.type, torch.bfloat16):
            return differentiable.cross_entropy(*arguments)

    got = solve(task, loss=under_autocast)
    check(got, expect(*task), TOLERANCES["bf16"])
    assert got[0] == solve(task, torch.bfloat16)[0]


@pytest.mark.parametrize("corrected", ["none", "some"])
def test_compiled_by_torch(corrected: str) -> None:
    task = make(20, 60, 8, corrected)
    compiled = torch.compile(differentiable.cross_entropy, backend="aot_eager", fullgraph=True)
    assert same(solve(task, loss=compiled), solve(task))


def test_frozen_items_and_no_gradients() -> None:
    H, Z, targets, _ = make(9, 40, 5, "none")
    leaves, targets, _ = leaves_of((H, Z, targets, None))
    leaves[1].requires_grad_(False)
    differentiable.cross_entropy(*leaves, targets, backend="triton").backward()
    assert leaves[0].grad.norm() > 0 and leaves[1].grad is None
    with torch.no_grad():
        assert differentiable.cross_entropy(*leaves, targets, backend="triton").isfinite()


def test_a_name_is_binding(monkeypatch: pytest.MonkeyPatch) -> None:
    (H, Z), targets, _ = leaves_of(make(4, 30, 6, "none"))

    def ask(H: torch.Tensor, Z: torch.Tensor) -> None:
        differentiable.cross_entropy(H, Z, targets, backend="triton")

    with pytest.raises(ConfigError, match="float64: it takes"):
        ask(H.double(), Z.double())
    with pytest.raises(ConfigError, match="got d = 600"):
        ask(H.new_zeros(4, 600), Z.new_zeros(30, 600))
    with monkeypatch.context() as patch:
        patch.setattr(triton, "_INTERPRETED", False)
        with pytest.raises(ConfigError, match="got a tensor on cpu"):
            ask(H.cpu(), Z.cpu())
    monkeypatch.setattr(differentiable, "_HAS_TRITON", False)
    with pytest.raises(ConfigError, match="needs the package triton"):
        ask(H, Z)


@pytest.mark.skipif(not REAL, reason="needs a GPU")
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
@pytest.mark.parametrize("corrected", ["none", "some"])
def test_a_gpu_is_the_default_place_and_never_waits(corrected: str) -> None:
    task = make(300, 1000, 32, corrected)
    wanted = solve(task)
    leaves, targets, ragged = leaves_of(task)
    try:
        torch.cuda.set_sync_debug_mode("error")
        loss = differentiable.cross_entropy(*leaves[:2], targets, ragged)
        (3 * loss).backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert same([loss.item(), *(leaf.grad.cpu().double().numpy() / 3 for leaf in leaves)], wanted)


def test_rounding_to_tf32_keeps_what_is_not_finite() -> None:
    odd = np.array([0x7FFFFFFF, 0xFFFFFFFF, 0x7FC00000, 0x7F800000], np.uint32).view(np.float32)
    plain = np.array([1 + 2**-11, 1 + 2**-10, -(1 + 2**-12), 0, 3e38], np.float32)
    rounded = triton._round(torch.from_numpy(np.append(odd, plain))).numpy()
    assert np.isnan(rounded[:3]).all() and np.isposinf(rounded[3])
    assert (np.abs(rounded[4:] - plain) <= 2.0**-11 * np.abs(plain)).all()
    assert (rounded[4:].view(np.uint32) % (1 << 13) == 0).all()
