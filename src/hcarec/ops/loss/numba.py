"""Full cross-entropy over the catalog on a CPU, values and gradients, in compiled code."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from hcarec.hardware import cores
from hcarec.ops.loss.items import items
from hcarec.ops.loss.layout import pack
from hcarec.ops.loss.positions import positions
from hcarec.ops.loss.vectors import ITEMS, LANES, ROWS, VECTOR
from hcarec.ops.rank.corrections import Corrections

_BLOCK = 384  # positions that go through the catalog together, about
_STEP = 96  # positions that read the items together, at most


class Loss(NamedTuple):
    """The mean loss and its gradients: dH (P, d), dZ (n_items, d), dvalues (corrections,)."""

    value: float
    dH: np.ndarray
    dZ: np.ndarray
    dvalues: np.ndarray


def cross_entropy(
    H: np.ndarray,
    Z: np.ndarray,
    targets: np.ndarray,
    corrections: Corrections | None = None,
    threads: int | None = None,
) -> Loss:
    """Return the mean of -log softmax of the targets over the whole catalog, with gradients.

    H (P, d) and Z (n_items, d) float32, targets (P,) int; see `hcarec.ops.reference.cross_entropy`
    for the equations. The result has the same bits for any number of threads.

    Beside the gradients it holds Z twice in other layouts and the exponentials of a block of some
    384 positions: about 4 n_items (2 d + 384) bytes, however many positions there are.
    """
    H, Z = (np.ascontiguousarray(rows, np.float32) for rows in (H, Z))
    targets = np.ascontiguousarray(targets, np.int64)
    (n_positions, d), n_items = H.shape, len(Z)
    assert n_positions >= 1 and d >= 1 and Z.shape == (n_items, d), (H.shape, Z.shape)
    assert targets.shape == (n_positions,) and targets.min() >= 0 and targets.max() < n_items
    if corrections is None:
        nothing = (
            np.zeros(0, np.int32),
            np.zeros(n_positions + 1, np.int64),
            np.zeros(0, np.float32),
        )
        corrections = Corrections(*nothing)
    corrections.check(n_positions, n_items)
    threads = threads or cores()
    with ThreadPoolExecutor(max(1, threads - 1)) as pool:
        return _cross_entropy(H, Z, targets, corrections, _Threads(pool, threads))


class _Threads(NamedTuple):
    """The calling thread and those of a pool, `number` in all."""

    pool: ThreadPoolExecutor
    number: int

    def run(self, work: Callable[[int, int], Any], start: int, end: int, step: int) -> None:
        """Call `work` on every range of at most `step`; each thread takes the next one left."""
        left = deque((at, min(at + step, end)) for at in range(start, end, step))

        def take() -> None:
            while True:
                try:
                    some = left.popleft()
                except IndexError:  # another thread took the last one
                    return
                work(*some)

        helpers = [self.pool.submit(take) for _ in range(min(self.number, len(left)) - 1)]
        take()
        for helper in helpers:
            helper.result()


def _cross_entropy(
    H: np.ndarray, Z: np.ndarray, targets: np.ndarray, corrections: Corrections, threads: _Threads
) -> Loss:
    """Go through the positions block by block, each in two passes over the catalog."""
    (n_positions, d), n_chunks = H.shape, -(-len(Z) // ITEMS)
    few = -(-n_chunks // (8 * threads.number))  # chunks at once
    panels = np.zeros((n_chunks, ITEMS // LANES, d, LANES), np.float32)
    columns = np.zeros((n_chunks, -(-d // LANES), ITEMS, LANES), np.float32)
    threads.run(lambda *some: pack()(Z, *some, panels, columns), 0, n_chunks, few)

    size = block_size(n_positions)
    e = np.empty((n_chunks, size, ITEMS), np.float32)
    block = e, np.empty((n_chunks, size), np.float32), np.empty(size, np.float32), np.empty(size)
    losses, dvalues = np.empty(n_positions), np.empty(len(corrections.items), np.float32)
    dH = np.empty((n_positions, d), np.float32)
    dZ = np.zeros((n_chunks * ITEMS, -(-d // VECTOR) * VECTOR), np.float32)
    given, out = (H, Z, targets, *corrections, panels, columns), (losses, dH, dvalues)
    step = min(_STEP, _groups(-(-size // (2 * threads.number))))
    for start in range(0, n_positions, size):
        end = min(start + size, n_positions)

        def first_pass(*some: int, start: int = start) -> None:
            positions()(*given, start, *some, *block, *out)

        def second_pass(*some: int, start: int = start, n: int = end - start) -> None:
            items()(H, targets, *block, start, n, *some, dZ)

        threads.run(first_pass, start, end, step)
        threads.run(second_pass, 0, n_chunks, few)
    return Loss(float(losses.mean()), dH, np.ascontiguousarray(dZ[: len(Z), :d]), dvalues)


def block_size(n_positions: int) -> int:
    """Return how many positions go through the catalog together, in blocks of nearly one size.

    It depends on nothing else, above all not on the number of threads: it decides in which order
    dZ is summed.
    """
    n_blocks = -(-n_positions // _BLOCK)
    return _groups(-(-n_positions // n_blocks))


def _groups(n: int) -> int:
    """Return n rounded up to whole groups of positions."""
    return -(-n // ROWS) * ROWS
