"""Load the live service over HTTP: requests arrive when they are due, whether it keeps up or not; server and generator share this machine.

Every case runs three times, the median counts. `pair` is an event and, once that is acknowledged, the top 20 for the same user; its latency
is that of both. The models are trained on synthetic logs, so that their vectors have the shape that ranking meets in life.
The load that it holds is the highest, from that of the case `event + top-20` on, at which it keeps that case's goal: it and its double are sent in turns, and
0.8 of it is kept up for minutes. Every run waits for the host to leave the machine alone, and is set aside where it did not.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from quiet import bystander, processor_s, wait_for_quiet

from machine import describe

HERE = Path(__file__).parent
WARM_S = 3.0
MOST_STOLEN, MOST_DISTURBED = 0.01, 3
"""A run during which other machines on the host took a larger share of the cores is set aside and done again, so many times for each case."""


class Size(NamedTuple):
    """A model and the log it is trained on."""

    name: str
    items: int
    d: int
    users: int
    mean_length: int
    epochs: int


class Case(NamedTuple):
    """A load and what is asked of it."""

    name: str
    size: Size
    kind: str
    rate: float
    p99_ms: float
    together: int = 1
    patience: int = 20
    """How often it is tried whether the machine is quiet; 1 is for a quick look, which does nothing twice."""

    @property
    def again(self) -> int:
        """How often a disturbed run is done again."""
        return min(MOST_DISTURBED, self.patience - 1)


TAOBAO = Size("267,948 items, d 20", 267_948, 20, 37_000, 44, 3)
MILLION = Size("1,000,000 items, d 64", 1_000_000, 64, 100_000, 40, 3)
SMALL = Size("2,000 items, d 8", 2_000, 8, 500, 20, 1)
CASES = (
    Case("events", TAOBAO, "event", 2000, 10),
    Case("events, ten a request", TAOBAO, "event", 200, 10, 10),
    Case("event + top-20", TAOBAO, "pair", 400, 50),
    Case("event + top-20, million", MILLION, "pair", 60, 100),
    Case("event + top-20, million, index", MILLION, "pair", 250, 50),
)
LOADED = CASES[2]
"""The case that is overloaded, and then held for ten minutes at what it can take."""
RUNGS = (1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0)
"""Multiples of its load that are tried one after the other until one is not held."""
LOAD_USERS, TOUCHED_AT_ONCE = 20_000, 250
MANY = 900
"""Connections for more than the service holds: with few, requests would pile up in the generator and never reach it."""
PARTS = ("cases", "floors", "overload", "long")


def main() -> None:
    """Run, print a table and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--work", type=Path, help="where trained models are kept for the next time (default: nowhere)")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each run, after warming up")
    parser.add_argument("--minutes", type=float, default=10.0, help="of the long run at 0.8 of the load that it holds")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="measure these, and keep the others that the output holds")
    parser.add_argument("--quick", action="store_true", help="a small model and a light load, for a few seconds")
    options = parser.parse_args()
    cases, loaded = CASES, LOADED
    if options.quick:
        cases = loaded, _ = (Case("event + top-20", SMALL, "pair", 50, 100, patience=1), Case("events", SMALL, "event", 100, 100, patience=1))
        options.runs, options.seconds, options.minutes = 1, 1.0, 0.05
    with tempfile.TemporaryDirectory() as folder:
        work = options.work or Path(folder)
        result: dict[str, Any] = {"machine": describe(), "fdatasync_ms": fdatasync_ms(Path(folder)), "users": LOAD_USERS, "most_stolen": MOST_STOLEN}
        if set(options.parts) != set(PARTS):
            result = json.loads(options.output.read_text()) | result
        for part in options.parts:
            if part == "cases":
                result[part] = [measure(case, work, Path(folder), options.runs, options.seconds) for case in cases]
            elif part == "floors":
                result[part] = floors(cases[-1] if options.quick else cases[0], work, Path(folder), options.runs, options.seconds)
            elif part == "overload":
                result[part] = overload(loaded, work, Path(folder), options.runs, options.seconds)
            else:
                held = result.get("overload", {"held_rate": loaded.rate})["held_rate"]
                result[part] = long_run(loaded, 0.8 * held, work, Path(folder), 60 * options.minutes)
            result.setdefault("commits", {})[part] = result["machine"]["commit"]
            keep(result, options.output)
    show(result)


def keep(result: dict[str, Any], output: Path | None) -> None:
    """Write what there is."""
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(json.dumps(result, indent=1) + "\n")


# -- cases -----------------------------------------------------------------------------------------------------------------


