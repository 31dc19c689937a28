"""Where the events of a batch lie: rows without padding for products, padded ones for attention."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from hcarec.ops.transfer import Send, on_cpu


@dataclass(frozen=True)
class Packing:
    """Some sequences of a batch (B, T), one after another, without padding: P rows."""

    places: Tensor
    """(P,) int64, the place of each row in the flat batch (B * T,)."""
    steps: Tensor
    """(P,) int64, the step of each row in its sequence."""
    padded: Tensor
    """(P,) int64, the place of each row among these sequences, padded to the longest of them."""
    shape: tuple[int, int]
    """How many sequences these are, and the longest."""


def pack(lengths: np.ndarray, rows: np.ndarray, T: int, send: Send = on_cpu) -> Packing:
    """Lay out some rows of a batch padded to T, on the device of `send`.

    lengths (B,), rows (any number, in any order).
    """
    sizes = lengths[rows]
    longest = int(sizes.max(initial=0))
    number = np.repeat(np.arange(len(rows)), sizes)
    steps = np.arange(len(number)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    there = send(rows[number] * T + steps, steps, number * longest + steps)
    return Packing(there[0], there[1], there[2], (len(rows), longest))
