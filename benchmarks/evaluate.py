"""Measure the evaluation against a chunked torch program that gives the same metrics, in one run.

Both rank a catalogue for every user, take the top 20, the scores of one random negative per test item and the exact
AUC over all negatives, and hand them to the same metric functions. The torch program is tuned first: chunk size and
way of counting are tried on a sample and the fastest is taken.

Ranking with corrections of some items' scores is measured against ranking without, and the latter against the bare pass
through the catalogue, which knows nothing of corrections: a ratio that grows means that they cost those who have none.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hcarec.metrics import evaluate_ranking
from hcarec.ops import score
from hcarec.ops.auc_negatives import sample_negatives
from hcarec.ops.rank.corrections import Corrections
from hcarec.topk import Catalogue, _over_users, pack, pair_scores, rank

from machine import describe

Result = tuple[dict[str, float], dict[str, np.ndarray]]

K = 20
CORRECTED = 50  # items per user
GOALS = {20: 5.0, 64: 4.0}


@dataclass(frozen=True)
class Task:
    """Vectors, test items and owned items (training and test ones, distinct and sorted) of some users."""

    H: np.ndarray
    X: np.ndarray
    tie_rank: np.ndarray
    test: tuple[np.ndarray, np.ndarray]
    owned: tuple[np.ndarray, np.ndarray]
    negatives: np.ndarray

    def first(self, n: int) -> Task:
        """Return the same task for the first n users."""
        cut = [(items[: offsets[n]], offsets[: n + 1]) for items, offsets in (self.test, self.owned)]
        return Task(self.H[:n], self.X, self.tie_rank, *cut, self.negatives[: self.test[1][n]])


def make_task(n_users: int, n_items: int, d: int, seed: int = 7) -> Task:
    """Make users with 30 to 200 events, about 44 on average, who score their own test items somewhat higher."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_items, d), dtype=np.float32)
    lengths = np.minimum(30 + rng.exponential(14.4, n_users).astype(np.int64), 200)
    test_rows, owned_rows, H = [], [], rng.standard_normal((n_users, d), dtype=np.float32)
    for user, n in enumerate(lengths):
        events = rng.integers(0, n_items, n)
        test = np.unique(events[int(0.8 * n) :])
        test_rows.append(test)
        owned_rows.append(np.unique(events))
        H[user] += X[test].mean(0) * np.float32(1.5)
    test_ragged, owned = _ragged(test_rows), _ragged(owned_rows)
    negatives = sample_negatives(owned, np.diff(test_ragged[1]), n_items, seed)
    return Task(H, X, rng.permutation(n_items).astype(np.int32), test_ragged, owned, negatives)