def measure(case: Case, work: Path, folder: Path, runs: int, seconds: float) -> dict[str, Any]:
    """Run one case several times, each on a new store."""
    outcomes, disturbed = [], []
    while len(outcomes) < runs:
        with serving(case.size, work, folder, "--index") as server:
            waited = wait_for_quiet(case.patience)
            before = server.processor_seconds()
            with bystander() as machine:
                outcome = load(server.port, case, case.rate, seconds, len(outcomes))
            outcome |= {"waited_s": waited, "machine": machine}
            spent = {name: (after - before[name]) / (seconds + WARM_S) for name, after in server.processor_seconds().items()}
            outcome |= server.where_time_goes() | {"cores": spent}
            said = server.said
        print(f"{case.name}: {brief(outcome)}", file=sys.stderr, flush=True)
        (disturbed if machine["stolen"] > MOST_STOLEN and len(disturbed) < case.again else outcomes).append(outcome)
    p99 = statistics.median(one["latency_ms"]["p99"] for one in outcomes)
    refused = sum(n for one in outcomes for status, n in one["statuses"].items() if status != "200")
    recall = re.search(r"recall@20 ([\d.]+)", said)
    return {
        "case": case.name, "model": case.size.name, "rate": case.rate, "goal_p99_ms": case.p99_ms, "p99_ms": p99,
        "p50_ms": statistics.median(one["latency_ms"]["p50"] for one in outcomes), "refused": refused,
        "recall_at_20": float(recall[1]) if recall else None, "met": p99 <= case.p99_ms and not refused, "runs": outcomes, "disturbed": disturbed,
    }  # fmt: skip


def overload(case: Case, work: Path, folder: Path, runs: int, seconds: float) -> dict[str, Any]:
    """Find the load that the service holds, send it and twice that in turns, then see whether it recovers."""
    with serving(case.size, work, folder) as server:
        ladder: list[dict[str, Any]] = []
        for times in RUNGS[: 1 + case.patience]:
            ladder.append(rung(server, case, times * case.rate, seconds, len(ladder)))
            if not ladder[-1]["held"]:
                break
        rate = (ladder[-1] if ladder[-1]["held"] else ladder[max(0, len(ladder) - 2)])["rate"]
        held, twice = [], []
        with server.memory() as before:
            wait_for_quiet(case.patience)
        with server.memory() as during:
            for seed in range(100, 100 + runs):
                held.append(rung(server, case, rate, seconds, seed))
                twice.append(rung(server, case, 2 * rate, seconds, seed, MANY))
        time.sleep(1.0)
        after = load(server.port, case, rate, min(seconds, 8.0), 100 + runs)
    print(f"afterwards, {rate:.0f}/s: {brief(after)}", file=sys.stderr, flush=True)
    held_p99, twice_p99 = (statistics.median(one["latency_ms"]["p99"] for one in some) for some in (held, twice))
    return {
        "held_rate": rate, "held": held, "twice": twice, "after": after, "ladder": ladder, "held_p99_ms": held_p99, "twice_p99_ms": twice_p99,
        "memory_mib_before": max(before), "memory_mib_during": max(during), "p99_ratio": twice_p99 / held_p99,
    }  # fmt: skip


def rung(server: Server, case: Case, rate: float, seconds: float, seed: int, connections: int = 256) -> dict[str, Any]:
    """Try a load, again where others took the machine meanwhile, and say whether it is held: nothing refused, and the goal kept."""
    disturbed: list[dict[str, Any]] = []
    while True:
        wait_for_quiet(case.patience)
        with bystander() as machine:
            outcome = load(server.port, case, rate, seconds, seed, connections)
        held = set(outcome["statuses"]) == {"200"} and outcome["latency_ms"]["p99"] <= case.p99_ms
        outcome |= {"rate": rate, "held": held, "machine": machine}
        print(f"{rate:.0f}/s: {brief(outcome)}", file=sys.stderr, flush=True)
        if machine["stolen"] <= MOST_STOLEN or len(disturbed) == case.again:
            return outcome | {"disturbed": disturbed}
        disturbed.append(outcome)


