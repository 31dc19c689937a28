"""How the server is doing: rates and percentiles over the last requests, in constant space."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcarec import Pop, synthetic
from hcarec.serve.limits import Limits
from hcarec.serve.status import REMEMBERED_S, SHARES, Recent
from http_server import Running


@given(st.lists(st.floats(1e-5, 50), min_size=1, max_size=60))
def test_percentiles_are_right_within_a_few_percent(seconds: list[float]) -> None:
    recent = Recent()
    for one in seconds:
        recent.request(200, one, now=100.0)
    for name, share in SHARES.items():
        expected = 1000 * float(np.quantile(seconds, share, method="inverted_cdf"))
        assert recent.latency_ms(now=101.0)[name] == pytest.approx(expected, rel=0.03)


def test_what_is_long_ago_is_forgotten() -> None:
    recent = Recent()
    assert recent.latency_ms() == {"p50": None, "p90": None, "p99": None}
    assert recent.rate() == 0.0
    recent.began = 0.0
    for n in range(1000):
        recent.request(200, 0.001, now=100.0 + n / 100)  # ten seconds of a hundred each
    assert recent.rate(now=110.0) == pytest.approx(100.0)
    assert recent.rate(now=115.0) == pytest.approx(50.0)
    assert recent.rate(now=125.0) == 0.0
    assert recent.latency_ms(now=125.0)["p50"] is not None
    assert recent.latency_ms(now=111.0 + REMEMBERED_S) == {"p50": None, "p90": None, "p99": None}


def test_the_first_seconds_are_not_held_against_it() -> None:
    recent = Recent()
    recent.began = 98.0
    for _ in range(6):
        recent.request(200, 0.001, now=99.5)
    assert recent.rate(now=100.0) == pytest.approx(3.0)


def test_memory_does_not_grow_with_requests() -> None:
    recent = Recent()
    for second in range(500):
        recent.request(200, 10.0 ** (second % 9 - 7), now=float(second))
    assert len(recent._seconds) <= REMEMBERED_S + 1


def test_refusals_and_faults_are_counted() -> None:
    recent = Recent()
    for status in (200, 404, 429, 503, 500, 0, 422):
        recent.request(status, 0.1)
    assert (recent.refused, recent.errors) == (2, 2)


def test_the_status_over_http(tmp_path: Path) -> None:
    Pop().fit(synthetic(users=20, items=10)).save(tmp_path / "model")
    with Running(tmp_path / "model", tmp_path / "s.sqlite", limits=Limits(rate=5)) as running, running.client() as client:
        first = client.get("/v1/status").json()
        assert first["latency_ms"] == {"p50": None, "p90": None, "p99": None}
        assert (first["users"], first["events"], first["requests_per_second"], first["in_flight"]) == (0, 0, 0.0, 0)
        assert client.post("/v1/events", json=[{"user": "a", "item": "i1"}, {"user": "b", "item": "i1"}]).status_code == 200
        statuses = [client.post("/v1/recommend", json={"user": "a"}).status_code for _ in range(80)]
        refused = statuses.count(429)
        assert refused
        deadline = time.monotonic() + 30
        while (now := client.get("/v1/status").json())["events"] != 2 or not now["requests_per_second"]:  # a second old; not limited itself
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert set(now) == set(first)
        assert (now["users"], now["title"], now["errors"]) == (2, "POP", 0)
        assert now["refused"] == refused
        assert 0 < now["latency_ms"]["p50"] <= now["latency_ms"]["p90"] <= now["latency_ms"]["p99"]
        assert now["uptime_s"] > first["uptime_s"] and now["store_bytes"] > 0 and len(now["model"]) == 12
