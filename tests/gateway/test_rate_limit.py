"""Real Envoy: each API key has its own measure, and moving weights does not refill it."""

import pytest
from tests.gateway.backends import Backend
from tests.gateway.harness import CANARY, STABLE, Gateway, backend, eventually

from speculative_api import gateway

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]

ALICE, BOB = "alice-secret-key-1", "bob-secret-key-2"


def limited(per_minute: int) -> dict[str, object]:
    """Fields of a route with keys and a limit."""
    return {
        "schema_version": 2,
        "auth": gateway.Auth(api_keys_secret="chat-keys"),
        "rate_limit": gateway.RateLimit(requests_per_minute_per_key=per_minute),
    }


async def guarded(proxy: Gateway, stable: Backend, canary: Backend, per_minute: int) -> None:
    """Alice and Bob, each with the same measure."""
    proxy.keys(alice=ALICE, bob=BOB)
    proxy.endpoints(**{STABLE: [stable], CANARY: [canary]})
    await proxy.route(backend(STABLE, 100), backend(CANARY, 0), **limited(per_minute))


async def statuses(proxy: Gateway, key: str, count: int) -> list[int]:
    found = []
    for _ in range(count):
        async with proxy.post(x_api_key=key) as answer:
            await answer.read()
            found.append(answer.status)
    return found


async def test_each_key_has_its_own_measure(
    proxy: Gateway, stable: Backend, canary: Backend
) -> None:
    await guarded(proxy, stable, canary, 3)
    assert await statuses(proxy, ALICE, 5) == [200, 200, 200, 429, 429]
    assert await statuses(proxy, BOB, 4) == [200, 200, 200, 429]
    assert stable.requests == 6


async def test_a_refusal_says_when_to_come_back(
    proxy: Gateway, stable: Backend, canary: Backend
) -> None:
    await guarded(proxy, stable, canary, 7)
    await statuses(proxy, ALICE, 7)
    async with proxy.post(x_api_key=ALICE) as answer:
        assert answer.status == 429
        assert answer.headers["retry-after"] == "9"
        error = (await answer.json())["error"]
    assert (error["type"], error["code"]) == ("requests", "rate_limit_exceeded")


async def test_the_measure_fills_evenly(proxy: Gateway, stable: Backend, canary: Backend) -> None:
    await guarded(proxy, stable, canary, 30)
    assert 429 in await statuses(proxy, ALICE, 40)

    async def one() -> int:
        return (await statuses(proxy, ALICE, 1))[0]

    # One every two seconds: a bucket that fills once a minute would be seen as 30 at once.
    await eventually(one, lambda status: status == 200, "let in again")
    assert 429 in await statuses(proxy, ALICE, 10)


async def test_weights_move_without_filling_the_measure(
    proxy: Gateway, stable: Backend, canary: Backend
) -> None:
    await guarded(proxy, stable, canary, 2)
    assert await statuses(proxy, ALICE, 3) == [200, 200, 429]
    await proxy.route(backend(STABLE, 50), backend(CANARY, 50), **limited(2))
    assert await statuses(proxy, ALICE, 2) == [429, 429]


async def test_an_unknown_key_is_refused_before_it_is_counted(
    proxy: Gateway, stable: Backend, canary: Backend
) -> None:
    await guarded(proxy, stable, canary, 2)
    assert await statuses(proxy, "no-such-secret-key", 4) == [401] * 4
