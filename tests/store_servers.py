"""A real Redis or Valkey server for tests, on a socket in a folder of its own."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

DURABLE = ("--appendonly", "yes", "--appendfsync", "always")


class Server:
    """A server process that can be stopped, started again on its files, killed or frozen."""

    def __init__(self, folder: Path, *options: str, binary: str | None = None) -> None:
        binary = binary or shutil.which("valkey-server") or shutil.which("redis-server")
        if binary is None:
            pytest.skip("neither valkey-server nor redis-server is installed")
        pytest.importorskip("redis", reason="the package redis is not installed")
        self.folder = folder
        self.socket = folder / "s"
        self.url = f"unix://{self.socket}"
        self._command = [binary, "--port", "0", "--unixsocket", str(self.socket), "--dir", str(folder), "--save", "", *options]
        self.start()

    def start(self) -> None:
        """Start, and wait until it answers."""
        self.process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        client = self.client()
        for _ in range(500):
            try:
                client.ping()
                break
            except Exception:
                assert self.process.poll() is None, "the server has stopped by itself"
                time.sleep(0.01)
        client.close()

    def client(self):  # type: ignore[no-untyped-def]
        """Return a plain client."""
        import redis

        return redis.Redis.from_url(self.url)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Stop the process and wait for it."""
        self.process.send_signal(how)
        self.process.wait()

    def freeze(self, frozen: bool) -> None:
        """Stop it from answering while its connections stay, or let it go on."""
        self.process.send_signal(signal.SIGSTOP if frozen else signal.SIGCONT)
