"""What the live service's latency is made of: the machine's own delays, HTTP that answers a constant, and events taken in without HTTP.

`constant` serves one fixed answer with the same server and the same settings as `hcarec serve`, and says its port. `direct MODEL STORE RATE
SECONDS SEED` calls the service in its own process at times fixed beforehand, and writes latencies as JSON. `bystander` only sleeps, a millisecond at a
time until its input ends, and writes how late it woke: nothing on this machine was quicker than that. `benchmarks/serve.py` runs all three.
"""

from __future__ import annotations

import asyncio
import gc
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
    from hcarec.serve.server import SWITCH_S
    from hcarec.serve.service import NewEvent, Service

    service = await Service.open(model, store)  # type: ignore[arg-type]
    sys.setswitchinterval(SWITCH_S)
    gc.collect()
    gc.freeze()
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


def bystander() -> dict[str, float] | None:
    """Sleep until standard input ends, and return by how much each sleep was too long."""
    late = []
    ended = select.poll()
    ended.register(sys.stdin, select.POLLIN)
    while not ended.poll(0):
        begin = time.perf_counter()
        time.sleep(TICK_S)
        late.append(time.perf_counter() - begin - TICK_S)
    return percentiles(np.array(late))


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
