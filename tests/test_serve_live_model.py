"""Any sequence of events, restarts, swaps and forgetting, beside a plain replay of the model over a list of events."""

from __future__ import annotations

import copy
import itertools
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

import hcarec.serve.live as live_core
from hcarec.recommendation import recommend
from hcarec.serve.asking import understand
from hcarec.serve.live import Known, Live, Lookup
from hcarec.serve.messages import Ask, NewEvent
from hcarec.serve.options import ServiceOptions
from hcarec.serve.policy import EARLIEST, SECOND, stamp
from hcarec.serve.ranking import rank_all
from hcarec.serve.serving import Serving
from hcarec.serve.stores.sqlite import SqliteStore
from hcarec.serve.taking import Taker
from hcarec.serve.upkeep import Upkeep
from live_models import Shared, models, quick_folder
from soak_counts import counting

USERS = "abc"
ITEMS = [*(f"i{n:02}" for n in range(12)), "unknown", "é\n\0"]
NOW = 1_700_000_000 * SECOND
EVENT = st.tuples(st.sampled_from(USERS), st.sampled_from(ITEMS), st.none() | st.integers(-4, 4), st.none() | st.sampled_from("1234567"))


@cache
def serving(name: str) -> Serving:
    return Serving(models()[name], f"{name:>12}")


