"""Write docs/benchmarks.md from benchmarks/results/*.json, so that no figure in it is typed by hand.

python docs/make_benchmarks.py
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import benchmarks_gpu
from benchmarks_gpu import table

HERE = Path(__file__).parent
RESULTS = HERE.parent / "benchmarks" / "results"
TARGET = HERE / "benchmarks.md"
HEAD = """# Benchmarks

Written by `make docs` from `benchmarks/results/*.json`, which `make bench` writes. Ratios are taken inside one run;
that of cut-cross-entropy is of another run than those beside it, which its line names. A *goal* is what the project set itself:
the least for how fast something is, the most for how long it takes or how much memory. A figure on the other side has missed it.
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
    lines += table(("model", "events/s", "goal", "times the authors' program", "share of the core's peak", "negative sampling"), rows)
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


def _minibatches(result: dict[str, Any]) -> list[str]:
    lines = ["## Training by mini-batches on a CPU", ""]
    if "peers" in result:
        found = result["peers"]
        lines += [
            f"MovieLens-1M with users and items of 5 events or more ({found['items']:,} items), d = {found['d']}, at most {found['length']} events of a",
            f"sequence, full cross-entropy, {found['threads']} threads. HCA-GRU-x5-h5 without a block, {found['events_per_second']:,.0f} events a second",
            "in whole epochs, in turns with other packages in their own configuration, of which some batches of an epoch are measured.",
            "",
        ]
        rows = [
            (one["title"], f"{one['events_per_second']:,.0f}", str(one["batch_size"]), f"{one['ratio']:.1f}", f"{one['goal']:.0f}")
            for one in found["peers"].values()
        ]
        lines += [*table(("beside", "events/s", "batch size", "times as fast", "goal"), rows), ""]
    if "plan" in result:
        plan = result["plan"]
        lines += [
            "What the plan states before a run, over what the epochs after the first and the process took: "
            f"{plan['within']} of {plan['of']} figures are right within {plan['goal']:.0%}.",
            f"100,000 items x d 64 took {plan['large_catalog_mib'] / 1024:.2f} GiB (goal: {plan['large_goal_gib']:.0f}).",
            "",
        ]
        rows = []
        for one in plan["cases"]:
            case = ", ".join(f"{name} {value}" for name, value in one["settings"].items())
            times = f"{one['planned_seconds']:.2f}", f"{one['seconds']:.2f}", f"{one['time_ratio']:.2f}"
            memory = f"{one['planned_mib']:.0f}", f"{one['mib']:.0f}", f"{one['memory_ratio']:.2f}"
            rows.append((one["log"], case, *times, *memory))
        lines += table(("log", "case", "planned s", "s an epoch", "ratio", "planned MiB", "MiB", "ratio"), rows)
    commits = ", ".join(f"{commit} ({part})" for part, commit in result["commits"].items())
    return [*lines, "", f"Parts were measured one after the other, at commits {commits}."]


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
    lines += table(("d", "hcarec users/s", "torch users/s", "ratio", "goal", "extra memory"), rows)
    return [*lines, *_corrections([case for case in result["cases"] if "corrections" in case])]


def _corrections(cases: list[dict[str, Any]]) -> list[str]:
    if not cases:
        return []
    ratios = ("ratio_evaluation", "ratio_top_k", "ratio_to_bare_pass")
    rows = [(str(case["d"]), *(f"{case['corrections'][name]:.2f}" for name in ratios)) for case in cases]
    what = f"Ranking with corrections of {cases[0]['corrections']['corrected_per_user']} items per user: its time over that without."
    return ["", what, "", *table(("d", "evaluation", "top-20 alone", "without corrections, over the bare pass"), rows)]


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
    return [*lines, *table(("ids", "events", "hcarec", "an event", "peak memory", "pandas", "times faster"), rows)]


def _open(result: dict[str, Any]) -> list[str]:
    return [
        "## Starting",
        "",
        *table(("command", "median", "best"), [(f"`{name}`", f"{one['median']:.3f} s", f"{one['best']:.3f} s") for name, one in result["results"].items()]),
    ]


MORE = ("state, queue, rank of a recommendation, ms", "cores: requests, other threads, writer")


