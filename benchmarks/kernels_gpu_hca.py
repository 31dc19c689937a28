"""Cases of a whole layer, HCA-GRU-x5-h5, forward and backward, against `torch.nn.GRU` (cuDNN, float32, unpacked)."""

from __future__ import annotations

import itertools
import multiprocessing
import statistics
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hcarec.ops.hca.layers import run_layers
from hcarec.ops.hca.packing import pack
from hcarec.ops.hca.parameters import Network, shapes
from hcarec.ops.transfer import to_device

GOALS = {(512, 50, 20): 4.0, (4096, 50, 64): 6.0, (256, 200, 128): 1.5}
GRID = list(itertools.product((64, 512, 4096), (20, 50, 200), (16, 20, 64, 128)))
FORMS = {"paper": {}, "winner": {"padding": "masked", "fusion": "residual"}}
MAX_ERROR = 1e-5
Size = tuple[int, int, int]


def measure(quick: bool) -> dict[str, Any]:
    """Return the goals' sizes with errors and floors, then the grid.

    cuDNN computes in float32 as we do; what it takes with products of 11 bits is noted beside.
    """
    torch.backends.cudnn.allow_tf32 = False
    grid = [(64, 20, 16)] if quick else GRID
    goals = [(512, 50, 20)] if quick else list(GOALS)
    if not quick:
        compile_all(sorted({d for _, _, d in grid + goals}))
    rates = {"copy_bytes_per_second": copy_rate(), "product_flops_per_second": product_rate()}
    at_goals = [one for size in goals for one in goal_cases(size, rates)]
    return {"rates": rates, "goals": at_goals, "grid": [grid_case(size) for size in grid]}


def goal_cases(size: Size, rates: dict[str, float]) -> list[dict[str, Any]]:
    """Measure both forms at the size of a goal."""
    cudnn, found = cudnn_gru(*size), []
    base = {"graph_ms": graph_ms(cudnn), "plain_ms": plain_ms(cudnn)}
    with allow_tf32():
        base["tf32_graph_ms"] = graph_ms(cudnn)
    for form in FORMS:
        case = layer(*size, form)
        run = partial(forward_backward, *case)
        ours = {"graph_ms": graph_ms(run), "plain_ms": plain_ms(run)}
        one = {**named(size), "form": form, "cudnn": base, "hcarec": ours, "goal": GOALS[size]}
        one |= {"times_faster": base["graph_ms"] / ours["graph_ms"], "errors": errors(*case), "floors_ms": floors(*size, form, rates)}
        say(f"{size} {form}: {one['times_faster']:.2f} of {GOALS[size]}, {ours} {base} error {max(one['errors'].values()):.1e} floors {one['floors_ms']}")
        found.append(one)
    return found


def grid_case(size: Size) -> dict[str, Any]:
    """Measure both forms at one size of the grid."""
    cudnn = graph_ms(cudnn_gru(*size))
    one: dict[str, Any] = {**named(size), "cudnn_graph_ms": cudnn}
    for form in FORMS:
        ours = graph_ms(partial(forward_backward, *layer(*size, form)))
        one[form] = {"graph_ms": ours, "times_faster": cudnn / ours}
    say(f"{size} cuDNN {cudnn:.3f} ms, times faster: " + ", ".join(f"{form} {one[form]['times_faster']:.2f}" for form in FORMS))
    return one


def named(size: Size) -> dict[str, int]:
    return dict(zip(("batch", "length", "d"), size, strict=True))


@contextmanager
def allow_tf32() -> Iterator[None]:
    """Let cuDNN round the factors of products to 11 bits, as torch does unless told otherwise."""
    torch.backends.cudnn.allow_tf32 = True
    yield
    torch.backends.cudnn.allow_tf32 = False


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def layer(batch: int, length: int, d: int, form: str, seed: int = 0) -> Any:
    """Draw a layer's parameters, as torch.nn.GRU does, its inputs and the gradients of its outputs."""
    network = Network(d=d, w_x=5, w_h=5, **FORMS[form])  # type: ignore[arg-type]
    draw = torch.Generator("cuda").manual_seed(seed)
    theta = {}
    for name, shape in shapes(network, 1).items():
        if name != "X":
            value = torch.rand(shape, generator=draw, device="cuda")
            theta[name] = ((2 * value - 1) / d**0.5).requires_grad_()
    packing = pack(np.full(batch, length), np.arange(batch), length, 5, partial(to_device, "cuda"))
    x, d_y = (torch.randn(batch * length, d, generator=draw, device="cuda") for _ in range(2))
    return network, theta, x.requires_grad_(), packing, d_y


