"""Thousands of hostile requests at a whole service: each is answered or let go, none breaks anything, and memory stays bounded."""

from __future__ import annotations

import random
import re
import socket
import struct
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from hcarec.recommendation import recommend
from hostile_requests import KINDS
from live_models import models, saved
from load_clients import Connection
from service_process import Process, Starter
from soak_counts import counting

CLIENTS = 6
ALLOWED_MIB = 40.0
"""What a flood may leave behind: buffers and caches that are bounded; a kilobyte kept of each request would be more."""
EXPECTED = {200, 304, 400, 403, 404, 405, 408, 413, 415, 422, 431, 503}


def spoken(port: int, sent: bytes, give_up: bool) -> bytes:
    """Send bytes, read until the server closes, or go away without reading."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        with suppress(ConnectionError):
            connection.sendall(sent)
        if give_up:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return b""
        parts = []
        with suppress(ConnectionError):
            while part := connection.recv(65536):
                parts.append(part)
        return b"".join(parts)


class Flood:
    """Clients that send requests of every kind at once."""

    def __init__(self, address: str, seed: int) -> None:
        self._port, self._dice = int(address.rpartition(":")[2]), random.Random(seed)
        self._lock = threading.Lock()
        self.counts: Counter[str] = Counter()
        self.trouble: list[str] = []

    def send(self, number: int) -> None:
        """Send that many requests."""
        clients = [threading.Thread(target=self._client, args=(self._dice.randrange(1 << 30), number // CLIENTS)) for _ in range(CLIENTS)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        assert not self.trouble, self.trouble[:3]

    def _client(self, seed: int, number: int) -> None:
        dice = random.Random(seed)
        for _ in range(number):
            name = dice.choice([kind for kind in KINDS for _ in range(1 if kind in ("halves", "large bodies") else 6)])
            sent = KINDS[name](dice)
            try:
                answer = spoken(self._port, sent, give_up=dice.random() < 0.05)
            except OSError as error:
                answer = b""
                self.trouble.append(f"{name}: {error!r} after {sent[:200]!r}")
            statuses = [int(status) for status in re.findall(rb"(?:^|[}\n])HTTP/1\.1 (\d{3}) ", answer)]
            with self._lock:
                self.counts[name] += 1
                self.counts.update(f"answered {status}" for status in statuses)
            if not set(statuses) <= EXPECTED or b"Traceback" in answer:
                self.trouble.append(f"{name}: {answer[:300]!r} to {sent[:200]!r}")


def still_right(address: str) -> None:
    """Ask as a person would."""
    with Connection(address) as connection:
        for user in ("me", "also me"):
            kept = [event["item"] for event in connection.kept(user)]
            assert connection.ask("POST", "/v1/events", {"user": user, "item": "i05"})[0] == 200
            status, said = connection.ask("POST", "/v1/recommend", {"user": user})
            right = recommend(models()["hca-gru"], [*kept, "i05"], 20)
            assert status == 200 and [(one["item"], one["score"]) for one in said["items"]] == [(one.item, one.score) for one in right]


@pytest.mark.parametrize("number", [pytest.param(600, id="some"), pytest.param(36_000, id="many", marks=pytest.mark.soak)])
def test_a_flood_breaks_nothing_and_leaves_nothing_behind(tmp_path: Path, starter: Starter, number: int) -> None:
    with counting("flood", number > 10_000) as counts:
        given = "--store", tmp_path / "store.sqlite", "--rate", 0, "--set", "receive_seconds=0.5", "--set", "cached_users=1000"
        process: Process = starter.start(saved(tmp_path, "hca-gru"), *given)
        address = process.address()
        assert address is not None, process.errors
        flood = Flood(address, number)
        flood.send(number // 6)  # what is made once is made now
        still_right(address)
        before = process.resident_mib()
        flood.send(number - number // 6)
        still_right(address)
        after = process.resident_mib()
        assert after - before < ALLOWED_MIB, (before, after)
        assert "Traceback" not in process.errors and '"status":500' not in process.errors, process.errors[-3000:]
        counts.update(flood.counts)
        counts["requests"] = sum(flood.counts[kind] for kind in KINDS)
        counts["memory before, MiB"], counts["memory after, MiB"] = round(before), round(after)
