"""For the same history Python, the command and the service give the same items with the same bits, whatever is asked at the same time."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hcarec import BPR, HCAGRU, SASRec, load, recommend, synthetic, train
from hcarec.models import Model
from http_server import Running
from load_clients import Connection
from soak_counts import counting

ITEMS = [f"i{n:03}" for n in range(1, 601)]
AT_ONCE = 6
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made, data = tmp_path_factory.mktemp("models"), synthetic(users=80, items=600, mean_length=10)
    HCAGRU(preset="paper", d=10, window_x=3, window_h=2).fit(data, epochs=1, seed=1).save(made / "hca-gru")
    SASRec(preset="paper", d=10, length=6, scores="cosine", copy_window=4, warmup=5).fit(data, epochs=1, seed=1).save(made / "sasrec")
    HCAGRU(preset="paper", d=10, trainer="minibatch", copy_window=3, counting=True, warmup=5).fit(data, epochs=1, seed=1).save(made / "counting")
    BPR(d=10).fit(data, epochs=1, seed=2).save(made / "bpr")
    for name in ("markov", "item-knn"):  # whose own rule is to hide seen items
        train(data, made / name, model=name, hide_seen=True, compare=False)
    return made


@pytest.fixture(scope="module", params=["hca-gru", "sasrec", "counting", "bpr", "markov", "item-knn"])
def served(request: pytest.FixtureRequest, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Model, Running]]:
    path = folder / request.param
    with Running(path, tmp_path_factory.mktemp("store") / "store.sqlite", gather_ms=10, max_wait_s=60) as running:
        yield path, load(path), running


HISTORY = st.lists(st.sampled_from(ITEMS) | st.sampled_from([*ITEMS[:5], "unknown", "a,b", 'q"[', "é"]), max_size=30)
LISTED = st.none() | st.lists(st.sampled_from(ITEMS), min_size=1, max_size=20, unique=True)
ASK = st.fixed_dictionaries(
    {"history": HISTORY, "k": st.sampled_from([1, 5, 20, 101, 1000]), "hide_seen": st.sampled_from([None, False, True])} | {"allow": LISTED, "deny": LISTED}
)


def pairs(found: list[Any]) -> list[tuple[str, bytes]]:
    """Return items and the bits of their scores, from what JSON gave."""
    return [(one["item"], struct.pack("<d", one["score"])) for one in found]


def by_python(model: Model, ask: dict[str, Any]) -> list[tuple[str, bytes]]:
    found = recommend(model, ask["history"], ask["k"], hide_seen=ask["hide_seen"], allow=ask["allow"], deny=ask["deny"] or ())
    return [(str(one.item), struct.pack("<d", one.score)) for one in found]


def by_command(command: Command, path: Path, ask: dict[str, Any]) -> list[tuple[str, bytes]]:
    rules = [word for name in ("allow", "deny") if ask[name] is not None for word in (f"--{name}", json.dumps(ask[name]))]
    rules += {None: [], False: ["--keep-seen"], True: ["--hide-seen"]}[ask["hide_seen"]]
    code, out, err = command("recommend", path, "--history", json.dumps(ask["history"]), "-k", str(ask["k"]), "--json", "-", *rules)
    assert code == 0, err
    return pairs(json.loads(out))


class Service:
    """Asks from several connections at once."""

    def __init__(self, running: Running) -> None:
        self._connections = [Connection(running.url) for _ in range(AT_ONCE)]
        self._pool = ThreadPoolExecutor(AT_ONCE)
        self._users = 0

    def all_at_once(self, asks: list[dict[str, Any]]) -> list[tuple[list[tuple[str, bytes]], list[tuple[str, bytes]]]]:
        """Return for each ask the answers by history and, once these events are stored, by user."""
        return list(self._pool.map(self._one, asks, self._connections))

    def _one(self, ask: dict[str, Any], connection: Connection) -> tuple[list[tuple[str, bytes]], list[tuple[str, bytes]]]:
        wish = {name: value for name, value in ask.items() if value is not None}
        by_history = self._answer(connection, wish)
        user, history = f"{id(connection)} {self._users}", wish.pop("history")
        self._users += 1
        if history:
            events = [{"user": user, "item": item, "time": 1_600_000_000 + n} for n, item in enumerate(history)]
            assert connection.ask("POST", "/v1/events", events)[0] == 200
        return by_history, self._answer(connection, wish | {"user": user})

    def _answer(self, connection: Connection, wish: dict[str, Any]) -> list[tuple[str, bytes]]:
        status, said = connection.ask("POST", "/v1/recommend", wish)
        assert status == 200 and not said["degraded"], said
        return pairs(said["items"])

    def close(self) -> None:
        self._pool.shutdown()
        for connection in self._connections:
            connection.close()


@pytest.mark.parametrize("examples", [pytest.param(12, id="some"), pytest.param(400, id="many", marks=pytest.mark.soak)])
def test_python_the_command_and_the_service_agree(served: tuple[Path, Model, Running], command: Command, examples: int) -> None:
    path, model, running = served
    service = Service(running)
    with counting(f"parity.{path.name}", examples > 100) as counts:

        @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
        @given(asks=st.lists(ASK, min_size=1, max_size=AT_ONCE))
        def agree(asks: list[dict[str, Any]]) -> None:
            right = [by_python(model, ask) for ask in asks]
            for expected, (by_history, by_user) in zip(right, service.all_at_once(asks), strict=True):
                assert by_history == by_user == expected
            assert by_command(command, path, asks[0]) == right[0]
            counts["asks compared"] += len(asks)
            counts["answers over HTTP"] += 2 * len(asks)
            counts["runs of the command"] += 1

        try:
            agree()
        finally:
            service.close()
        figures = running.site.service.figures()
        counts["asks ranked"], counts["batches"] = figures["ranked"], figures["batches"]
        assert counts["batches"] < counts["asks ranked"], "nothing was ever ranked together"
