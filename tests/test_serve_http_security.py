"""Nobody gets in who may not, and no answer says more than it should."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from hcarec.errors import ConfigError
from hcarec.serve.keys import Keys, make, read
from hcarec.serve.messages import Overloaded
from hcarec.serve.operations import OPERATIONS, Operation
from hcarec.serve.page_files import POLICY
from hcarec.serve.stores.errors import StoreBusy, StoreDamaged, StoreFull, StoreUnreachable
from http_server import Running, problem, small_model

EVENT = {"user": "someone", "item": "i01"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def server(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Run a server without keys."""
    with Running(folder / "model", tmp_path_factory.mktemp("store") / "store.sqlite") as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Running) -> Iterator[httpx.Client]:
    with server.client() as made:
        yield made


def request(client: httpx.Client, one: Operation, **more: Any) -> httpx.Response:
    """Send a request that fits an operation."""
    bodies: dict[str, Any] = {"take": EVENT, "recommend": {}, "attention": {}, "explain": {"history": ["i01"]}}
    bodies |= {"swap": {"name": "model"}, "backup": {"name": "x"}, "restore": {"name": "x"}}
    path = one.path.format(user="someone", item="i01", event_id="none", file="index.html")
    return client.request(one.method, path, **({"json": bodies[one.name]} if one.name in bodies else {}), **more)


# -- keys --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def locked(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, dict[str, str]]]:
    """Run a server with a key for each scope."""
    place = tmp_path_factory.mktemp("keys")
    keys = {scope: make(place / "keys.json", scope) for scope in ("read", "write", "admin", "read,write")}
    with Running(folder / "model", place / "store.sqlite", keys=place / "keys.json") as running:
        yield running, keys


@pytest.mark.parametrize("one", OPERATIONS, ids=lambda one: one.name)
def test_a_key_opens_what_it_is_for_and_nothing_else(locked: tuple[Running, dict[str, str]], one: Operation) -> None:
    running, keys = locked
    with running.client(keys["write"]) as writer:
        assert writer.post("/v1/events", json=EVENT).status_code == 200
    for scopes, key in keys.items():
        with running.client(key) as client:
            answer = request(client, one)
            if one.scope is None or one.scope in scopes.split(","):
                assert answer.status_code == {"backup": 422, "restore": 422, "retract": 404}.get(one.name, 200), answer.text
            else:
                assert problem(answer) == (403, "forbidden")
    with running.client() as client:
        for given in (None, "Bearer", keys["admin"], f"Bearer {keys['admin'][:-1]}", f"Basic {keys['admin']}", "Bearer hcarec_x_y", b"Bearer \xff\xfe_\xff_"):
            headers = {} if given is None else {"Authorization": given}
            answer = request(client, one, headers=headers)
            if one.scope is None:
                assert answer.status_code == 200
            else:
                assert problem(answer) == (401, "unauthorized")
                assert answer.headers["www-authenticate"] == "Bearer"


def test_the_file_holds_hashes_and_is_read_again_when_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "keys.json"
    first, second = make(path, "read, write"), make(path, "admin")
    assert path.stat().st_mode & 0o777 == 0o600
    assert first not in path.read_text()
    assert first.rpartition("_")[2] not in path.read_text()
    assert len(first) > 50 and first != second
    keys = Keys(path)
    found = keys.find(first.encode())
    assert found is not None and found.scopes == {"read", "write"}
    held = json.loads(path.read_text())
    path.write_text(json.dumps({"keys": held["keys"][1:]}))
    monkeypatch.setattr("hcarec.serve.keys.LOOK_AGAIN", 0.0)
    assert keys.find(first.encode()) is None
    assert keys.find(second.encode()) is not None
    path.write_text("{broken")
    assert keys.find(second.encode()) is not None  # what was known goes on until the file can be read
    assert keys.trouble is not None
    assert "not a file of keys" in keys.trouble


def key_file(scope: str, digest: str) -> str:
    return json.dumps({"keys": [{"name": "a", "scopes": [scope], "sha256": digest}]})


BAD_FILES = ["", "[]", "{}", '{"keys": 3}', '{"keys": [3]}', '{"keys": [{"name": "a"}]}', '{"keys": []}', "[" * 100_000]
BAD_FILES += [key_file("root", "0" * 64), key_file("read", "x" * 64), key_file("read", "0")]


