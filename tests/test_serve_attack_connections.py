"""Connections that only hold a place: bounded below the limit of open files, and for each address."""

from __future__ import annotations

import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from hcarec.serve.connections import Connections, OpenFiles
from hcarec.serve.limits import Limits
from live_models import saved
from service_process import Process, Starter
from soak_counts import counting

SILENT_S = 10.0
"""For how long a connection that says nothing is kept (`receive_seconds`)."""


def open_from(address: str, port: int) -> socket.socket:
    """Open a connection from an address of this machine."""
    return socket.create_connection(("127.0.0.1", port), timeout=20, source_address=(address, 0))


def answered(address: str, port: int) -> bool:
    """Say whether a request from an address is answered 200."""
    with open_from(address, port) as connection:
        try:
            connection.sendall(b"POST /v1/recommend HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
            return connection.recv(65536).startswith(b"HTTP/1.1 200 ")
        except ConnectionError:
            return False


@contextmanager
def silent(port: int, number: int, address: str) -> Iterator[None]:
    """Hold connections that say nothing."""
    with ExitStack() as stack:
        for _ in range(number):
            stack.enter_context(open_from(address, port))
        yield


def started(starter: Starter, folder: Path, *more: str | int) -> tuple[Process, int]:
    process = starter.start(saved(folder, "hca-gru"), "--store", folder / "store.sqlite", "--rate", 0, *more)
    address = process.address()
    assert address is not None, process.errors
    return process, int(address.rpartition(":")[2])


@pytest.mark.parametrize(("number", "allowed"), [pytest.param(200, 50, id="some"), pytest.param(2060, 512, id="many", marks=pytest.mark.soak)])
def test_one_address_does_not_shut_the_others_out(tmp_path: Path, starter: Starter, number: int, allowed: int) -> None:
    with counting("connections", number > 2000) as counts:
        more = ["--set", "connections=150", "--set", f"connections_per_address={allowed}"] if number < 2000 else []
        _, port = started(starter, tmp_path, *more)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, number + 500)), hard))
        begin = time.monotonic()
        with silent(port, number, "127.0.0.9"):
            while time.monotonic() < begin + SILENT_S / 2:
                assert answered("127.0.0.1", port)
                counts["requests answered meanwhile"] += 1
                if number < 2000 and counts["requests answered meanwhile"] > 20:
                    break
        counts["silent connections"] = number


def test_connections_stay_below_the_limit_of_open_files(tmp_path: Path, starter: Starter) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (160, hard))  # which the command inherits
    try:
        given = "--store", tmp_path / "store.sqlite", "--rate", 0, "--set", "connections_per_address=100000"
        command = starter.start(saved(tmp_path, "hca-gru"), *given, command=True)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    address = command.address()
    assert address is not None, command.errors
    port = int(address.rpartition(":")[2])
    with silent(port, 300, "127.0.0.9"):
        time.sleep(0.2)
        assert len(list(Path(f"/proc/{command.pid}/fd").iterdir())) <= 160 * 3 // 4 + 5
    end = time.monotonic() + 20
    while not answered("127.0.0.1", port):  # they have gone: there is room again
        assert time.monotonic() < end
    assert "Too many open files" not in command.errors


def test_an_address_of_ipv6_is_its_network() -> None:
    limits = Limits(connections=100, connections_per_address=2)
    held = Connections(limits, OpenFiles(10_000, 10))
    assert held.enter(("2001:db8::1", 1)) is None
    assert held.enter(("2001:db8::2", 1)) is None
    assert held.enter(("2001:db8::3", 1)) is not None
    assert held.enter(("2001:db8:0:1::1", 1)) is None
    assert held.enter(("::ffff:10.0.0.1", 1)) is None
    assert held.enter(("10.0.0.1", 1)) is None
    assert held.enter(("10.0.0.1", 2)) is not None
    for address in ("2001:db8::1", "2001:db8::2"):
        held.leave((address, 1))
    assert held.enter(("2001:db8::4", 1)) is None


@pytest.mark.parametrize(("files", "most"), [(OpenFiles(1024, 24), 744), (OpenFiles(1 << 20, 24), 2048), (OpenFiles(20, 30), 1)])
def test_a_quarter_of_the_files_stays_free(files: OpenFiles, most: int) -> None:
    held = Connections(Limits(), files)
    assert held.most == most
    assert held.backlog < max(2, files.reserved)