def _serve(result: dict[str, Any]) -> list[str]:
    rows = []
    for one in result["cases"]:
        first = one["runs"][0]
        where = ", ".join(f"{part} {value:.1f}" for part, value in first["recommend_ms"].items() if part != "total")
        recall = f"{one['recall_at_20']:.4f}" if where else ""
        quietest = min((*one["runs"], *one["disturbed"]), key=lambda run: run["machine"]["stolen"])["latency_ms"]["p99"]
        times = (f"{one['p50_ms']:.1f}", f"{one['p99_ms']:.1f}", f"{quietest:.1f}", f"{one['goal_p99_ms']:.0f}")
        cores = ", ".join(f"{value:.2f}" for value in first["cores"].values())
        machine = f"{statistics.median(run['machine']['wait_p99_ms'] for run in one['runs']):.1f}"
        rows.append((one["case"], one["model"], f"{one['rate']:,.0f}", *times, str(one["refused"]), machine, recall, where, cores))
    sync, again = result["fdatasync_ms"], sum(len(one["disturbed"]) for one in result["cases"])
    return [
        "## The live service",
        "",
        "Server and generator share the machine. Arrivals are Poisson, and a latency counts from the moment a request was due; each figure is the",
        f"median of {len(result['cases'][0]['runs'])} runs. An event with a top-20 is two requests one after the other, and its latency that of both.",
        f"Events are durable (SQLite); to make one page durable took {sync['p50']:.2f} ms here (p99 {sync['p99']:.2f}). Ranking is exact in every",
        "case: the index screens items by bounds and scores only what may enter. The machine's p99 is told by a process beside each run that does",
        "nothing but sleep for a millisecond at a time: from how late it woke follows how long anything that comes at any moment waits, 1 time in 100,",
        "because the machine is busy or its host is. Runs during which",
        f"other machines on the host took more than {result['most_stolen']:.0%} of the cores were done again, {again} in all, "
        "at most 3 of a case; they are in the JSON as well. The quietest run is the one during which the host took least.",
        "",
        *table(("case", "model", "a second", "p50 ms", "p99 ms", "p99 of the quietest run", "goal", "refused", "machine's p99", "recall@20", *MORE), rows),
        "",
        "The last column is where the processors' time goes: cores' worth of the thread that reads requests and writes answers, of the other threads,",
        "and of the process that writes the store, to which the thread of requests sends events itself. The first two share one interpreter.",
        "",
        *_floors(result),
        "",
        *_overload(result["overload"], next(one for one in result["cases"] if one["case"] == "event + top-20")["goal_p99_ms"]),
        "",
        *(_long(result["long"]) if "long" in result else []),
        "",
        "Parts were measured one after the other, at commits " + ", ".join(f"{commit} ({part})" for part, commit in result["commits"].items()) + ".",
    ]


def _floors(result: dict[str, Any]) -> list[str]:
    floors, whole = result["floors"], result["cases"][0]
    cores = {part: statistics.median(run["cores"][part] for run in whole["runs"]) for part in whole["runs"][0]["cores"]}
    each = {part: 1e6 * value / whole["rate"] for part, value in cores.items()}
    rows = [
        ("HTTP server alone, answering a constant", f"{floors['constant_us']:.0f}", *(f"{floors['constant_ms'][p]:.1f}" for p in ("p50", "p99"))),
        ("the service without HTTP", f"{floors['direct_us']:.0f}", *(f"{floors['direct_ms'][p]:.1f}" for p in ("p50", "p99"))),
        ("both: thread of requests", f"{each['loop']:.0f}", "", ""),
        ("both: other threads", f"{each['other threads']:.0f}", "", ""),
        ("both: process that writes the store", f"{each['writer']:.0f}", f"{whole['p50_ms']:.1f}", f"{whole['p99_ms']:.1f}"),
    ]
    total = sum(each.values())
    return [
        f"Where the time of an event goes, at {floors['rate']:,.0f} single events a second, measured in parts:",
        "",
        *table(("part", "microseconds of processor an event", "p50 ms", "p99 ms"), rows),
        "",
        f"So an event costs {total:.0f} microseconds of processor, {sum(cores.values()):.1f} cores' worth at this rate beside the generator.",
        f"The thread of requests is busy {cores['loop']:.0%} of the time and the process that writes {cores['writer']:.0%}:",
        "whatever holds one of them up for a moment, the host or the disk, holds up all that comes in until it has caught up.",
        "A shop that sends its events several at a time pays for HTTP once for all of them.",
    ]


