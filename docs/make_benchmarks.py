"""Write docs/benchmarks.md from benchmarks/results/*.json, so that no figure in it is typed by hand.

python docs/make_benchmarks.py
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULTS = HERE.parent / "benchmarks" / "results"
TARGET = HERE / "benchmarks.md"
HEAD = """# Benchmarks

Written by `make docs` from `benchmarks/results/*.json`, which `make bench` writes. Ratios are taken inside one run.
"""


def page() -> str:
    """Return the whole page."""
    return HEAD + "".join(_section(RESULTS / f"{name}.json", write) for name, write in SECTIONS.items() if (RESULTS / f"{name}.json").exists())


def _section(path: Path, write: Callable[[dict[str, Any]], list[str]]) -> str:
    result = json.loads(path.read_text())
    machine = result["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items() if version)
    where = f"{machine['processor']}, {machine['cores']} cores, {machine['memory_gib']:.0f} GiB, Python {machine['python']}, {versions}"
    return "\n" + "\n".join([*write(result), "", f"`python benchmarks/{path.stem}.py` on {where}; commit {machine['commit']}.", ""])


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1), *("| " + " | ".join(row) + " |" for row in rows)]


def _training(result: dict[str, Any]) -> list[str]:
    names = {"gru": "GRU", "x5": "HCA-GRU-x5", "h5": "HCA-GRU-h5", "x5-h5": "HCA-GRU-x5-h5", "bpr": "BPR"}
    rows = []
    for key, one in result["models"].items():
        goal = f"{one['goal']:,}" if "goal" in one else ""
        authors = f"{one['times_authors']:.0f}" if "times_authors" in one else ""
        peak = f"{one['share_of_peak']:.0%}" if "share_of_peak" in one else ""
        rows.append((names[key], f"{one['events_per_second']:,.0f}", goal, authors, peak, f"{one['sampler_share']:.1%}"))
    lines = ["## Training on one thread", ""]
    size = f"{result['users']:,} users, {result['items']:,} items, {result['training_events']:,} training events, d = {result['d']}"
    lines += [f"{size}: data like the paper's Taobao.", ""]
    lines += _table(("model", "events/s", "goal", "times the authors' program", "share of the core's peak", "negative sampling"), rows)
    growth = result["growth"]
    for what in growth:
        values = ", ".join(f"{point[what]:,}: {point['microseconds']:.2f}" for point in growth[what])
        lines += [
            "",
            f"HCA-GRU-x5-h5, microseconds an event by {what}: {values}." if what != "w" else f"Both windows of width w, microseconds an event by w: {values}.",
        ]
    first, after = result["compile_seconds"]["cpu"]["first"], result["compile_seconds"]["cpu"]["afterwards"]
    lines += [
        "",
        f"Peak of the core measured in the same run: {result['peak_gflops']:.0f} GFLOP/s. Memory beyond the parameters: {result['extra_memory_mib']:.1f} MiB.",
    ]
    return [*lines, "", f"Compiling: {first:.1f} s the first time ever, {after:.1f} s afterwards, imports included."]


def _evaluation(result: dict[str, Any]) -> list[str]:
    rows = []
    for case in result["cases"]:
        rate = case["users_per_second"]
        rows.append(
            (
                str(case["d"]),
                f"{rate['hcarec']:,.0f}",
                f"{rate['torch']:,.0f}",
                f"{case['ratio']:.2f}",
                f"{case['goal']}",
                f"{case['extra_memory_mib']:.0f} MiB",
            )
        )
    lines = [
        "## Evaluation: top-20 and all metrics, the exact AUC among them",
        "",
        "Against a chunked torch program that gives the same metrics for every user.",
        "",
    ]
    return [*lines, *_table(("d", "hcarec users/s", "torch users/s", "ratio", "goal", "extra memory"), rows)]


def _prepare(result: dict[str, Any]) -> list[str]:
    rows = []
    for row in result["results"]:
        ours = row["hcarec"]
        pandas = min((row[kind] for kind in row if kind.startswith("pandas")), key=lambda one: one["seconds"])
        each = f"{1e9 * ours['seconds'] / row['events']:.0f} ns"
        rows.append(
            (
                row["ids"],
                f"{row['events']:,}",
                f"{ours['seconds']:.1f} s",
                each,
                f"{ours['peak_gib']:.2f} GiB",
                f"{pandas['seconds']:.1f} s",
                f"{row['times_faster']:.1f}",
            )
        )
    opened = max(row["hcarec"]["open_seconds"] for row in result["results"])
    lines = [
        "## Preparing a CSV of shuffled rows",
        "",
        f"Against the same steps in pandas, the faster of its two engines. Opening a prepared set took {opened:.3f} s at most.",
        "",
    ]
    return [*lines, *_table(("ids", "events", "hcarec", "an event", "peak memory", "pandas", "times faster"), rows)]


def _open(result: dict[str, Any]) -> list[str]:
    return [
        "## Starting",
        "",
        *_table(("command", "median", "best"), [(f"`{name}`", f"{one['median']:.3f} s", f"{one['best']:.3f} s") for name, one in result["results"].items()]),
    ]


SECTIONS: dict[str, Callable[[dict[str, Any]], list[str]]] = {"train_cpu": _training, "evaluate": _evaluation, "prepare": _prepare, "help": _open}

if __name__ == "__main__":
    TARGET.write_text(page())
