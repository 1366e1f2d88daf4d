"""A simulated engine inside the test's own process, on a free loopback port."""

import contextlib
import json
import random
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
from tests.worker.a_worker import words

from speculative_api.engine_metrics import Reading, reading
from speculative_worker.http_server import HttpServer
from speculative_worker.simulate.generation import Batch
from speculative_worker.simulate.plan import plan_from
from speculative_worker.simulate.server import SimulatedEngine


class AnEngine:
    """Ways to ask it."""

    def __init__(self, client: aiohttp.ClientSession, batch: Batch) -> None:
        self.client = client
        self.batch = batch

    async def complete(self, **body: Any) -> tuple[int, Any]:
        """A completion: status and answer."""
        async with self.client.post("/v1/completions", json={"prompt": "a", **body}) as answer:
            return answer.status, await answer.json()

    async def chat(self, **body: Any) -> tuple[int, Any]:
        """A chat completion likewise."""
        body = {"messages": [{"role": "user", "content": "hi"}], **body}
        async with self.client.post("/v1/chat/completions", json=body) as answer:
            return answer.status, await answer.json()

    async def events(self, path: str, **body: Any) -> list[Any]:
        """The events of a stream; the last one is `[DONE]`, left out."""
        async with self.client.post(path, json={**body, "stream": True}) as answer:
            assert answer.headers["Content-Type"].startswith("text/event-stream")
            text = await answer.text()
        events = text.split("\n\n")
        assert events[-2:] == ["data: [DONE]", ""]
        return [json.loads(event.removeprefix("data: ")) for event in events[:-2]]

    async def fault(self, kind: str, **words: Any) -> None:
        """Commands a fault at run time."""
        fault = {"kind": kind, **words}
        async with self.client.post("/simulation/faults", json=fault) as answer:
            assert answer.status == 200, await answer.text()

    async def metrics(self) -> str:
        """The text of `/metrics`."""
        async with self.client.get("/metrics") as answer:
            return await answer.text()

    async def reading(self) -> Reading:
        """The same as the worker reads it."""
        return reading(await self.metrics())


@contextlib.asynccontextmanager
async def an_engine(
    simulation: dict[str, Any] | None = None, seed: int = 1, **changes: Any
) -> AsyncIterator[AnEngine]:
    """Serves a fast one with k = 4 and room for 8."""
    document = words({"tokensPerSecond": 100_000} | (simulation or {}), changes)
    engine = SimulatedEngine(plan_from(json.dumps(document)), chance=random.Random(seed))
    server = HttpServer(engine.answer)
    port = await server.start("127.0.0.1", 0)
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client:
            yield AnEngine(client, engine.batch)
    finally:
        await server.close()
