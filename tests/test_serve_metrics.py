"""The figures for Prometheus: each says what it is, and those of states can be joined with the model."""

from __future__ import annotations

import time
from collections.abc import Iterator

import httpx
import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from hcarec.serve.figures import _by_model
from hcarec.serve.metrics import COUNTED_HERE, MEANING
from hcarec.serve.serving import Serving
from http_server import Running, small_model
from live_models import models


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = small_model(tmp_path_factory.mktemp("metrics"))
    with Running(folder / "model", folder / "store.sqlite") as running:
        yield running


def families(client: httpx.Client) -> dict[str, Metric]:
    found = text_string_to_metric_families(client.get("/metrics").text)
    return {family.name: family for family in found if family.name.startswith("hcarec_")}


def test_every_figure_says_what_it_is(server: Running) -> None:
    assert set(server.site.service.figures()) - set(COUNTED_HERE) == set(MEANING)
    with server.client() as client:
        client.post("/v1/events", json={"user": "u", "item": "i01"})
        client.post("/v1/recommend", json={"user": "u"})
        found = families(client)
    assert len(found) > 25
    for name, family in found.items():
        words = family.documentation
        assert len(words.split()) >= 3 and "\n" not in words, (name, words)
        assert words.replace(" ", "_").lower() not in name, (name, words)


def test_refusals_of_queues_are_not_taken_for_those_of_requests(server: Running) -> None:
    with server.client() as client:
        found = families(client)
    assert [sample.value for sample in found["hcarec_queue_refusals"].samples] == [0.0]
    assert "hcarec_refused" not in found


def test_states_can_be_joined_with_the_model(server: Running) -> None:
    with server.client() as client:
        client.post("/v1/events", json={"user": "u", "item": "i01"})
        deadline = time.monotonic() + 30
        while not (found := families(client))["hcarec_states"].samples[0].value:  # they are written now and then
            assert time.monotonic() < deadline
            time.sleep(0.05)
        model = client.get("/v1/models").json()["models"][0]["model"]
    assert [sample.labels for sample in found["hcarec_states"].samples] == [{"model": model}]
    assert [sample.labels for sample in found["hcarec_model_info"].samples] == [{"model": model}]


@pytest.mark.parametrize("half", [False, True])
def test_states_of_other_models_are_counted_together(half: bool) -> None:
    model = models()["hca-gru"]
    serving, stored_otherwise = Serving(model, "0" * 64, half), Serving(model, "0" * 64, not half)
    assert serving.name == stored_otherwise.name and serving.key != stored_otherwise.key
    assert _by_model({}, serving) == {serving.name: 0}
    assert _by_model({serving.key: 3}, serving) == {serving.name: 3}
    assert _by_model({serving.key: 3, stored_otherwise.key: 4, "older": 5}, serving) == {serving.name: 3, "others": 9}
