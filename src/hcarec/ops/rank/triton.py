"""Count on a GPU how many scores of a row lie below each of its thresholds, in one pass."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

SEGMENT = 8192
"""Scores that a program keeps in registers while it goes through the thresholds."""


@triton.jit
def _count(S, stride, n, thresholds, offsets, below, SEGMENT: tl.constexpr) -> Any:
    """Add the counts of one segment of a row; sums of whole numbers come out in any order."""
    row = tl.program_id(0)
    column = tl.program_id(1) * SEGMENT + tl.arange(0, SEGMENT)
    place = S + row.to(tl.int64) * stride + column
    score = tl.load(place, mask=column < n, other=float("inf"))
    for at in range(tl.load(offsets + row), tl.load(offsets + row + 1)):
        count = tl.sum((score < tl.load(thresholds + at)).to(tl.int32))
        tl.atomic_add(below + at, count.to(tl.int64))


def count_below(S: Tensor, thresholds: Tensor, offsets: Tensor) -> Tensor:
    """Count the scores of each row below its thresholds; see `torch.count_below`."""
    below = torch.zeros_like(thresholds, dtype=torch.int64)
    if len(thresholds):
        grid = len(S), triton.cdiv(S.shape[1], SEGMENT)
        _count[grid](S, S.stride(0), S.shape[1], thresholds, offsets, below, SEGMENT=SEGMENT)
    return below
