"""Keys that must not work: revoked while the file could not be read, or lost while two were made at once."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from hcarec.serve.keys import make, read
from http_server import Running, problem, small_model

PROCESSES, KEYS_EACH = 6, 5


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("models"))


@contextmanager
def no_descriptors() -> Iterator[None]:
    """Let no file be opened in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def revoke(path: Path, key: str) -> None:
    """Take a key out of the file."""
    held = json.loads(path.read_text())["keys"]
    path.write_text(json.dumps({"keys": [one for one in held if one["name"] != key.split("_")[1]]}))


def asked(client: httpx.Client) -> int:
    return client.post("/v1/recommend", json={}).status_code


def test_a_revoked_key_stops_working_after_a_failed_read(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "keys.json"
    revoked, kept = make(path, "read"), make(path, "read")
    monkeypatch.setattr("hcarec.serve.keys.LOOK_AGAIN", 0.0)
    with Running(folder / "model", tmp_path / "store.sqlite", keys=path) as running, running.client(revoked) as one, running.client(kept) as other:
        assert (asked(one), asked(other)) == (200, 200)
        revoke(path, revoked)
        with no_descriptors():
            assert (asked(one), asked(other)) == (200, 200)  # for a moment those known before go on
        assert (asked(one), asked(other)) == (401, 200)
    said = [line["what"] for line in running.lines() if line["what"].startswith("keys")]
    assert said == ["keys not read", "keys read again"]


def test_a_change_that_leaves_size_and_time_as_they_were_is_seen(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "keys.json"
    key = make(path, "read")
    old = time.time() - 1000
    os.utime(path, (old, old))
    monkeypatch.setattr("hcarec.serve.keys.LOOK_AGAIN", 0.0)
    with Running(folder / "model", tmp_path / "store.sqlite", keys=path) as running, running.client(key) as client:
        assert asked(client) == 200
        digest = json.loads(path.read_text())["keys"][0]["sha256"]
        path.write_text(path.read_text().replace(digest, "0" * 64))
        os.utime(path, (old, old))
        assert asked(client) == 401


def test_keys_that_cannot_be_read_for_long_are_refused(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "keys.json"
    key = make(path, "read")
    monkeypatch.setattr("hcarec.serve.keys.LOOK_AGAIN", 0.0)
    with Running(folder / "model", tmp_path / "store.sqlite", keys=path) as running, running.client(key) as client:
        content = path.read_bytes()
        path.unlink()
        assert (asked(client), client.get("/readyz").status_code) == (200, 200)
        monkeypatch.setattr("hcarec.serve.keys.UNREADABLE_S", 0.0)  # instead of waiting a minute
        ready = client.get("/readyz")
        assert problem(ready) == (503, "not_ready") and "keys" in ready.json()["error"]["message"]
        assert problem(client.post("/v1/recommend", json={})) == (401, "unauthorized")
        path.write_bytes(content)
        assert (asked(client), client.get("/readyz").status_code) == (200, 200)


def test_keys_made_at_once_are_all_kept(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    made = f"from pathlib import Path; from hcarec.serve.keys import make; [print(make(Path({str(path)!r}), 'read')) for _ in range({KEYS_EACH})]"
    makers = [subprocess.Popen([sys.executable, "-c", made], stdout=subprocess.PIPE, text=True) for _ in range(PROCESSES)]
    keys = [key for maker in makers for key in maker.communicate()[0].split()]
    assert len(keys) == PROCESSES * KEYS_EACH
    assert set(read(path)) == {key.split("_")[1] for key in keys}
