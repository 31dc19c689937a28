"""Settings of the service and limits of HTTP: every value is of the kind that its field says, and in its range."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from hcarec.errors import ConfigError
from hcarec.serve.kinds import MOST
from hcarec.serve.limits import Limits
from hcarec.serve.live import Live
from hcarec.serve.options import MOST_DAYS, ServiceOptions
from hcarec.serve.policy import EARLIEST, Stamped
from hcarec.serve.serving import Serving
from hcarec.serve.stores import open_store
from hcarec.serve.upkeep import Upkeep
from live_models import models

FIELDS = [(kind, name, hint) for kind in (ServiceOptions, Limits) for name, hint in get_type_hints(kind).items()]
WRONG: dict[Any, list[Any]] = {
    bool: ["no", "maybe", 1, 0, 1.0, None],
    int: [1.5, 64.0, float("nan"), float("inf"), "5", True, None, 10 * MOST, 10**400, -1],
    float: [float("nan"), float("inf"), "soon", True, None, 10 * MOST, 1e300, 10**400, -1],
}
WRONG[int | None], WRONG[float | None] = ([value for value in WRONG[kind] if value is not None] + ["none"] for kind in (int, float))
RIGHT: dict[Any, list[Any]] = {bool: [True, False], int: [1, 10**6], float: [1, 0.5], int | None: [None, 7], float | None: [None, 7, 0.5]}


@pytest.mark.parametrize(("kind", "name", "hint"), FIELDS, ids=[name for _, name, _ in FIELDS])
def test_each_value_is_of_its_kind_and_in_its_range(kind: Any, name: str, hint: Any) -> None:
    for wrong in WRONG[hint]:
        with pytest.raises(ConfigError, match=name) as raised:
            kind(**{name: wrong})
        said = str(raised.value)
        assert (repr(wrong) in said or str(wrong) in said) and ": give " in said and "\n" not in said
    for right in RIGHT[hint]:
        assert getattr(kind(**{name: right}), name) == right


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"accept_less": "no"}, "accept_less is 'no': give true or false"),
        ({"max_group": 2.5}, "max_group is 2.5: give a whole number"),
        ({"threads": 1.5}, "threads is 1.5: give a whole number, or leave it out"),
        ({"retain_last": 1.5}, "retain_last is 1.5: give a whole number, or leave it out"),
        ({"gather_ms": float("nan")}, "gather_ms is nan: give a finite number"),
        ({"retain_days": 200_000_000_000}, "retain_days is 200000000000: give a number above 0 and at most 36,500, or leave it out"),
        ({"retain_last": 0}, "retain_last is 0: give a number above 0 and at most 1,000,000,000, or leave it out"),
    ],
)
def test_a_refusal_says_what_was_given_and_what_is_expected(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        ServiceOptions(**given)
    assert str(raised.value) == said


def test_only_the_rate_may_be_0() -> None:
    assert Limits(rate=0).rate == 0
    with pytest.raises(ConfigError, match="the limit rate is -1: give 0 for no limit, or a number above 0 and at most 1,000,000,000"):
        Limits(rate=-1)
    for field in dataclasses.fields(Limits):
        if field.name != "rate":
            with pytest.raises(ConfigError, match=f"the limit {field.name} is 0: give a number above 0"):
                Limits(**{field.name: 0})


@pytest.mark.parametrize("address", ["mysql://host/db", "sqlite:///events.sqlite", "REDIS://host", "://"])
def test_an_address_of_no_known_kind_is_refused(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # where a store would be made if it were taken for a path
    with pytest.raises(ConfigError, match="give redis://, rediss://, unix:// or the path of an SQLite file"):
        open_store(address)
    assert not list(tmp_path.iterdir())


def test_the_longest_retention_works(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "store.sqlite"))
    try:
        live = Live(store, Serving(models()["hca-gru"], "a hash"), ServiceOptions(retain_days=MOST_DAYS, retain_last=MOST))
        live.take([Stamped("u", "i01", EARLIEST, None, False)])
        upkeep = Upkeep(live)
        while upkeep.step(60.0):
            pass
        assert len(live.store.history("u").events) == 1
    finally:
        store.close()
