"""Run the service behind HTTP: bind, open, serve, and stop so that nothing is lost."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn

from hcarec import atomic
from hcarec.errors import ConfigError
from hcarec.serve.app import gates, make_app
from hcarec.serve.connections import Connections, OpenFiles
from hcarec.serve.garbage import look_seldom
from hcarec.serve.handlers import Site
from hcarec.serve.keys import Keys
from hcarec.serve.limits import Limits
from hcarec.serve.logs import Forward, Log
from hcarec.serve.options import ServiceOptions
from hcarec.serve.protocol import guarded
from hcarec.serve.service import Service
from hcarec.serve.shedding import Shedding
from hcarec.serve.short_way import METHOD, PATH, ShortWay
from hcarec.serve.stopping import REQUESTS, ForcedExit

SWITCH_S = 0.0005
"""How long a thread keeps the interpreter while another waits: with the usual 5 ms, answers of the store wait for whole bursts of requests."""


def run_evenly() -> None:
    """Let the interpreter interrupt requests as little as it can; to be called when everything is loaded."""
    sys.setswitchinterval(SWITCH_S)
    look_seldom()


@dataclass(frozen=True)
class Settings:
    """What to serve, and where."""

    model: Path
    store: str
    data: Path | None = None
    restore: Path | None = None
    host: str = "127.0.0.1"
    port: int = 8080
    keys: Path | None = None
    backups: Path | None = None
    log: str = "requests"
    limits: Limits = field(default_factory=Limits)
    options: ServiceOptions = field(default_factory=ServiceOptions)
    beside: tuple[Path, ...] = ()
    allow_mismatch: bool = False


def run(settings: Settings, started: Callable[[Service, str], None]) -> None:
    """Serve until SIGTERM or Ctrl-C; `started` is told the open service and its address when requests are taken."""
    keys = Keys(settings.keys) if settings.keys is not None else None
    if keys is None and not is_loopback(settings.host):
        raise ConfigError(f"'{settings.host}' can be reached from other machines, so API keys are needed: give --keys FILE, or --host 127.0.0.1")
    if settings.backups is not None and not settings.backups.is_dir():
        raise ConfigError(f"the folder of backups '{settings.backups}' is not there: make it, or give another")
    if settings.backups is not None:
        atomic.sweep(settings.backups)  # half a backup still holds people's events
    forced = ForcedExit(settings.limits.drain_seconds)
    try:
        with bind(settings.host, settings.port) as listening, asyncio.Runner(loop_factory=_loop()) as runner:
            runner.run(_serve(settings, keys, listening, started, forced))
    finally:
        forced.disarm()


async def _serve(settings: Settings, keys: Keys | None, listening: socket.socket, started: Callable[[Service, str], None], forced: ForcedExit) -> None:
    given: dict[str, Any] = {"data": settings.data, "restore": settings.restore, "beside": settings.beside, "allow_mismatch": settings.allow_mismatch}
    service = await Service.open(settings.model, settings.store, options=settings.options, **given)
    forced.last = service.abandon
    with _logging(settings.log) as log:
        try:
            site = Site(service, settings.limits, keys, log, settings.model.resolve().parent, settings.backups)
            server = _Server(_config(site), forced)
            listening.listen(server.config.backlog)
            run_evenly()
            with server.capture_signals():  # from the moment that somebody knows of the server
                started(service, address(listening))
                await server.serve([listening])
        finally:
            await service.close(forced.left())
        log.line("stopped")


class _Server(uvicorn.Server):
    """Uvicorn's server, which after a clean end would die of the signal that asked for it, and which may wait for ever for what hangs."""

    def __init__(self, config: uvicorn.Config, forced: ForcedExit | None = None) -> None:
        super().__init__(config)
        self._forced = forced

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to stop, for a limited time."""
        if self._forced is not None:
            self._forced.begin()
        super().handle_exit(sig, frame)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():  # where no signal can arrive
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _config(site: Site) -> uvicorn.Config:
    app, doors = make_app(site), gates(site)
    short_way = ShortWay(site, app, doors[METHOD, PATH])
    connections = Connections(site.limits, OpenFiles.now())
    if connections.most < site.limits.connections:
        site.log.line("connections limited", connections=connections.most, reason="the limit of open files (ulimit -n) allows no more")
    return uvicorn.Config(
        app,
        http=guarded(site.limits, connections, site.metrics.refused, Shedding(doors), app.common, short_way),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # who forges X-Forwarded-For would choose the address that is counted
        backlog=connections.backlog,
        timeout_keep_alive=site.limits.idle_seconds,
        timeout_graceful_shutdown=REQUESTS * site.limits.drain_seconds,  # type: ignore[arg-type]  # any number will do
    )


@contextlib.contextmanager
def _logging(level: str) -> Iterator[Log]:
    """Open the log; what uvicorn and asyncio have to say goes there as well."""
    log = Log(level)
    forward, libraries = Forward(log), [logging.getLogger(name) for name in ("uvicorn.error", "asyncio", "hcarec.serve")]
    for library in libraries:
        library.addHandler(forward)
        library.propagate = False
    libraries[0].setLevel(logging.ERROR)  # its warnings are of clients' making, and counted
    try:
        yield log
    finally:
        for library in libraries:
            library.removeHandler(forward)
            library.propagate = True
        log.close()


def _loop() -> Any:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def is_loopback(host: str) -> bool:
    """Say whether an address can be reached from this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def bind(host: str, port: int) -> socket.socket:
    """Take the address, before anything heavy is loaded."""
    host = host.strip("[]")
    if not 0 <= port <= 65535:
        raise ConfigError(f"there is no port {port}: give --port from 0 (any free one) to 65535")
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        taken = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError):
        raise ConfigError(f"'{host}' is no address that can be found: give --host 127.0.0.1, or an address of this machine") from None
    try:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(place)
    except OSError as error:
        taken.close()
        raise ConfigError(f"cannot listen on {host} port {port}: {error.strerror or error}; give another --port or --host") from None
    return taken


def address(listening: socket.socket) -> str:
    """Return the address of a socket as a URL."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
