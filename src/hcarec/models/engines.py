"""What runs a network when it recommends: the paper's engine, the one that knows today's options, or that of SASRec.

All take each user by itself, so that the bits do not depend on who else is there; the paper's networks keep theirs.
"""

from __future__ import annotations

import os
from typing import Any, Protocol

import numpy as np

from hcarec.ops import layout
from hcarec.ops.hca.parameters import Network
from hcarec.ops.parameters import State, Theta
from hcarec.ops.sas import parameters as sas
from hcarec.topk import Queries


class Engine(Protocol):
    """Runs a network with its parameters as they are; see `hcarec.models.base.Model` for the verbs."""

    item_vectors: np.ndarray

    @property
    def state_dtype(self) -> np.dtype[Any]: ...

    def encode(self, items: np.ndarray, offsets: np.ndarray, threads: int | None) -> Queries: ...

    def start(self, n: int) -> np.ndarray: ...

    def advance(self, states: np.ndarray, items: np.ndarray, offsets: np.ndarray) -> None: ...

    def queries(self, states: np.ndarray) -> Queries: ...

    def usable(self, states: np.ndarray) -> np.ndarray: ...

    def attention(self, items: np.ndarray, last: int) -> tuple[np.ndarray | None, np.ndarray | None]: ...


def engine(theta: Theta, network: Network) -> Engine:
    """Return what runs HCA-GRU."""
    return PaperEngine(theta, network) if network.is_paper else OptionsEngine(theta, network)


def sas_engine(theta: Theta, network: sas.Network) -> Engine:
    """Return what runs SASRec."""
    from hcarec.ops.sas import numba

    return KernelEngine(theta, network, numba)


class PaperEngine:
    """The engine that trains the paper's network, `hcarec.ops.cpu`."""

    def __init__(self, theta: Theta, network: Network) -> None:
        self._theta, self._windows = theta, (network.w_x, network.w_h)
        self._packed = layout.pack(theta, *self._windows)
        self.item_vectors, self._d = theta["X"], network.d

    def encode(self, items: np.ndarray, offsets: np.ndarray, threads: int | None) -> Queries:
        """Return the last overall interest of each history."""
        from hcarec.ops import cpu

        return Queries(cpu.encode(self._packed, items, offsets, *self._windows, threads=threads or os.cpu_count() or 1))

    @property
    def state_dtype(self) -> np.dtype[Any]:
        """Return the last w_x - 1 items, h, the last w_h - 1 hidden states, and the overall interest.

        The overall interest needs one hidden state more than the state keeps, so it cannot be made from it.
        """
        d, (w_x, w_h), number = self._d, self._windows, self.item_vectors.dtype.newbyteorder("<")
        return np.dtype([("items", "<i4", (w_x - 1,)), ("h", number, (d,)), ("hidden", number, (w_h - 1, d)), ("interest", number, (d,))])

    def start(self, n: int) -> np.ndarray:
        """Return states of zeros; -1 stands for no item."""
        states = np.zeros(n, self.state_dtype)
        states["items"] = -1
        return states

    def advance(self, states: np.ndarray, items: np.ndarray, offsets: np.ndarray) -> None:
        """Run the network from each state on."""
        from hcarec.ops import cpu

        now = State(*(np.ascontiguousarray(states[name]) for name in ("h", "items", "hidden")))
        interest = cpu.advance(self._packed, now, np.ascontiguousarray(items, np.int32), np.ascontiguousarray(offsets, np.int64))
        states["h"], states["items"], states["hidden"] = now
        moved = np.diff(offsets) > 0
        states["interest"][moved] = interest[moved]

    def queries(self, states: np.ndarray) -> Queries:
        """Return the overall interests."""
        return Queries(np.ascontiguousarray(states["interest"]))

    def usable(self, states: np.ndarray) -> np.ndarray:
        """Say which states hold finite numbers and known items."""
        items = states["items"]
        fine = np.asarray(((items >= -1) & (items < len(self.item_vectors))).all(axis=1))
        for name in ("h", "hidden", "interest"):
            fine &= np.isfinite(states[name]).reshape(len(states), -1).all(axis=1)
        return fine

    def attention(self, items: np.ndarray, last: int) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Return a_x and a_h of the last steps."""
        from hcarec.ops.attention import attention

        return attention(self._theta, items, *self._windows, last=last)


class KernelEngine:
    """An engine by the functions of a module, `hcarec.ops.hca.numba` or `hcarec.ops.sas.numba`."""

    def __init__(self, theta: Theta, network: Any, kernels: Any) -> None:
        self._theta, self._network, self._kernels = theta, network, kernels
        self._packed = kernels.pack(theta, network)
        self.item_vectors: np.ndarray = self._packed.items.ranked

    def encode(self, items: np.ndarray, offsets: np.ndarray, threads: int | None) -> Queries:
        """Return the last output of each history, and the copy term's corrections."""
        return Queries(*self._kernels.encode(self._packed, items, offsets, threads))

    @property
    def state_dtype(self) -> np.dtype[Any]:
        """Return what the network keeps of a user, and the last output."""
        return self._kernels.state_dtype(self._network)

    def start(self, n: int) -> np.ndarray:
        """Return states before the first event."""
        return self._kernels.start(self._network, n)

    def advance(self, states: np.ndarray, items: np.ndarray, offsets: np.ndarray) -> None:
        """Run the network from each state on."""
        self._kernels.advance(self._packed, states, items, offsets)

    def queries(self, states: np.ndarray) -> Queries:
        """Return the outputs of the states, and the copy term's corrections."""
        return Queries(*self._kernels.queries(self._packed, states))

    def usable(self, states: np.ndarray) -> np.ndarray:
        """Say which states hold finite numbers and known items."""
        return self._kernels.usable(self._network, states, len(self.item_vectors))

    def attention(self, items: np.ndarray, last: int) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Return no weights: the network has no windows."""
        return None, None


class OptionsEngine(KernelEngine):
    """The engine of HCA-GRU with today's options."""

    def __init__(self, theta: Theta, network: Network) -> None:
        from hcarec.ops.hca import numba

        super().__init__(theta, network, numba)

    def attention(self, items: np.ndarray, last: int) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Return a_x and a_h of the last layer's last steps."""
        from hcarec.ops.hca.attention import attention

        return attention(self._theta, self._network, items, last)
