"""A step of training as CUDA graphs: hundreds of kernels are started by one call.

A graph repeats the very kernels that were captured, so there is one for each shape of a batch, and
all that changes from step to step is read from memory that stays where it is.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

import torch

from hcarec.ops.transfer import Send, StaticInputs

T = TypeVar("T")


class Graphs(Generic[T]):
    """Runs a step by the graph of its shape.

    `rehearse` does what compiles kernels and changes nothing; `step` is what is captured. Both take
    what the caller made of its inputs.
    """

    def __init__(
        self, device: torch.device, rehearse: Callable[[T], None], step: Callable[[T], None]
    ) -> None:
        self._device, self._rehearse, self._step = device, rehearse, step
        self._graphs: dict[Hashable, tuple[StaticInputs, torch.cuda.CUDAGraph]] = {}

    def prepare(self, shape: Hashable, place: Callable[[Send], T]) -> torch.cuda.CUDAGraph:
        """Put the inputs of a step where its graph reads them; return the graph, to be replayed.

        `place` sends the arrays and returns what is made of them.
        """
        if shape in self._graphs:
            inputs, graph = self._graphs[shape]
            inputs.restart()
            place(inputs)
            return graph
        inputs = StaticInputs(self._device)
        stream, side_stream = torch.cuda.current_stream(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side_stream.wait_stream(stream)
        with torch.cuda.stream(side_stream):
            self._rehearse(place(inputs))
        stream.wait_stream(side_stream)
        inputs.restart()
        graph = self._capture(place(inputs))  # placed anew: nothing computed from it is left over
        self._graphs[shape] = inputs, graph
        return graph

    def _capture(self, placed: T) -> torch.cuda.CUDAGraph:
        """Record the step; nothing that it changes is changed yet."""
        graph = torch.cuda.CUDAGraph()
        # One graph runs at a time, and none reads what another has left: they share their memory.
        others = [other for _, other in self._graphs.values()]
        pool = others[0].pool() if others else None
        with _no_garbage_collection(), torch.cuda.graph(graph, pool=pool):
            self._step(placed)
        return graph


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Collect garbage now and not meanwhile: to free an earlier graph would end a capture."""
    gc.collect()
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
