"""The kernel that counts on a GPU: on a card, or else through Triton's interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from hcarec.errors import ConfigError  # noqa: E402 - torch may be missing
from hcarec.ops.rank import torch as on_device  # noqa: E402

CARD = torch.cuda.is_available()
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cuda" if CARD and not INTERPRETED else "cpu"
RUNS = pytest.mark.skipif(not (CARD or INTERPRETED), reason="no GPU here, and not interpreted")
SIZES = [(1, 1), (3, 130), (5, 8191), (2, 8193), (4, 20_011)]


@pytest.mark.skipif(CARD or INTERPRETED, reason="the kernel is tested directly")
def test_the_kernel_through_the_interpreter() -> None:
    """Run this file again: Triton must be told before anything imports it."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist"]
    env = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run([*command, str(Path(__file__))], env=env, capture_output=True, text=True)
    assert done.returncode == 0 and "7 passed, 1 skipped" in done.stdout, done.stdout + done.stderr


@RUNS
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_counts_are_those_of_plain_operations(size: tuple[int, int]) -> None:
    from hcarec.ops.rank import triton

    rows, n = size
    torch.manual_seed(n)
    wide = torch.randint(-9, 10, (rows, n + 3)).float()  # rows lie further apart than they are wide
    S = wide.to(DEVICE)[:, :n]
    counts = torch.arange(rows) * 3 % 7  # some rows have no threshold
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)]).to(DEVICE)
    thresholds = torch.randint(-9, 10, (int(offsets[-1]),)).float().to(DEVICE)
    thresholds[:2] = torch.tensor([torch.inf, -torch.inf])[: len(thresholds)]
    found = triton.count_below(S, thresholds, offsets)
    assert found.dtype == torch.int64
    assert found.tolist() == on_device.count_below(S, thresholds, offsets).tolist()
    row = torch.repeat_interleave(torch.arange(rows, device=DEVICE), offsets.diff())
    assert found.tolist() == (S[row] < thresholds[:, None]).sum(1).tolist()


@RUNS
def test_ranking_is_the_same_by_both_back_ends() -> None:
    torch.manual_seed(0)
    H, X = torch.randn(9, 5, device=DEVICE), torch.randn(700, 5, device=DEVICE)
    test = torch.randint(700, (18,), device=DEVICE), 2 * torch.arange(10, device=DEVICE)
    given = H, X, torch.randperm(700, device=DEVICE), 10
    found = [on_device.rank(*given, test=test, backend=name) for name in on_device.BACKENDS]
    for one, other in zip(*found, strict=True):
        assert one.tolist() == other.tolist()


def test_a_back_end_that_cannot_run_is_an_error() -> None:
    given = torch.ones(1, 1), torch.ones(4, 1), torch.arange(4), 2
    with pytest.raises(ConfigError, match="back-end 'cuda' of ranking: expected one of triton, "):
        on_device.rank(*given, backend="cuda")
    if not INTERPRETED:
        with pytest.raises(ConfigError, match="'triton' of ranking on cpu: it takes a GPU"):
            on_device.rank(*given, backend="triton")
