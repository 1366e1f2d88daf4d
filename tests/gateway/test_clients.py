"""Real Envoy: the clients that people have work unchanged."""

import asyncio
import json
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from tests.gateway.backends import Backend
from tests.gateway.harness import STABLE, Gateway, backend, cluster

from speculative_api import gateway

if TYPE_CHECKING:
    import openai

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]

ALICE = "alice-secret-key-1"
STREAMS = 1000


def client(proxy: Gateway, key: str = ALICE) -> "openai.AsyncOpenAI":
    """As from the documentation, with another address."""
    # Loading it takes a second, which whoever only collects these tests need not wait for.
    import openai

    return openai.AsyncOpenAI(
        base_url=f"http://127.0.0.1:{proxy.port}/v1", api_key=key, max_retries=0
    )


async def guarded(proxy: Gateway, stable: Backend, **more: Any) -> None:
    stable.speaks_openai = True
    proxy.keys(alice=ALICE)
    proxy.endpoints(**{STABLE: [stable]})
    auth = gateway.Auth(api_keys_secret="chat-keys")
    await proxy.route(backend(STABLE, 100), schema_version=2, auth=auth, **more)


async def test_openai_s_client_asks_and_streams(proxy: Gateway, stable: Backend) -> None:
    await guarded(proxy, stable)
    stable.usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    asked: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    async with client(proxy) as users:
        whole = await users.chat.completions.create(**asked)
        assert whole.choices[0].message.content == "stable"
        assert whole.usage is not None
        assert whole.usage.total_tokens == 5
        pieces = []
        async for chunk in await users.chat.completions.create(**asked, stream=True):
            pieces += [choice.delta.content for choice in chunk.choices]
        assert pieces == ["0", "1", "2"]


async def test_openai_s_client_knows_our_errors(proxy: Gateway, stable: Backend) -> None:
    import openai

    limit = gateway.RateLimit(requests_per_minute_per_key=1)
    await guarded(proxy, stable, rate_limit=limit)
    asked: dict[str, Any] = {"model": "m", "messages": []}
    async with client(proxy, "an-unknown-key") as stranger:
        with pytest.raises(openai.AuthenticationError) as unknown:
            await stranger.chat.completions.create(**asked)
    assert unknown.value.code == "invalid_api_key"
    async with client(proxy) as users:
        await users.chat.completions.create(**asked)
        with pytest.raises(openai.RateLimitError) as limited:
            await users.chat.completions.create(**asked)
        assert limited.value.code == "rate_limit_exceeded"
        await guarded(proxy, stable)
        proxy.endpoints(**{STABLE: []})
        await proxy.until(lambda state: cluster(state, STABLE).endpoints == 0, "nobody is there")
        with pytest.raises(openai.InternalServerError) as away:
            await users.chat.completions.create(**asked)
        assert away.value.status_code == 503


async def test_curl_prints_each_event_as_it_comes(proxy: Gateway, stable: Backend) -> None:
    proxy.endpoints(**{STABLE: [stable]})
    await proxy.route(backend(STABLE, 100))
    stable.hold()
    process = await asyncio.create_subprocess_exec(
        *("curl", "-sN", "-d", json.dumps({"stream": True})),
        *("-H", "content-type: application/json"),
        f"http://127.0.0.1:{proxy.port}/v1/chat/completions",
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    first = await asyncio.wait_for(process.stdout.readline(), 30)
    assert b'"event": 0' in first
    stable.release()
    assert (await process.stdout.read()).endswith(b"data: [DONE]\n\n")
    assert await process.wait() == 0


async def test_a_thousand_streams_at_once(proxy: Gateway, stable: Backend) -> None:
    proxy.endpoints(**{STABLE: [stable]})
    await proxy.route(backend(STABLE, 100))
    stable.hold()
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=120)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:

        async def stream() -> bytes:
            async with session.post(
                f"http://127.0.0.1:{proxy.port}/v1/chat/completions", json={"stream": True}
            ) as answer:
                assert answer.status == 200
                return await answer.read()

        streams = [asyncio.ensure_future(stream()) for _ in range(STREAMS)]
        await proxy.until(
            lambda state: cluster(state, STABLE).active == STREAMS, "all are open at once"
        )
        stable.release()
        bodies = await asyncio.gather(*streams)
    assert all(body.endswith(b"data: [DONE]\n\n") for body in bodies)
    assert stable.requests == STREAMS