def _ragged(rows: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    return np.concatenate(rows).astype(np.int32), np.cumsum([0] + [len(row) for row in rows])


def with_hcarec(task: Task, threads: int) -> Result:
    """Evaluate by the package."""
    found = rank(task.H, task.X, task.tie_rank, K, test=task.test, exclude=task.owned, threads=threads)
    against = pair_scores(task.H, task.X, task.negatives, task.test[1], threads=threads)
    return _metrics(task, found.items, found.test_scores, against, found.below, found.n_negatives)


def _metrics(task: Task, top: Any, test_scores: Any, against: Any, below: Any, n_negatives: Any) -> Result:
    return evaluate_ranking(
        top, *task.test, len(task.X),
        test_scores=test_scores, negative_scores=against, below=below, n_negatives=n_negatives,
    )  # fmt: skip


def with_torch(task: Task, threads: int, chunk: int, counting: str) -> Result:
    """Evaluate by products and top-k of torch, a chunk of users at a time; `counting` is one of COUNTING."""
    torch.set_num_threads(threads)
    (test, at), (owned, own_at) = task.test, task.owned
    items_by_column = torch.from_numpy(task.X).T.contiguous()
    users = torch.from_numpy(task.H)
    buffer = torch.empty(chunk, len(task.X))
    top = np.empty((len(task.H), K), np.int64)
    test_scores, against, below = (np.empty(len(test), kind) for kind in (np.float32, np.float32, np.int64))
    with ThreadPoolExecutor(threads) as pool:
        for start in range(0, len(task.H), chunk):
            end = min(start + chunk, len(task.H))
            scores = torch.mm(users[start:end], items_by_column, out=buffer[: end - start])
            top[start:end] = scores.topk(K, dim=1).indices.numpy()
            rows = np.repeat(np.arange(end - start), np.diff(at[start : end + 1]))
            mine = slice(at[start], at[end])
            table = scores.numpy()
            test_scores[mine] = table[rows, test[mine]]
            against[mine] = table[rows, task.negatives[mine]]
            local = [slice(at[user] - at[start], at[user + 1] - at[start]) for user in range(start, end)]
            wanted = [test_scores[mine][part] for part in local]
            below[mine] = np.concatenate(COUNTING[counting](scores, wanted, pool))
            for row, user in enumerate(range(start, end)):
                of_owned = np.sort(table[row, owned[own_at[user] : own_at[user + 1]]])
                below[at[user] : at[user + 1]] -= np.searchsorted(of_owned, wanted[row])
    return _metrics(task, top, test_scores, against, below, len(task.X) - np.diff(own_at))


Counts = list[np.ndarray]


def _by_torch_compare(scores: torch.Tensor, wanted: list[np.ndarray], pool: ThreadPoolExecutor) -> Counts:
    """Compare the whole chunk with its users' first, second, .. test score; sums of bytes beat those of booleans."""
    widest = max(map(len, wanted))
    padded = torch.full((len(wanted), widest), -torch.inf)
    for row, values in enumerate(wanted):
        padded[row, : len(values)] = torch.from_numpy(values)
    columns = [(scores < padded[:, j : j + 1]).view(torch.uint8).sum(1, dtype=torch.int32) for j in range(widest)]
    counts = torch.stack(columns, 1).numpy()
    return [counts[row, : len(values)] for row, values in enumerate(wanted)]


def _by_numpy_compare(scores: torch.Tensor, wanted: list[np.ndarray], pool: ThreadPoolExecutor) -> Counts:
    """Compare a user's row with one test score at a time, in NumPy, whose counting of booleans is much faster."""

    def count(row: np.ndarray, values: np.ndarray) -> np.ndarray:
        return np.array([np.count_nonzero(row < value) for value in values], np.int64)

    return list(pool.map(count, scores.numpy(), wanted))


def _by_sorting(scores: torch.Tensor, wanted: list[np.ndarray], pool: ThreadPoolExecutor) -> Counts:
    """Sort a user's row (NumPy's vectorised sort is faster than torch's) and look the test scores up."""
    return list(pool.map(lambda row, values: np.searchsorted(np.sort(row), values), scores.numpy(), wanted))


COUNTING: dict[str, Callable[[torch.Tensor, list[np.ndarray], ThreadPoolExecutor], Counts]] = {
    "torch compare": _by_torch_compare,
    "numpy compare": _by_numpy_compare,
    "numpy sort": _by_sorting,
}


def tune(task: Task, threads: int, n_users: int) -> dict[str, Any]:
    """Return the fastest way of counting and then the fastest chunk size on a sample, with all that was tried."""
    tried: list[dict[str, Any]] = []

    def best(cases: list[tuple[int, str]], sample: Task, repeats: int) -> tuple[int, str]:
        rates = {}
        for case in cases * repeats:  # in turns and best of several, lest a disturbance choose a slow one
            rate = len(sample.H) / _timed(lambda case=case: with_torch(sample, threads, *case))[0]
            rates[case] = max(rate, rates.get(case, 0.0))
        tried.extend({"chunk": c, "counting": w, "users": len(sample.H), "users_per_second": r} for (c, w), r in rates.items())
        return max(rates, key=lambda case: rates[case])

    _, counting = best([(32, way) for way in COUNTING], task.first(min(64, len(task.H))), 3)
    sample = task.first(min(n_users, len(task.H)))
    chunk, _ = best([(size, counting) for size in (8, 16, 32, 64, 128, 256) if size <= len(sample.H)], sample, 4)
    return {"chunk": chunk, "counting": counting, "tried": tried}


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    begin = time.perf_counter()
    result = work()
    return time.perf_counter() - begin, result


def _extra_memory(work: Callable[[], Any]) -> float | None:
    """Return the MiB by which the peak resident memory rises above where it stood, where Linux tells."""
    try:
        ctypes.CDLL(None).malloc_trim(0)  # else memory that was freed but kept hides what is taken anew
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
        before = _status("VmRSS")
        work()
        return max(0.0, (_status("VmHWM") - before) / 1024)
    except (OSError, AttributeError):
        return None


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(name + ":")))


