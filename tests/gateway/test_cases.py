"""Real Envoy: the handed cases H23, H24, H25 and H28."""

import asyncio
import time

import pytest
from tests.gateway.backends import Backend
from tests.gateway.harness import CANARY, STABLE, Gateway, backend, cluster, eventually

from speculative_api import gateway

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]

EVENTS = 40
LONGER_THAN_DEFAULTS_SECONDS = 16
"""Envoy ends a request after 15 seconds where its route says nothing."""


async def route_in_use(proxy: Gateway) -> list[dict[str, dict[str, str]]]:
    """The entries that lead to a revision, as Envoy says."""
    url = f"http://127.0.0.1:{proxy.admin_port}/config_dump?resource=dynamic_route_configs"
    async with proxy.session.get(url) as answer:
        (found,) = (await answer.json())["configs"]
    (host,) = found["route_config"]["virtual_hosts"]
    return [each for each in host["routes"] if "route" in each]


async def test_h23_streams_are_not_buffered_on_the_way(proxy: Gateway, stable: Backend) -> None:
    proxy.endpoints(**{STABLE: [stable]})
    await proxy.route(backend(STABLE, 100))
    stable.step_by_step(EVENTS)
    reads = 0
    async with proxy.post(stream=True) as answer:
        assert answer.status == 200
        for number in range(EVENTS):
            # The worker makes the next event only when this one has been read here: no clump,
            # however small, could ever be read.
            line = await asyncio.wait_for(answer.content.readline(), 30)
            assert f'"event": {number}'.encode() in line
            reads += 1
            assert await answer.content.readline() == b"\n"
            stable.step()
        assert (await answer.read()).endswith(b"data: [DONE]\n\n")
    assert reads == EVENTS


async def test_h24_long_prefills_and_long_generations_are_complete(
    proxy: Gateway, stable: Backend, canary: Backend
) -> None:
    proxy.endpoints(**{STABLE: [stable], CANARY: [canary]})
    await proxy.route(backend(STABLE, 100))
    assert [each["route"]["timeout"] for each in await route_in_use(proxy)] == ["0s"]
    stable.hold()
    began = time.monotonic()

    async def whole(**headers: str) -> bytes:
        async with proxy.post(stream=True, **headers) as answer:
            return bytes(await answer.read())

    generating = asyncio.ensure_future(whole())

    async def open_streams() -> int:
        return stable.open_streams

    await eventually(open_streams, lambda count: count == 1, "a generation runs")
    await proxy.route(backend(STABLE, 0), backend(CANARY, 100))
    canary.hold_headers()
    prefilling = asyncio.ensure_future(whole())

    async def time_passed() -> float:
        return time.monotonic() - began

    await eventually(time_passed, lambda seen: seen > LONGER_THAN_DEFAULTS_SECONDS, "a long time")
    assert not generating.done()
    assert not prefilling.done()
    stable.release()
    canary.release()
    assert (await generating).endswith(b"data: [DONE]\n\n")
    assert (await prefilling).endswith(b"data: [DONE]\n\n")


async def test_h24_the_resources_timeouts_are_in_the_route(proxy: Gateway, stable: Backend) -> None:
    proxy.endpoints(**{STABLE: [stable]})
    wanted = gateway.Timeouts(request_seconds=1800, idle_seconds=300)
    await proxy.route(backend(STABLE, 100), timeouts=wanted)
    (entry,) = await route_in_use(proxy)
    assert (entry["route"]["timeout"], entry["route"]["idle_timeout"]) == ("1800s", "300s")


async def test_h25_weights_are_explicit_from_zero_to_zero(
    proxy: Gateway, stable: Backend, canary: Backend
) -> None:
    proxy.endpoints(**{STABLE: [stable], CANARY: [canary]})
    for weight in (0, 5, 0):
        state = await proxy.route(backend(STABLE, 100 - weight), backend(CANARY, weight))
        state = await proxy.until(
            lambda state, weight=weight: cluster(state, CANARY).weight == weight,  # type: ignore[misc]
            f"weight {weight} read back",
        )
        assert [each.weight for each in state.clusters] == [100 - weight, weight]
        (entry,) = await route_in_use(proxy)
        listed = entry["route"]["weighted_clusters"]["clusters"]  # type: ignore[index]
        assert [each["name"] for each in listed] == [STABLE, CANARY]  # type: ignore[index]
        if weight == 0:
            answers = {await proxy.answer() for _ in range(60)}
            assert answers == {(200, STABLE)}
    # Both zero: refused, and the last route stays.
    proxy.write(
        "route.json",
        f'{{"ownerUid": "uid", "sequence": {proxy.sequence + 1}, "model": "m", "backends": ['
        f'{{"hash": "{STABLE}", "service": "{STABLE}", "weight": 0}}, '
        f'{{"hash": "{CANARY}", "service": "{CANARY}", "weight": 0}}]}}',
    )
    state = await proxy.until(lambda state: state.error != "", "an error is reported")
    assert "weights sum to 0, need 100" in state.error
    assert await proxy.answer() == (200, STABLE)


async def test_h25_one_session_stays_and_a_thousand_are_split(
    proxy: Gateway, stable: Backend, canary: Backend
) -> None:
    proxy.endpoints(**{STABLE: [stable], CANARY: [canary]})
    affinity = gateway.Affinity(header="x-session-id", salt="salt")
    await proxy.route(backend(STABLE, 80), backend(CANARY, 20), affinity=affinity)

    async def revision(session: str) -> str:
        async with proxy.post(x_session_id=session) as answer:
            await answer.read()
            assert answer.status == 200
            return str(answer.headers["x-speculative-revision"])

    assert len({await revision("one") for _ in range(200)}) == 1
    waiting = iter(range(1000))
    found: list[str] = []

    async def client() -> None:
        for session in waiting:
            found.append(await revision(f"user-{session}"))

    await asyncio.gather(*(client() for _ in range(8)))
    assert len(found) == 1000
    assert 160 <= found.count(CANARY) <= 240


async def test_h28_a_rollback_cuts_no_stream_and_the_canary_leaves_after_it(
    proxy: Gateway, stable: Backend, canary: Backend
) -> None:
    proxy.endpoints(**{STABLE: [stable], CANARY: [canary]})
    before = await proxy.route(backend(STABLE, 50), backend(CANARY, 50))
    stable.hold()
    canary.hold()
    streams = []
    while canary.open_streams < 10:
        answer = await proxy.post(stream=True)
        assert answer.status == 200
        await answer.content.readline()
        streams.append(answer)
    # Rolled back: the weight goes first, and what runs runs on.
    await proxy.route(backend(STABLE, 100), backend(CANARY, 0))
    state = await proxy.until(lambda state: cluster(state, CANARY).weight == 0, "weight 0 seen")
    assert cluster(state, CANARY).active == canary.open_streams == 10
    asked = canary.requests
    stable.release()
    assert {await proxy.answer() for _ in range(20)} == {(200, STABLE)}
    assert canary.requests == asked
    canary.release()
    for answer in streams:
        assert (await answer.read()).endswith(b"data: [DONE]\n\n")
    # Only now, with none in flight, do its cluster and its pods go.
    state = await proxy.until(lambda state: cluster(state, CANARY).active == 0, "all have ended")
    for revision in (STABLE, CANARY):
        assert cluster(state, revision).cut == cluster(before, revision).cut
    proxy.endpoints(**{STABLE: [stable]})
    await proxy.route(backend(STABLE, 100))
    assert {await proxy.answer() for _ in range(20)} == {(200, STABLE)}