def _overload(over: dict[str, Any], goal: float) -> list[str]:
    twice, after_p99 = over["twice"], over["after"]["latency_ms"]["p99"]
    tried = ", ".join(f"{one['rate']:,.0f} ({one['latency_ms']['p99']:.0f} ms, {_not_answered(one)} refused)" for one in over["ladder"])
    answered = statistics.median(one["answered_per_second"] for one in twice)
    each = {name: ", ".join(f"{one['latency_ms']['p99']:.0f}" for one in over[name]) for name in ("held", "twice")}
    refused, sent = sum(map(_not_answered, twice)), sum(one["requests"] for one in twice)
    return [
        f"Overload. Loads of the third case were tried one after the other, with a p99 of {goal:.0f} ms and nothing refused to be held: {tried}.",
        f"{'Held' if over['ladder'][0]['held'] else 'None was; the first counts'}: {over['held_rate']:,.0f} a second. It and twice as many were then",
        f"sent in turns, {len(twice)} times each. At that load p99 is {over['held_p99_ms']:.0f} ms (median of {each['held']}).",
        f"Of twice as many it answers {answered:,.0f} a second with a p99 of {over['twice_p99_ms']:.0f} ms (median of {each['twice']}),",
        f"{over['p99_ratio']:.1f} times as long and {over['twice_p99_ms'] / goal:.1f} times the {goal:.0f} ms asked for, and refuses",
        f"{refused:,} of {sent:,} with 503 and Retry-After.",
        f"Memory: {over['memory_mib_before']:.0f} MiB before, {over['memory_mib_during']:.0f} at most. "
        f"A second later, at the former load: p99 {after_p99:.0f} ms, {_not_answered(over['after'])} refused.",
    ]


def _long(long: dict[str, Any]) -> list[str]:
    known = f", the {long['users_seen_before']:,} users having been seen once before" if "users_seen_before" in long else ""
    memory, p99, growth = long["memory_mib"], long["latency_ms"]["p99"], long["mib_a_minute_in_second_half"]
    return [
        f"{long['seconds'] / 60:.0f} minutes at {long['rate']:,.0f} a second{known}: {_not_answered(long)} of {long['requests']:,} not answered, p99",
        f"{p99:.0f} ms; memory {memory[0]:.0f} MiB at the beginning, {memory[len(memory) // 10]:.0f} after a tenth of the time, "
        f"{memory[len(memory) // 2]:.0f} after half of it, {memory[-1]:.0f} at the end: {growth:+.2f} MiB a minute in the second half.",
    ]


def _search(result: dict[str, Any]) -> list[str]:
    rows = [
        (f"{one['names']:,}", str(one["searches"]), f"{one['build_seconds']:.2f}", f"{one['median_ms']:.1f}", f"{one['worst_ms']:.1f}", f"{one['goal_ms']:.0f}")
        for one in result["sizes"]
    ]
    return ["## Search of items by name", "", *table(("names", "searches", "built in s", "median ms", "worst ms", "goal"), rows)]


def _not_answered(outcome: dict[str, Any]) -> int:
    return sum(n for status, n in outcome["statuses"].items() if status != "200")


def _fine_tuning(result: dict[str, Any]) -> list[str]:
    rows = []
    for log in result["logs"]:
        figures = log["figures"]
        for name in ("alone", "fused"):
            cells = [f"{figures[what][name]:.4f}" for what in figures]
            rows.append((f"{log['log']}, {log['rule']}", name, f"{log['epoch']} of {log['epochs']}", *cells))
    first = result["logs"][0]
    heads, d = list(first["figures"]), first["settings"]["d"]
    return [
        "## Learning validation events in the end",
        "",
        f"HCA-GRU goes on from the chosen epoch, d = {d}; NDCG@10 is that of validation events of users whose own were not learned.",
        "*Validation events too*: those of the other half of the users. A column without them shows what as many more epochs do by themselves.",
        "",
        *table(("log, rule", "network", "epoch", *heads), rows),
    ]


SECTIONS: dict[str, Callable[[dict[str, Any]], list[str]]] = {
    "train_cpu": _training,
    "train_minibatch": _minibatches,
    "fine_tuning": _fine_tuning,
    "train_gpu": benchmarks_gpu.training,
    "kernels_gpu": benchmarks_gpu.kernels,
    "evaluate": _evaluation,
    "prepare": _prepare,
    "help": _open,
    "serve": _serve,
    "search": _search,
}

if __name__ == "__main__":
    TARGET.write_text(page())
