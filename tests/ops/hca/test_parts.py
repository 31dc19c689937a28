"""The parts of the network in torch: recurrence, windows, dropout, and the layout of a batch."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from hcarec.ops.hca import shards, windows
from hcarec.ops.hca.dropping import drop
from hcarec.ops.hca.packing import Packing, pack
from hcarec.ops.hca.recurrence import GROUP, recur
from hcarec.ops.hca.shards import cut, keys_of


def normal(*shape: int, dtype: Any = torch.float64, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def gradients(out: Tensor, *leaves: Tensor) -> list[Tensor]:
    loss = (out * normal(*out.shape, dtype=out.dtype)).sum()
    return list(torch.autograd.grad(loss, leaves, retain_graph=True))


def packed(lengths: list[int], w: int = 1) -> Packing:
    return pack(np.array(lengths), np.arange(len(lengths)), max(lengths), w)


def test_packing_lists_every_event_and_its_window() -> None:
    lengths, width = [2, 0, 5, 3, 5, 1], 6
    packing = pack(np.array(lengths), np.arange(6), width, 3)
    listed = [(place // width, place % width) for place in packing.places.tolist()]
    assert sorted(listed) == [(row, step) for row, n in enumerate(lengths) for step in range(n)]
    assert [step for _, step in listed] == sorted(step for _, step in listed)
    assert packing.starts.tolist() == [0, 5, 9, 12, 14, 16]
    for at, (row, step) in enumerate(listed):
        for lag, other in enumerate(packing.before[at].tolist()):
            if step < lag:
                assert other == -1
            else:
                assert listed[other] == (row, step - lag)


def test_packing_of_nothing() -> None:
    packing = pack(np.array([0, 0]), np.arange(2), 3, 2)
    assert packing.starts.tolist() == [0] and packing.before.shape == (0, 2)


def test_a_batch_is_cut_by_its_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit, value in (("POSITIONS", 6), ("HALVED", 6), ("QUARTERED", 12)):
        monkeypatch.setattr(shards, limit, value)
    lengths = np.array([2, 5, 0, 20, 3, 1, 1])  # 32 events: 4 parts, of which one sequence fills 2
    assert [rows.tolist() for rows in cut(lengths)] == [[3], [1], [4, 0, 5, 6]]
    assert [rows.tolist() for rows in cut(np.array([2, 4, 1, 1, 3]))] == [[1, 4], [0, 2, 3]]
    assert [rows.tolist() for rows in cut(np.array([2, 3]))] == [[1, 0]]
    assert cut(np.zeros(3, np.int64)) == []


def test_a_batch_is_cut_for_threads_by_twos() -> None:
    events = [0, 1_023, 1_024, 4_095, 4_096, 23_999, 24_576, 40_000]
    assert [shards.shards_of(number) for number in events] == [1, 1, 2, 2, 4, 4, 6, 8]


def plain_recurrence(g: Tensor, W: Tensor, starts: np.ndarray) -> Tensor:
    """Run the cell with nothing but autograd."""
    h, states = g.new_zeros(starts[1], g.shape[2]), []
    for begin, end in pairwise(starts.tolist()):
        own, h = g[begin:end], h[: end - begin]
        z, r = (torch.sigmoid(own[:, gate] + h @ W[gate].T) for gate in range(2))
        h = (1 - z) * h + z * torch.tanh(own[:, 2] + (r * h) @ W[2].T)
        states.append(h)
    return torch.cat(states)


@pytest.mark.parametrize("backend", ["numba", "torch"])
@pytest.mark.parametrize("d", [1, 7, 8, 19, 64])
def test_recurrence(backend: str, d: int) -> None:
    packing = packed([4, 1, 6] * GROUP)
    g = normal(packing.starts[-1], 3, d).requires_grad_()
    W = (normal(3, d, d, seed=1) / d**0.5).requires_grad_()
    truth, own = plain_recurrence(g, W, packing.starts), recur(g, W, packing, backend)
    torch.testing.assert_close(own, truth, rtol=0, atol=1e-13)
    for one, two in zip(gradients(own, g, W), gradients(truth, g, W), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("w", [1, 2, 5])
@pytest.mark.parametrize("d", [1, 8, 13])
def test_windows(d: int, w: int) -> None:
    before = packed([4, 1, 6, 2], w).before
    n = len(before)
    a, q, x = (normal(*shape, seed=w) for shape in ((n, w), (n, d), (n, d)))
    for tensor in (a, q, x):
        tensor.requires_grad_()
    C = x[before] * (before >= 0)[:, :, None]  # (P, w, d)
    for own, truth, leaves in (
        (windows.weighted_sum(a, x, before), torch.einsum("pw,pwd->pd", a, C), (a, x)),
        (windows.products(q, x, before), torch.einsum("pd,pwd->pw", q, C), (q, x)),
    ):
        torch.testing.assert_close(own, truth)
        for one, two in zip(gradients(own, *leaves), gradients(truth, *leaves), strict=True):
            if leaves[0] is a and one.shape == a.shape:  # a place without a row has no gradient
                assert not one[before < 0].any()
            torch.testing.assert_close(one, two)
    spread = torch.autograd.grad(truth, x, a.detach())[0]
    torch.testing.assert_close(windows.sum_in_torch(a, x, before), torch.einsum("pw,pwd->pd", a, C))
    torch.testing.assert_close(windows.dot_in_torch(q, x, before), truth)
    torch.testing.assert_close(windows.spread_in_torch(a, q, before, n), spread)


def test_totals_of_groups() -> None:
    a = normal(3, 4).requires_grad_()
    group = torch.tensor([[1, 0, 1, -1], [2, -1, -1, -1], [4, 3, 3, 4]])
    truth = torch.stack([a[group == number].sum() for number in range(5)])
    own = windows.totals(a, group, 5)
    torch.testing.assert_close(own, truth)
    torch.testing.assert_close(gradients(own, a), gradients(truth, a))


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_dropout_is_fair(p: float) -> None:
    keys = keys_of(3, 0)
    kept = torch.stack([drop(torch.ones(100, 50), p, keys) for _ in range(20)])
    torch.testing.assert_close(kept.unique(), torch.tensor([0, 1 / (1 - p)]))
    kept = (kept > 0).double()
    n, spread = kept.numel(), (p * (1 - p)) ** 0.5
    assert abs(kept.mean().item() - (1 - p)) < 4 * spread / n**0.5
    for near in (kept[1:] * kept[:-1], kept[:, :, 1:] * kept[:, :, :-1]):  # neighbors have no tie
        assert abs(near.mean().item() - (1 - p) ** 2) < 5 * spread / near.numel() ** 0.5
