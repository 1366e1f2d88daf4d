"""Real Envoy: stable falls back to native, up to a bound; a canary never does."""

import asyncio

import pytest
from tests.gateway.backends import Backend, running
from tests.gateway.harness import CANARY, NATIVE, STABLE, Gateway, backend, cluster, eventually

from speculative_api import gateway

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]

BOUND = 2


def falling_back(bound: int = BOUND) -> dict[str, object]:
    """Fields of a route with native as fallback."""
    return {
        "native": backend(NATIVE),
        "fallback": gateway.Fallback(requests_per_endpoint=bound),
    }


async def test_pods_killed_under_load_fail_at_most_what_they_had_begun(
    proxy: Gateway, canary: Backend
) -> None:
    native = canary
    async with running("one") as one, running("two") as two:
        proxy.endpoints(**{STABLE: [one, two], NATIVE: [native]})
        await proxy.route(backend(STABLE, 100), **falling_back(bound=100))
        answers: list[tuple[int, str]] = []

        async def client() -> None:
            for _ in range(100):
                answers.append(await proxy.answer())

        async def killer() -> None:
            await eventually(_count, lambda count: count >= 40, "some answers")
            one.kill()
            two.kill()

        async def _count() -> int:
            return len(answers)

        await asyncio.gather(client(), client(), killer())
    failed = [answer for answer in answers if answer[0] != 200]
    # Two pods were killed, each with one request at most: those may not be tried again.
    assert len(failed) <= 2
    assert answers[-1] == (200, NATIVE)
    assert {revision for status, revision in answers if status == 200} == {STABLE, NATIVE}


async def test_stable_gets_its_requests_back(
    proxy: Gateway, stable: Backend, canary: Backend
) -> None:
    proxy.endpoints(**{STABLE: [stable], NATIVE: [canary]})
    await proxy.route(backend(STABLE, 100), **falling_back())
    assert await proxy.answer() == (200, STABLE)
    stable.ready = False
    await eventually(proxy.answer, lambda seen: seen == (200, NATIVE), "native answers")
    stable.ready = True
    await eventually(proxy.answer, lambda seen: seen == (200, STABLE), "stable answers again")
    proxy.endpoints(**{STABLE: [], NATIVE: [canary]})
    await eventually(proxy.answer, lambda seen: seen == (200, NATIVE), "no endpoint at all")


async def test_beyond_native_s_capacity_is_503_and_the_lane_stays_open(
    proxy: Gateway, stable: Backend, canary: Backend
) -> None:
    proxy.endpoints(**{STABLE: [], NATIVE: [canary]})
    await proxy.route(backend(STABLE, 100), **falling_back())
    await eventually(proxy.answer, lambda seen: seen == (200, NATIVE), "native answers")
    canary.hold()
    streams = [await proxy.post(stream=True) for _ in range(BOUND)]
    assert [stream.status for stream in streams] == [200] * BOUND
    async with proxy.post() as answer:
        assert answer.status == 503
        assert answer.headers["retry-after"] == "5"
        assert "error" in await answer.json()
    async with proxy.post(x_speculative_lane="native") as answer:
        assert answer.status == 200
    state = await proxy.until(
        lambda state: cluster(state, NATIVE).active == BOUND, "both are native's requests"
    )
    assert [each.hash for each in state.clusters] == [STABLE, NATIVE]
    canary.release()
    for stream in streams:
        assert (await stream.read()).endswith(b"data: [DONE]\n\n")


async def test_a_canary_never_falls_back(proxy: Gateway, stable: Backend, canary: Backend) -> None:
    proxy.endpoints(**{STABLE: [], CANARY: [stable], NATIVE: [canary]})
    await proxy.route(backend(STABLE, 0), backend(CANARY, 100), **falling_back())
    await eventually(proxy.answer, lambda seen: seen == (200, CANARY), "the canary answers")
    stable.ready = False
    await eventually(proxy.answer, lambda seen: seen[0] == 503, "the canary's failure is seen")
    assert canary.requests == 0


async def test_a_promotion_keeps_the_weights_and_serves_throughout(
    proxy: Gateway, stable: Backend, canary: Backend
) -> None:
    proxy.endpoints(**{STABLE: [stable], CANARY: [canary], NATIVE: [canary]})
    await proxy.route(backend(STABLE, 50), backend(CANARY, 50), **falling_back())
    promoted = asyncio.create_task(
        proxy.route(backend(CANARY, 95), backend(STABLE, 5), **falling_back())
    )
    answers = [await proxy.answer()]
    while not promoted.done():
        answers.append(await proxy.answer())
    assert {status for status, _ in answers} == {200}
    assert [(each.hash, each.weight) for each in (await promoted).clusters] == [
        (STABLE, 5),
        (CANARY, 95),
        (NATIVE, 0),
    ]
