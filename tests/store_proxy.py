"""A way to a store that can be cut: a small TCP proxy before a server's socket, on a loop in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any, Self

WAYS = ("refuse", "reset", "swallow", "slow", "half-close", "cut", "deaf")
"""How a store can be out of reach: nobody listens; connections break; what is sent vanishes; every answer takes a second;
the store has hung up and the connection stays open; answers break off; connections are accepted and nothing is ever read."""
SLOW_S = 1.0


class Proxy:
    """Passes bytes on, or does one of the `WAYS` instead."""

    def __init__(self, target: Path) -> None:
        self._target, self._way = target, "pass"
        self._clients: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        self._do(self._listen())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def disturb(self, way: str) -> None:
        """Begin to do something else than to pass bytes on."""
        self._do(self._disturb(way))

    def mend(self) -> None:
        """Pass bytes on again; connections that were spoiled stay so."""
        self._do(self._mend())

    def answers(self) -> bool:
        """Say whether a new connection is answered."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as made:
                made.sendall(b"PING\r\n")
                return made.recv(7) == b"+PONG\r\n"
        except OSError:
            return False

    # -- on the loop -------------------------------------------------------------------------------------------------

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _end(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _disturb(self, way: str) -> None:
        self._way = way
        if way == "refuse":
            self._server.close()
        for client in list(self._clients):
            self._spoil(client)

    async def _mend(self) -> None:
        if self._way == "refuse":
            await self._listen()
        self._way = "pass"

    def _spoil(self, client: asyncio.StreamWriter) -> None:
        if self._way == "reset":
            client.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if self._way in ("refuse", "reset"):
            client.transport.abort()
        if self._way == "half-close" and client.can_write_eof():
            client.write_eof()

    async def _connected(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._clients.add(client)
        answers, store = await asyncio.open_unix_connection(str(self._target))
        try:
            self._spoil(client)
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await asyncio.gather(self._pump(reader, store, False), self._pump(answers, client, True))
        finally:
            for writer in (client, store):
                writer.transport.abort()
            self._clients.discard(client)
            self._tasks.discard(task)

    async def _pump(self, source: asyncio.StreamReader, to: asyncio.StreamWriter, back: bool) -> None:
        while part := await source.read(65536):
            while self._way == "deaf":
                await asyncio.sleep(0.02)
            if self._way == "slow" and back:
                await asyncio.sleep(SLOW_S)
            if self._way == "cut" and back:
                part = part[:3]
            if self._way == "swallow" or to.transport.is_closing() or (self._way == "half-close" and back):
                continue
            to.write(part)
            await to.drain()
        if to.can_write_eof() and not to.transport.is_closing():
            to.write_eof()
