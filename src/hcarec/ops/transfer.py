"""Arrays on their way to a device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

Send = Callable[..., list[Tensor]]
"""Takes arrays of int64 and returns them as tensors on a device."""


def on_cpu(*arrays: np.ndarray) -> list[Tensor]:
    """Return arrays of int64 as tensors that share their memory."""
    return [torch.from_numpy(array) for array in arrays]


def to_device(device: Any, *arrays: np.ndarray) -> list[Tensor]:
    """Return arrays of int64 as tensors on a device.

    To a GPU they go in one copy, from memory that it reads by itself, and nothing waits for that.
    """
    if torch.device(device).type == "cpu":
        return on_cpu(*arrays)
    return _cut(_pinned(arrays).to(device, non_blocking=True), arrays)


class StaticInputs:
    """Sends arrays to the same places of a GPU every time, as the replay of a CUDA graph reads them.

    Between two calls of `restart` the calls come in one order, with arrays of the same shapes.
    """

    def __init__(self, device: Any) -> None:
        self._device, self._buffers, self._next = device, list[Tensor](), 0

    def restart(self) -> None:
        """Let the next arrays take the places of the first ones."""
        self._next = 0

    def __call__(self, *arrays: np.ndarray) -> list[Tensor]:
        source = _pinned(arrays)
        if self._next == len(self._buffers):
            self._buffers.append(torch.empty_like(source, device=self._device))
        buffer = self._buffers[self._next].copy_(source, non_blocking=True)
        self._next += 1
        return _cut(buffer, arrays)


def _pinned(arrays: tuple[np.ndarray, ...]) -> Tensor:
    """Return the arrays one after another, in memory that a GPU reads by itself."""
    flat = torch.empty(sum(array.size for array in arrays), dtype=torch.int64, pin_memory=True)
    np.concatenate([array.reshape(-1) for array in arrays], out=flat.numpy())
    return flat


def _cut(flat: Tensor, arrays: tuple[np.ndarray, ...]) -> list[Tensor]:
    """Return the parts of a flat tensor in the shapes of the arrays."""
    parts = flat.split([array.size for array in arrays])
    return [part.view(array.shape) for part, array in zip(parts, arrays, strict=True)]
