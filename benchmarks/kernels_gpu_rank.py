"""Measure the evaluation of a large catalog on a GPU: all metrics, the AUC over all negatives among them.

36,986 users with about 9 test items each, 267,948 items, d = 20, arrays already on the card, the sampled negatives among
them (they depend on the data alone; `draw_seconds` is what drawing them on the host takes). `seconds` is all of it: ranking,
counting, copying the result, and the metrics on the host; `rank_seconds` is the part on the card. With corrections every
user has 50 items whose scores are corrected. Medians of rounds after one to warm up.

The floors: the operations of the product at the rate of float32 without tensor cores, and the bytes of writing the table of
scores once and reading it twice, both at the rates that are measured beside. The ranks of some users are compared with those
of float64: how far, in relative terms, a listed item is from the one that belongs there, and by how many items a count is off.
`kernels_gpu.py` takes `measure`.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

USERS, ITEMS, D, K = 36_986, 267_948, 20, 20
TEST, PAST, CORRECTED = 9, 36, 50  # items of a user, on average
GOAL = 0.5  # seconds
SAMPLE = 48  # users who are compared with float64
CLOSE = 1e-5  # scores so close to another are equal but for rounding


class Case(NamedTuple):
    """What is ranked, on the card; `host_test` the test items on the host."""

    H: Any
    X: Any
    tie_rank: Any
    test: Any
    past: Any
    pairs: Any
    corrections: Any
    host_test: tuple[np.ndarray, np.ndarray]
    draw_seconds: float


def make(n_users: int, n_items: int, device: str) -> Case:
    """Draw vectors, histories, test items and corrections."""
    import torch

    from hcarec.ops.auc_negatives import sample_negatives
    from hcarec.ops.rank.torch import Corrections

    random = np.random.default_rng(3)

    def ragged(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Draw distinct items, ascending: one from each of as many equal parts of the catalog."""
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
        part = n_items // np.repeat(counts, counts)
        number = np.arange(offsets[-1]) - np.repeat(offsets[:-1], counts)
        return (number * part + random.integers(0, part)).astype(np.int32), offsets

    test, past = ragged(1 + random.poisson(TEST - 1, n_users)), ragged(1 + random.poisson(PAST - 1, n_users))
    corrected = ragged(np.full(n_users, min(CORRECTED, n_items)))
    users = [np.repeat(np.arange(n_users), np.diff(offsets)) for _, offsets in (past, test)]
    together = np.argsort(np.concatenate(users), kind="stable")
    known = np.concatenate([past[0], test[0]])[together], past[1] + test[1]
    began = time.perf_counter()
    drawn = sample_negatives(known, np.diff(test[1]), n_items, 0)
    draw_seconds = time.perf_counter() - began
    pairs = np.stack([test[0], drawn], axis=1).ravel(), 2 * test[1]
    vectors = [random.standard_normal((n, D)).astype(np.float32) for n in (n_users, n_items)]
    values = random.standard_normal(len(corrected[0])).astype(np.float32)

    def on(*arrays: np.ndarray) -> tuple[Any, ...]:
        return tuple(torch.from_numpy(array).to(device) for array in arrays)

    H, X, tie_rank = on(*vectors, random.permutation(n_items))
    return Case(H, X, tie_rank, on(*test), on(*past), on(*pairs), Corrections(*on(*corrected, values)), test, draw_seconds)


def evaluate(case: Case, corrected: bool, backend: str) -> tuple[Any, float]:
    """Return the metrics, and the seconds on the card."""
    import torch

    from hcarec.metrics import evaluate_ranking
    from hcarec.ops.rank.torch import rank

    began = time.perf_counter()
    found = rank(
        case.H, case.X, case.tie_rank, K, test=case.test, exclude=case.past, pairs=case.pairs,
        corrections=case.corrections if corrected else None, backend=backend,
    )  # fmt: skip
    if case.H.is_cuda:
        torch.cuda.synchronize()
    rank_seconds = time.perf_counter() - began
    items, below, n_negatives = (array.cpu().numpy() for array in (found.items, found.below, found.n_negatives))
    test_scores, negative_scores = found.pair_scores.cpu().numpy().reshape(-1, 2).T
    scores = {"test_scores": test_scores, "negative_scores": negative_scores, "below": below, "n_negatives": n_negatives}
    metrics, _ = evaluate_ranking(items, *case.host_test, len(case.X), **scores)
    return metrics, rank_seconds


