"""Bound the connections that are open at once: below the limit of open files, and for each address."""

from __future__ import annotations

import os
from collections import Counter
from ipaddress import IPv6Address, ip_address
from typing import NamedTuple, Self

from hcarec.serve.limits import Limits

BACKLOG = 2048
"""Connections that may wait to be accepted; they are accepted all at once, before any of them can be turned away."""
IN_USE = 64
"""Files taken to be open where the system does not say."""


class OpenFiles(NamedTuple):
    """The limit of open files of this process, and how many are open."""

    limit: int
    in_use: int

    @classmethod
    def now(cls) -> Self:
        """Ask the system."""
        try:
            import resource

            limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        except ImportError:  # Windows has no such limit
            return cls(1 << 20, IN_USE)
        try:
            return cls(limit if limit >= 0 else 1 << 20, len(os.listdir("/proc/self/fd")))
        except OSError:
            return cls(limit if limit >= 0 else 1 << 20, IN_USE)

    @property
    def reserved(self) -> int:
        """Files kept free of connections: for those not yet accepted, for the store, the keys, a swap of the model."""
        return self.limit // 4


class Connections:
    """Counts connections by address, and says which is one too many; for IPv6 an address is its /64, which one caller has whole."""

    def __init__(self, limits: Limits, files: OpenFiles) -> None:
        self.most = max(1, min(limits.connections, files.limit - files.in_use - files.reserved))
        self.backlog = max(1, min(BACKLOG, files.reserved // 2))
        self.per_address = limits.connections_per_address
        self._open: Counter[str] = Counter()
        self._total = 0

    def enter(self, client: tuple[str, int] | None) -> str | None:
        """Count a connection; return why it must be turned away, or None. Each that has entered leaves, turned away or not."""
        address = _network(client)
        self._open[address] += 1
        self._total += 1
        if self._total > self.most:
            return "too many connections: try again later"
        if self._open[address] > self.per_address:
            return f"more than {self.per_address} connections of one address: use fewer, or try again later"
        return None

    def leave(self, client: tuple[str, int] | None) -> None:
        """Count the end of a connection."""
        address = _network(client)
        self._total -= 1
        self._open[address] -= 1
        if not self._open[address]:
            del self._open[address]


def _network(client: tuple[str, int] | None) -> str:
    host = client[0] if client else ""
    if ":" not in host:
        return host
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    assert isinstance(address, IPv6Address)
    return str(address.ipv4_mapped or address.packed[:8].hex())
