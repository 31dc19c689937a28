"""Put the whole report on a log together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hcarec.data.finding import Finding
from hcarec.data.health import check
from hcarec.data.markov import order_matters
from hcarec.data.statistics import Statistics, statistics
from hcarec.sequences import Sequences


@dataclass(frozen=True)
class Report:
    """What there is to say about a log: figures, what order gives, and the findings of the health check."""

    name: str
    statistics: Statistics
    order: dict[str, Any]
    findings: list[Finding]

    def as_dict(self) -> dict[str, Any]:
        """Return everything, fit for JSON."""
        return {
            "name": self.name,
            "statistics": self.statistics.as_dict(),
            "order": self.order,
            "findings": [finding.as_dict() for finding in self.findings],
        }


def inspect(sequences: Sequences, seed: int = 0, progress: Callable[[str], None] | None = None) -> Report:
    """Look a log over; `progress` is told in words what is being done."""
    tell = progress or (lambda words: None)
    tell("counting")
    figures = statistics(sequences)
    tell("asking whether order matters")
    order = order_matters(sequences, seed)
    tell("checking")
    findings = check(sequences, seed, figures=figures, order=order)
    name = str(sequences.about.get("source", {}).get("name") or "data")
    return Report(name, figures, order, findings)
