"""Measure cross-entropy over a large catalog on a GPU, forward and backward, against its three bare products.

The products (logits, dH, dZ) are cuBLAS's in the same precision, a chunk of items at a time, replayed from a CUDA graph,
with the chunk that suits them best. Chunked torch and Apple's cut-cross-entropy (where it is installed, without its
filter of small gradients, which random vectors would make drop everything) compute the same loss. Extra memory is the rise of
the peak above parameters and gradients. Errors are relative, in norm, against the chunked path in float64.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

POSITIONS, ITEMS, D = 4096, 1_000_000, 128
CORRECTED = 50  # items per position
CHUNKS = (8192, 16384, 32768, 65536, 131072)
GOALS = {"ratio": 1.5, "extra_mib": 1024}
PRECISIONS = ("bf16", "tf32", "float32")


def make(precision: str, n_positions: int, n_items: int, d: int) -> tuple[list[Tensor], Tensor, tuple[Tensor, Tensor, Tensor]]:
    """Return H and Z, targets, and corrections."""
    device = torch.device("cuda")
    generator = torch.Generator(device).manual_seed(7)
    H = torch.randn(n_positions, d, generator=generator, device=device)
    Z = torch.randn(n_items, d, generator=generator, device=device) / d**0.25
    targets = torch.randint(n_items, (n_positions,), generator=generator, device=device)
    part = n_items // CORRECTED  # one corrected item in each of as many equal parts of the catalog
    items = torch.randint(part, (n_positions, CORRECTED), generator=generator, device=device) + torch.arange(CORRECTED, device=device) * part
    values = 3 * torch.randn(items.numel(), generator=generator, device=device)
    offsets = torch.arange(n_positions + 1, device=device) * CORRECTED
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    return [H.to(dtype), Z.to(dtype)], targets, (items.ravel().int(), offsets, values)


def milliseconds(work: Callable[[], Any], rounds: int) -> float:
    """Return the median time of a call on the device."""
    work()
    times = []
    for _ in range(rounds):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


def bare_products(H: Tensor, Z: Tensor, rounds: int) -> dict[int, float]:
    """Return the milliseconds of the three products by the items of a chunk."""
    dH, dZ = torch.zeros_like(H), torch.empty_like(Z)

    def measure(chunk: int) -> float:
        logits = H.new_empty(len(H) * chunk)

        def work() -> None:
            for some, out in zip(Z.split(chunk), dZ.split(chunk), strict=True):
                s = logits[: len(H) * len(some)].view(len(H), len(some))
                torch.mm(H, some.T, out=s)
                torch.addmm(dH, s, some, beta=0.5, out=dH)
                torch.mm(s.T, H, out=out)

        work()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            work()
        return milliseconds(graph.replay, rounds)

    return {chunk: measure(chunk) for chunk in CHUNKS if chunk <= len(Z)}


def contenders() -> dict[str, Callable[..., Tensor]]:
    """Return the losses of vectors, targets and corrections or None, by name."""
    from hcarec.ops.loss.torch import cross_entropy

    found: dict[str, Callable[..., Tensor]] = {"hcarec": lambda *given: cross_entropy(*given, backend="triton")}
    found["chunked torch"] = lambda *given: cross_entropy(*given, backend="torch")
    try:
        from cut_cross_entropy import linear_cross_entropy
    except ImportError:
        return found
    return found | {"cut-cross-entropy": lambda H, Z, targets, _: linear_cross_entropy(H, Z, targets, impl="cce", filter_eps=None)}


def run(loss: Callable[..., Tensor], leaves: list[Tensor], targets: Tensor, ragged: Any) -> list[Tensor]:
    value = loss(*leaves[:2], targets, ragged)
    return [value.detach(), *torch.autograd.grad(value, leaves)]


def measure(precision: str, corrected: bool, n_positions: int, n_items: int, d: int, rounds: int) -> dict[str, Any]:
    """Return times, extra memory and errors of all that can compute the case."""
    torch.set_float32_matmul_precision("highest" if precision == "float32" else "high")
    vectors, targets, ragged = make(precision, n_positions, n_items, d)
    products = bare_products(*vectors, rounds)
    case: dict[str, Any] = {"precision": precision, "corrected": CORRECTED if corrected else 0, "positions": n_positions, "items": n_items, "d": d}
    case |= {"goals": GOALS, "products_ms": products, "ms": {}, "ratio": {}, "extra_mib": {}, "errors": {}}
    given = ragged if corrected else None
    exact = [part.double().requires_grad_() for part in (*vectors, *([ragged[2]] if corrected else []))]
    wanted = run(contenders()["chunked torch"], exact, targets, (*ragged[:2], exact[2]) if corrected else None)
    wanted, exact = [part.float() for part in wanted], []
    leaves = [part.requires_grad_() for part in (*vectors, *([ragged[2]] if corrected else []))]
    for name, loss in contenders().items():
        if name == "cut-cross-entropy" and (corrected or precision != "bf16"):
            continue  # it has neither
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        got = run(loss, leaves, targets, given)
        gradients = sum(part.numel() * part.element_size() for part in got[1:])
        case["extra_mib"][name] = (torch.cuda.max_memory_allocated() - before - gradients) / 2**20
        case["errors"][name] = [float((a.float() - b).norm() / b.norm()) for a, b in zip(got, wanted, strict=True)]
        del got
        case["ms"][name] = milliseconds(lambda loss=loss: run(loss, leaves, targets, given), rounds)  # type: ignore[misc]
        case["ratio"][name] = case["ms"][name] / min(products.values())
    return case


def cases(rounds: int = 7) -> list[dict[str, Any]]:
    """Return all cases; needs a GPU."""
    return [measure(precision, corrected, POSITIONS, ITEMS, D, rounds) for precision in PRECISIONS for corrected in (False, True)]


def show(found: list[dict[str, Any]]) -> None:
    print(f"{POSITIONS:,} positions, {ITEMS:,} items, d = {D}; goals: {GOALS['ratio']} times the products, {GOALS['extra_mib']} MiB")
    print("precision corrected  products ms  contender              ms  ratio  extra MiB  errors: loss, dH, dZ, dvalues")
    for case in found:
        for name, ms in case["ms"].items():
            errors = " ".join(f"{error:.1e}" for error in case["errors"][name])
            print(
                f"{case['precision']:9} {case['corrected']:9} {min(case['products_ms'].values()):12.2f}  {name:18}"
                f" {ms:7.2f} {case['ratio'][name]:6.2f} {case['extra_mib'][name]:10.0f}  {errors}"
            )
