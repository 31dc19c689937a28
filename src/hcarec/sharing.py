"""Processes that share a GPU: NVIDIA's MPS lets their work run side by side; without it they take turns."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

CONTROL = "nvidia-cuda-mps-control"
PIPES, LOGS = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"
SECONDS = 60
"""How long the service and the first process that uses it may take to answer."""
TRY = "import torch; torch.ones(1, device='cuda').sum().item()"
"""A process that uses the card."""


@contextlib.contextmanager
def card() -> Iterator[str]:
    """Let processes that are begun within share the card as well as they can; say how, in words.

    The service is of this program alone and ends with it. One that runs already is used as it is.
    """
    if os.environ.get(PIPES):
        yield f"by the MPS of {PIPES}"
        return
    control = shutil.which(CONTROL)
    if control is None:
        yield f"in turns, because {CONTROL} is not installed"
        return
    with tempfile.TemporaryDirectory(prefix="hcarec-mps-") as folder:
        with _service(control, Path(folder)) as works:
            if works:
                yield "by MPS"
                return
        yield "in turns, because MPS does not work here"


@contextlib.contextmanager
def _service(control: str, folder: Path) -> Iterator[bool]:
    """Run MPS; say whether a process can use the card through it."""
    before = {name: os.environ.get(name) for name in (PIPES, LOGS)}
    for name, part in ((PIPES, "pipes"), (LOGS, "logs")):
        (folder / part).mkdir()
        os.environ[name] = str(folder / part)
    try:
        yield _answers([control, "-d"]) and _answers([sys.executable, "-P", "-c", TRY])
    finally:
        _answers([control], given="quit\n")
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _answers(command: list[str], given: str | None = None) -> bool:
    """Run a command to its end; say whether it did what it should."""
    try:
        done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
