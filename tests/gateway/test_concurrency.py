"""Real Envoy: each API key has so many requests in flight and no more, however they end."""

import asyncio
from typing import Any

import pytest
from tests.gateway.backends import Backend
from tests.gateway.harness import STABLE, Gateway, backend, eventually

from speculative_api import gateway

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]

ALICE, BOB = "alice-secret-key-1", "bob-secret-key-2"
LIMIT = 3


async def guarded(proxy: Gateway, stable: Backend, **more: Any) -> None:
    """Alice and Bob, each with so many at a time."""
    proxy.keys(alice=ALICE, bob=BOB)
    proxy.endpoints(**{STABLE: [stable]})
    await proxy.route(
        backend(STABLE, 100),
        schema_version=2,
        auth=gateway.Auth(api_keys_secret="chat-keys"),
        rate_limit=gateway.RateLimit(concurrent_requests_per_key=LIMIT),
        **more,
    )


async def status(proxy: Gateway, key: str = ALICE) -> int:
    async with proxy.post(x_api_key=key) as answer:
        await answer.read()
        return int(answer.status)


async def full(proxy: Gateway, stable: Backend) -> list[Any]:
    """All that Alice may have, held open."""
    stable.hold()
    streams = [await proxy.post(stream=True, x_api_key=ALICE) for _ in range(LIMIT)]
    assert [stream.status for stream in streams] == [200] * LIMIT
    return streams


async def test_one_too_many_is_429_and_others_are_not_meant(
    proxy: Gateway, stable: Backend
) -> None:
    await guarded(proxy, stable)
    streams = await full(proxy, stable)
    async with proxy.post(x_api_key=ALICE) as answer:
        assert answer.status == 429
        assert answer.headers["retry-after"] == "1"
        error = (await answer.json())["error"]
    assert (error["type"], error["code"]) == ("requests", "rate_limit_exceeded")
    assert await status(proxy, BOB) == 200
    stable.release()
    await asyncio.gather(*(stream.read() for stream in streams))
    assert [await status(proxy) for _ in range(3 * LIMIT)] == [200] * 3 * LIMIT


async def test_clients_that_leave_give_their_places_back(proxy: Gateway, stable: Backend) -> None:
    await guarded(proxy, stable)
    for stream in await full(proxy, stable):
        stream.close()
    stable.release()
    await eventually(lambda: status(proxy), lambda seen: seen == 200, "the places are free")
    # All of them, not just one.
    streams = await full(proxy, stable)
    assert await status(proxy) == 429
    for stream in streams:
        stream.close()


async def test_clients_that_leave_before_the_answer_do_too(proxy: Gateway, stable: Backend) -> None:
    await guarded(proxy, stable)
    stable.hold_headers()
    waiting = [asyncio.ensure_future(status(proxy)) for _ in range(LIMIT)]

    async def begun() -> int:
        return stable.requests

    await eventually(begun, lambda count: count == LIMIT, "all wait for their answer")
    assert await status(proxy) == 429
    for each in waiting:
        each.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    stable.release()
    await eventually(lambda: status(proxy), lambda seen: seen == 200, "the places are free")


async def test_requests_that_fail_or_are_refused_hold_no_place(
    proxy: Gateway, stable: Backend
) -> None:
    await guarded(proxy, stable)
    proxy.endpoints(**{STABLE: []})
    await eventually(lambda: status(proxy), lambda seen: seen == 503, "nobody answers")
    assert [await status(proxy) for _ in range(2 * LIMIT)] == [503] * 2 * LIMIT


async def test_a_rewritten_route_forgets_nothing(proxy: Gateway, stable: Backend) -> None:
    await guarded(proxy, stable)
    streams = await full(proxy, stable)
    await guarded(proxy, stable, timeouts=gateway.Timeouts(idle_seconds=299))
    assert await status(proxy) == 429
    for stream in streams:
        stream.close()
