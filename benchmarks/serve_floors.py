"""What the live service's latency is made of: HTTP that answers a constant, and events taken in without HTTP.

`constant` serves one fixed answer with the same server and the same settings as `hcarec serve`, and says its port. `direct MODEL STORE RATE
SECONDS SEED` calls the service in its own process at times fixed beforehand, and writes latencies as JSON. `benchmarks/serve.py` runs both.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import time
from typing import Any

import numpy as np
import uvicorn
import uvloop

from open_loop import percentiles, popular

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


if __name__ == "__main__":
    if sys.argv[1] == "constant":
        listening = socket.create_server(("127.0.0.1", 0))
        print(listening.getsockname()[1], flush=True)
        config = uvicorn.Config(constant, http="httptools", ws="none", lifespan="off", log_config=None, access_log=False, server_header=False)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(uvicorn.Server(config).serve([listening]))
    else:
        model, store, rate, seconds, warm, seed = sys.argv[2:]
        print(json.dumps(uvloop.run(direct(model, store, float(rate), float(seconds), float(warm), int(seed)))))
