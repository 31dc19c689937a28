"""Arrays on their way to a device."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor


def to_device(device: Any, *arrays: np.ndarray) -> list[Tensor]:
    """Return arrays of int64 as tensors on a device.

    To a GPU they go in one copy, from memory that it reads by itself, and nothing waits for that.
    """
    if torch.device(device).type == "cpu":
        return [torch.from_numpy(array) for array in arrays]
    sizes = [array.size for array in arrays]
    flat = torch.empty(sum(sizes), dtype=torch.int64, pin_memory=True)
    np.concatenate([array.reshape(-1) for array in arrays], out=flat.numpy())
    parts = flat.to(device, non_blocking=True).split(sizes)
    return [part.view(array.shape) for part, array in zip(parts, arrays, strict=True)]