def make_corrections(n_users: int, n_items: int, seed: int = 7) -> Corrections:
    """Correct CORRECTED items per user, one in each of as many equal parts of the catalogue."""
    rng, part = np.random.default_rng(seed), n_items // CORRECTED
    items = rng.integers(0, part, (n_users, CORRECTED), np.int32) + np.arange(CORRECTED, dtype=np.int32) * np.int32(part)
    return Corrections(items.ravel(), np.arange(n_users + 1) * CORRECTED, rng.standard_normal(items.size, dtype=np.float32))


def measure_corrections(task: Task, threads: int, rounds: int) -> dict[str, Any]:
    """Return the times of ranking with and without corrections and of the bare pass, best of the rounds, and their ratios."""
    packed, corrections = pack(task.X), make_corrections(len(task.H), len(task.X))
    test = {"test": task.test, "exclude": task.owned}

    def ranking(**given: Any) -> Callable[[], Any]:
        return lambda: rank(task.H, task.X, task.tie_rank, K, packed=packed, threads=threads, **given)

    works = {
        "evaluation": ranking(**test), "evaluation_corrected": ranking(**test, corrections=corrections),
        "top_k": ranking(), "top_k_corrected": ranking(corrections=corrections),
        "bare_pass": lambda: _bare_pass(task, packed, threads),
    }  # fmt: skip
    every = [{name: _timed(work)[0] for name, work in works.items()} for _ in range(rounds + 1)][1:]  # the first compiles
    seconds = {name: min(one[name] for one in every) for name in works}
    return {
        "users": len(task.H), "corrected_per_user": CORRECTED, "seconds": seconds,
        "ratio_evaluation": seconds["evaluation_corrected"] / seconds["evaluation"],
        "ratio_top_k": seconds["top_k_corrected"] / seconds["top_k"],
        "ratio_to_bare_pass": seconds["evaluation"] / seconds["bare_pass"],
    }  # fmt: skip


def _bare_pass(task: Task, packed: Catalogue, threads: int) -> None:
    """Fill top-k and counts by the strip kernel alone, as `rank` does in an evaluation, against thresholds of zero."""
    n, (test, offsets) = len(task.H), task.test
    nothing = np.zeros(0, np.int32), np.zeros(n + 1, np.int64)
    top = np.full((n, K), -np.inf, np.float32), np.full((n, K), np.iinfo(np.int32).max, np.int32)
    thresholds, below, everything = np.zeros(len(test), np.float32), np.zeros(len(test), np.int64), np.zeros(0, np.bool_)
    given = task.H, packed.panels, packed.order, task.tie_rank, everything, *nothing, thresholds, offsets
    _over_users(lambda start, end: int(score.rank_users(*given, start, end, *top, below)), n, threads)


