"""Real Envoy: beyond the queue's depth is 503 at once, and no revision's error."""

import asyncio

import pytest
from tests.gateway.backends import Backend
from tests.gateway.harness import CANARY, NATIVE, STABLE, Gateway, backend, cluster, eventually

from speculative_api import gateway

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]

BOUND = 2


def bounded(revision: str, weight: int = 0) -> gateway.Backend:
    return backend(revision, weight).model_copy(update={"requests_per_endpoint": BOUND})


async def full(proxy: Gateway, worker: Backend, count: int = BOUND) -> list[object]:
    """As many open streams as there may be."""
    worker.hold()
    streams = [await proxy.post(stream=True) for _ in range(count)]
    assert {stream.status for stream in streams} == {200}
    return streams


async def test_beyond_the_bound_is_503_in_openai_s_shape(proxy: Gateway, stable: Backend) -> None:
    proxy.endpoints(**{STABLE: [stable]})
    await proxy.route(bounded(STABLE, 100))
    streams = await full(proxy, stable)
    async with proxy.post() as answer:
        assert answer.status == 503
        assert answer.headers["retry-after"] == "5"
        error = (await answer.json())["error"]
    assert (error["type"], error["code"]) == ("service_unavailable_error", "overloaded")
    assert stable.requests == BOUND
    stable.release()
    await asyncio.gather(*(stream.read() for stream in streams))  # type: ignore[attr-defined]
    await eventually(proxy.answer, lambda seen: seen == (200, STABLE), "let in again")


async def test_a_refusal_is_no_error_of_the_revision(proxy: Gateway, stable: Backend) -> None:
    proxy.endpoints(**{STABLE: [stable]})
    await proxy.route(bounded(STABLE, 100))
    before = cluster(await proxy.until(bool, "a state"), STABLE)
    await full(proxy, stable)
    for _ in range(3):
        assert (await proxy.answer())[0] == 503
    state = await proxy.until(
        lambda state: cluster(state, STABLE).shed == before.shed + 3, "refusals are counted"
    )
    assert cluster(state, STABLE).responses["5xx"] == before.responses["5xx"]
    stable.release()
    await proxy.until(lambda state: cluster(state, STABLE).active == 0, "streams have ended")
    stable.reset_requests = True
    assert (await proxy.answer())[0] == 503
    # A real one still is.
    await proxy.until(
        lambda state: cluster(state, STABLE).responses["5xx"] == before.responses["5xx"] + 1,
        "a worker's error is counted",
    )


async def test_more_ready_pods_hold_more_and_streams_and_counts_stay(
    proxy: Gateway, stable: Backend, canary: Backend
) -> None:
    proxy.endpoints(**{STABLE: [stable]})
    await proxy.route(bounded(STABLE, 100))
    assert await proxy.answer() == (200, STABLE)
    await full(proxy, stable)
    canary.hold()
    proxy.endpoints(**{STABLE: [stable, canary]})
    await proxy.until(lambda state: cluster(state, STABLE).endpoints == 2, "both are used")
    await full(proxy, canary)
    assert (await proxy.answer())[0] == 503
    state = await proxy.until(lambda state: cluster(state, STABLE).active == 4, "all are open")
    assert cluster(state, STABLE).responses["2xx"] >= 1


async def test_each_revision_has_its_own_bound(
    proxy: Gateway, stable: Backend, canary: Backend
) -> None:
    proxy.endpoints(**{STABLE: [stable], CANARY: [canary], NATIVE: [canary]})
    await proxy.route(bounded(STABLE, 100), bounded(CANARY, 0), native=bounded(NATIVE))
    await full(proxy, stable)
    assert (await proxy.answer())[0] == 503
    async with proxy.post(x_speculative_lane="native") as answer:
        assert answer.status == 200
    await proxy.route(bounded(STABLE, 0), bounded(CANARY, 100), native=bounded(NATIVE))
    await eventually(proxy.answer, lambda seen: seen == (200, CANARY), "the canary answers")


async def test_with_a_fallback_too_a_refusal_is_nobody_s_error(
    proxy: Gateway, stable: Backend, canary: Backend
) -> None:
    proxy.endpoints(**{STABLE: [], NATIVE: [canary]})
    await proxy.route(
        backend(STABLE, 100),
        native=backend(NATIVE),
        fallback=gateway.Fallback(requests_per_endpoint=BOUND),
    )
    await eventually(proxy.answer, lambda seen: seen == (200, NATIVE), "native answers")
    before = await proxy.until(bool, "a state")
    await full(proxy, canary)
    assert (await proxy.answer())[0] == 503
    state = await proxy.until(
        lambda state: cluster(state, STABLE).shed == cluster(before, STABLE).shed + 1, "counted"
    )
    for revision in (STABLE, NATIVE):
        errors = cluster(before, revision).responses["5xx"]
        assert cluster(state, revision).responses["5xx"] == errors


async def test_a_bound_can_be_taken_away(proxy: Gateway, stable: Backend) -> None:
    proxy.endpoints(**{STABLE: [stable]})
    await proxy.route(bounded(STABLE, 100))
    await full(proxy, stable)
    assert (await proxy.answer())[0] == 503
    await proxy.route(backend(STABLE, 100))
    assert await proxy.answer() == (200, STABLE)
