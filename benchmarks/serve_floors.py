"""What the live service's latency is made of: the machine's own delays, HTTP that answers a constant, and events taken in without HTTP.

`constant` serves one fixed answer with the same server and the same settings as `hcarec serve`, and says its port. `direct MODEL STORE RATE
SECONDS SEED` calls the service in its own process at times fixed beforehand, and writes latencies as JSON. `bystander` only sleeps, a millisecond at a
time until its input ends, and writes how late it woke, and how long something that comes at any moment would have waited for it 1 time in 100: nothing on
this machine was quicker than that. `benchmarks/serve.py` runs all three.
"""

from __future__ import annotations

import asyncio
import json
import select
import socket
import sys
import time
from typing import Any

import numpy as np
import uvicorn
import uvloop

from open_loop import TICK_S, percentiles, popular

ANSWER = b'{"events":[{"status":"applied","time":"2026-01-01T00:00:00.000000Z","time_corrected":false}]}'
HEADERS = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(ANSWER))]
USERS = 20_000


async def constant(scope: Any, receive: Any, send: Any) -> None:
    """Answer anything with the same."""
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    await send({"type": "http.response.body", "body": ANSWER})


async def direct(model: str, store: str, rate: float, seconds: float, warm: float, seed: int) -> dict[str, Any]:
    """Take in events at a rate, one by one, and return how long each took from when it was due."""
    from hcarec.serve.server import run_evenly
    from hcarec.serve.service import NewEvent, Service

    service = await Service.open(model, store)  # type: ignore[arg-type]
    run_evenly()
    rng, loop = np.random.default_rng(seed), asyncio.get_running_loop()
    due = np.cumsum(rng.exponential(1 / rate, int(rate * seconds)))
    users, items = popular(rng, USERS, len(due)), popular(rng, service.model.items, len(due))
    width, taken, running = len(str(service.model.items)), np.full(len(due), np.nan), set()
    begin, spent = loop.time(), time.process_time()

    async def take(n: int) -> None:
        await service.take([NewEvent(f"u{users[n]}", f"i{items[n] + 1:0{width}d}", None, f"{seed}-{n}")])
        taken[n] = loop.time() - begin - due[n]

    for n, at in enumerate(due):
        if (left := at - (loop.time() - begin)) > 0:
            await asyncio.sleep(left)
        running.add(task := loop.create_task(take(n)))
        task.add_done_callback(running.discard)
    await asyncio.gather(*running)
    cores = (time.process_time() - spent) / (loop.time() - begin)
    await service.close()
    return {"latency_ms": percentiles(taken[due >= warm]), "cores": cores}


def bystander() -> dict[str, Any]:
    """Sleep until standard input ends, and return by how much each sleep was too long, and what that means for others."""
    late = []
    ended = select.poll()
    ended.register(sys.stdin, select.POLLIN)
    begin = time.perf_counter()
    while not ended.poll(0):
        before = time.perf_counter()
        time.sleep(TICK_S)
        late.append(time.perf_counter() - before - TICK_S)
    gaps = np.maximum(np.array(late), 0.0)
    return {"late_ms": percentiles(gaps), "wait_p99_ms": round(1000 * waited(gaps, time.perf_counter() - begin, 0.01), 3)}


def waited(gaps: np.ndarray, seconds: float, share: float) -> float:
    """Return how long, at least, that share of arrivals waits which come at any time and find a machine that stands still during `gaps`.

    A long gap is met more often than a short one, and on average waited for by half: percentiles of the gaps themselves would hide it.
    """
    low, high = 0.0, float(gaps.max(initial=0.0))
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if np.maximum(gaps - middle, 0.0).sum() > share * seconds else (low, middle)
    return high


if __name__ == "__main__":
    if sys.argv[1] == "bystander":
        print(json.dumps(bystander()))
    elif sys.argv[1] == "constant":
        listening = socket.create_server(("127.0.0.1", 0))
        print(listening.getsockname()[1], flush=True)
        config = uvicorn.Config(constant, http="httptools", ws="none", lifespan="off", log_config=None, access_log=False, server_header=False)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(uvicorn.Server(config).serve([listening]))
    else:
        model, store, rate, seconds, warm, seed = sys.argv[2:]
        print(json.dumps(uvloop.run(direct(model, store, float(rate), float(seconds), float(warm), int(seed)))))
