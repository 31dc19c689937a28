"""Full cross-entropy: values and all gradients against the dense reference in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from loss_cases import CORRECTED, check, expect, make

from hcarec.errors import ConfigError
from hcarec.ops.loss import numba
from hcarec.ops.loss import torch as differentiable

# Positions, items and d: one of each, less and more than a tile, a chunk and a block.
SIZES = [
    (1, 1, 1),
    (1, 2, 1),
    (2, 95, 7),
    (5, 96, 8),
    (7, 97, 16),
    (13, 31, 17),
    (12, 192, 32),
    (47, 193, 33),
    (49, 700, 20),
    (70, 388, 65),
    (64, 333, 130),
    (201, 150, 3),
    (801, 101, 48),
]


@pytest.mark.parametrize("corrected", CORRECTED)
@pytest.mark.parametrize("size", SIZES)
def test_kernels_agree_with_the_reference(size: tuple[int, int, int], corrected: str) -> None:
    task = make(*size, corrected)
    loss = numba.cross_entropy(*task, threads=1)
    assert all(part.dtype == np.float32 and part.flags.c_contiguous for part in loss[1:])
    check(loss, expect(*task), 2e-6)


@pytest.mark.parametrize("corrected", CORRECTED)
def test_large_logits_neither_overflow_nor_vanish(corrected: str) -> None:
    H, Z, targets, corrections = make(60, 500, 20, corrected)
    products = H @ Z.T
    H *= np.float32(80) / np.abs(products).max(1, keepdims=True)
    if corrections is not None:
        corrections = corrections._replace(values=corrections.values * np.float32(40))
    task = H, Z, targets, corrections
    loss = numba.cross_entropy(*task)
    # A float32 logit of 80 is off by 4e-6 or more before anything is done with it.
    check(loss, expect(*task), 1e-5)


def test_logits_far_beyond_float32_exponentials() -> None:
    """The maximum rises from chunk to chunk by more than the exponential function can take."""
    Z = (np.arange(400, dtype=np.float32)[:, None] - 200) * np.ones((1, 3), np.float32)
    H = np.array([[1, 1, 1], [-1, -1, -1], [0, 0, 0], [0.5, 0.5, 0.5]], np.float32)
    task = H, Z, np.array([399, 399, 7, 2]), None
    check(numba.cross_entropy(*task), expect(*task), 1e-6)


def test_exact_probabilities_of_a_tiny_case() -> None:
    """Two items whose scores differ by ln 3: probabilities 3/4 and 1/4."""
    H, Z = np.ones((1, 1), np.float32), np.array([[np.log(3)], [0]], np.float32)
    loss = numba.cross_entropy(H, Z, np.array([1]))
    assert loss.value == pytest.approx(np.log(4), rel=1e-7)
    np.testing.assert_allclose(loss.dZ, [[0.75], [-0.75]], rtol=1e-6)
    np.testing.assert_allclose(loss.dH, [[0.75 * np.log(3)]], rtol=1e-6)


@pytest.mark.parametrize("corrected", CORRECTED)
def test_any_number_of_threads_gives_the_same_bits(corrected: str) -> None:
    task = make(801, 1000, 33, corrected)
    one = numba.cross_entropy(*task, threads=1)
    for threads in (2, 3, 7, None):
        other = numba.cross_entropy(*task, threads=threads)
        assert other.value == one.value
        assert all((a == b).all() for a, b in zip(other[1:], one[1:], strict=True))


def test_a_position_does_not_depend_on_those_beside_it() -> None:
    H, Z, targets, corrections = make(210, 300, 20, "some")
    whole = numba.cross_entropy(H, Z, targets, corrections)
    alone = [
        numba.cross_entropy(H[p : p + 1], Z, targets[p : p + 1], corrections.take(slice(p, p + 1)))
        for p in (0, 47, 48, 209)
    ]
    for p, one in zip((0, 47, 48, 209), alone, strict=True):
        np.testing.assert_allclose(whole.dH[p] * 210, one.dH[0], rtol=1e-6)


@pytest.mark.parametrize("where", ["H", "Z"])
def test_a_value_that_is_no_number_is_not_hidden(where: str) -> None:
    H, Z, targets, _ = make(60, 200, 9, "none")
    (H if where == "H" else Z)[17, 3] = np.nan
    loss = numba.cross_entropy(H, Z, targets)
    assert np.isnan(loss.value)
    assert np.isnan(loss.dH).any() and np.isnan(loss.dZ).any()


def test_uninitialized_memory_is_never_read(monkeypatch: pytest.MonkeyPatch) -> None:
    task = make(70, 388, 65, "some")
    before = numba.cross_entropy(*task)
    monkeypatch.setattr(np, "empty", lambda shape, dtype=np.float64: np.full(shape, np.nan, dtype))
    after = numba.cross_entropy(*task)
    assert after.value == before.value
    assert all((a == b).all() for a, b in zip(after[1:], before[1:], strict=True))


def test_blocks_stay_small() -> None:
    sizes = [numba.block_size(n_positions) for n_positions in (1, 191, 257, 4096, 100_000)]
    assert max(sizes) <= 384 + 12 and sizes[0] <= 12


@pytest.mark.parametrize("backend", ["numba", "torch"])
@pytest.mark.parametrize("corrected", CORRECTED)
def test_back_ends_differentiate(
    backend: str, corrected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(differentiable, "_CHUNK", 3000)  # several chunks, the last one shorter
    H, Z, targets, corrections = make(53, 301, 21, corrected)
    leaves = [torch.from_numpy(rows).requires_grad_() for rows in (H, Z)]
    ragged = None
    if corrections is not None:
        items, offsets, values = map(torch.from_numpy, corrections)
        leaves.append(values.requires_grad_())
        ragged = items, offsets, values
    loss = differentiable.cross_entropy(*leaves[:2], torch.from_numpy(targets), ragged, backend)
    (3 * loss).backward()
    got = [loss.item(), *(leaf.grad.numpy() / 3 for leaf in leaves)]  # type: ignore[union-attr]
    check(got, expect(H, Z, targets, corrections), 2e-6)


def test_the_plain_path_leaves_out_positions_without_a_target(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(differentiable, "_CHUNK", 3000)
    H, Z, targets, _ = make(53, 301, 21, "none")
    targets[::3] = -1
    leaves = [torch.from_numpy(rows).requires_grad_() for rows in (H, Z)]
    loss = differentiable.cross_entropy(*leaves, torch.from_numpy(targets), backend="torch")
    loss.backward()
    got = [loss.item(), *(leaf.grad.numpy() for leaf in leaves)]  # type: ignore[union-attr]
    check(got, expect(H, Z, targets, None), 2e-6)


def test_the_plain_path_has_the_right_gradients_in_float64() -> None:
    H, Z, targets, corrections = make(9, 40, 5, "some")
    items, offsets, values = map(torch.from_numpy, corrections)
    leaves = [torch.from_numpy(H), torch.from_numpy(Z), values]
    leaves = [leaf.double().requires_grad_() for leaf in leaves]

    def loss(H: torch.Tensor, Z: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        ragged = items, offsets, values
        return differentiable.cross_entropy(H, Z, torch.from_numpy(targets), ragged, "torch")

    assert torch.autograd.gradcheck(loss, leaves)


def test_the_device_decides_and_a_name_is_binding() -> None:
    H, Z, targets, _ = make(4, 30, 6, "none")
    tensors = torch.from_numpy(H), torch.from_numpy(Z), torch.from_numpy(targets)
    compiled = differentiable.cross_entropy(*tensors, backend="numba")
    assert differentiable.cross_entropy(*tensors) == compiled
    with pytest.raises(ConfigError, match="float64 on cpu: it takes"):
        differentiable.cross_entropy(*(t.double() for t in tensors[:2]), tensors[2])
    with pytest.raises(ConfigError, match="expected one of numba, torch, triton"):
        differentiable.cross_entropy(*tensors, backend="cuda")
    with pytest.raises(ConfigError, match="on meta"):
        differentiable.cross_entropy(*(t.to("meta") for t in tensors), backend="numba")
