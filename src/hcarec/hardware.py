"""What the machine has, found without anything heavy."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

GIB = 1 << 30


class Cost(NamedTuple):
    """What a piece of work is expected to need: seconds, and bytes of memory."""

    seconds: float
    memory: int


class Memory(NamedTuple):
    """Bytes of memory in all, and those that a new program may use; None where the system does not tell."""

    total: int | None
    available: int | None


def processor() -> str:
    """Return the name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def cores() -> int:
    """Return the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory() -> Memory:
    """Return the memory of the machine."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else None
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return Memory(total, int(line.split()[1]) * 1024)
    except OSError:
        pass
    return Memory(total, None)


def gpus() -> list[str]:
    """Return the names of the NVIDIA cards that the driver knows."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    try:
        done = subprocess.run([program, "--query-gpu=name,memory.total", "--format=csv,noheader"], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.strip()] if done.returncode == 0 else []
