"""`hcarec serve` as a user runs it: what it says, what it refuses, and that it stops without losing anything."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from hcarec import GRU, HCAGRU, Sequences, load, recommend, synthetic
from hcarec.cli.serve import _index, _without_password
from hcarec.serve.recall import Measured, measure
from hcarec.serve.server import is_loopback

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Sequences:
    made = synthetic(users=40, items=600, mean_length=10)
    made.save(tmp_path_factory.mktemp("data") / "data")
    return Sequences.open(made.about["path"]) if "path" in made.about else made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, data: Sequences) -> Path:
    made = tmp_path_factory.mktemp("model") / "model"
    HCAGRU(preset="paper", d=6, window_x=3, window_h=2).fit(data, epochs=1, seed=1).save(made)
    return made


@contextmanager
def serving(*arguments: str | Path, **environment: str) -> Iterator[tuple[subprocess.Popen[str], str, list[str]]]:
    """Run the command in a process of its own; give the process, its address and what it printed before."""
    command = [sys.executable, "-m", "hcarec", "serve", *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment})
    try:
        said: list[str] = []
        assert process.stdout is not None
        for line in process.stdout:
            said.append(line.rstrip())
            if line.startswith("Ctrl-C"):
                break
        else:
            raise AssertionError(f"it did not start: {said} {process.stderr.read() if process.stderr else ''}")
        yield process, re.findall(r"http://\S+", said[0])[0], said
    finally:
        process.kill()
        process.communicate()


def test_start_use_and_stop_under_load_without_loss(folder: Path, data: Sequences, tmp_path: Path) -> None:
    store = tmp_path / "store.sqlite"
    acknowledged: list[str] = []
    answers: list[int] = []
    with serving(folder, "--store", store, "--port", 0, "--index", "--retention", "last=5000") as (process, address, said):
        assert re.match(r"hcarec serves HCA-GRU-x3-h2, 600 items \(model [0-9a-f]{12}\) at http://127\.0\.0\.1:\d+$", said[0])
        assert "on disk" in said[1]
        assert "the last 5,000 events" in said[2]
        assert "without keys" in said[3]
        assert re.match(r"index: recall@20 1\.0000 over 32 histories", said[4])

        def send() -> None:
            with httpx.Client(base_url=address, verify=False, timeout=60) as client:
                n = 0
                while True:
                    name = f"{threading.get_ident()}-{n}"
                    try:
                        answer = client.post("/v1/events", json={"user": "busy", "item": "i001", "event_id": name})
                    except httpx.TransportError:
                        return
                    answers.append(answer.status_code)
                    if answer.status_code == 200:
                        acknowledged.append(name)
                    n += 1

        senders = [threading.Thread(target=send) for _ in range(4)]
        for sender in senders:
            sender.start()
        while len(acknowledged) < 40:
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        for sender in senders:
            sender.join(60)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
    assert set(answers) <= {200, 503}
    assert "Traceback" not in err
    lines = [json.loads(line) for line in err.splitlines()]
    assert lines[-1]["what"] == "stopped"
    assert sum(line["what"] == "request" and line["status"] == 200 for line in lines) >= len(acknowledged)
    with (
        serving(folder, "--store", store, "--port", 0, "--log", "errors") as (process, address, _),
        httpx.Client(base_url=address, verify=False, timeout=60) as client,
    ):
        kept = [event["event_id"] for event in client.get("/v1/users/busy", params={"limit": 10_000}).json()["events"]]
        assert set(acknowledged) <= set(kept)
        assert len(kept) == len(set(kept))
        found = client.post("/v1/recommend", json={"user": "busy"}).json()["items"]
        expected = recommend(load(folder), ["i001"] * len(kept), 20)
        assert [(one["item"], one["score"]) for one in found] == [(one.item, one.score) for one in expected]
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 0
        assert [json.loads(line)["what"] for line in err.splitlines()] == ["stopped"]  # no line for what went well


def test_it_starts_from_a_data_set_and_agrees_with_the_command(folder: Path, tmp_path: Path, hcarec: Callable[..., Any]) -> None:
    log = tmp_path / "log.csv"
    events = synthetic(users=20, items=600, mean_length=6, seed=5)
    rows = [
        f"{events.user_ids.text(user)},{events.item_ids.text(item)},{1_600_000_000 + n}"
        for user in range(events.n_users)
        for n, item in enumerate(events[user].tolist())
    ]
    log.write_text("\n".join(["user,item,time", *rows]) + "\n")
    hcarec("prepare", log, "-o", tmp_path / "data")
    user = events.user_ids.text(3)
    said = json.loads(hcarec("recommend", folder, "--data", tmp_path / "data", "--user", user, "-k", 12, "--json", "-").stdout)
    with (
        serving(folder, "--store", tmp_path / "store.sqlite", "--data", tmp_path / "data", "--port", 0) as (_, address, _),
        httpx.Client(base_url=address, verify=False, timeout=60) as client,
    ):
        found = client.post("/v1/recommend", json={"user": user, "k": 12}).json()
    assert found["basis"] == "personal"
    assert [(one["item"], one["score"]) for one in found["items"]] == [(one["item"], one["score"]) for one in said]


def test_mistakes_are_one_line(command: Command, folder: Path, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for arguments, words in (
            ([], "no model given"),
            ([tmp_path / "nowhere"], "nowhere"),
            ([folder, "--port", port], f"cannot listen on 127.0.0.1 port {port}: Address already in use"),
            ([folder, "--port", 70000], "port 70000"),
            ([folder, "--host", "no.such.host.invalid"], "no.such.host.invalid"),
            ([folder, "--host", "0.0.0.0"], "--keys FILE"),
            ([folder, "--host", "::"], "--keys FILE"),
            ([folder, "--keys", tmp_path / "none.json"], "cannot read the keys"),
            ([folder, "--make-key", "read"], "give it with --keys FILE"),
            ([folder, "--make-key", "rea", "--keys", tmp_path / "k.json"], "did you mean 'read'?"),
            ([folder, "--retention", "last=0"], "--retention 'last=0' is not understood"),
            ([folder, "--retention", "weeks=3"], "give last=1000, days=365"),
            ([folder, "--backups", tmp_path / "none"], "the folder of backups"),
            ([folder, "--log", "error"], "did you mean 'errors'?"),
            ([folder, "--set", "gather=3"], "did you mean 'gather_ms'?"),
            ([folder, "--set", "gather_ms=soon"], "gather_ms is 'soon': give a finite number"),
            ([folder, "--set", "accept_less=no"], "accept_less is 'no': give true or false"),
            ([folder, "--set", "threads=1.5"], "threads is 1.5: give a whole number, or leave it out"),
            ([folder, "--set", "retain_days=nan"], "retain_days is nan: give a finite number, or leave it out"),
            ([folder, "--set", "idle_seconds=0.5"], "idle_seconds is 0.5: give a whole number"),
            ([folder, "--rate", "-1"], "rate is -1.0: give 0 for no limit, or a number above 0"),
            ([folder, "--rate", "nan"], "rate is nan: give a finite number"),
            ([folder, "--retention", "days=200000000000"], "at most last=1000000000 and days=36500"),
            ([folder, "--retention", "last=" + 400 * "9"], "at most last=1000000000 and days=36500"),
            ([folder, "--store", "mysql://me:secret@host/db"], "mysql://: give redis://, rediss://, unix:// or the path of an SQLite file"),
            ([folder, "--store", "redis://:secret@127.0.0.1:1/0"], "the Redis server at 127.0.0.1:1 does not answer, or is still loading: check that it runs"),
            ([folder, "--store", tmp_path / "no" / "such" / "folder.sqlite"], "folder"),
            ([folder, "--data", tmp_path / "nowhere"], "nowhere"),
        ):
            given = [str(argument) for argument in arguments]
            extra = [] if "--store" in given else ["--store", str(tmp_path / "store.sqlite")]
            if "--port" not in given:
                extra += ["--port", "0"]
            code, out, err = command("serve", *given, *extra)
            assert (code, out) == (2, ""), (given, err)
            assert err.count("\n") == 1 and err.startswith("hcarec: "), err
            assert words in err and "secret" not in err, (given, err)


def test_a_missing_extra_is_said(command: Command, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    code, _, err = command("serve", folder)
    assert code == 2
    assert err == "hcarec: hcarec serve needs the package uvicorn, which is not installed: pip install 'hcarec[serve]'\n"


def test_a_key_is_printed_once_and_opens_the_door(command: Command, folder: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    code, out, err = command("serve", "--keys", keys, "--make-key", "read,write")
    assert code == 0 and "note it now" in err
    key = out.strip()
    assert key not in keys.read_text()
    with (
        serving(folder, "--store", tmp_path / "store.sqlite", "--port", 0, "--host", "0.0.0.0", "--keys", keys) as (_, address, said),
        httpx.Client(base_url=address.replace("0.0.0.0", "127.0.0.1"), verify=False, timeout=60) as client,
    ):
        assert "open without a key: /healthz" in "\n".join(said)
        assert client.post("/v1/recommend", json={}).status_code == 401
        assert client.post("/v1/recommend", json={}, headers={"Authorization": f"Bearer {key}"}).status_code == 200


def test_models_beside_it_are_named(folder: Path, data: Sequences, tmp_path: Path) -> None:
    GRU(preset="paper", d=4).fit(data, epochs=1, seed=2).save(tmp_path / "gru")
    with (
        serving(folder, "--beside", tmp_path / "gru", "--beside", folder, "--store", tmp_path / "s.sqlite", "--port", 0) as (_, address, said),
        httpx.Client(base_url=address, verify=False, timeout=60) as client,
    ):
        assert re.match(r"beside it, by name: gru, GRU \(model [0-9a-f]{12}\)$", said[1])
        assert said[2].startswith("beside it, by name: model-2, HCA-GRU-x3-h2")
        assert [card["name"] for card in client.get("/v1/models").json()["models"]] == ["model", "gru", "model-2"]
        assert client.get("/").headers["content-type"].startswith("text/html")


def test_a_model_beside_it_that_is_none_is_refused(command: Command, folder: Path, tmp_path: Path) -> None:
    code, _, err = command("serve", folder, "--beside", tmp_path / "missing", "--store", tmp_path / "s.sqlite", "--port", 0)
    assert code == 2
    assert "missing' is not a model folder" in err and len(err.splitlines()) == 1


def test_the_index_finds_everything(folder: Path) -> None:
    found = measure(load(folder))
    assert found.screened
    assert (found.recall, found.items) == (1.0, 600)


@pytest.mark.parametrize(("speedup", "words"), [(0.9, "a catalogue of 600 items gains no time by it"), (1.26, "1.3 times as quick as scoring everything")])
def test_an_index_that_gains_nothing_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch, speedup: float, words: str) -> None:
    monkeypatch.setattr("hcarec.serve.recall.measure", lambda _: Measured(1.0, speedup, True, 600))
    assert _index(folder) == f"index: recall@20 1.0000 over 32 histories of the model's own vectors; {words}"


def test_no_password_is_shown() -> None:
    for given, shown in (
        ("redis://me:secret@host:6379/0", "redis://host:6379/0"),
        ("unix:///run/redis?db=1&password=secret", "unix:///run/redis"),
        ("events@home.sqlite", "events@home.sqlite"),
    ):
        assert _without_password(given) == shown


def test_what_counts_as_this_machine() -> None:
    assert all(is_loopback(host) for host in ("127.0.0.1", "localhost", "::1", "[::1]", "127.9.9.9"))
    assert not any(is_loopback(host) for host in ("0.0.0.0", "::", "10.0.0.1", "example.org", "127.0.0.1.example.org", ""))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_at_the_very_moment_of_the_start_stops_it(folder: Path, tmp_path: Path, number: signal.Signals) -> None:
    program = f"""
import os
from pathlib import Path
from hcarec.serve.server import Settings, run
run(Settings(Path({str(folder)!r}), {str(tmp_path / "store.sqlite")!r}, port=0), lambda *_: os.kill(os.getpid(), {int(number)}))
print("stopped")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "stopped\n"), done.stderr
