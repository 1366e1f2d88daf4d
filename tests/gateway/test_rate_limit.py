"""Real Envoy: each API key has its own measure, in requests and in tokens.

Moving weights does not refill it.
"""

import io

import pytest
from tests.gateway.backends import Backend
from tests.gateway.harness import CANARY, STABLE, Gateway, backend, eventually

from speculative_api import gateway

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]

ALICE, BOB = "alice-secret-key-1", "bob-secret-key-2"


def limited(per_minute: int | None, tokens: int | None = None) -> dict[str, object]:
    """Fields of a route with keys and limits."""
    return {
        "schema_version": 2,
        "auth": gateway.Auth(api_keys_secret="chat-keys"),
        "rate_limit": gateway.RateLimit(
            requests_per_minute_per_key=per_minute, tokens_per_minute_per_key=tokens
        ),
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


async def asked(proxy: Gateway, stable: Backend, *bodies: str) -> list[int]:
    """Statuses of these bodies, with 1000 tokens a minute; the measure is full at first."""
    proxy.keys(alice=ALICE, bob=BOB)
    proxy.endpoints(**{STABLE: [stable]})
    await proxy.route(backend(STABLE, 100))
    await proxy.route(backend(STABLE, 100), **limited(None, tokens=1000))
    found = []
    for body in bodies:
        async with proxy.session.post(
            f"http://127.0.0.1:{proxy.port}/v1/chat/completions",
            data=io.BytesIO(body.encode()),
            headers={"x-api-key": ALICE},
        ) as answer:
            await answer.read()
            found.append(answer.status)
    return found


@pytest.mark.parametrize(
    "body, expected",
    [
        ('{"max_tokens": 400}', [200, 200, 429]),
        ('{"max_completion_tokens":400}', [200, 200, 429]),
        ('{"max_output_tokens": 4e2}', [200, 200, 429]),
        ('{"max_tokens": "400"}', [200, 200, 429]),
        ('{"max_tokens": 10, "max_tokens": 400}', [200, 200, 429]),
        ('{"max_tokens": 200, "n": 2}', [200, 200, 429]),
        ('{"prompt": "%s", "max_tokens": 10}' % ("a" * 1560), [200, 200, 429]),
        (r'{"prompt": "\"max_tokens\": 400", "max_tokens": 10}', [200, 200, 200]),
        ("{}", [429, 429, 429]),
    ],
    ids=[
        "max_tokens",
        "max_completion_tokens",
        "an exponent",
        "a number as text",
        "the larger of two",
        "several answers",
        "a long prompt",
        "words inside a prompt",
        "nothing said",
    ],
)
async def test_tokens_are_charged_before_they_are_made(
    proxy: Gateway, stable: Backend, body: str, expected: list[int]
) -> None:
    assert await asked(proxy, stable, body, body, body) == expected
    assert stable.requests == expected.count(200)


async def test_the_charge_is_between_our_filters_only(proxy: Gateway, stable: Backend) -> None:
    assert await asked(proxy, stable, '{"max_tokens": 10}') == [200]
    (seen,) = stable.headers_seen
    assert "x-speculative-cost" not in seen
    assert seen["content-length"] == "18"


async def test_a_forged_charge_counts_for_nothing(proxy: Gateway, stable: Backend) -> None:
    await asked(proxy, stable)
    async with proxy.session.post(
        f"http://127.0.0.1:{proxy.port}/v1/chat/completions",
        data='{"max_tokens": 2000}',
        headers={"x-api-key": ALICE, "x-speculative-cost": "0"},
    ) as answer:
        assert answer.status == 429
        assert answer.headers["retry-after"] == "5"


async def test_questions_without_a_body_cost_next_to_nothing(
    proxy: Gateway, stable: Backend
) -> None:
    await asked(proxy, stable)
    for _ in range(3):
        async with proxy.session.get(
            f"http://127.0.0.1:{proxy.port}/v1/models", headers={"x-api-key": ALICE}
        ) as answer:
            assert answer.status == 200
            assert "x-speculative-revision" in answer.headers


async def test_a_long_body_is_counted_too(proxy: Gateway, stable: Backend) -> None:
    body = '{"max_tokens": 10, "prompt": "%s"}' % ("a" * 3_000_000)
    assert await asked(proxy, stable, body) == [429]


async def test_a_body_too_long_to_count_is_413(proxy: Gateway, stable: Backend) -> None:
    body = '{"prompt": "%s"}' % ("a" * (17 * 1024 * 1024))
    assert await asked(proxy, stable, body) == [413]
