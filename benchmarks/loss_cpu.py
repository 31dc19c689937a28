"""Measure full cross-entropy over the catalog, forward and backward, against torch's `cross_entropy(H @ Z.T)`.

All contenders take turns in one process on the same threads: torch, ours without and with corrections of 50 items per
position, and the three bare products that both need, by torch into memory that is there already. The peak is what a
loop of fused multiply-adds on registers reaches on all threads at once. GFLOP/s count the three products alone, 6 P n d.

Extra memory is the rise of the peak resident memory during one call, forward and backward, gradients included
(VmHWM of Linux, reset before); null where Linux does not tell. On a busy machine look at the ratios of the rounds, and
at processor seconds: those of torch include threads that wait.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numba as nb
import torch
from numba import types
from numba.extending import intrinsic

from hcarec.ops.loss.torch import cross_entropy
from hcarec.ops.loss.vectors import FLOATS, INDEX, VECTOR, WIDE, constant, fma, fold

from machine import describe, resident_mib

POSITIONS = 4096
SIZES = [(12_101, 128), (12_101, 64), (3_416, 64), (100_000, 64)]
CORRECTED = 50  # items per position
GOALS = {"ratio": 3.0, "memory": 0.1, "corrected": 1.3}
SUMS = 20 if WIDE else 12  # enough to hide the latency of a multiply-add, few enough for the registers
STEPS = 4_000_000


@intrinsic
def _multiply_add(typing: Any, steps: Any) -> Any:
    """Run `steps` x SUMS multiply-adds of vectors that never leave the registers."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        before, loop, after = builder.block, builder.append_basic_block("loop"), builder.append_basic_block("after")
        builder.branch(loop)
        builder.position_at_end(loop)
        step = builder.phi(INDEX)
        step.add_incoming(INDEX(0), before)
        sums = [builder.phi(FLOATS) for _ in range(SUMS)]
        for number, value in enumerate(sums):
            value.add_incoming(constant(number), before)
            value.add_incoming(fma(builder, value, constant(0.5), constant(0.25)), loop)
        following = builder.add(step, INDEX(1))
        step.add_incoming(following, loop)
        builder.cbranch(builder.icmp_signed("<", following, arguments[0]), loop, after)
        builder.position_at_end(after)
        total = sums[0]
        for value in sums[1:]:
            total = builder.fadd(total, value)
        return fold(builder, total, builder.fadd)

    return types.float32(types.intp), generate


@nb.njit(nogil=True)
def _burn(steps: int) -> float:
    return _multiply_add(steps)


def peak(threads: int) -> float:
    """Return the GFLOP/s of all threads together."""
    with ThreadPoolExecutor(threads) as pool:
        seconds, _ = timed(lambda: list(pool.map(_burn, [STEPS] * threads)))
    return 2 * SUMS * VECTOR * STEPS * threads / seconds[0] / 1e9


def timed(work: Callable[[], Any]) -> tuple[tuple[float, float], Any]:
    """Return wall-clock and processor seconds, and the result."""
    begin, begin_cpu = time.perf_counter(), time.process_time()
    result = work()
    return (time.perf_counter() - begin, time.process_time() - begin_cpu), result


def extra_memory(work: Callable[[], Any]) -> float | None:
    """Return the MiB by which the peak resident memory rises above where it stood."""
    try:
        ctypes.CDLL(None).malloc_trim(0)  # else memory that was freed but kept hides what is taken anew
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    except (OSError, AttributeError):
        return None
    before = resident_mib("VmRSS")
    work()
    peak = resident_mib("VmHWM")
    return None if before is None or peak is None else max(0.0, peak - before)


def make_works(n_positions: int, n_items: int, d: int) -> dict[str, Callable[[], Any]]:
    """Return the contenders; those with a loss return it with its gradients of H and Z."""
    generator = torch.Generator().manual_seed(7)
    H = torch.randn(n_positions, d, generator=generator).requires_grad_()
    Z = (torch.randn(n_items, d, generator=generator) / d**0.25).requires_grad_()
    targets = torch.randint(n_items, (n_positions,), generator=generator)
    per_position = min(CORRECTED, n_items)
    part = n_items // per_position  # one corrected item in each of as many equal parts of the catalog
    items = torch.randint(part, (n_positions, per_position), generator=generator) + torch.arange(per_position) * part
    values = torch.randn(items.numel(), generator=generator).requires_grad_()
    corrections = items.ravel().int(), torch.arange(n_positions + 1) * per_position, values

    def differentiate(loss: Callable[[], torch.Tensor], *leaves: torch.Tensor) -> Callable[[], Any]:
        def work() -> Any:
            value = loss()
            return value.detach(), *torch.autograd.grad(value, leaves)

        return work

    def products() -> None:
        torch.mm(H.detach(), Z.detach().T, out=logits)
        torch.mm(logits, Z.detach(), out=dH)
        torch.mm(logits.T, H.detach(), out=dZ)

    logits, dH, dZ = torch.zeros(n_positions, n_items), torch.zeros_like(H), torch.zeros_like(Z)
    return {
        "torch": differentiate(lambda: torch.nn.functional.cross_entropy(H @ Z.T, targets), H, Z),
        "hcarec": differentiate(lambda: cross_entropy(H, Z, targets), H, Z),
        "hcarec_corrected": differentiate(lambda: cross_entropy(H, Z, targets, corrections), H, Z, values),
        "products": products,
    }