def compare(case: Case) -> dict[str, Any]:
    """Compare the ranking of some users, corrected, with that of float64."""
    import torch

    from hcarec.ops.rank.torch import rank

    found = rank(case.H, case.X, case.tie_rank, K, hidden=case.past, test=case.test, exclude=case.past, corrections=case.corrections)
    gap, off = 0.0, 0
    for user in range(0, len(case.H), max(1, len(case.H) // SAMPLE)):

        def of(ragged: Any, user: int = user) -> slice:
            return slice(*ragged[1][user : user + 2].tolist())

        scores = case.X.double() @ case.H[user].double()
        corrected, test, past = of(case.corrections), of(case.test), of(case.past)
        scores[case.corrections.items[corrected].long()] += case.corrections.values[corrected].double()
        shown = scores.clone()
        shown[case.past[0][past].long()] = -torch.inf
        best = shown.topk(K).values
        gap = max(gap, float(((best - shown[found.items[user].long()]) / best).abs().max()))
        thresholds = scores[case.test[0][test].long(), None]
        negative = torch.ones_like(scores, dtype=torch.bool)
        for one, part in ((case.test, test), (case.past, past)):
            negative[one[0][part].long()] = False
        wrong = (((scores < thresholds) & negative).sum(1) - found.below[test]).abs()
        near = (((scores - thresholds).abs() < CLOSE * best[0]) & negative).sum(1)
        assert (wrong <= near).all() and int(found.n_negatives[user]) == int(negative.sum())
        off = max(off, int(wrong.max()))
    assert gap < CLOSE, gap
    return {"users": SAMPLE, "greatest_gap": gap, "greatest_difference_of_counts": off}


def rates(device: str) -> tuple[float, float]:
    """Return what the card reaches: float32 operations a second of a large product, bytes a second of a copy."""
    import torch

    from hcarec.ops.rank.torch import ieee_products

    A, big = torch.randn(8192, 8192, device=device), torch.empty(1 << 30, device=device)

    def seconds(work: Callable[[], Any]) -> float:
        times = []
        for _ in range(4):
            torch.cuda.synchronize()
            began = time.perf_counter()
            work()
            torch.cuda.synchronize()
            times.append(time.perf_counter() - began)
        return min(times)

    with ieee_products():
        operations = 2 * 8192**3 / seconds(lambda: A @ A)
    return operations, big.numel() * 4 / seconds(lambda: big[: 1 << 29].copy_(big[1 << 29 :]))


def measure(n_users: int = USERS, n_items: int = ITEMS, rounds: int = 5, device: str = "cuda") -> dict[str, Any]:
    """Return the figures of the evaluation on a card."""
    import torch

    from hcarec.ops.rank.torch import default_backend

    case = make(n_users, n_items, device)
    first = default_backend(device)
    asked = {f"{backend}{'_corrected' * corrected}": (corrected, backend) for backend in dict.fromkeys((first, "torch")) for corrected in (False, True)}
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in asked}
    for _ in range(1 + rounds):  # in turns, so that all meet the same disturbances
        for name, how in asked.items():
            began = time.perf_counter()
            _, rank_seconds = evaluate(case, *how)
            times[name].append((time.perf_counter() - began, rank_seconds))
    cases = {}
    for name, every in times.items():
        whole, part = (statistics.median(column) for column in zip(*every[1:], strict=True))
        cases[name] = {"seconds": whole, "rank_seconds": part, "seconds_of_rounds": [one for one, _ in every[1:]]}
    ratios = [one / other for (one, _), (other, _) in zip(times[f"{first}_corrected"][1:], times[first][1:], strict=True)]
    result = {
        "users": n_users, "items": n_items, "d": D, "test_items": len(case.host_test[0]), "corrected_per_user": CORRECTED,
        "goal_seconds": GOAL, "seconds": cases[first]["seconds"], "cases": cases, "draw_seconds": case.draw_seconds,
        "corrected_ratio": statistics.median(ratios), "corrected_ratio_of_rounds": ratios, "against_float64": compare(case),
    }  # fmt: skip
    if device == "cuda":
        operations, bandwidth = rates(device)
        result["floors"] = {"operations": 2 * n_users * n_items * D / operations, "bytes": 3 * 4 * n_users * n_items / bandwidth}
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        evaluate(case, True, first)
        result["extra_memory_mib"] = (torch.cuda.max_memory_allocated() - before) / 2**20
    return result


def show(found: dict[str, Any]) -> None:
    """Print the figures."""
    print(f"{found['users']:,} users x {found['items']:,} items, d = {found['d']}, {found['test_items']:,} test items; goal {found['goal_seconds']} s")
    for name, one in found["cases"].items():
        print(f"  {name:17} {one['seconds']:.3f} s, {one['rank_seconds']:.3f} s of them on the card")
    print(f"  with {found['corrected_per_user']} corrected items a user: {found['corrected_ratio']:.2f} times as long")
    for name, seconds in found.get("floors", {}).items():
        print(f"  floor of {name}: {seconds:.3f} s")
    if "extra_memory_mib" in found:
        print(f"  extra memory {found['extra_memory_mib']:.0f} MiB")
    sample = found["against_float64"]
    print(f"  {sample['users']} users against float64: gap {sample['greatest_gap']:.1e}, counts off by {sample['greatest_difference_of_counts']}")
