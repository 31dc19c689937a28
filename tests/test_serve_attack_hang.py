"""A store that hangs: it is not called ready, nobody waits for ever, the service goes on by itself and can be stopped."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from live_models import saved
from service_process import Process, Starter, runs
from soak_counts import counting

PATIENCE_S = 60.0
"""What takes longer than this hangs; far longer than anything here takes."""
REQUESTS = (
    ("POST", "/v1/events", {"user": "someone", "item": "i02"}),
    ("DELETE", "/v1/users/nobody", None),
    ("DELETE", "/v1/users/someone/events/nothing", None),
    ("GET", "/v1/users/someone", None),
    ("POST", "/admin/backup", {"name": "copy"}),
)


@contextmanager
def started(starter: Starter, folder: Path, *more: str) -> Iterator[tuple[Process, httpx.Client]]:
    (folder / "backups").mkdir(exist_ok=True)
    given = (
        "--backups",
        folder / "backups",
        "--store",
        folder / "store.sqlite",
        "--rate",
        0,
        "--set",
        "store_timeout_s=0.2",
        "--set",
        "drain_seconds=3",
        "--set",
        "retry_s=0.1",
    )
    process = starter.start(saved(folder, "hca-gru"), *given, "--set", "store_timeout_s=0.2", *more)
    address = process.address()
    assert address is not None, process.errors
    with httpx.Client(base_url=address, timeout=PATIENCE_S) as client:
        yield process, client


def until(client: httpx.Client, path: str, status: int) -> httpx.Response:
    """Ask again and again until the status is as expected."""
    end = time.monotonic() + PATIENCE_S
    while (answer := client.get(path)).status_code != status:
        assert time.monotonic() < end, answer.text
        time.sleep(0.02)
    return answer


def stop_writer(process: Process) -> int:
    """Stop the process that writes the store, and return it."""
    (writer,) = process.helpers()
    os.kill(writer, signal.SIGSTOP)
    return writer


def metric(client: httpx.Client, name: str) -> float:
    return float(re.findall(rf"^{name} (\S+)$", client.get("/metrics").text, re.MULTILINE)[0])


@pytest.mark.parametrize("rounds", [pytest.param(2, id="some"), pytest.param(25, id="many", marks=pytest.mark.soak)])
def test_a_writer_that_is_stopped_is_noticed_and_replaced(tmp_path: Path, starter: Starter, rounds: int) -> None:
    with counting("hang", rounds > 20) as counts, started(starter, tmp_path) as (process, client):
        acknowledged = 0
        for number in range(rounds):
            assert client.post("/v1/events", json={"user": "someone", "item": "i01", "event_id": f"before {number}"}).status_code == 200
            acknowledged += 1
            writer = stop_writer(process)
            method, path, body = REQUESTS[number % len(REQUESTS)]  # the one that finds out
            said = client.request(method, path, json=body)
            assert said.status_code == 503, (path, said.text)
            until(client, "/readyz", 503)
            assert client.get("/healthz").status_code == 200
            assert metric(client, "hcarec_store_down") == 1
            assert client.post("/v1/recommend", json={"user": "someone"}).status_code == 200
            until(client, "/readyz", 200)  # another process writes now
            assert writer not in process.helpers()
            events = client.get("/v1/users/someone", params={"limit": 10000}).json()["events"]
            assert [one["event_id"] for one in events if one.get("event_id")] == [f"before {n}" for n in range(number + 1)]
            assert metric(client, "hcarec_store_down") == 0
            counts["times stopped"] += 1
        counts["events acknowledged"] = acknowledged


def test_a_swap_that_was_refused_is_not_carried_out_later(tmp_path: Path, starter: Starter) -> None:
    saved(tmp_path, "other")
    with started(starter, tmp_path, "--set", "store_timeout_s=2", "--set", "take_wait_s=3") as (process, client), ThreadPoolExecutor() as threads:
        before = client.get("/v1/status").json()["model"]
        writer = stop_writer(process)
        waiting = threads.submit(client.post, "/v1/events", json={"user": "a", "item": "i01"})  # has the store when the swap comes
        said = client.post("/admin/model", json={"name": "other", "allow_mismatch": True})
        assert said.status_code == 503, said.text
        os.kill(writer, signal.SIGCONT)
        assert waiting.result().status_code in (200, 503)
        until(client, "/readyz", 200)
        assert client.post("/v1/events", json={"user": "a", "item": "i02"}).status_code == 200
        assert client.get("/v1/users/a").status_code == 200  # by the thread that would have swapped
        assert client.get("/v1/status").json()["model"] == before
        assert client.post("/admin/model", json={"name": "other", "allow_mismatch": True}).status_code == 200
        assert client.get("/v1/status").json()["model"] != before


def test_a_writer_that_goes_on_in_time_is_kept(tmp_path: Path, starter: Starter) -> None:
    with started(starter, tmp_path, "--set", "store_timeout_s=20", "--set", "take_wait_s=30") as (process, client):
        assert client.post("/v1/events", json={"user": "a", "item": "i01"}).status_code == 200
        writer = stop_writer(process)
        time.sleep(0.5)
        os.kill(writer, signal.SIGCONT)
        assert client.post("/v1/events", json={"user": "a", "item": "i02"}).status_code == 200
        assert process.helpers() == [writer]


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "while an event waits"])
def test_the_service_stops_though_the_store_hangs(tmp_path: Path, starter: Starter, busy: bool) -> None:
    with started(starter, tmp_path, "--set", "store_timeout_s=100") as (process, client):  # so that nothing but the stop ends the wait
        assert client.post("/v1/events", json={"user": "a", "item": "i01"}).status_code == 200
        writer = stop_writer(process)
        if busy:
            with pytest.raises(httpx.ReadTimeout):
                client.post("/v1/events", json={"user": "a", "item": "i02"}, timeout=0.3)
    process.signal(signal.SIGTERM)
    end = time.monotonic() + PATIENCE_S
    while not process.ended():
        assert time.monotonic() < end
        time.sleep(0.02)
    process.wait()
    assert not runs(writer)
    with started(starter, tmp_path) as (again, client):  # the store is free, and whole
        assert [one["item"] for one in client.get("/v1/users/a").json()["events"]][:1] == ["i01"]
    again.signal(signal.SIGTERM)
    assert again.wait() == 0
