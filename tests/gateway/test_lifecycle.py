"""What survives: death of the agent, of Envoy, a refused route, a stop under load."""

import asyncio
import os
import signal

import aiohttp
import pytest
from tests.gateway.backends import Backend, running
from tests.gateway.harness import CANARY, STABLE, Gateway, backend, cluster, eventually

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]


async def test_without_a_route_users_get_503_and_the_pod_is_not_ready(fresh: Gateway) -> None:
    async with fresh.post() as answer:
        body = await answer.json()
        assert answer.status == 503
        assert answer.headers["retry-after"] == "5"
    assert body["error"]["type"] == "service_unavailable_error"
    await eventually(lambda: fresh.status_of("/livez"), lambda seen: seen == 200, "agent is up")
    assert await fresh.status_of("/readyz") == 503


async def test_removing_a_canary_cuts_no_stream(
    proxy: Gateway, stable: Backend, canary: Backend
) -> None:
    proxy.endpoints(**{STABLE: [stable], CANARY: [canary]})
    await proxy.route(backend(STABLE, 0), backend(CANARY, 100))
    canary.hold()
    async with proxy.post(stream=True) as answer:
        assert answer.headers["x-speculative-revision"] == CANARY
        await answer.content.readline()
        await proxy.route(backend(STABLE, 100), backend(CANARY, 0))
        state = await proxy.until(lambda state: cluster(state, CANARY).active == 1, "still open")
        assert cluster(state, CANARY).weight == 0
        assert await proxy.answer() == (200, STABLE)
        # Too early, on purpose: even the cluster's removal lets the stream end.
        state = await proxy.route(backend(STABLE, 100))
        state = await proxy.until(lambda state: len(state.clusters) == 1, "canary gone")
        assert not (proxy.xds / f"eds-{CANARY}.json").exists()
        canary.release()
        assert (await answer.read()).endswith(b"data: [DONE]\n\n")


async def test_the_agent_dies_and_the_next_one_adopts(proxy: Gateway, stable: Backend) -> None:
    proxy.endpoints(**{STABLE: [stable]})
    before = await proxy.route(backend(STABLE, 100))
    written = {path: path.stat().st_mtime_ns for path in proxy.xds.iterdir()}
    stable.hold()
    async with proxy.post(stream=True) as answer:
        await answer.content.readline()
        assert proxy.agent is not None
        proxy.agent.kill()
        await proxy.agent.wait()
        assert await proxy.answer() == (200, STABLE)
        await proxy.start_agent()
        after = await proxy.until(lambda state: state.ready, "adopted")
        stable.release()
        assert (await answer.read()).endswith(b"data: [DONE]\n\n")
    assert after.sequence == before.sequence
    assert after.envoy_started_at == before.envoy_started_at
    assert written == {path: path.stat().st_mtime_ns for path in proxy.xds.iterdir()}


async def test_an_agent_without_its_source_keeps_the_adopted_route(
    proxy: Gateway, stable: Backend
) -> None:
    proxy.endpoints(**{STABLE: [stable]})
    before = await proxy.route(backend(STABLE, 100))
    assert proxy.agent is not None
    proxy.agent.kill()
    await proxy.agent.wait()
    for path in proxy.wanted.iterdir():
        path.unlink()
    proxy.endpoints(**{STABLE: [stable]})
    await proxy.start_agent()
    after = await proxy.until(lambda state: state.ready, "adopted")
    assert after.sequence == before.sequence
    assert await proxy.answer() == (200, STABLE)


async def test_envoy_is_killed_and_serves_again(
    proxy: Gateway, stable: Backend, canary: Backend
) -> None:
    proxy.endpoints(**{STABLE: [stable], CANARY: [canary]})
    before = await proxy.route(backend(STABLE, 0), backend(CANARY, 100))
    pid = proxy.envoy_pid()
    os.kill(pid, signal.SIGKILL)
    after = await proxy.until(
        lambda state: state.ready and state.envoy_started_at > before.envoy_started_at,
        "a new life was verified",
    )
    assert proxy.envoy_pid() != pid
    assert after.sequence == before.sequence
    assert cluster(after, CANARY).weight == 100
    assert await proxy.answer() == (200, CANARY)


async def test_a_killed_agent_is_back_without_its_container(
    fresh: Gateway, stable: Backend
) -> None:
    assert fresh.agent is not None
    fresh.agent.kill()
    await fresh.agent.wait()
    await fresh.start_keeper()
    assert fresh.agent is not None
    fresh.endpoints(**{STABLE: [stable]})
    before = await fresh.route(backend(STABLE, 100))
    child = fresh.agent_child()
    os.kill(child, signal.SIGKILL)

    async def another() -> bool:
        return fresh.agent_child() not in (0, child)

    await eventually(another, bool, "another agent runs")
    after = await fresh.until(lambda state: state.ready, "adopted")
    assert after.sequence == before.sequence
    assert fresh.agent.returncode is None
    fresh.agent.terminate()
    assert fresh.supervisor is not None
    fresh.supervisor.terminate()
    assert await asyncio.wait_for(fresh.agent.wait(), 20) == 0


async def test_a_frozen_envoy_does_not_take_its_pod_out_of_the_service(
    proxy: Gateway, stable: Backend
) -> None:
    proxy.endpoints(**{STABLE: [stable]})
    await proxy.route(backend(STABLE, 100))
    pid = proxy.envoy_pid()
    os.kill(pid, signal.SIGSTOP)
    try:

        async def slow() -> bool:
            return "envoy is slow" in proxy.log("agent")

        await eventually(slow, bool, "the agent noticed")
        assert await proxy.status_of("/readyz") == 200
    finally:
        os.kill(pid, signal.SIGCONT)
    assert await proxy.answer() == (200, STABLE)


