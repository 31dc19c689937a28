"""Time splitting, inspecting and generating from 1 to 20 million events.

The name is not `inspect.py`: beside other scripts that would hide Python's own module of that name.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hcarec.data.health import check
from hcarec.data.markov import order_matters
from hcarec.data.split import split
from hcarec.data.statistics import statistics
from hcarec.data.synthetic import synthetic

from machine import describe


def main() -> None:
    """Run, print a table and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--quick", action="store_true", help="a tenth and one million events only")
    options = parser.parse_args()
    rows = [measure(millions) for millions in ((0.1, 1) if options.quick else (1, 5, 20))]
    names = [name for name in rows[0] if name not in ("events", "peak_gib")]
    print(f"{'seconds':24}" + "".join(f"{row['events'] / 1e6:>9.1f} M" for row in rows))
    for name in names:
        print(f"{name:24}" + "".join(f"{row[name]:>11.2f}" for row in rows))
    print(f"{'peak memory, GiB':24}" + "".join(f"{row['peak_gib']:>11.2f}" for row in rows))
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps({"machine": describe(), "rows": rows}, indent=1) + "\n")


def measure(millions: float) -> dict[str, Any]:
    """Time every step on a log of so many events."""
    users = round(millions * 25_000)
    data, generating = timed(lambda: synthetic(users=users, items=max(1000, users // 5), mean_length=40))
    row: dict[str, Any] = {"events": data.n_events, "generate": generating}
    for how in ("ratio", "leave-one-out", "time"):
        row[f"split {how}"] = timed(lambda how=how: split(data, how, validation=True))[1]  # type: ignore[misc]
    figures, row["statistics"] = timed(lambda: statistics(data))
    order, row["does order matter"] = timed(lambda: order_matters(data))
    row["other checks"] = timed(lambda: check(data, figures=figures, order=order))[1]
    row["peak_gib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)
    return row


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """Return what some work gives and the seconds it took."""
    began = time.perf_counter()
    done = work()
    return done, time.perf_counter() - began


if __name__ == "__main__":
    main()
