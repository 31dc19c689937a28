"""How quiet the machine is: what it costs anything on it to wake up, and what the host takes from it. Run as a program it is the process that watches."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from open_loop import TICK_S, percentiles

QUIET_S, QUIET_SHARE = 3.0, 0.003
"""The machine is quiet when others took less than this share of all its cores, kept busy for so long: they take nothing from one that sleeps."""
SPIN = "import time; end = time.monotonic() + float(__import__('sys').argv[1])\nwhile time.monotonic() < end: pass"


@contextlib.contextmanager
def bystander() -> Iterator[dict[str, Any]]:
    """Yield what will say, afterwards, how long the machine itself kept arrivals waiting, and which share of the cores others took from it."""
    seen: dict[str, Any] = {}
    begin, stolen = time.monotonic(), stolen_s()
    with subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield seen
        finally:
            said, _ = process.communicate("end")
    seen |= json.loads(said)
    seen["stolen"] = (stolen_s() - stolen) / ((time.monotonic() - begin) * (os.cpu_count() or 1))


def wait_for_quiet(tries: int) -> float:
    """Wait until the host leaves the machine alone, but not for ever; return for how long."""
    begin, cores = time.monotonic(), os.cpu_count() or 1
    for _ in range(tries):
        stolen = stolen_s()
        for one in [subprocess.Popen([sys.executable, "-c", SPIN, str(QUIET_S)]) for _ in range(cores)]:
            one.wait()
        if stolen_s() - stolen < QUIET_SHARE * QUIET_S * cores:
            break
    return time.monotonic() - begin


def processor_s(process: int) -> float:
    """Return the processor time of all threads of a process."""
    return sum(int((one / "schedstat").read_text().split()[0]) for one in Path(f"/proc/{process}/task").iterdir()) / 1e9


def stolen_s() -> float:
    """Return the seconds for which a core was wanted here and used by another machine on the same host."""
    return int(Path("/proc/stat").read_text().split()[8]) / os.sysconf("SC_CLK_TCK")


def sleep_beside() -> dict[str, Any]:
    """Sleep until standard input ends, and return by how much each sleep was too long, and what that means for others."""
    late = []
    ended = select.poll()
    ended.register(sys.stdin, select.POLLIN)
    begin = time.perf_counter()
    while not ended.poll(0):
        before = time.perf_counter()
        time.sleep(TICK_S)
        late.append(time.perf_counter() - before - TICK_S)
    gaps = np.maximum(np.array(late), 0.0)
    return {"late_ms": percentiles(gaps), "wait_p99_ms": round(1000 * waited(gaps, time.perf_counter() - begin, 0.01), 3)}


def waited(gaps: np.ndarray, seconds: float, share: float) -> float:
    """Return how long, at least, that share of arrivals waits which come at any time and find a machine that stands still during `gaps`.

    A long gap is met more often than a short one, and on average waited for by half: percentiles of the gaps themselves would hide it.
    """
    low, high = 0.0, float(gaps.max(initial=0.0))
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if np.maximum(gaps - middle, 0.0).sum() > share * seconds else (low, middle)
    return high


if __name__ == "__main__":
    print(json.dumps(sleep_beside()))