def difference(mine: Any, other: Any) -> float:
    """Return the largest relative difference in norm of the loss and its gradients."""
    return max(float((a - b).norm() / b.norm()) for a, b in zip(mine, other, strict=True))


def measure(n_positions: int, n_items: int, d: int, threads: int, rounds: int) -> dict[str, Any]:
    works = make_works(n_positions, n_items, d)
    first_seconds = timed(works["hcarec"])[0][0]
    difference_from_torch = difference(works["hcarec"](), works["torch"]())
    assert difference_from_torch < 1e-4, difference_from_torch
    memory = {name: extra_memory(works[name]) for name in ("torch", "hcarec", "hcarec_corrected")}
    for work in works.values():
        work()
    every: list[dict[str, Any]] = []
    for _ in range(rounds):  # in turns, so that all meet the same disturbances
        every.append({name: timed(work)[0] for name, work in works.items()} | {"peak": peak(threads)})
    seconds = {name: statistics.median(one[name][0] for one in every) for name in works}
    processor = {name: statistics.median(one[name][1] for one in every) for name in works}
    rates = {name: 6e-9 * n_positions * n_items * d / value for name, value in seconds.items()}
    best = max(one["peak"] for one in every)

    def ratios(one: str, other: str, which: int = 0) -> list[float]:
        return [times[one][which] / times[other][which] for times in every]

    return {
        "positions": n_positions, "items": n_items, "d": d, "threads": threads, "corrected_per_position": CORRECTED,
        "seconds": seconds, "seconds_of_rounds": {name: [one[name][0] for one in every] for name in works},
        "processor_seconds": processor, "gflops": rates,
        "peak_gflops": best, "peak_gflops_of_rounds": [one["peak"] for one in every],
        "share_of_peak": {name: value / best for name, value in rates.items()},
        "ratio": statistics.median(ratios("torch", "hcarec")), "ratio_of_rounds": ratios("torch", "hcarec"),
        "ratio_of_processor_seconds": statistics.median(ratios("torch", "hcarec", 1)),
        "ratio_corrected": statistics.median(ratios("hcarec_corrected", "hcarec")),
        "ratio_corrected_of_rounds": ratios("hcarec_corrected", "hcarec"),
        "extra_memory_mib": memory,
        "memory_ratio": memory["hcarec"] / memory["torch"] if memory["hcarec"] and memory["torch"] else None,
        "goals": GOALS, "first_call_seconds": first_seconds, "difference_from_torch": difference_from_torch,
    }  # fmt: skip


def show(cases: list[dict[str, Any]]) -> None:
    print(f"{cases[0]['positions']:,} positions, {cases[0]['threads']} threads; goals: ratio 3, memory 0.1, corrected 1.3")
    print("  items   d   seconds: torch   ours   products   GFLOP/s: torch   ours   peak   ratio   (of rounds)   corrected   MiB: torch   ours   memory")
    for case in cases:
        seconds, rates, memory = case["seconds"], case["gflops"], case["extra_memory_mib"]
        spread = f"({min(case['ratio_of_rounds']):.1f}-{max(case['ratio_of_rounds']):.1f})"
        mib = [f"{memory[name]:.0f}" if memory[name] is not None else "-" for name in ("torch", "hcarec")]
        share = f"{case['memory_ratio']:.3f}" if case["memory_ratio"] is not None else "-"
        print(
            f"{case['items']:7,} {case['d']:3d} {seconds['torch']:16.3f} {seconds['hcarec']:6.3f} {seconds['products']:10.3f}"
            f" {rates['torch']:16.1f} {rates['hcarec']:6.1f} {case['peak_gflops']:6.0f} {case['ratio']:7.2f} {spread:>13}"
            f" {case['ratio_corrected']:11.2f} {mib[0]:>12} {mib[1]:>6} {share:>8}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, help="write the results here as JSON")
    parser.add_argument("--quick", action="store_true", help="a small case that takes seconds; its ratios mean little")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    _burn(1)
    sizes, n_positions, rounds = ([(1_000, 32)], 256, 1) if options.quick else (SIZES, POSITIONS, options.rounds)
    cases = [measure(n_positions, n_items, d, options.threads, rounds) for n_items, d in sizes]
    show(cases)
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        result = {"benchmark": "loss_cpu", "quick": options.quick, "machine": describe(), "cases": cases}
        options.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
