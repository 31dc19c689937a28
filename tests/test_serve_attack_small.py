"""Small holes: a backup written twice at once, methods not named, blanks in odd places, pages of other origins, a password in sight."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from hcarec.serve.keys import make
from hcarec.serve.stores.errors import StoreError
from hcarec.serve.stores.redis import RedisStore
from http_server import Running, problem, small_model
from raw_http import ask_alone, request
from store_servers import DURABLE, Server

EVENT = {"user": "someone", "item": "i01"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def server(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    backups = tmp_path_factory.mktemp("backups")
    with Running(folder / "model", tmp_path_factory.mktemp("store") / "store.sqlite", backups=backups) as running:
        yield running


def test_one_name_of_a_backup_is_written_once(server: Running) -> None:
    with server.client() as client:
        assert client.post("/v1/events", json=[EVENT] * 500).status_code == 200
    for round in range(5):
        answers: list[httpx.Response] = []

        def back_up(name: str = f"copy-{round}", answers: list[httpx.Response] = answers) -> None:
            with server.client() as client:
                answers.append(client.post("/admin/backup", json={"name": name}))

        clients = [threading.Thread(target=back_up) for _ in range(6)]
        for one in clients:
            one.start()
        for one in clients:
            one.join()
        assert sorted(answer.status_code for answer in answers) == [200] + [422] * 5
        assert server.site.backups is not None
        with sqlite3.connect(server.site.backups / f"copy-{round}") as db:
            assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        db.close()


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/v1/users/someone", {"GET", "HEAD", "DELETE"}),
        ("/v1/users/someone/events/one", {"DELETE", "GET", "HEAD"}),
        ("/v1/events", {"POST"}),
        ("/healthz", {"GET", "HEAD"}),
    ],
)
def test_every_method_is_named(server: Running, path: str, allowed: set[str]) -> None:
    with server.client() as client:
        answer = client.request("PUT", path)
    assert problem(answer) == (405, "method_not_allowed")
    assert set(answer.headers["allow"].split(", ")) == allowed


@pytest.mark.parametrize("blanks", [b" " * 64, b"\n" * 65, b"\t \r\n" * 300], ids=["64", "65", "1200"])
def test_a_list_may_come_after_blanks(server: Running, blanks: bytes) -> None:
    with server.client() as client:
        for body in ([EVENT], EVENT, {"events": [EVENT]}):
            sent = blanks + json.dumps(body).encode()
            assert client.post("/v1/events", content=sent, headers={"Content-Type": "application/json"}).status_code == 200


@pytest.mark.parametrize("after", [" ", "\t", "   "], ids=["blank", "tab", "blanks"])
def test_blanks_after_a_length_are_no_part_of_it(server: Running, after: str) -> None:
    body = json.dumps(EVENT).encode()
    sent = request("/v1/events", body).replace(b"Content-Length: %d" % len(body), b"Content-Length: %d%s" % (len(body), after.encode()))
    assert ask_alone(server, sent)[0] == 200


@pytest.mark.parametrize("origin", ["http://elsewhere.example", "http://localhost:1", "null", "https://127.0.0.1", "http://127.0.0.1.elsewhere.example"])
def test_without_keys_no_other_page_is_answered(server: Running, origin: str) -> None:
    with server.client() as client:
        for answer in (
            client.post("/v1/events", json=EVENT, headers={"Origin": origin}),
            client.delete("/v1/users/someone", headers={"Origin": origin}),
            client.get("/v1/users/someone", headers={"Origin": origin}),
        ):
            assert problem(answer) == (403, "forbidden")
        for _ in range(2):  # also by a head that was seen before
            assert client.post("/v1/events", json=EVENT, headers={"Origin": server.url}).status_code == 200


def test_with_keys_the_key_says_who_may(folder: Path, tmp_path: Path) -> None:
    key = make(tmp_path / "keys.json", "read,write")
    with Running(folder / "model", tmp_path / "store.sqlite", keys=tmp_path / "keys.json") as locked, locked.client(key) as client:
        assert client.post("/v1/events", json=EVENT, headers={"Origin": "http://shop.example"}).status_code == 200


def test_the_password_of_redis_is_not_in_sight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(tmp_path, *DURABLE, "--requirepass", "a secret")
    try:
        with pytest.raises(StoreError):
            RedisStore(server.url)
        monkeypatch.setenv("HCAREC_REDIS_PASSWORD", "a secret")
        RedisStore(server.url).close()
        monkeypatch.setenv("HCAREC_REDIS_PASSWORD", "wrong")
        with pytest.raises(StoreError, match="password"):
            RedisStore(server.url)
        (tmp_path / "password").write_text("a secret\n")
        monkeypatch.setenv("HCAREC_REDIS_PASSWORD_FILE", str(tmp_path / "password"))
        RedisStore(server.url).close()
        monkeypatch.setenv("HCAREC_REDIS_PASSWORD_FILE", str(tmp_path / "nothing"))
        with pytest.raises(StoreError, match="cannot be read"):
            RedisStore(server.url)
    finally:
        server.stop()
