"""A Redis server that changes while it is used: made less durable, emptied, replaced by a replica that lags behind."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from hcarec.recommendation import recommend
from http_server import Running, problem, small_model
from live_models import models, saved
from soak_counts import counting
from store_servers import DURABLE, Server

PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("models"))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    (tmp_path / "redis").mkdir()
    made = Server(tmp_path / "redis", *DURABLE)
    yield made
    made.stop()


def until(client: httpx.Client, status: int) -> httpx.Response:
    """Wait until the service is ready, or no longer."""
    end = time.monotonic() + PATIENCE_S
    while (answer := client.get("/readyz")).status_code != status:
        assert time.monotonic() < end, answer.text
        time.sleep(0.05)
    return answer


def send(client: httpx.Client, user: str, items: list[str]) -> None:
    """Send events one by one, each until it is taken."""
    for item in items:
        end = time.monotonic() + PATIENCE_S
        while (answer := client.post("/v1/events", json={"user": user, "item": item})).status_code != 200:
            assert answer.status_code == 503 and time.monotonic() < end, answer.text
            time.sleep(0.05)


def shown(client: httpx.Client, user: str) -> list[tuple[str, float]]:
    """Return the list for a user, which rests on all that is known."""
    end = time.monotonic() + PATIENCE_S
    while (answer := client.post("/v1/recommend", json={"user": user})).json().get("degraded", True):
        assert time.monotonic() < end, answer.text
        time.sleep(0.05)
    return [(one["item"], one["score"]) for one in answer.json()["items"]]


def right(items: list[str]) -> list[tuple[str, float]]:
    return [(one.item, one.score) for one in recommend(models()["hca-gru"], items, 20)]


@pytest.mark.parametrize(("name", "less"), [("appendfsync", "everysec"), ("appendonly", "no"), ("maxmemory-policy", "allkeys-lru")])
def test_a_server_that_is_made_less_durable_is_not_written_to(folder: Path, tmp_path: Path, server: Server, name: str, less: str) -> None:
    control = server.client()
    with Running(folder / "model", server.url) as running, running.client() as client:
        send(client, "a", ["i01"])
        before = control.config_get(name)[name]
        control.config_set(name, less)
        said = until(client, 503)
        assert problem(said) == (503, "not_ready") and "lose" in said.json()["error"]["message"]
        assert problem(client.post("/v1/events", json={"user": "a", "item": "i02"})) == (503, "store_unavailable")
        assert problem(client.delete("/v1/users/a")) == (503, "store_unavailable")
        assert "hcarec_store_not_durable 1.0" in client.get("/metrics").text
        assert client.post("/v1/recommend", json={"user": "a"}).status_code == 200
        assert [event["item"] for event in client.get("/v1/users/a").json()["events"]] == ["i01"]
        control.config_set(name, before)
        until(client, 200)
        send(client, "a", ["i02"])
        assert "hcarec_store_not_durable 0.0" in client.get("/metrics").text
    control.close()


def test_a_server_is_examined_when_it_comes_back(folder: Path, tmp_path: Path, server: Server) -> None:
    with Running(folder / "model", server.url, store_timeout_s=0.3, retry_s=0.1) as running, running.client() as client:
        send(client, "a", ["i01"])
        server.stop()
        server._command = [*server._command, "--appendfsync", "no"]
        server.start()
        assert "lose" in until_said(client)
        assert client.post("/v1/events", json={"user": "a", "item": "i02"}).status_code == 503


def until_said(client: httpx.Client) -> str:
    """Wait until the service says that something may be lost."""
    end = time.monotonic() + PATIENCE_S
    while "lose" not in (said := client.get("/readyz").text):
        assert time.monotonic() < end, said
        time.sleep(0.05)
    return said


OLD, NEW = ["i01", "i02", "i03"], ["i11", "i12", "i13"]


@pytest.mark.parametrize("rounds", [pytest.param(2, id="some"), pytest.param(20, id="many", marks=pytest.mark.soak)])
def test_two_servers_notice_that_the_data_are_gone(tmp_path: Path, server: Server, rounds: int) -> None:
    model = saved(tmp_path, "hca-gru")
    control = server.client()
    with counting("redis_lost.emptied", rounds > 10) as counts, ExitStack() as stack:
        one, other = (stack.enter_context(stack.enter_context(Running(model, server.url)).client()) for _ in range(2))
        for number in range(rounds):
            user = f"user {number}"
            send(one, user, OLD)
            assert shown(one, user) == shown(other, user) == right(OLD)
            control.flushall()
            send(other, user, NEW)  # versions begin anew: these are the same as before
            assert shown(one, user) == shown(other, user) == right(NEW)
            assert [event["item"] for event in one.get(f"/v1/users/{user}").json()["events"]] == NEW
            send(one, user, ["i05"])
            assert shown(one, user) == shown(other, user) == right([*NEW, "i05"])
            counts["times lost"] += 1
            counts["answers compared"] += 6
    control.close()


@pytest.mark.parametrize("rounds", [pytest.param(1, id="some"), pytest.param(8, id="many", marks=pytest.mark.soak)])
def test_two_servers_notice_that_a_replica_has_taken_over(tmp_path: Path, rounds: int) -> None:
    model = saved(tmp_path, "hca-gru")
    with counting("redis_lost.failover", rounds > 5) as counts:
        for number in range(rounds):
            place = tmp_path / str(number)
            for name in ("a", "b"):
                (place / name).mkdir(parents=True)
            port = free_port()
            first = Server(place / "a", *DURABLE, "--port", str(port))
            second = Server(place / "b", *DURABLE, "--replicaof", "127.0.0.1", str(port))
            link = place / "link"
            link.symlink_to(first.socket)
            with ExitStack() as stack:
                stack.callback(second.stop)
                settings = {"store_timeout_s": 0.3, "retry_s": 0.1}
                one, other = (stack.enter_context(stack.enter_context(Running(model, f"unix://{link}", **settings)).client()) for _ in range(2))
                send(one, "user", ["i01"])
                replicated(second, 1)
                cut = second.client()
                cut.replicaof("NO", "ONE")
                cut.close()
                send(one, "user", OLD[1:])  # which the replica never hears of
                assert shown(one, "user") == shown(other, "user") == right(OLD)
                link.unlink()
                link.symlink_to(second.socket)
                first.stop(signal.SIGKILL)
                send(other, "user", NEW[1:])
                assert shown(one, "user") == shown(other, "user") == right(["i01", *NEW[1:]])
                counts["times lost"] += 1
                counts["answers compared"] += 4


def free_port() -> int:
    import socket

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def replicated(server: Server, events: int) -> None:
    """Wait until a replica has so many events."""
    client, end = server.client(), time.monotonic() + PATIENCE_S
    while int(client.get("hcarec:events") or 0) < events:
        assert time.monotonic() < end
        time.sleep(0.02)
    client.close()