class AgainstReplay(RuleBasedStateMachine):
    """One server or two on one store, beside lists of events."""

    folder: Path
    numbers: Iterator[int]
    counts: Counter[str]

    @initialize(
        servers=st.sampled_from([1, 1, 2]), name=st.sampled_from(["hca-gru", "gru", "bpr"]), cached=st.sampled_from([1, 100]), tail=st.sampled_from([1, 64])
    )
    def begin(self, servers: int, name: str, cached: int, tail: int) -> None:
        live_core.LONGEST_TAIL = tail
        self.path = self.folder / f"{next(self.numbers)}.db"
        self.n_servers, self.names, self.options = servers, [name] * servers, ServiceOptions(cached_users=cached)
        self.logs: dict[str, list[tuple[int, int, str, str | None]]] = {}
        self.last: dict[str, int] = {}
        self.backed_up: tuple[Path, Any] | None = None
        self.count, self.now = 0, NOW
        self.open()

    def open(self) -> None:
        self.store = SqliteStore(self.path, verify=False)
        given: Any = self.store if self.n_servers == 1 else Shared(self.store)
        self.servers = [Live(given, serving(name), self.options) for name in self.names]
        self.upkeeps = [Upkeep(live) for live in self.servers]
        self.taker = Taker(self.store)

    def live(self, number: int) -> Live:
        return self.servers[number % self.n_servers]

    # -- what is done ------------------------------------------------------------------------------------------------

    @rule(event=EVENT, number=st.integers(0, 1), beside=st.booleans())
    def take_one(self, event: Any, number: int, beside: bool) -> None:
        self.now += 1
        self.check_taken(self.live(number), [event], beside)

    @rule(events=st.lists(EVENT, min_size=1, max_size=6), number=st.integers(0, 1), other=st.none() | EVENT, beside=st.booleans())
    def take(self, events: list[Any], number: int, other: Any, beside: bool) -> None:
        self.now += 1
        live = self.live(number)
        if self.n_servers == 2 and other is not None:  # another server is quicker, once
            shared: Any = live.store

            def meanwhile() -> None:
                shared.before_commit = None
                self.check_taken(self.live(number + 1), [other])

            shared.before_commit = meanwhile
        self.check_taken(live, events, beside)
        if self.n_servers == 2:
            live.store.before_commit = None  # type: ignore[attr-defined]

    def check_taken(self, live: Live, events: list[Any], beside: bool = False) -> None:
        """Take events in, by the server or, where it is the only one, beside its store, and compare what is said of them."""
        stamped = []
        for user, item, offset, event_id in events:
            time = None if offset is None else self.now + offset
            stamped.append(stamp(NewEvent(user, item, time, event_id), self.now, 60))
        if beside and self.n_servers == 1:
            sent = live.group(stamped)
            taken = live.follow(sent, self.taker.take(sent.group))
        else:
            taken = live.take(stamped)
        assert [self.expect(live, event) for event in stamped] == taken

    def expect(self, live: Live, event: Any) -> Any:
        """Say what should be done with an event, and do so."""
        log = self.logs.setdefault(event.user, [])
        if event.event_id is not None and event.event_id in [held for _, _, _, held in log]:
            return ("duplicate", event.time, False)
        known = models()[self.names[self.servers.index(live)]].item_ids.find(event.item) >= 0
        late = event.time < self.last.get(event.user, event.time)
        self.count += 1
        log.append((event.time, self.count, event.item, event.event_id))
        self.last[event.user] = max(event.time, self.last.get(event.user, event.time))
        return ("late" if late and known else "applied" if known else "unknown_item", event.time, False)

    @rule(name=st.sampled_from(["hca-gru", "other", "gru", "bpr", "random"]), number=st.integers(0, 1))
    def swap(self, name: str, number: int) -> None:
        number %= self.n_servers
        self.names[number] = name
        self.servers[number].switch(serving(name))
        self.upkeeps[number].renew()

    @rule(user=st.sampled_from(USERS), event_id=st.sampled_from("1234567"), number=st.integers(0, 1), looked_at=st.booleans())
    def retract(self, user: str, event_id: str, number: int, looked_at: bool) -> None:
        if looked_at:  # so that servers have something in memory
            self.states(number, [user], True)
            self.states(number + 1, [user], False)
        log = self.logs.get(user, [])
        left = [event for event in log if event[3] != event_id]
        assert self.live(number).retract(user, event_id) == len(log) - len(left)
        if log:
            self.logs[user] = left
        if looked_at:
            self.states(number + 1, [user], True)

    @rule(user=st.sampled_from(USERS), number=st.integers(0, 1), looked_at=st.booleans())
    def forget(self, user: str, number: int, looked_at: bool) -> None:
        if looked_at:  # so that servers have something in memory
            self.states(number + 1, [user], True)
        assert self.live(number).forget(user) == len(self.logs.pop(user, []))
        self.last.pop(user, None)
        if looked_at:
            self.states(number + 1, [user], False)

    @rule()
    def backup(self) -> None:
        self.backed_up = self.path.with_name(f"{self.path.name}.backup"), copy.deepcopy((self.logs, self.last))
        self.store.backup(self.backed_up[0])

    @rule(remembers=st.booleans(), looked_at=st.booleans())
    def restore(self, remembers: bool, looked_at: bool) -> None:
        if self.backed_up is None or self.n_servers == 2:  # which cannot know of each other's memory
            return
        if looked_at:  # so that there is something in memory
            self.states(0, list(USERS), True)
        self.servers[0].restore(self.backed_up[0], lambda done, total: None)
        self.upkeeps[0].restart()
        self.taker = self.taker if remembers else Taker(self.store)  # the store refuses what is old in either case
        self.logs, self.last = copy.deepcopy(self.backed_up[1])
        self.counts["restored"] += 1

    @rule(tidy=st.booleans())
    def restart(self, tidy: bool) -> None:
        for live in self.servers:
            while tidy and live.save(2):
                pass
        self.store.close()
        self.open()

    @rule(number=st.integers(0, 1), steps=st.integers(1, 5))
    def rest(self, number: int, steps: int) -> None:
        for _ in range(steps):
            self.upkeeps[number % self.n_servers].step(9.0)
        self.live(number).save(1)

    # -- what must then be so ----------------------------------------------------------------------------------------

    def history(self, user: str) -> list[str]:
        return [item for _, _, item, _ in sorted(self.logs.get(user, []))]

    @rule(number=st.integers(0, 1), users=st.lists(st.sampled_from(USERS), min_size=1, max_size=4), with_log=st.booleans())
    def states(self, number: int, users: list[str], with_log: bool) -> None:
        live = self.live(number)
        for user, known in zip(users, live.look_up([Lookup(user, with_log) for user in users]), strict=True):
            assert isinstance(known, Known)
            self.compare(known, user)
            if (at_hand := live.at_hand(user, with_log)) is not None:
                self.compare(at_hand, user)

    def compare(self, known: Known, user: str) -> None:
        model = known.serving.model
        items = [index for item in self.history(user) if (index := model.item_ids.find(item)) >= 0]
        if known.person.items is not None:
            assert known.person.items.tolist() == items
        if known.serving.stateful:
            rows = known.serving.advance([known.person.row], [known.person.latest])
            found, state = known.serving.codec.decode(rows), model.start()
            model.advance(state, np.array(items, np.int32), np.array([0, len(items)]))
            assert found.counts.tolist() == [len(items)]
            np.testing.assert_array_equal(found.states, state)

    @rule(
        number=st.integers(0, 1),
        users=st.lists(st.sampled_from(USERS), min_size=1, max_size=3),
        visit=st.lists(st.sampled_from(ITEMS), max_size=3),
        hide_seen=st.booleans(),
        k=st.sampled_from([1, 7, 60]),
    )
    def recommendations(self, number: int, users: list[str], visit: list[str], hide_seen: bool, k: int) -> None:
        known = self.live(number).look_up([Lookup(user, hide_seen) for user in users])
        asked = [understand(Ask(user, None, visit, k, hide_seen), one) for user, one in zip(users, known, strict=True) if isinstance(one, Known)]
        for user, one, (items, scores, _) in zip(users, asked, rank_all([one.wish for one in asked]), strict=True):
            model = one.wish.serving.model
            right = recommend(model, [*self.history(user), *visit], k, hide_seen=hide_seen)
            assert [(found.item, found.score) for found in model.named(items, scores, one.basis)] == [(found.item, found.score) for found in right]

    def teardown(self) -> None:
        if hasattr(self, "servers"):
            for user in USERS:
                for number in range(self.n_servers):
                    self.states(number, [user], True)
                assert [event.item for event in self.store.history(user).events] == self.history(user)
            self.store.check()
            self.store.close()
            self.counts["sequences"] += 1
            self.counts["events"] += self.count
            for file in self.folder.glob(f"{self.path.name}*"):
                file.unlink()


PARTS, EXAMPLES = 4, 2600
"""The long run is cut into parts that can run side by side, each with a seed of its own."""


@pytest.mark.parametrize("part", [pytest.param(None, id="some"), *(pytest.param(part, id=f"many-{part}", marks=pytest.mark.soak) for part in range(PARTS))])
def test_any_sequence_equals_a_plain_replay(part: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert EARLIEST < NOW
    monkeypatch.setattr(live_core, "LONGEST_TAIL", live_core.LONGEST_TAIL)  # which the machine changes
    with quick_folder() as folder, counting(f"sequences.{part}", part is not None) as counts:
        machine = type("Test", (AgainstReplay,), {"folder": folder, "numbers": itertools.count(), "counts": counts})
        rules = settings(max_examples=25 if part is None else EXAMPLES, stateful_step_count=50, suppress_health_check=list(HealthCheck), deadline=None)
        run_state_machine_as_test(seed(part or 0)(machine), settings=rules)
