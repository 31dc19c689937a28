"""Arrays on their way to a device."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor


def to_device(array: np.ndarray, device: Any) -> Tensor:
    """Return an array as a tensor on a device; to a GPU it is copied without waiting for it."""
    tensor = torch.from_numpy(array)
    if torch.device(device).type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)