@pytest.mark.parametrize("content", BAD_FILES, ids=range(len(BAD_FILES)))
def test_a_bad_file_of_keys_is_said_in_a_line(tmp_path: Path, content: str) -> None:
    path = tmp_path / "keys.json"
    path.write_text(content)
    with pytest.raises(ConfigError) as caught:
        Keys(path)
    assert "\n" not in str(caught.value)


def test_scopes_are_checked_before_a_key_is_made(tmp_path: Path) -> None:
    for scopes in ("", ",", "reed", "read write"):
        with pytest.raises(ConfigError, match="the scopes are read, write, admin"):
            make(tmp_path / "keys.json", scopes)
    with pytest.raises(ConfigError, match="cannot read"):
        read(tmp_path / "keys.json")


def test_without_keys_only_this_machine_is_addressed(server: Running, client: httpx.Client) -> None:
    for host in ("evil.example", f"evil.example:{server.port}", "127.0.0.1.evil.example", "", "localhost@evil.example"):
        for one in OPERATIONS:
            answer = request(client, one, headers={"Host": host})
            assert answer.status_code == (403 if one.scope else 200), (host, one.name)
    for host in ("localhost", "LOCALHOST:1", "127.0.0.1:8080", "[::1]:8080", "127.1.2.3"):
        assert client.post("/v1/recommend", json={}, headers={"Host": host}).status_code == 200


# -- what answers carry ------------------------------------------------------------------------------------------------


def test_every_answer_is_guarded_and_no_other_site_may_read_it(client: httpx.Client) -> None:
    answers = [request(client, one, headers={"Origin": "https://evil.example"}) for one in OPERATIONS]
    answers += [
        client.get("/nothing"),
        client.get("/v1/nothing"),
        client.put("/v1/events"),
        client.get("/v1/recommend"),
        client.options("/v1/events"),
        client.get("/v1/events/"),
    ]
    for answer in answers:
        assert answer.headers["x-content-type-options"] == "nosniff"
        expected = ("no-cache", POLICY.decode()) if "etag" in answer.headers else ("no-store", "default-src 'none'; frame-ancestors 'none'")
        assert (answer.headers["cache-control"], answer.headers["content-security-policy"]) == expected
        assert answer.headers["x-request-id"]
        assert "server" not in answer.headers
        assert not [name for name in answer.headers if name.startswith("access-control")]
    there_is_none, not_so = (404, "not_found"), (405, "method_not_allowed")
    assert [problem(answer) for answer in answers[len(OPERATIONS) :]] == [there_is_none, there_is_none, not_so, not_so, not_so, there_is_none]


class _Surprise(Exception):
    pass


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (_Surprise("/home/someone/secret.py broke"), 500, "internal"),
        (StoreFull("/home/someone/secret.sqlite is full"), 503, "store_unavailable"),
        (StoreUnreachable("redis://:password@secret does not answer"), 503, "store_unavailable"),
        (StoreDamaged("page 3 of secret"), 503, "store_unavailable"),
        (StoreBusy("secret is used by process 3"), 503, "store_unavailable"),
        (Overloaded("secret queue is full", 2.5), 503, "overloaded"),
    ],
)
def test_trouble_inside_says_nothing_of_the_inside(
    server: Running, client: httpx.Client, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int, code: str
) -> None:
    async def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(server.site.service, "recommend", fail)
    answer = client.post("/v1/recommend", json={}, headers={"X-Request-Id": f"trouble-{type(error).__name__}"})
    assert problem(answer) == (status, code)
    assert "secret" not in answer.text
    if status == 503:
        assert int(answer.headers["retry-after"]) == (3 if code == "overloaded" else 1)
    deadline = time.monotonic() + 10
    while not (lines := [line for line in server.lines() if line.get("id") == f"trouble-{type(error).__name__}" and line["what"] == "failed"]):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert "secret" in json.dumps(lines)  # the log of the server says it


def test_only_who_would_have_written_is_told_that_it_may_be_written(client: httpx.Client, server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise StoreUnreachable("secret")

    monkeypatch.setattr(server.site.service, "_refuse_if_down", fail)
    told = {one.name: answer.json()["error"]["message"] for one in OPERATIONS if (answer := request(client, one)).status_code == 503}
    assert {name for name, said in told.items() if "whether a write was made" in said} == {"take", "retract", "forget"}
    assert "try again" in told["history"]


def test_readiness_follows_the_service(server: Running, client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server.site.service, "ready", lambda: "the store does not answer")
    assert problem(client.get("/readyz")) == (503, "not_ready")
    assert client.get("/healthz").status_code == 200
