"""Figures for Prometheus: what was asked, how long it took, and how the service stands when it is looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, GCCollector, Histogram, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from hcarec.serve.admission import Admission
from hcarec.serve.lateness import Lateness

BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Seconds."""
COUNTED_HERE = ("recommended",)
GROWING = ("batches", "degraded", "ranked", "refused", "replays", "store_failures", "taken")
"""Figures of the service that only grow; `ranked` over `batches` is how many requests share a pass through the catalogue."""
NAMED = {"refused": "queue_refusals", "taken": "events_taken"}
"""Figures that have another name outside."""
KEYED = {"states": "model", "taken": "status"}
"""What the keys are of figures that have some."""
MEANING = {
    "batches": "Groups of requests that were ranked in one pass through the catalogue",
    "bytes": "Bytes that the store takes up: the file of SQLite, or the memory of the whole Redis server",
    "damaged_states": "States that were found damaged since the store was opened, each of which is made anew from the log",
    "degraded": "Answers that rest on less than is known, since the store could not be asked in time",
    "events": "Events in the store",
    "items": "Items that the model being served knows",
    "model": "The model being served, by the beginning of its hash",
    "ranked": "Requests that were ranked; over batches, how many share a pass through the catalogue",
    "rebuilding": "1 while users without a state of the model being served are replayed in the background",
    "refused": "Jobs that were refused since too many waited before the store or the ranking",
    "replays": "Users whose state was made anew from their log, after a late event or without a state of this model",
    "states": "Users with a state in the store, by the model that made it; of models other than the one being served together, as others",
    "store_down": "1 while the store does not answer: events are refused, answers are degraded",
    "store_failures": "Times that the store could not do what it was asked for",
    "store_not_durable": "1 while the Redis server may lose what it acknowledges, so that events are refused",
    "store_wait_seconds": "Seconds for which an answer of the store has been awaited, as of now",
    "taken": "Events taken in, by what was done with them",
    "title": "What the model being served is called",
    "traces": "1 while files of the store may still hold bytes of users who were forgotten; they are overwritten piece by piece",
    "unsaved_states": "States in memory that are not in the store yet; a stop writes them, after a kill they are made anew from the log",
    "users": "Users in the store",
    "users_in_memory": "Users whose states are held in memory",
    "waiting_asks": "Requests that wait to be ranked",
    "waiting_events": "Events, lookups of users and other work that wait for the store",
}
"""What the figures of the service are."""


class Metrics:
    """The figures of one server; `figures`, `admissions` and `late` are asked for when somebody looks."""

    def __init__(self, figures: Callable[[], dict[str, Any]], admissions: Mapping[str, Admission], late: Lateness) -> None:
        self.registry = CollectorRegistry()
        self._seconds = Histogram(
            "hcarec_request_seconds", "Requests and the time they took", ("method", "route", "status"), buckets=BUCKETS, registry=self.registry
        )
        self._parts = Histogram("hcarec_recommend_part_seconds", "Where the time of a recommendation goes", ("part",), buckets=BUCKETS, registry=self.registry)
        self._answers = Counter("hcarec_recommendations", "Recommendations, by what they rest on", ("basis", "degraded"), registry=self.registry)
        self._refused = Counter("hcarec_refusals", "Requests refused, by reason", ("code",), registry=self.registry)
        in_flight = Gauge("hcarec_requests_in_flight", "Requests worked on now", ("kind",), registry=self.registry)
        let_in = Gauge("hcarec_requests_let_in", "Requests that are worked on at once at most, as of now", ("kind",), registry=self.registry)
        for kind, admission in admissions.items():
            in_flight.labels(kind).set_function(partial(getattr, admission, "under_way"))
            let_in.labels(kind).set_function(partial(getattr, admission, "limit"))
        waiting = Gauge("hcarec_requests_unread_seconds", "How long requests wait until they are read, as of now", registry=self.registry)
        waiting.set_function(partial(getattr, late, "seconds"))
        self.registry.register(_Service(figures))
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self._known: dict[tuple[Any, tuple[object, ...]], Any] = {}

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        self._child(self._seconds, method, route, status).observe(seconds)

    def recommended(self, basis: str, degraded: bool, seconds: dict[str, float]) -> None:
        """Count a recommendation."""
        self._child(self._answers, basis, "true" if degraded else "false").inc()
        for part, value in seconds.items():
            self._child(self._parts, part).observe(value)

    def refused(self, code: str) -> None:
        """Count a refusal."""
        self._child(self._refused, code).inc()

    def _child(self, of: Any, *labels: object) -> Any:
        """Return the figure with some labels; to look it up by them costs more than to count, and they are few: hence the dictionary."""
        child = self._known.get((of, labels))
        if child is None:
            child = self._known[of, labels] = of.labels(*map(str, labels))
        return child

    def text(self) -> bytes:
        """Return everything in the format of Prometheus."""
        return generate_latest(self.registry)


class _Service(Collector):
    """Give the figures of the service."""

    def __init__(self, figures: Callable[[], dict[str, Any]]) -> None:
        self._figures = figures

    def describe(self) -> Iterable[Metric]:
        return ()  # names are known when somebody looks

    def collect(self) -> Iterator[Metric]:
        for name, value in self._figures().items():
            if value is not None and name not in COUNTED_HERE:
                yield _family(name, value)


def _family(figure: str, value: Any) -> Metric:
    """Return a number as it is, a dictionary with its keys as labels, and a text as the label of a 1."""
    name = NAMED.get(figure, figure)
    words, kind = MEANING.get(figure, name), CounterMetricFamily if figure in GROWING else GaugeMetricFamily
    family: Any
    if isinstance(value, str):
        family = GaugeMetricFamily(f"hcarec_{name}_info", words, labels=[name])
        family.add_metric([value], 1.0)
    elif isinstance(value, dict):
        family = kind(f"hcarec_{name}", words, labels=[KEYED.get(figure, "key")])
        for key, number in value.items():
            family.add_metric([str(key)], float(number))
    else:
        family = kind(f"hcarec_{name}", words, value=float(value))
    return family