def long_run(case: Case, rate: float, work: Path, folder: Path, seconds: float) -> dict[str, Any]:
    """Load the service for long, and watch its memory, once every user is in it: those seen for the first time add to it by design, up to a limit."""
    with serving(case.size, work, folder) as server:
        touch_all(server.port, case)
        with server.memory() as memory:
            outcome = load(server.port, case, rate, seconds, 7)
    half = memory[len(memory) // 2 :]
    slope = float(np.polyfit(np.arange(len(half)) / 60, half, 1)[0]) if len(half) > 2 else 0.0
    print(f"{seconds / 60:.0f} minutes at {rate:.0f}/s: {brief(outcome)}; memory {memory[0]:.0f} to {memory[-1]:.0f} MiB", file=sys.stderr, flush=True)
    known = {"users_seen_before": LOAD_USERS}
    return known | {"rate": rate, "seconds": seconds, "memory_mib": memory[:: max(1, len(memory) // 60)], "mib_a_minute_in_second_half": slope} | outcome


def touch_all(port: int, case: Case) -> None:
    """Send one event of every user that the generator knows."""
    item, headers = f"i{1:0{len(str(case.size.items))}d}", {"Content-Type": "application/json"}
    for begin in range(0, LOAD_USERS, TOUCHED_AT_ONCE):
        events = [{"user": f"u{user}", "item": item} for user in range(begin, begin + TOUCHED_AT_ONCE)]
        asked = urllib.request.Request(f"http://127.0.0.1:{port}/v1/events", json.dumps({"events": events}).encode(), headers)
        with urllib.request.urlopen(asked) as answer:
            assert len(json.load(answer)["events"]) == TOUCHED_AT_ONCE


def floors(case: Case, work: Path, folder: Path, runs: int, seconds: float) -> dict[str, Any]:
    """Measure what no such service can be quicker than: its HTTP server answering a constant, and its events without HTTP."""
    constants, directs = [], []
    for seed in range(runs):
        with subprocess.Popen([sys.executable, HERE / "serve_floors.py", "constant"], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                port = int(process.stdout.readline())
                wait_for_quiet(case.patience)
                before = processor_s(process.pid)
                with bystander() as machine:
                    outcome = load(port, case, case.rate, seconds, seed)
                cores = (processor_s(process.pid) - before) / (seconds + WARM_S)
                constants.append(outcome | {"machine": machine, "cores": cores})
            finally:
                process.terminate()
        with tempfile.TemporaryDirectory(dir=folder) as place:
            command = [HERE / "serve_floors.py", "direct", trained(case.size, work), f"{place}/store.sqlite", case.rate, seconds + WARM_S, WARM_S, seed]
            done = subprocess.run([sys.executable, *map(str, command)], stdout=subprocess.PIPE, text=True, check=True)
            directs.append(json.loads(done.stdout))
        print(f"HTTP alone: {brief(constants[-1])}; without HTTP: p99 {directs[-1]['latency_ms']['p99']:.1f} ms", file=sys.stderr, flush=True)
    found: dict[str, Any] = {"rate": case.rate, "constant": constants, "direct": directs}
    for name in ("constant", "direct"):
        found[f"{name}_us"] = 1e6 * statistics.median(one["cores"] for one in found[name]) / case.rate
        found[f"{name}_ms"] = {p: statistics.median(one["latency_ms"][p] for one in found[name]) for p in ("p50", "p99")}
    return found


def load(port: int, case: Case, rate: float, seconds: float, seed: int, connections: int = 256) -> dict[str, Any]:
    """Let the generator send requests; it is a process of its own."""
    width = len(str(case.size.items))
    plan = {
        "port": port, "kind": case.kind, "rate": rate, "seconds": seconds + WARM_S, "warm": WARM_S, "users": LOAD_USERS,
        "items": [f"i{item:0{width}d}" for item in range(1, case.size.items + 1)], "seed": seed, "together": case.together, "connections": connections,
    }  # fmt: skip
    done = subprocess.run([sys.executable, HERE / "open_loop.py"], input=json.dumps(plan), text=True, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


# -- the server ------------------------------------------------------------------------------------------------------------


class Server:
    """A running `hcarec serve`."""

    def __init__(self, process: subprocess.Popen[str], said: str, log: Path) -> None:
        self.process, self.said = process, said
        found = re.search(r"http://127\.0\.0\.1:(\d+)", said.replace("\n", ""))
        if found is None:
            raise SystemExit(f"the service did not start: {said}{log.read_text()}")
        self.port = int(found[1])

    @contextlib.contextmanager
    def memory(self) -> Iterator[list[float]]:
        """Yield a list to which the memory of the process, in MiB, is added every second."""
        seen, end = [self._resident()], threading.Event()

        def look() -> None:
            while not end.wait(1.0):
                seen.append(self._resident())

        watcher = threading.Thread(target=look)
        watcher.start()
        try:
            yield seen
        finally:
            end.set()
            watcher.join()

    def _resident(self) -> float:
        return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{self.process.pid}/status").read_text())[1]) / 1024  # type: ignore[index]

    def where_time_goes(self) -> dict[str, Any]:
        """Return the mean milliseconds of the parts of a recommendation, how many share a ranking, and the processor time of the process."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics") as answer:
            figures = dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if not line.startswith("#"))
        parts = {}
        for part in ("state", "queue", "rank", "total"):
            count, total = (float(figures.get(f'hcarec_recommend_part_seconds_{kind}{{part="{part}"}}', 0)) for kind in ("count", "sum"))
            if count:
                parts[part] = round(1000 * total / count, 3)
        batches = float(figures["hcarec_batches_total"])
        together = round(float(figures["hcarec_ranked_total"]) / batches, 2) if batches else None
        return {"recommend_ms": parts, "ranked_together": together}

    def processor_seconds(self) -> dict[str, float]:
        """Return the processor time so far of the thread that reads requests, of the others, and of the process that writes the store."""
        threads = Path(f"/proc/{self.process.pid}/task")
        spent = {int(one.name): int((one / "schedstat").read_text().split()[0]) / 1e9 for one in threads.iterdir()}
        loop = spent.pop(self.process.pid)
        writers = [writer for one in threads.iterdir() for writer in (one / "children").read_text().split()]
        writing = sum(int(Path(f"/proc/{writer}/schedstat").read_text().split()[0]) / 1e9 for writer in writers)
        return {"loop": loop, "other threads": sum(spent.values()), "writer": writing}


@contextlib.contextmanager
def serving(size: Size, work: Path, folder: Path, *more: str) -> Iterator[Server]:
    """Serve a model from an empty store."""
    model = trained(size, work)
    with tempfile.TemporaryDirectory(dir=folder) as place:
        log = Path(place) / "log"
        command = [sys.executable, "-m", "hcarec", "serve", str(model), "--store", f"{place}/store.sqlite", "--port", "0", "--rate", "0", *more]
        with log.open("w") as errors, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process:
            assert process.stdout is not None
            said = ""
            for line in process.stdout:
                said += line
                if "Ctrl-C" in line:
                    break
            try:
                yield Server(process, said, log)
            finally:
                process.send_signal(signal.SIGTERM)
                process.stdout.close()
                if process.wait(60):
                    raise SystemExit(f"the service ended with {process.returncode}: {log.read_text()[-2000:]}")


def trained(size: Size, work: Path) -> Path:
    """Train the model of a size, unless it is there already."""
    from hcarec import HCAGRU, synthetic

    folder = work / f"hca-gru-{size.items}-{size.d}"
    if not folder.exists():
        print(f"training on {size.name}", file=sys.stderr, flush=True)
        data = synthetic(users=size.users, items=size.items, mean_length=size.mean_length)
        HCAGRU(preset="paper", d=size.d, window_x=5, window_h=5).fit(data, epochs=size.epochs).save(folder)
    return folder


def fdatasync_ms(folder: Path) -> dict[str, float]:
    """Return how long it takes to make a page durable here, which no acknowledgement can be quicker than."""
    seconds = []
    with (folder / "probe").open("wb") as file:
        for _ in range(300):
            file.write(b"x" * 4096)
            file.flush()
            begin = time.perf_counter()
            os.fdatasync(file.fileno())
            seconds.append(time.perf_counter() - begin)
    return {f"p{p}": round(1000 * float(np.percentile(seconds, p)), 3) for p in (50, 99)}


# -- what is shown ---------------------------------------------------------------------------------------------------------


def brief(outcome: dict[str, Any]) -> str:
    """Return an outcome in a few words."""
    latency = outcome["latency_ms"] or {"p50": float("nan"), "p99": float("nan")}
    beside = f" (the machine {outcome['machine']['wait_p99_ms']:.1f} ms, stolen {outcome['machine']['stolen']:.0%})" if "machine" in outcome else ""
    return f"{outcome['statuses']} p50 {latency['p50']:.1f} ms, p99 {latency['p99']:.1f} ms{beside}"


def show(result: dict[str, Any]) -> None:
    """Print the table."""
    print(f"{'case':34}{'rate/s':>8}{'p50 ms':>9}{'p99 ms':>9}{'goal':>7}  met")
    for one in result["cases"]:
        print(f"{one['case']:34}{one['rate']:>8.0f}{one['p50_ms']:>9.1f}{one['p99_ms']:>9.1f}{one['goal_p99_ms']:>7.0f}  {'yes' if one['met'] else 'no'}")
    for name, words in (("constant", "HTTP alone, a constant answer"), ("direct", "events without HTTP")):
        parts = result["floors"][f"{name}_ms"]
        print(f"{words:34}{result['floors']['rate']:>8.0f}{parts['p50']:>9.1f}{parts['p99']:>9.1f}")
    over, long = result["overload"], result["long"]
    print(f"holds {over['held_rate']:.0f}/s, p99 {over['held_p99_ms']:.1f} ms; at twice that {over['twice_p99_ms']:.1f} ms, {over['p99_ratio']:.2f} times;")
    print(f"afterwards {brief(over['after'])}")
    print(f"memory {over['memory_mib_before']:.0f} MiB before, {over['memory_mib_during']:.0f} during")
    print(f"{long['seconds'] / 60:.1f} min at {long['rate']:.0f}/s: {brief(long)}; {long['mib_a_minute_in_second_half']:+.2f} MiB a minute in the second half")


if __name__ == "__main__":
    main()
