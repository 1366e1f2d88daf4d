"""What one look at `/metrics` costs vLLM itself, for `bench.scrape`, in vLLM's own interpreter.

No model is loaded: the logger of a real configuration registers every series that
the engine has, and each is given a value. Each page is rendered as vLLM's server does
(prometheus_client, `generate_latest`), and asked for over HTTP: vLLM's own routes of it in
uvicorn, the client in another process. Arguments: the model's folder, the file for the
page, how often, the file for the answer (JSON), and sets of series by name (JSON).
"""

import asyncio
import http.client
import json
import multiprocessing
import random
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlencode


def _fill(registry: Any) -> None:
    """Real pages have values of many digits everywhere."""
    chance = random.Random(7)  # noqa: S311
    for collector in set(registry._names_to_collectors.values()):
        labelled = getattr(collector, "_metrics", None)
        for metric in labelled.values() if isinstance(labelled, dict) else (collector,):
            names = ("observe", "set", "inc")
            changes = [getattr(metric, name) for name in names if hasattr(metric, name)]
            for _ in range(20 if changes and metric._is_observable() else 0):
                changes[0](chance.random() * 10)


def main() -> None:
    """The command."""
    model, page, times = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    sets: dict[str, list[str]] = json.loads(sys.argv[5])
    from prometheus_client import REGISTRY, generate_latest
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.metrics.loggers import PrometheusStatLogger

    speculative = {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4}
    options: dict[str, Any] = {"max_model_len": 512, "speculative_config": speculative}
    PrometheusStatLogger(EngineArgs(model=model, **options).create_engine_config(), [0])
    _fill(REGISTRY)
    page.write_bytes(generate_latest(REGISTRY))
    answer = {"all series": _rendered(REGISTRY, times)}
    paths = {"all series": "/metrics"}
    for said, names in sets.items():
        answer[said] = _rendered(REGISTRY.restricted_registry(names), times)
        paths[said] = "/metrics/?" + urlencode([("name[]", name) for name in names])
    served = asyncio.run(_served(paths, times))
    for said, found in served.items():
        answer[said] |= found
    Path(sys.argv[4]).write_text(json.dumps(answer))


def _rendered(registry: Any, times: int) -> dict[str, Any]:
    from prometheus_client import generate_latest

    began = time.process_time()
    for _ in range(times):
        text = generate_latest(registry)
    took = (time.process_time() - began) / times
    return {"milliseconds": round(1000 * took, 3), "bytes": len(text)}


async def _served(paths: dict[str, str], times: int) -> dict[str, dict[str, float]]:
    """Over HTTP, from vLLM's own routes: the server's processor time, and what came."""
    import uvicorn
    from fastapi import FastAPI
    from vllm.entrypoints.serve.instrumentator.metrics import attach_router

    app = FastAPI()
    attach_router(app)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", access_log=False))
    serving = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 (nothing sets an event)
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    context = multiprocessing.get_context("fork")
    found = {}
    for said, path in paths.items():
        answers: Any = context.Queue()
        began, client = (
            time.process_time(),
            context.Process(target=_ask, args=(port, path, times, answers)),
        )
        client.start()
        size = await asyncio.get_running_loop().run_in_executor(None, answers.get)
        took = (time.process_time() - began) / times
        client.join()
        found[said] = {"served milliseconds": round(1000 * took, 3), "served bytes": size}
    server.should_exit = True
    await serving
    return found


def _ask(port: int, path: str, times: int, answers: Any) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    for _ in range(times):
        connection.request("GET", path)
        size = len(connection.getresponse().read())
    answers.put(size)


if __name__ == "__main__":
    main()
