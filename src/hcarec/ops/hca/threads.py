"""Share a range among threads."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch


def in_threads(work: Callable[[int, int], object], n: int, multiple: int = 1) -> None:
    """Call work(first, last) for parts of 0..n, one for each of torch's threads.

    Each part but the last is a multiple of some number.
    """
    share = -(-n // torch.get_num_threads())
    share = max(1, -(-share // multiple)) * multiple
    parts = [(first, min(first + share, n)) for first in range(0, n, share)]
    if len(parts) < 2:
        for first, last in parts:
            work(first, last)
        return
    with ThreadPoolExecutor(len(parts)) as pool:
        list(pool.map(lambda part: work(*part), parts))