def users_that_differ(ours: Result, theirs: Result) -> int:
    """Return for how many users any figure differs by more than 1e-6, and fail if they are more than one in a thousand.

    The two may sum a product in different orders, so a few pairs in billions change places. Means would hide more.
    """
    mine, other = ours[1], theirs[1]
    assert mine.keys() == other.keys()
    apart = np.zeros(len(mine["n_test"]), np.bool_)
    for name, values in mine.items():
        apart |= ~np.isclose(values, other[name], rtol=0, atol=1e-6, equal_nan=True)
    assert apart.mean() <= 1e-3, f"{apart.sum()} of {len(apart)} users differ"
    for name, value in ours[0].items():
        assert abs(value - theirs[0][name]) <= 1e-4, (name, value, theirs[0][name])
    return int(apart.sum())


def measure(n_users: int, n_items: int, d: int, threads: int, rounds: int, sample: int) -> dict[str, Any]:
    task = make_task(n_users, n_items, d)
    first_seconds, _ = _timed(lambda: with_hcarec(task.first(min(12, n_users)), threads))
    memory = _extra_memory(lambda: with_hcarec(task, threads))
    torch_choice = tune(task, threads, sample)
    ours, theirs = [], []
    for _ in range(rounds):  # in turns, so that both meet the same disturbances
        ours.append(_timed(lambda: with_hcarec(task, threads)))
        theirs.append(_timed(lambda: with_torch(task, threads, torch_choice["chunk"], torch_choice["counting"])))
    rates = {name: [n_users / seconds for seconds, _ in runs] for name, runs in (("hcarec", ours), ("torch", theirs))}
    return {
        "users": n_users, "items": n_items, "d": d, "threads": threads, "test_items": len(task.test[0]),
        "users_per_second": {name: max(values) for name, values in rates.items()},
        "users_per_second_of_rounds": rates,
        "ratio": max(rates["hcarec"]) / max(rates["torch"]),
        "ratio_of_rounds": [a / b for a, b in zip(rates["hcarec"], rates["torch"], strict=True)],
        "goal": GOALS.get(d), "extra_memory_mib": memory, "first_call_seconds": first_seconds, "torch": torch_choice,
        "corrections": measure_corrections(task.first(min(8 * sample, n_users)), threads, rounds),
        "metrics": ours[0][1][0], "users_that_differ": users_that_differ(ours[0][1], theirs[0][1]),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, help="write the results here as JSON")
    parser.add_argument("--quick", action="store_true", help="a small case that takes seconds; its ratios mean little")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("-d", type=int, nargs="+", default=[20, 64])
    options = parser.parse_args()
    n_users, n_items, sample = (600, 20_000, 200) if options.quick else (36_986, 267_948, 768)
    cases = [measure(n_users, n_items, d, options.threads, options.rounds, sample) for d in options.d]
    print(f"{n_users:,} users x {n_items:,} items, top-{K} and all metrics, {options.threads} threads")
    print("   d   hcarec users/s   torch users/s   ratio   goal   extra MiB   users whose metrics differ")
    for case in cases:
        rate = case["users_per_second"]
        memory = "-" if case["extra_memory_mib"] is None else f"{case['extra_memory_mib']:.0f}"
        print(
            f"{case['d']:4d} {rate['hcarec']:16,.0f} {rate['torch']:15,.0f} {case['ratio']:7.2f} {case['goal'] or '-':>6}"
            f" {memory:>11}   {case['users_that_differ']}"
        )
    print(f"\nranking with {CORRECTED} corrected items per user")
    print("   d   users   time over that without: evaluation   top-k   without corrections over the bare pass")
    for case in cases:
        one = case["corrections"]
        print(f"{case['d']:4d} {one['users']:7,} {one['ratio_evaluation']:35.3f} {one['ratio_top_k']:7.3f} {one['ratio_to_bare_pass']:38.3f}")
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        result = {"benchmark": "evaluate", "quick": options.quick, "machine": describe(), "cases": cases}
        options.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
