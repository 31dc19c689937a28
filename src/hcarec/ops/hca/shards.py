"""Run the layers over a batch in shards, several threads at a time.

A shard is some whole sequences. Its tensors fit into a core's cache, and threads meet only at the
end of a pass, not in every operation. How a batch is cut depends on its lengths alone, and
gradients are summed in the order of the shards: so the bits do not depend on the number of threads,
provided that torch itself uses one (`one_torch_thread`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from itertools import count
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from hcarec.ops.hca.dropping import Keys
from hcarec.ops.streams import stream

POSITIONS = 4096
"""Events in a shard, about; fewer cost more calls, more leave the cache."""
HALVED, QUARTERED = 1024, 4096
"""Events from which a smaller batch is cut into two and into four shards, for several threads."""


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Let torch itself use one thread, and set back what it used before."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def cut(lengths: np.ndarray) -> list[np.ndarray]:
    """Cut a batch into shards: the rows of each, longest sequences first."""
    order = np.argsort(-lengths, kind="stable")
    order = order[lengths[order] > 0]
    before, total = np.cumsum(lengths[order]) - lengths[order], int(lengths.sum())
    shard = before * shards_of(total) // max(total, 1)
    return [order[shard == number] for number in np.unique(shard)]


def shards_of(events: int) -> int:
    """Return how many shards a batch is cut into: even, so that two threads end together."""
    if events < HALVED:
        return 1
    return 2 * max(1 + (events >= QUARTERED), events // (2 * POSITIONS))


def keys_of(seed: int | None, shard: int) -> Keys:
    """Return the keys of dropout in one shard, one for each place; None without a seed."""
    return None if seed is None else (stream(seed, shard, place) for place in count())


def run_shards(
    run_layers: Callable[[dict[str, Tensor], Tensor, Any, Keys], Tensor],
    theta: dict[str, Tensor],
    x: Tensor,
    packings: Sequence[Any],
    seed: int | None,
    threads: int,
) -> Tensor:
    """Return what `run_layers` makes of each shard: inputs (P, d), shard after shard -> (P, d).

    A packing has `places` (P,), the places of its rows in the batch.
    """
    keep = torch.is_grad_enabled()
    job = (run_layers, list(theta), packings, seed, threads, keep)
    return _Shards.apply(job, x, *theta.values())


class _Shards(Function):
    @staticmethod
    def forward(ctx: Any, job: Any, x: Tensor, *values: Tensor) -> Tensor:
        run_layers, names, packings, seed, threads, keep = job
        parts = x.detach().split([len(packing.places) for packing in packings])

        def work(shard: int) -> tuple[list[Tensor], Tensor]:
            # Leaves of its own: each shard has a graph for itself.
            leaves = [value.detach().requires_grad_(keep) for value in (parts[shard], *values)]
            theta = dict(zip(names, leaves[1:], strict=True))
            with torch.set_grad_enabled(keep):
                keys = keys_of(seed, shard)
                return leaves, run_layers(theta, leaves[0], packings[shard], keys)

        ctx.graphs = _map(work, len(packings), threads)
        ctx.threads = threads
        return torch.cat([y.detach() for _, y in ctx.graphs])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:
        graphs, ctx.graphs = ctx.graphs, None
        parts = d_out.split([len(y) for _, y in graphs])

        def work(shard: int) -> tuple[Tensor | None, ...]:
            leaves, y = graphs[shard]
            return torch.autograd.grad(y, leaves, parts[shard], allow_unused=True)

        d_x, *d_values = zip(*_map(work, len(graphs), ctx.threads), strict=True)
        return None, torch.cat(d_x), *(_sum(shares) for shares in d_values)


def _sum(shares: Sequence[Tensor | None]) -> Tensor | None:
    """Add up the gradients of all shards, in their order."""
    total = shares[0]
    for share in shares[1:]:
        if total is not None and share is not None:
            total = total.add_(share)
    return total


def _map(work: Callable[[int], Any], n: int, threads: int) -> list[Any]:
    """Return work(0), .., work(n - 1)."""
    if threads == 1 or n == 1:
        return [work(number) for number in range(n)]
    return list(_pool(threads).map(work, range(n)))


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    # Torch counts its threads in each thread by itself.
    return ThreadPoolExecutor(threads, "hcarec-shard", torch.set_num_threads, (1,))
