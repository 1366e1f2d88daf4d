"""Real Envoy: H24 at the length it was handed in: 95 s of tokens, 40 s before the first one."""

import asyncio
import json
import time

import aiohttp
import pytest
from tests.gateway.backends import Backend
from tests.gateway.harness import CANARY, STABLE, Gateway, backend, eventually

from speculative_api import gateway

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.soak]

GENERATION_SECONDS, TOKENS_PER_SECOND = 95, 5
UNLIMITED = aiohttp.ClientTimeout(total=None)
PREFILL_SECONDS, IDLE_SECONDS = 40, 300


async def test_h24_in_full(proxy: Gateway, stable: Backend, canary: Backend) -> None:
    proxy.endpoints(**{STABLE: [stable], CANARY: [canary]})
    idle = gateway.Timeouts(idle_seconds=IDLE_SECONDS)
    await proxy.route(backend(STABLE, 100), timeouts=idle)
    stable.step_by_step(GENERATION_SECONDS * TOKENS_PER_SECOND)
    generating = asyncio.ensure_future(whole(proxy))

    async def open_streams() -> int:
        return stable.open_streams

    await eventually(open_streams, bool, "a generation runs")
    await proxy.route(backend(STABLE, 0), backend(CANARY, 100), timeouts=idle)
    canary.hold_headers()
    prefilling = asyncio.ensure_future(whole(proxy))

    async def decoded() -> None:
        for _ in range(GENERATION_SECONDS * TOKENS_PER_SECOND - 1):
            await asyncio.sleep(1 / TOKENS_PER_SECOND)
            stable.step()

    async def prefilled() -> None:
        await asyncio.sleep(PREFILL_SECONDS)
        canary.release()

    await asyncio.gather(decoded(), prefilled())
    seconds, body = await generating
    events = [json.loads(line[6:]) for line in body.splitlines() if line.startswith(b"data: {")]
    assert [each["event"] for each in events] == list(range(len(events)))
    assert len(events) == GENERATION_SECONDS * TOKENS_PER_SECOND
    assert body.endswith(b"data: [DONE]\n\n")
    assert seconds > GENERATION_SECONDS * 0.95
    seconds, body = await prefilling
    assert body.endswith(b"data: [DONE]\n\n")
    assert seconds > PREFILL_SECONDS
    assert stable.requests + canary.requests == 2


async def whole(proxy: Gateway) -> tuple[float, bytes]:
    """How long a stream took, and all of it."""
    began = time.monotonic()
    url = f"http://127.0.0.1:{proxy.port}/v1/chat/completions"
    # Without the client's own limit.
    async with proxy.session.post(url, json={"stream": True}, timeout=UNLIMITED) as answer:
        assert answer.status == 200
        body = bytes(await answer.read())
    return time.monotonic() - began, body
