"""What computes the layers of the network: compiled kernels on a CPU, Triton or torch on a GPU."""

from __future__ import annotations

import os
from importlib.util import find_spec

import torch
from torch import Tensor

from hcarec.errors import ConfigError

BACKENDS = ("numba", "torch", "triton")
LARGEST = 512
"""The largest d that the Triton kernels take."""


def default_backend(device: str, d: int, dtype: torch.dtype = torch.float32) -> str:
    """Return what computes layers of size d on a device ("cpu" or "cuda") unless told otherwise."""
    if device == "cpu":
        return "numba"
    fits = d <= LARGEST and dtype in (torch.float32, torch.bfloat16)
    return "triton" if fits and find_spec("triton") is not None else "torch"


def choose_backend(asked: str | None, x: Tensor) -> str:
    """Return what computes layers of the inputs x (P, d); refuse a back-end that cannot."""
    device, d = x.device.type, x.shape[1]
    if asked is None:
        return default_backend(device, d, x.dtype)
    if asked not in BACKENDS:
        raise ConfigError(
            f"back-end '{asked}' of the network: expected one of {', '.join(BACKENDS)}"
        )
    if asked == "triton":
        _check_triton(device, d, x.dtype)
    elif (asked == "numba") != (device == "cpu"):
        able = default_backend(device, d, x.dtype)
        raise ConfigError(
            f"back-end '{asked}' of the network does not run on {device}: use '{able}'"
        )
    return asked


def _check_triton(device: str, d: int, dtype: torch.dtype) -> None:
    if find_spec("triton") is None:
        raise ConfigError(
            "back-end 'triton' of the network: Triton is not installed; "
            "install it, or leave the back-end out"
        )
    if device != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        raise ConfigError(
            f"back-end 'triton' of the network does not run on {device}: it takes a CUDA device"
        )
    if dtype not in (torch.float32, torch.bfloat16) or d > LARGEST:
        raise ConfigError(
            f"back-end 'triton' of the network got {dtype} and d = {d}: it takes torch.float32 or "
            f"torch.bfloat16 and d up to {LARGEST}; use 'torch'"
        )
