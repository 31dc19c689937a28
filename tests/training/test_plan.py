"""The plan: what a run states before it begins grows with the work, and is printed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hcarec import Sequences, synthetic
from hcarec.cli.train_view import LiveTable
from hcarec.data.split import Part, split
from hcarec.models import Config, make
from hcarec.settings import MinibatchSettings
from hcarec.training import speed, train
from hcarec.training.batches import Batches
from hcarec.training.callbacks import Callback
from hcarec.training.minibatch_cost import estimate, work
from hcarec.training.resources import Plan, plan

BASE: dict[str, Any] = {"model": "hca-gru", "preset": "paper", "trainer": "minibatch", "d": 32}


@pytest.fixture(scope="module")
def part() -> Part:
    return split(synthetic(users=400, items=200, mean_length=25, seed=3), "none").train


@pytest.mark.parametrize("way", ["sequences", "prefixes", "positions"])
@pytest.mark.parametrize("length", [7, 200])
def test_the_work_of_an_epoch_is_that_of_its_batches(way: str, length: int, part: Part) -> None:
    settings = MinibatchSettings(batches=way, batch_size=16, length=length)
    batches = Batches(part, way, 16, length, settings.positions, 0, 1)
    found = work(settings, part)
    read = [int(batch.lengths.sum()) for batch in batches]
    assert found.steps == len(batches)
    assert found.targets == sum(len(batch.targets) for batch in batches)
    assert found.read == pytest.approx(sum(read), rel=0.05 if way == "positions" else 0)
    if way == "sequences":
        assert found.largest >= max(read)
    else:
        assert found.largest == pytest.approx(np.mean(read[:-1]), rel=0.1)


@pytest.mark.parametrize(
    "more",
    [
        {"d": 64},
        {"blocks": 1},
        {"blocks": 2},
        {"copy_window": 20},
        {"batches": "prefixes"},
        {"loss": "sampled-softmax", "negatives": 10_000},
    ],
)
def test_more_work_takes_more(more: dict[str, Any], part: Part) -> None:
    less = make(**BASE), make(**(BASE | more))
    seconds, memory = zip(*(estimate(model, part, 200, 1) for model in less), strict=True)
    assert seconds[1] > seconds[0]
    assert memory[1] > memory[0] or more.get("batches") == "prefixes"


def test_the_plan_has_the_counting_term(part: Part) -> None:
    plain, counting = (plan(make(**BASE, counting=on), part, 200, 100) for on in (False, True))
    assert counting.epoch_seconds == plain.epoch_seconds
    assert counting.seconds > plain.seconds and counting.memory > plain.memory


def test_threads_make_it_faster_and_items_slower(part: Part) -> None:
    model = make(**BASE)
    assert estimate(model, part, 200, 4).seconds < estimate(model, part, 200, 1).seconds
    few, many = (estimate(model, part, n, 1) for n in (200, 20_000))
    assert many.seconds > few.seconds and many.memory > few.memory


def test_what_is_decided_does_not_depend_on_the_machine(part: Part) -> None:
    planned = plan(make(**BASE, epochs=7), part, 200, 100)
    stated = planned.on_machine(2.0)
    assert stated.epoch_seconds == 2 * planned.epoch_seconds
    assert stated.seconds == 2 * planned.seconds > 7 * stated.epoch_seconds
    assert stated.memory == planned.memory and stated.epochs == 7


def test_the_speed_is_measured_once() -> None:
    assert speed.slowness() > 0 and speed.slowness() == speed.slowness()


def test_a_run_states_its_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Plan] = []

    class Listener(Callback):
        def planned(self, planned: Plan, config: Config, resumed_at: int | None) -> None:
            told.append(planned)

    data: Sequences = synthetic(users=60, items=40, mean_length=10)
    monkeypatch.setattr("hcarec.training.loop.slowness", lambda: 3.0)
    train(data, model="pop", callback=Listener(), compare=False)
    train(data, callback=Listener(), compare=False, epochs=2, patience=1, **BASE)
    counted, learned = told
    assert (counted.epochs, counted.epoch_seconds) == (0, 0.0)
    assert learned.epochs == 2 and learned.memory > 0
    assert 0 < 2 * learned.epoch_seconds < learned.seconds
    parts = split(data, "ratio", validation=True)
    plain = plan(make(**BASE, epochs=2, patience=1), parts.train, 40, int(parts.evaluated.sum()))
    assert learned.epoch_seconds == pytest.approx(3 * plain.epoch_seconds)


def test_a_gpu_gets_no_times_that_were_fitted_to_cpus(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    planned = Plan(10, 20, 300, 7, 4000, 1 << 30, 1.5, 12.0).without_times()
    LiveTable().planned(planned, make("gru", preset="paper").config, None)
    text = capsys.readouterr().err
    assert "at most 7 epochs; the time is told after the first" in text and "nan" not in text


def test_self_attention_costs_more_where_it_sees_more(part: Part) -> None:
    short, long = (
        estimate(make("sasrec", preset="paper", d=32, length=length), part, 200, 1).seconds
        for length in (5, 50)
    )
    recurrent = [
        estimate(make(**BASE, length=length, window_x=1, window_h=1), part, 200, 1).seconds
        for length in (5, 50)
    ]
    assert long / short > recurrent[1] / recurrent[0]