async def test_no_request_fails_while_routes_weights_endpoints_and_agents_change(
    proxy: Gateway, stable: Backend, canary: Backend
) -> None:
    async with running("second") as second:
        proxy.endpoints(**{STABLE: [stable]})
        await proxy.route(backend(STABLE, 100))
        done = False
        answers: list[tuple[int, str]] = []

        async def load() -> None:
            while not done:
                answers.append(await proxy.answer())

        async with asyncio.TaskGroup() as tasks:
            for _ in range(3):
                tasks.create_task(load())
            try:
                proxy.endpoints(**{STABLE: [stable, second], CANARY: [canary]})
                for weight in (0, 50, 100):
                    await proxy.route(backend(STABLE, 100 - weight), backend(CANARY, weight))
                assert proxy.agent is not None
                proxy.agent.kill()
                await proxy.agent.wait()
                await proxy.start_agent()
                # Promotion: the canary becomes stable, the old one is kept, then goes.
                await proxy.route(backend(CANARY, 100), backend(STABLE, 0))
                proxy.endpoints(**{CANARY: [canary, second]})
                await proxy.route(backend(CANARY, 100))
                await proxy.until(lambda state: cluster(state, CANARY).endpoints == 2, "both")
            finally:
                done = True
    assert {status for status, _ in answers} == {200}
    assert {revision for _, revision in answers} == {STABLE, CANARY}


@pytest.mark.parametrize(
    "route, reason",
    [
        ("{", "Invalid JSON"),
        (
            '{"schemaVersion": 9, "ownerUid": "uid", "sequence": 9, "model": "m"}',
            "schemaVersion",
        ),
        (
            '{"ownerUid": "uid", "sequence": 9, "model": "m", "backends":'
            ' [{"hash": "aaaaaaaaaa", "service": "aaaaaaaaaa", "weight": 99}]}',
            "weights sum to 99",
        ),
        ('{"ownerUid": "uid", "sequence": 0, "model": "m"}', "sequence 0 is older"),
    ],
    ids=["not JSON", "unknown schema version", "weights", "older sequence"],
)
async def test_a_refused_route_leaves_the_last_good_one(
    proxy: Gateway, stable: Backend, route: str, reason: str
) -> None:
    proxy.endpoints(**{STABLE: [stable]})
    before = await proxy.route(backend(STABLE, 100))
    proxy.write("route.json", route)
    after = await proxy.until(lambda state: state.error != "", "an error is reported")
    assert reason in after.error
    assert (after.ready, after.sequence) == (True, before.sequence)
    assert await proxy.answer() == (200, STABLE)
    mended = await proxy.route(backend(STABLE, 100))
    assert mended.error == ""


async def test_an_endpoint_that_is_a_host_name_is_refused(proxy: Gateway, stable: Backend) -> None:
    proxy.endpoints(**{STABLE: [stable]})
    await proxy.route(backend(STABLE, 100))
    proxy.write("endpoints.json", {STABLE: [{"address": "localhost", "port": 1, "healthPort": 1}]})
    state = await proxy.until(lambda state: state.error != "", "an error is reported")
    assert "'localhost' is not an IP address" in state.error
    assert await proxy.answer() == (200, STABLE)


async def test_what_envoy_rejects_is_undone_and_said(proxy: Gateway, stable: Backend) -> None:
    proxy.endpoints(**{STABLE: [stable]})
    before = await proxy.route(backend(STABLE, 100))
    files = {path.name: path.read_text() for path in proxy.xds.iterdir()}
    # Passes our own checks; Envoy's durations end at 315,576,000,000 seconds.
    proxy.ask(backend(STABLE, 100), timeouts={"idle_seconds": 10**13})
    state = await proxy.until(lambda state: state.error != "", "an error is reported")
    assert "routes differ" in state.error
    assert "update_failure +1" in state.error
    assert state.sequence == before.sequence
    assert {path.name: path.read_text() for path in proxy.xds.iterdir()} == files
    assert await proxy.answer() == (200, STABLE)


async def test_a_stopping_gateway_lets_its_streams_end(fresh: Gateway, stable: Backend) -> None:
    fresh.endpoints(**{STABLE: [stable]})
    await fresh.route(backend(STABLE, 100))
    stable.hold()
    assert fresh.supervisor is not None
    assert fresh.agent is not None
    async with fresh.post(stream=True) as answer:
        await answer.content.readline()
        fresh.supervisor.terminate()
        fresh.agent.terminate()
        await eventually(
            lambda: fresh.status_of("/readyz"), lambda seen: seen == 503, "not ready any more"
        )
        # The operator can still ask, and Envoy waits for the stream.
        await fresh.until(lambda state: cluster(state, STABLE).active == 1, "still open")
        assert fresh.supervisor.returncode is None
        stable.release()
        assert (await answer.read()).endswith(b"data: [DONE]\n\n")
    assert await asyncio.wait_for(fresh.supervisor.wait(), 10) == 0
    assert await asyncio.wait_for(fresh.agent.wait(), 10) == 0


async def test_a_drain_ends_with_the_grace(fresh: Gateway, stable: Backend) -> None:
    fresh.endpoints(**{STABLE: [stable]})
    await fresh.route(backend(STABLE, 100), drain_seconds=7200)
    stable.hold()
    async with fresh.post(stream=True) as answer:
        await answer.content.readline()
        assert fresh.supervisor is not None
        fresh.supervisor.terminate()
        with pytest.raises(aiohttp.ClientPayloadError):
            await answer.read()
    assert await asyncio.wait_for(fresh.supervisor.wait(), 10) == 0