def forward_backward(network: Network, theta: dict[str, Tensor], x: Tensor, packing: Any, d_y: Tensor, backend: str = "triton") -> tuple[Tensor, ...]:
    y = run_layers(theta, network, x, packing, backend=backend)
    return y.detach(), *torch.autograd.grad(y, [x, *theta.values()], d_y)


def errors(network: Network, theta: dict[str, Tensor], x: Tensor, packing: Any, d_y: Tensor) -> dict[str, float]:
    """Return relative errors in norm against plain torch in float64, of outputs and of every gradient."""
    exact = {name: value.detach().double().requires_grad_() for name, value in theta.items()}
    true = forward_backward(network, exact, x.detach().double().requires_grad_(), packing, d_y.double(), "torch")
    found = forward_backward(network, theta, x, packing, d_y)
    return {name: float((a - b).norm() / b.norm()) for name, a, b in zip(["h_o", "x", *theta], found, true, strict=True)}


def cudnn_gru(batch: int, length: int, d: int) -> Callable[[], Any]:
    gru = torch.nn.GRU(d, d, device="cuda")
    x, d_y = (torch.randn(length, batch, d, device="cuda") for _ in range(2))
    x.requires_grad_()
    return lambda: torch.autograd.grad(gru(x)[0], [x, *gru.parameters()], d_y)


def graph_ms(run: Callable[[], Any], replays: int = 15) -> float:
    """Return the median time of a replay of the captured work."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = run()
    found = [timed(graph.replay) for _ in range(replays)]
    del kept
    return statistics.median(found[2:])


def plain_ms(run: Callable[[], Any], calls: int = 15) -> float:
    return statistics.median([timed(run) for _ in range(calls)][2:])


def timed(run: Callable[[], Any]) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    run()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)


def copy_rate() -> float:
    source = torch.randn(1 << 28, device="cuda")
    target = torch.empty_like(source)
    return 2 * 4 * source.numel() / (graph_ms(lambda: target.copy_(source)) / 1e3)


def product_rate(n: int = 8192) -> float:
    a, b = (torch.randn(n, n, device="cuda", dtype=torch.float16) for _ in range(2))
    return 2 * n**3 / (graph_ms(lambda: a @ b) / 1e3)


def floors(batch: int, length: int, d: int, form: str, rates: dict[str, float]) -> dict[str, float]:
    """Return the time of the bytes and of the operations that a layer needs at least.

    Through memory go x, the three gates, h and h_o forward; d_h_o, the gates, h, x and d_x backward. The matrices are
    U, V, W (three gates each), Q_x, Q_h, F and, in the paper's form, E; a product forward is two backward.
    """
    P, matrices = batch * length, 12 + (form == "paper")
    tensors = (1 + 3 + 1 + 1) + (1 + 3 + 1 + 1 + 1)
    return {
        "bytes": 1e3 * tensors * P * d * 4 / rates["copy_bytes_per_second"],
        "flops": 1e3 * 3 * 3 * matrices * 2 * d * d * P / rates["product_flops_per_second"],
    }


def compile_all(sizes: list[int]) -> None:
    """Compile the kernels of all sizes d and forms, several at a time: the cache on disk keeps them."""
    jobs = list(itertools.product(sizes, FORMS, (64, 4096)))
    with ProcessPoolExecutor(min(14, len(jobs)), multiprocessing.get_context("spawn")) as pool:
        list(pool.map(compile_one, jobs))


def compile_one(job: tuple[int, str, int]) -> None:
    d, form, batch = job
    forward_backward(*layer(batch, 4, d, form))
    torch.cuda.synchronize()
