"""Several servers on one Redis or Valkey: whatever they are sent at once equals some order, one event after the other."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path

import pytest

from client_log import ClientLog
from hcarec.artefact import model_hash
from hcarec.recommendation import recommend
from hcarec.serve.serving import Serving
from hcarec.serve.stores import open_store
from hcarec.serve.stores.interface import Wanted
from live_models import models, saved
from load_clients import Connection, Shopper
from service_process import Process, Starter
from soak_counts import counting
from store_servers import DURABLE, Server

ITEMS = [*(f"i{n:02}" for n in range(1, 13)), "unknown"]
SHOPPERS = 2


class Servers:
    """Two servers that share users, and clients of both."""

    def __init__(self, starter: Starter, folder: Path, url: str, counts: Counter[str]) -> None:
        self.starter, self.url, self.counts, self.model = starter, url, counts, saved(folder, "hca-gru")
        self.by_hash = {model_hash(self.model)[:12]: models()["hca-gru"]}
        self.log = ClientLog()
        self.running = [self.start(), self.start()]

    def start(self) -> tuple[Process, str]:
        process = self.starter.start(self.model, "--store", self.url, "--rate", 0)
        address = process.address()
        assert address is not None, process.errors
        return process, address

    def round(self, number: int, dice: random.Random, seconds: float, kill: bool) -> None:
        """Send events of the same few users to both, some of them to both at once; kill one server if told so."""
        users = [f"u{number + n}" for n in range(3)]
        seeds = [dice.randrange(1 << 30) for _ in range(2 * SHOPPERS)]
        shoppers = [Shopper(self.running[n % 2][1], self.log, [f"own {seed}", *users], ITEMS, self.by_hash, seed) for n, seed in enumerate(seeds)]
        for shopper in shoppers:
            shopper.start()
        shoppers[0].join(seconds)
        if kill:
            self.running[0][0].kill()
            self.counts["kills"] += 1
        for shopper in shoppers:
            shopper.finish()
            self.counts["requests"] += shopper.requests
            self.counts["answers compared under load"] += shopper.answers_compared
        if kill:
            self.running[0] = self.start()
        self.verify(sorted(self.log.touched))
        self.log.touched.clear()

    def verify(self, users: list[str]) -> None:
        """Compare what both servers say with what clients know and with a replay."""
        for process, address in self.running:
            assert "Traceback" not in process.errors, process.errors
            with Connection(address) as connection:
                for user in users:
                    kept = connection.kept(user)
                    self.log.check(user, kept, self.counts)
                    status, said = connection.ask("POST", "/v1/recommend", {"user": user})
                    assert status == 200 and not said["degraded"], said
                    right = recommend(models()["hca-gru"], [event["item"] for event in kept], 20)
                    assert [(one["item"], one["score"]) for one in said["items"]] == [(one.item, one.score) for one in right], user
                    self.counts["users compared"] += 1

    def finish(self) -> None:
        """Stop the servers, which saves the states that they hold, and compare these with a replay."""
        for process, _ in self.running:
            process.signal(15)
            assert process.wait() == 0, process.errors
        serving = Serving.load(self.model)
        store = open_store(self.url)
        for user in self.log.sent:
            (loaded,) = store.load([Wanted(user)], serving.key)
            if loaded.state is not None:
                log = serving.known([event.item for event in store.history(user).events])
                assert serving.advance([None], [log]) == [loaded.state], user
                self.counts["stored states compared"] += 1
        store.check()
        store.close()
        self.counts["events acknowledged"] = sum(event.acknowledged for events in self.log.sent.values() for event in events)


@pytest.mark.parametrize("binary", ["redis-server", "valkey-server"])
@pytest.mark.parametrize("rounds", [pytest.param(2, id="some"), pytest.param(60, id="many", marks=pytest.mark.soak)])
def test_two_servers_equal_one_after_the_other(tmp_path: Path, starter: Starter, binary: str, rounds: int) -> None:
    if shutil.which(binary) is None:
        pytest.skip(f"{binary} is not installed")
    server, dice = Server(tmp_path, *DURABLE, binary=binary), random.Random(rounds)
    try:
        with counting(f"servers.{binary}", rounds > 10) as counts:
            servers = Servers(starter, tmp_path, server.url, counts)
            for number in range(rounds):
                servers.round(number, dice, dice.uniform(0.5, 2) if rounds > 10 else 0.5, kill=number % 2 == 1)
            counts["rounds"] = rounds
            servers.finish()
            assert counts["stored states compared"] and counts["events acknowledged"] > 10 * rounds
    finally:
        server.stop()
