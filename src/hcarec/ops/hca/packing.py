"""Sequences of a batch laid out step after step, without padding.

Sequences are ordered by length, longest first; the rows of step t are those of the sequences that
reach it. So the rows of a step are contiguous, and those of a sequence keep their rank within each.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from hcarec.ops.transfer import Send, on_cpu


@dataclass(frozen=True)
class Packing:
    """Where the P events of a batch (B, T) lie, and those before them."""

    starts: np.ndarray
    """(steps + 1,) int64, the first row of each step, then P."""
    device_starts: Tensor
    """The same, on the device of the batch."""
    places: Tensor
    """(P,) int64, the place of each row in the flat batch (B * T,)."""
    step: Tensor
    """(P,) int64, the step of each row."""
    w: int
    """Rows of a window."""

    @cached_property
    def before(self) -> Tensor:
        """The rows of windows, newest first (the row itself), -1 before the start: (P, w) int64."""
        lags = torch.arange(self.w, device=self.step.device)
        rank = torch.arange(len(self.step), device=self.step.device)
        rank -= self.device_starts[self.step]
        t = self.step[:, None] - lags
        return torch.where(t < 0, -1, self.device_starts[t.clamp_min(0)] + rank[:, None])


def pack(
    lengths: np.ndarray,
    rows: np.ndarray,
    T: int,
    w: int,
    send: Send = on_cpu,
) -> Packing:
    """Lay out some rows of a batch padded to T, with windows of w rows, on the device of `send`.

    lengths (B,), rows (any number of them, in any order).
    """
    rows = rows[np.argsort(-lengths[rows], kind="stable")]
    sizes = lengths[rows]
    steps = int(sizes.max(initial=0))
    # How many sequences reach each step: all, less those that have ended.
    counts = len(sizes) - np.cumsum(np.bincount(sizes, minlength=steps + 1))[:steps]
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    step = np.repeat(np.arange(steps), counts)
    rank = np.arange(starts[-1]) - starts[step]
    places = rows[rank] * T + step
    there = send(starts, places, step)
    return Packing(starts, there[0], there[1], there[2], w)
