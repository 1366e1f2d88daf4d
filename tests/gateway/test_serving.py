"""Real Envoy, fake workers: what a user of the gateway sees."""

import json

import aiohttp
import pytest
from tests.gateway.backends import Backend
from tests.gateway.harness import CANARY, NATIVE, STABLE, Gateway, backend, cluster, eventually
from tests.ports import free_port

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]


async def test_a_stream_arrives_event_by_event(proxy: Gateway, stable: Backend) -> None:
    proxy.endpoints(**{STABLE: [stable]})
    await proxy.route(backend(STABLE, 100))
    assert await proxy.status_of("/readyz") == 200
    stable.hold()
    async with proxy.post(stream=True, x_request_id="mine") as answer:
        # The worker holds the rest back, so this line was not waiting in a buffer.
        first = await answer.content.readline()
        assert b'"event": 0' in first
        assert stable.open_streams == 1
        stable.release()
        rest = await answer.read()
        assert rest.endswith(b"data: [DONE]\n\n")
        assert answer.headers["x-speculative-revision"] == STABLE
        assert answer.headers["x-request-id"] == "mine"


async def test_weights_split_the_traffic_and_are_read_back(
    proxy: Gateway, stable: Backend, canary: Backend
) -> None:
    proxy.endpoints(**{STABLE: [stable], CANARY: [canary]})

    async def served(count: int) -> set[str]:
        return {(await proxy.answer())[1] for _ in range(count)}

    for weight, revisions in ((0, {STABLE}), (50, {STABLE, CANARY}), (100, {CANARY})):
        state = await proxy.route(backend(STABLE, 100 - weight), backend(CANARY, weight))
        state = await proxy.until(
            lambda state, weight=weight: cluster(state, CANARY).weight == weight,  # type: ignore[misc]
            f"weight {weight} read back",
        )
        assert cluster(state, STABLE).weight == 100 - weight
        assert await served(40) == revisions


async def test_the_state_tells_of_a_change_at_once(
    proxy: Gateway, stable: Backend, canary: Backend
) -> None:
    proxy.endpoints(**{STABLE: [stable], CANARY: [canary]})
    await proxy.route(backend(STABLE, 50), backend(CANARY, 50))
    # The answer is kept for a second from now on.
    assert await proxy.state() is not None
    route = proxy.ask(backend(STABLE, 100), backend(CANARY, 0), default=STABLE)

    async def log() -> str:
        return proxy.log("agent")

    await eventually(log, lambda text: f"in use sequence={route.sequence} " in text, "in use")
    state = await proxy.state()
    assert state is not None
    assert (state.sequence, cluster(state, CANARY).weight) == (route.sequence, 0)


async def test_the_lane_header_chooses_native(
    proxy: Gateway, stable: Backend, canary: Backend
) -> None:
    proxy.endpoints(**{STABLE: [stable], NATIVE: [canary]})
    await proxy.route(backend(STABLE, 100))
    async with proxy.post(x_speculative_lane="native") as answer:
        assert answer.status == 503
        assert "no native lane" in (await answer.json())["error"]["message"]
    state = await proxy.route(backend(STABLE, 100), native=backend(NATIVE))
    assert cluster(state, NATIVE).weight == 0
    async with proxy.post(x_speculative_lane="native") as answer:
        assert (await answer.json())["backend"] == "canary"
        assert answer.headers["x-speculative-revision"] == NATIVE
    assert await proxy.answer() == (200, STABLE)


async def test_paths_outside_v1_are_404_in_json(proxy: Gateway) -> None:
    async with proxy.session.get(f"http://127.0.0.1:{proxy.port}/metrics") as answer:
        assert answer.status == 404
        assert "/v1/" in (await answer.json())["error"]["message"]


async def test_a_refused_connection_is_retried(proxy: Gateway, stable: Backend) -> None:
    # The second endpoint passes its probe (on the live worker) and refuses users.
    proxy.write(
        "endpoints.json",
        {
            STABLE: [
                {"address": "127.0.0.1", "port": port, "healthPort": stable.port}
                for port in (stable.port, free_port())
            ]
        },
    )
    await proxy.route(backend(STABLE, 100))
    for _ in range(20):
        assert await proxy.answer() == (200, STABLE)
    assert stable.requests == 20


async def test_a_generation_that_began_is_never_started_again(
    proxy: Gateway, stable: Backend, canary: Backend
) -> None:
    proxy.endpoints(**{STABLE: [stable, canary]})
    await proxy.route(backend(STABLE, 100))
    stable.reset_requests = canary.reset_requests = True
    assert (await proxy.answer())[0] == 503
    assert stable.requests + canary.requests == 1


async def test_a_broken_answer_is_counted_and_a_client_that_leaves_is_not(
    proxy: Gateway, stable: Backend
) -> None:
    proxy.endpoints(**{STABLE: [stable]})
    start = cluster(await proxy.route(backend(STABLE, 100)), STABLE).responses["2xx"]
    stable.hold()
    async with proxy.post(stream=True) as answer:
        await answer.content.readline()
        await proxy.until(lambda state: cluster(state, STABLE).active == 1, "one active")
    await proxy.until(
        lambda state: cluster(state, STABLE).responses["2xx"] == start + 1, "client left"
    )
    before = cluster(await proxy.until(bool, "a state"), STABLE)
    broken = False
    async with proxy.post(stream=True) as answer:
        await answer.content.readline()
        stable.reset_streams = True
        stable.release()
        try:
            await answer.read()
        except aiohttp.ClientPayloadError:
            broken = True
    assert broken
    state = await proxy.until(
        lambda state: cluster(state, STABLE).cut > before.cut, "cut is counted"
    )
    assert cluster(state, STABLE).cut == before.cut + 1
    # The one that the client left and the one that broke: both had begun.
    assert cluster(state, STABLE).responses["2xx"] == before.responses["2xx"] + 1


async def test_the_log_has_no_prompt_and_no_key(proxy: Gateway, stable: Backend) -> None:
    proxy.endpoints(**{STABLE: [stable]})
    await proxy.route(backend(STABLE, 100))
    async with proxy.session.post(
        f"http://127.0.0.1:{proxy.port}/v1/chat/completions?key=hush",
        json={"messages": "hush"},
        headers={"authorization": "Bearer hush", "x-request-id": "the-logged-one"},
    ) as answer:
        assert answer.status == 200

    async def log() -> str:
        return proxy.log("supervise")

    text = await eventually(log, lambda text: "the-logged-one" in text, "the line is written")
    line = next(json.loads(each) for each in text.splitlines() if "the-logged-one" in each)
    assert (line["revision"], line["status"]) == (STABLE, 200)
    assert line["path"] == "/v1/chat/completions"
    assert "hush" not in text
