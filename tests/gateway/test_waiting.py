"""Real Envoy: requests that find no worker wait for one or are told when to come back."""

import asyncio
import json

import pytest
from tests.gateway.backends import Backend
from tests.gateway.harness import CANARY, NATIVE, STABLE, Gateway, backend, eventually

from speculative_api import gateway

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]

REFUSING = gateway.Waiting(hold_seconds=0, retry_after_seconds=90)
HOLDING = gateway.Waiting(hold_seconds=60, retry_after_seconds=90)


async def wake(proxy: Gateway, seen: str) -> gateway.Activity:
    url = f"http://127.0.0.1:{proxy.agent_port}/wake"
    async with proxy.session.get(url, params={"seen": seen}) as answer:
        assert answer.status == 200
        return gateway.Activity.model_validate_json(await answer.text())


async def requested_at(proxy: Gateway) -> float | None:
    state = await proxy.state()
    return state.activity.requested_at if state and state.activity else None


async def test_without_a_worker_and_a_hold_503_says_when(proxy: Gateway) -> None:
    proxy.endpoints()
    await proxy.route(backend(STABLE, 100), waiting=REFUSING)
    async with proxy.post() as answer:
        assert answer.status == 503
        # What pods took the last time, less what has passed since this wake began.
        assert 80 <= int(answer.headers["retry-after"]) <= 90
        assert "being started" in (await answer.json())["error"]["message"]


async def test_the_first_request_is_told_at_once_to_who_waits_for_it(proxy: Gateway) -> None:
    proxy.endpoints()
    await proxy.route(backend(STABLE, 100), waiting=REFUSING)
    seen = await requested_at(proxy)
    waiting = asyncio.ensure_future(wake(proxy, repr(seen) if seen else ""))
    done, _ = await asyncio.wait({waiting}, timeout=0.2)
    assert not done
    assert (await proxy.answer())[0] == 503
    found = await asyncio.wait_for(waiting, 5)
    assert found.requested_at is not None
    assert found.requested_at > (seen or 0)
    # Who asks with what it has seen waits again; who has seen less is told at once.
    assert await asyncio.wait_for(wake(proxy, ""), 5) == found


async def test_who_was_woken_reads_of_the_request_however_lately_it_asked(proxy: Gateway) -> None:
    """A reading is kept for a second; with that one, nobody would ever be woken by this request."""
    proxy.endpoints()
    await proxy.route(backend(STABLE, 100), waiting=REFUSING)
    for _ in range(3):
        seen = await requested_at(proxy)
        assert (await proxy.answer())[0] == 503
        now = await requested_at(proxy)
        assert now is not None
        assert now > (seen or 0)


async def test_a_held_request_goes_to_the_worker_that_comes(
    proxy: Gateway, stable: Backend
) -> None:
    proxy.endpoints()
    await proxy.route(backend(STABLE, 100), waiting=HOLDING)
    before = await requested_at(proxy)
    requests = [asyncio.ensure_future(proxy.answer()) for _ in range(5)]
    await eventually(lambda: requested_at(proxy), lambda seen: seen != before, "a request waits")
    proxy.endpoints(**{STABLE: [stable]})
    assert await asyncio.gather(*requests) == [(200, STABLE)] * 5
    assert stable.requests == 5


async def test_a_held_stream_begins_on_the_worker_that_comes(
    proxy: Gateway, stable: Backend
) -> None:
    proxy.endpoints()
    await proxy.route(backend(STABLE, 100), waiting=HOLDING)
    before = await requested_at(proxy)

    async def whole() -> tuple[int, bytes]:
        async with proxy.post(stream=True) as answer:
            return answer.status, await answer.read()

    request = asyncio.ensure_future(whole())
    await eventually(lambda: requested_at(proxy), lambda seen: seen != before, "a request waits")
    proxy.endpoints(**{STABLE: [stable]})
    status, body = await request
    assert (status, body.endswith(b"data: [DONE]\n\n")) == (200, True)


async def test_a_hold_ends(proxy: Gateway) -> None:
    proxy.endpoints()
    short = gateway.Waiting(hold_seconds=1, retry_after_seconds=1)
    await proxy.route(backend(STABLE, 100), waiting=short)
    async with proxy.post() as answer:
        assert (answer.status, answer.headers["retry-after"]) == (503, "5")


async def test_native_waits_for_native_alone(
    proxy: Gateway, stable: Backend, canary: Backend
) -> None:
    proxy.endpoints(**{STABLE: [stable]})
    await proxy.route(backend(STABLE, 100), native=backend(NATIVE), waiting=HOLDING)
    await eventually(proxy.answer, lambda seen: seen == (200, STABLE), "stable serves")
    before = await requested_at(proxy)

    async def native() -> str:
        async with proxy.post(x_speculative_lane="native") as answer:
            return str((await answer.json())["backend"])

    request = asyncio.ensure_future(native())
    await eventually(lambda: requested_at(proxy), lambda seen: seen != before, "it waits")
    proxy.endpoints(**{STABLE: [stable], NATIVE: [canary]})
    assert await request == "canary"


async def test_stable_falls_back_to_native_before_it_waits(
    proxy: Gateway, stable: Backend, canary: Backend
) -> None:
    fallback = gateway.Fallback(requests_per_endpoint=4)
    proxy.endpoints(**{NATIVE: [canary]})
    route = {"native": backend(NATIVE), "fallback": fallback, "waiting": HOLDING}
    await proxy.route(backend(STABLE, 100), **route)
    assert await proxy.answer() == (200, NATIVE)
    proxy.endpoints(**{STABLE: [stable], NATIVE: [canary]})
    await eventually(proxy.answer, lambda seen: seen == (200, STABLE), "stable first")


async def test_refusals_are_nobody_s_errors_and_workers_are_no_waiting(
    proxy: Gateway, stable: Backend, canary: Backend
) -> None:
    proxy.endpoints()
    await proxy.route(backend(STABLE, 100), waiting=REFUSING)
    for _ in range(3):
        assert (await proxy.answer())[0] == 503
    state = await proxy.until(lambda state: bool(state.clusters), "clusters")
    assert [each.hash for each in state.clusters] == [STABLE]
    (found,) = state.clusters
    assert found.responses.get("5xx", 0) == 0
    # A canary waits no less, and its weight is read back as ever.
    proxy.endpoints(**{STABLE: [stable], CANARY: [canary]})
    state = await proxy.route(backend(STABLE, 50), backend(CANARY, 50), waiting=REFUSING)
    assert {each.hash: each.weight for each in state.clusters} == {STABLE: 50, CANARY: 50}


async def test_a_client_can_t_say_whom_it_waits_for(proxy: Gateway, stable: Backend) -> None:
    proxy.endpoints(**{STABLE: [stable]})
    await proxy.route(backend(STABLE, 100), waiting=REFUSING)
    async with proxy.post(x_speculative_revision=CANARY) as answer:
        assert answer.status == 200
    assert stable.headers_seen[-1]["x-speculative-revision"] == STABLE


async def test_work_counts_as_activity(proxy: Gateway, stable: Backend) -> None:
    proxy.endpoints(**{STABLE: [stable]})
    await proxy.route(backend(STABLE, 100), waiting=REFUSING)
    before = await requested_at(proxy)
    async with proxy.post() as answer:
        assert json.loads(await answer.read())
    await eventually(lambda: requested_at(proxy), lambda seen: seen != before, "it is seen")
