"""What the long runs have tried and found, kept as JSON for docs/reliability.md."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hcarec import atomic
from hcarec.experiments import machine

RESULTS = Path(os.environ.get("HCAREC_SOAK_RESULTS", Path(__file__).resolve().parent.parent / "benchmarks" / "results" / "soak"))


@contextmanager
def counting(topic: str, keep: bool) -> Iterator[Counter[str]]:
    """Yield a counter; a long run that ends well keeps it, one that fails takes back what an earlier one claimed."""
    target, begin = RESULTS / f"{topic}.json", time.monotonic()
    if keep:
        target.unlink(missing_ok=True)
    counts: Counter[str] = Counter()
    yield counts
    if keep:
        result = {"counts": dict(sorted(counts.items())), "seconds": round(time.monotonic() - begin, 1), "machine": machine.describe()}
        atomic.write_bytes(target, json.dumps(result, indent=1).encode() + b"\n")
