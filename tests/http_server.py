"""A whole server inside the tests: the real service and store behind real sockets, on a loop in a thread of its own."""

from __future__ import annotations

import asyncio
import io
import json
import threading
from collections.abc import Coroutine, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from hcarec import HCAGRU, synthetic
from hcarec.serve.handlers import Site
from hcarec.serve.keys import Keys
from hcarec.serve.limits import Limits
from hcarec.serve.logs import Log
from hcarec.serve.options import ServiceOptions
from hcarec.serve.server import _config, _loop, _Server, address, bind
from hcarec.serve.service import Service


class Running:
    """A server that runs inside the block; `site` is what it answers from."""

    site: Site
    url: str

    def __init__(
        self,
        model: Path,
        store: Path | str,
        *,
        keys: Path | None = None,
        backups: Path | None = None,
        limits: Limits | None = None,
        beside: Sequence[Path] = (),
        data: Path | None = None,
        allow_mismatch: bool = False,
        **options: Any,
    ) -> None:
        self._given = model, store, keys, backups
        self._histories: dict[str, Any] = {"data": data, "beside": beside, "allow_mismatch": allow_mismatch}
        self._limits, self._options = limits or Limits(rate=0), ServiceOptions(**options)
        self.written = io.BytesIO()
        self._up = threading.Event()
        self._trouble: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._up.wait(120)
        if self._trouble is not None:
            raise self._trouble
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.should_exit = True
        self._thread.join(60)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=_loop()) as runner:  # the one that it has in life
                runner.run(self._serve())
        except BaseException as error:
            self._trouble = error
            self._up.set()

    async def _serve(self) -> None:
        model, store, keys, backups = self._given
        service = await Service.open(model, str(store), options=self._options, **self._histories)
        log = Log(stream=self.written)
        try:
            with bind("127.0.0.1", 0) as listening:
                self.site = Site(service, self._limits, Keys(keys) if keys else None, log, model.parent, backups)
                self._server, self._loop = _Server(_config(self.site)), asyncio.get_running_loop()
                listening.listen(self._server.config.backlog)
                self.url = address(listening)
                self._loop.call_soon(self._up.set)
                await self._server.serve([listening])
        finally:
            await service.close()
            log.close()

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def client(self, key: str | None = None) -> httpx.Client:
        """Return a client, with a key or without."""
        return httpx.Client(base_url=self.url, headers={"Authorization": f"Bearer {key}"} if key else {}, timeout=60, verify=False)

    def wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run something on the loop of the server."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def lines(self) -> list[dict[str, Any]]:
        """Return what the log holds by now."""
        return [json.loads(line) for line in self.written.getvalue().splitlines()]


def small_model(folder: Path) -> Path:
    """Write a small model into a folder, as `model`; return the folder."""
    HCAGRU(preset="paper", d=4, window_x=2, window_h=2).fit(synthetic(users=30, items=40, mean_length=8), epochs=1, seed=1).save(folder / "model")
    return folder


def problem(answer: httpx.Response) -> tuple[int, str]:
    """Return status and code of a refusal, which always has the same shape."""
    said = answer.json()
    assert set(said) == {"error"}
    assert set(said["error"]) == {"code", "message"}
    assert "\n" not in said["error"]["message"]
    return answer.status_code, said["error"]["code"]
