"""Any sequence of calls of a store, beside a plain dict of lists that does the same."""

from __future__ import annotations

import copy
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from hcarec.serve.stores import open_store
from hcarec.serve.stores.interface import Change, Event, Loaded, Rebuilt, Store, Wanted
from hcarec.serve.stores.sqlite import SqliteStore
from live_models import quick_folder
from soak_counts import counting
from store_servers import DURABLE, Server

M = "model-a"
Opener = Callable[[int], Store]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with quick_folder() as folder:
        server = Server(folder, *DURABLE)
        yield server
        server.stop()


USERS, MODELS = st.sampled_from("abc"), st.sampled_from([M, "b"])
EVENTS = st.lists(st.tuples(st.integers(-5, 5), st.sampled_from("xyz"), st.none() | st.sampled_from("1234")), min_size=1, max_size=4)


class AgainstAModel(RuleBasedStateMachine):
    """A store beside a dict of lists."""

    opener: Opener
    numbers: Iterator[int]
    counts: Counter[str]

    @initialize()
    def begin(self) -> None:
        self.number = next(self.numbers)
        self.store = self.opener(self.number)
        self.logs: dict[str, list[tuple[int, int, str, str | None]]] = {}
        self.versions: dict[str, int] = {}
        self.last: dict[str, int] = {}
        self.states: dict[tuple[str, str], tuple[int, bytes]] = {}
        self.backed_up: tuple[Path, Any] | None = None
        self.newest = 0
        self.count = 0

    @rule(changes=st.lists(st.tuples(USERS, EVENTS, MODELS, st.none() | st.binary(max_size=3), st.booleans()), max_size=4))
    def commit(self, changes: list[Any]) -> None:
        asked, expected = [], []
        moved: set[str] = set()
        for user, events, model, state, stale in changes:
            ids = [event_id for _, _, event_id in events if event_id]
            if len(ids) != len(set(ids)):
                events = [(time, item, None) for time, item, _ in events]
            version = self.versions.get(user, 0)
            asked.append(Change(user, version + stale, [Event(*event) for event in events], model, state))
            held = {event[3] for event in self.logs.get(user, [])}
            fits = not stale and user not in moved and not any(event_id in held for _, _, event_id in events if event_id)
            expected.append(fits)
            if fits:
                moved.add(user)
                for time, item, event_id in events:
                    self.count += 1
                    self.logs.setdefault(user, []).append((time, self.count, item, event_id))
                self.last[user] = max(self.last.get(user, -9), *(event[0] for event in events))
        versions = self.store.commit(asked)
        assert [version is not None for version in versions] == expected
        for change, version in zip(asked, versions, strict=True):
            if version is not None:
                assert version > self.newest
                self.newest = self.versions[change.user] = version
                self.states.pop((change.user, change.model), None)
                if change.state is not None:
                    self.states[change.user, change.model] = (version, change.state)

    @rule(user=USERS, model=MODELS, state=st.binary(max_size=3), behind=st.booleans())
    def put_state(self, user: str, model: str, state: bytes, behind: bool) -> None:
        version = self.versions.get(user, 0) - behind
        fits = user in self.versions and not behind
        assert self.store.put_states([Rebuilt(user, version, model, state)]) == [fits]
        if fits:
            self.states[user, model] = (version, state)

    @rule(user=USERS, event_id=st.sampled_from("1234"))
    def retract(self, user: str, event_id: str) -> None:
        left = [event for event in self.logs.get(user, []) if event[3] != event_id]
        held = len(left) < len(self.logs.get(user, []))
        assert self.store.retract(user, event_id) == held
        if held:
            self.logs[user] = left
            version = self.store.load([Wanted(user)], M)[0].version
            assert version > self.newest
            self.newest = self.versions[user] = version

    @rule(user=USERS, scrub=st.booleans())
    def forget(self, user: str, scrub: bool) -> None:
        scrub = scrub and isinstance(self.store, SqliteStore)  # Redis takes a tenth of a second for it
        assert self.store.forget(user, scrub) == len(self.logs.pop(user, []))
        self.versions.pop(user, None)
        self.last.pop(user, None)
        self.states = {key: value for key, value in self.states.items() if key[0] != user}

    @rule(keep=MODELS)
    def drop(self, keep: str) -> None:
        while self.store.drop_states({keep}):
            pass
        self.states = {key: value for key, value in self.states.items() if key[1] == keep}

    @rule(last=st.none() | st.integers(0, 5), since=st.none() | st.integers(-5, 5))
    def retain(self, last: int | None, since: int | None) -> None:
        removed = 0
        for user, log in self.logs.items():
            kept = sorted(log)[-last:] if last else [] if last == 0 else sorted(log)
            kept = [event for event in kept if since is None or event[0] >= since]
            removed += len(log) - len(kept)
            self.logs[user] = kept
        assert self.store.retain(last, since) == (removed, None)

    @rule()
    def backup(self) -> None:
        if isinstance(self.store, SqliteStore):  # Redis is restored while it is empty
            self.backed_up = self.store._file.path.with_suffix(".backup"), copy.deepcopy((self.logs, self.versions, self.last, self.states))
            self.store.backup(self.backed_up[0])

    @rule()
    def restore(self) -> None:
        if self.backed_up is not None:
            self.store.restore(self.backed_up[0])
            self.logs, self.versions, self.last, self.states = copy.deepcopy(self.backed_up[1])
            self.counts["restored"] += 1

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = self.opener(self.number)

    @invariant()
    def equal(self) -> None:
        if not hasattr(self, "store"):
            return
        ids = ["1", "2", "3", "4"]
        for model in (M, "b"):
            for user, loaded in zip("abc", self.store.load([Wanted(user, ids) for user in "abc"], model), strict=True):
                version, log = self.versions.get(user, 0), self.logs.get(user, [])
                at, state = self.states.get((user, model), (0, b""))
                current = state if user in self.versions and at == version else None
                assert loaded == Loaded(version, self.last.get(user), current, frozenset(event[3] for event in log if event[3]), len(log))
            lacking = [user for user in "abc" if self.logs.get(user) and self.states.get((user, model), (0,))[0] != self.versions[user]]
            assert self.store.without_state(model).users == lacking
        for user in "abc":
            events = [(time, item, event_id) for time, _, item, event_id in sorted(self.logs.get(user, []))]
            assert [event[:3] for event in self.store.history(user).events] == events
        assert self.store.figures()[:2] == (len(self.logs), sum(map(len, self.logs.values())))

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.check()
            self.store.close()
            self.counts["sequences"] += 1


@pytest.mark.parametrize("examples", [pytest.param(12, id="some"), pytest.param(2000, id="many", marks=pytest.mark.soak)])
@pytest.mark.parametrize("kind", ["sqlite", "redis"])
def test_any_sequence_equals_a_plain_model(kind: str, examples: int, request: pytest.FixtureRequest) -> None:
    with quick_folder() as folder, counting(f"store_sequences.{kind}", examples > 100) as counts:
        server = request.getfixturevalue("server") if kind == "redis" else None
        opener: Opener = lambda n: open_store(str(folder / f"{n}.db")) if server is None else open_store(server.url, prefix=f"{folder}{n}:")  # noqa: E731
        test = type("Test", (AgainstAModel,), {"opener": staticmethod(opener), "numbers": itertools.count(), "counts": counts})
        rules = settings(max_examples=examples, stateful_step_count=20, suppress_health_check=list(HealthCheck), deadline=None)
        run_state_machine_as_test(test, settings=rules)
