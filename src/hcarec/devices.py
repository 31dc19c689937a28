"""What torch computes on: which device a run takes, what it is called, and what its failures mean."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator

from hcarec.errors import ConfigError, DeviceError

FULL = re.compile(r"out of memory|can't allocate memory|STATUS_ALLOC_FAILED", re.IGNORECASE)
"""Messages of a device that has no memory left."""
# By their messages and the names of their types: many an error comes from where torch need not be installed.
FAILED = re.compile(r"CUDA (driver )?error|CUBLAS_STATUS|CUDNN_STATUS")
"""Messages of a GPU that failed, or is gone."""
KERNEL_ERRORS = ("OutOfResources", "PTXASError")
"""Types of Triton's errors about kernels that a card is too small for."""


def choose(asked: str) -> str:
    """Return the device that torch computes on, or refuse the one asked for; auto is the best one."""
    import torch

    if asked == "cpu" or (asked == "auto" and not torch.cuda.is_available()):
        return "cpu"
    if not torch.cuda.is_available():
        built = torch.version.cuda is not None
        why = "look at nvidia-smi" if built else f"torch {torch.__version__} is a build without CUDA, install one with it"
        raise ConfigError(f"device is cuda, but torch finds no GPU here: {why}, or leave --device out")
    return "cuda"


def describe(device: str) -> str:
    """Return a device in words, with the version of torch."""
    import torch

    if device != "cuda":
        return f"the CPU (torch {torch.__version__})"
    card = torch.cuda.get_device_properties("cuda")
    return f"a GPU, {card.name} with {card.total_memory / (1 << 30):.0f} GiB (torch {torch.__version__})"


@contextlib.contextmanager
def failures(where: Callable[[], str], smaller: str) -> Iterator[None]:
    """Turn what torch raises when a device fails or has no memory left into a DeviceError of one line.

    `where` says what was being done, `smaller` what needs less memory.
    """
    try:
        yield
    except Exception as error:
        text, kind = " ".join(str(error).split("\n", 1)[0].split()), type(error).__name__
        if not isinstance(error, (MemoryError, RuntimeError)) and kind not in KERNEL_ERRORS:
            raise
        if kind in KERNEL_ERRORS:
            raise DeviceError(f"the GPU cannot run a kernel {where()} ({text[:200]}): use a smaller d (--set d=..), or --device cpu") from None
        on_gpu = FAILED.search(text) or kind in ("OutOfMemoryError", "AcceleratorError")
        if isinstance(error, MemoryError) or kind == "OutOfMemoryError" or FULL.search(text):
            place = "GPU" if on_gpu else "machine"
            raise DeviceError(f"the {place} has no memory left {where()}: use {smaller}, or free some and go on with --resume") from None
        if on_gpu:
            raise DeviceError(f"the GPU failed {where()} ({text[:200]}): once it works again, go on with --resume") from None
        raise
