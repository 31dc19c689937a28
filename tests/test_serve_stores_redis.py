"""What only the Redis store has to stand: a server that is gone, slow, set otherwise, or has lost its temper."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hcarec.errors import ConfigError
from hcarec.serve.live import Live
from hcarec.serve.options import ServiceOptions
from hcarec.serve.policy import Stamped
from hcarec.serve.serving import Serving
from hcarec.serve.stores.errors import StoreDamaged, StoreError, StoreFull, StoreUnreachable
from hcarec.serve.stores.interface import Change, Event, Loaded, Rebuilt, Wanted
from hcarec.serve.stores.redis import RedisStore
from live_models import saved
from store_servers import DURABLE, Server

M = "model"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path, *DURABLE)
    yield server
    if server.process.poll() is None:
        server.freeze(False)
        server.stop()


@pytest.fixture
def store(server: Server) -> Iterator[RedisStore]:
    store = RedisStore(server.url, timeout=0.3)
    yield store
    store.close()


def test_a_server_that_may_lose_events_is_refused_unless_accepted(tmp_path: Path) -> None:
    server = Server(tmp_path, "--appendonly", "yes", "--appendfsync", "everysec")
    with pytest.raises(StoreError, match=r"may lose acknowledged events \(appendfsync everysec\).* or accept that with --set accept_less=true$"):
        RedisStore(server.url)
    store = RedisStore(server.url, accept_less=True)
    assert "appendfsync everysec" in store.durability
    store.close()
    server.stop()


def test_a_wrong_address_is_one_clear_line(tmp_path: Path) -> None:
    pytest.importorskip("redis", reason="the package redis is not installed")
    with pytest.raises(StoreError, match="not understood"):
        RedisStore("http://somewhere")
    for url, place in (
        (f"unix://{tmp_path}/nothing?password=secret", f"{tmp_path}/nothing"),
        ("redis://me:secret@127.0.0.1:1/0", "127.0.0.1:1"),
    ):
        with pytest.raises(StoreUnreachable) as raised:
            RedisStore(url, timeout=0.2)
        trouble = f"the Redis server at {place} does not answer, or is still loading"
        assert str(raised.value) == f"{trouble}: check that it runs and that the address is right, then start again"


def test_a_missing_package_is_said_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(ConfigError, match=r"needs the package redis, which is not installed: pip install 'hcarec\[redis\]'$"):
        RedisStore("redis://localhost")


def test_a_server_that_goes_away_later_is_tried_again(server: Server, store: RedisStore) -> None:
    server.stop()
    with pytest.raises(StoreUnreachable, match="the next call tries again"):
        store.load([Wanted("a")], M)


def test_acknowledged_events_survive_kill_9_and_the_store_reconnects_by_itself(server: Server, store: RedisStore) -> None:
    for round in range(3):
        version = store.load([Wanted("a")], M)[0].version
        version = store.commit([Change("a", version, [Event(round, "x", f"e{round}")], M, b"s")])[0] or 0
        server.stop(signal.SIGKILL)
        with pytest.raises(StoreUnreachable):
            store.load([Wanted("a")], M)
        with pytest.raises(StoreUnreachable):
            store.commit([Change("a", version, [Event(9, "x")], M, b"s")])
        server.start()
        assert store.load([Wanted("a", [f"e{round}"])], M) == [Loaded(version, round, b"s", frozenset({f"e{round}"}), round + 1)]
    store.check()


def test_a_server_that_does_not_answer_is_given_up(server: Server, store: RedisStore) -> None:
    store.commit([Change("a", 0, [Event(1, "x", "e")], M, b"s")])
    server.freeze(True)
    for _ in range(2):
        with pytest.raises(StoreUnreachable):  # a wait without bound would never come back from here
            store.load([Wanted("a")], M)
    server.freeze(False)
    assert store.load([Wanted("a")], M)[0].n_events == 1


def test_a_full_server_refuses_writes_and_goes_on_reading(server: Server, store: RedisStore) -> None:
    store.commit([Change("a", 0, [Event(1, "x")], M, b"s")])
    client = server.client()
    client.config_set("maxmemory", "1mb")
    with pytest.raises(StoreFull):
        store.commit([Change("b", 0, [Event(1, "x")], M, bytes(100_000))])
    assert store.history("a").events[0].item == "x" and store.load([Wanted("a"), Wanted("b")], M)[1].version == 0
    client.config_set("maxmemory", "0")
    client.close()
    assert store.commit([Change("c", 0, [Event(1, "x")], M, b"s")])[0]


def test_changed_bytes_are_said_and_a_damaged_state_is_absent(server: Server, store: RedisStore) -> None:
    client = server.client()
    version = store.commit([Change("a", 0, [Event(1, "x", "e"), Event(2, "y")], M, b"state")])[0]
    assert version
    packed = client.hget(b"hcarec:states:model", b"a")
    client.hset(b"hcarec:states:model", b"a", packed[:-1] + b"!")
    assert store.load([Wanted("a")], M)[0].state is None and store.figures().damaged_states == 1 and store.check().damaged_states == 1
    assert store.put_states([Rebuilt("a", version, M, b"new")]) == [True]
    member = client.zrange(b"hcarec:log:a", 0, 0)[0]
    client.zrem(b"hcarec:log:a", member)
    with pytest.raises(StoreDamaged):
        store.history("a")
    client.zadd(b"hcarec:log:a", {member[:-1] + b"z": 0})
    with pytest.raises(StoreDamaged):
        store.history("a")
    client.set(b"hcarec:user:a", b"\0" * 32)
    with pytest.raises(StoreDamaged):
        store.load([Wanted("a")], M)
    client.close()


def test_forgetting_leaves_no_byte_in_memory_or_files(server: Server, store: RedisStore) -> None:
    version = store.commit([Change("name-of-a", 0, [Event(1, "item-of-a", "id-of-a")], M, b"state-of-a")])[0]
    store.commit([Change("name-of-b", 0, [Event(1, "item-of-b", "id-of-b")], M, b"state-of-b")])
    assert version and store.put_states([Rebuilt("name-of-a", version, "other", b"state-of-a")]) == [True]

    def held(what: bytes) -> bool:
        return any(what in path.read_bytes() for path in server.folder.rglob("*") if path.is_file())

    assert held(b"of-a")
    store.forget("name-of-a")
    client = server.client()
    assert not [key for key in client.scan_iter() if b"of-a" in key]
    client.close()
    assert held(b"name-of-b") and not held(b"of-a")


def test_no_state_of_lost_data_is_stored(server: Server, store: RedisStore) -> None:
    def write(to: RedisStore, item: str) -> int:
        to.load([Wanted("a")], M)
        return to.commit([Change("a", 0, [Event(1, item)], M, None)])[0] or 0

    version = write(store, "before")
    client = server.client()
    client.flushall()
    client.close()
    other = RedisStore(server.url)
    assert write(other, "after") == version  # the same number, of another log
    assert store.put_states([Rebuilt("a", version, M, b"state of before")]) == [False]
    assert other.load([Wanted("a")], M)[0].state is None
    assert store.load([Wanted("a")], M)[0].version == version
    assert store.put_states([Rebuilt("a", version, M, b"state of after")]) == [True]
    other.close()


def test_a_service_saves_no_state_of_lost_data(server: Server, store: RedisStore, tmp_path: Path) -> None:
    model = saved(tmp_path, "hca-gru")
    live = Live(store, Serving.load(model, False), ServiceOptions())
    other = Live(RedisStore(server.url), live.serving, ServiceOptions())
    live.take([Stamped("a", "i01", 1, None, False)])
    assert live.unsaved
    client = server.client()
    client.flushall()
    client.close()
    other.take([Stamped("a", "i02", 1, None, False)])
    assert [event.item for event in live.page("a", 10, None).events] == ["i02"]  # by which the store knows that it began anew
    assert live.save() == 0 and not live.unsaved
    assert other.store.load([Wanted("a")], live.serving.key)[0].state is None
    other.store.close()


def test_a_long_rewrite_is_not_waited_for(server: Server, store: RedisStore) -> None:
    store.commit([Change("a", 0, [Event(1, "x")], M, b"s")])
    assert store.forget("a", scrub=False) == 1
    client = server.client()
    client.config_set("rdb-key-save-delay", 200_000)  # microseconds a key: a rewrite takes its time
    for n in range(10):
        client.set(f"slow {n}", n)
    assert store.scrub() and store.figures().traces
    assert client.info("persistence")["aof_rewrite_in_progress"]
    assert store.scrub() and store.figures().traces  # which looks, and does not wait
    assert store.commit([Change("b", 0, [Event(1, "x")], M, b"s")])[0]
    store.forget("b", scrub=False)  # while it is rewritten: that is not the last word
    client.config_set("rdb-key-save-delay", 0)
    while client.info("persistence")["aof_rewrite_in_progress"]:
        time.sleep(0.02)
    assert store.scrub() and store.figures().traces
    store.forget("nobody")
    assert not store.figures().traces
    client.close()


def test_two_prefixes_do_not_meet(server: Server, store: RedisStore) -> None:
    other = RedisStore(server.url, prefix="other:")
    store.commit([Change("a", 0, [Event(1, "x")], M, b"s")])
    assert other.users().users == [] and other.figures()[:2] == (0, 0)
    other.close()
