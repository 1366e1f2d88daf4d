"""Pods are released and come back on a real API server, also with a crash after every write."""

import itertools
from collections.abc import AsyncIterator

import pytest
from tests.cluster.envtest import Server
from tests.reconcile.simulation import Simulation
from tests.reconcile.test_rollout_on_server import (
    ANOTHER_K,
    CrashingClient,
    Run,
    is_complete,
    never,
)

from speculative_operator.cluster.client import Client
from speculative_operator.cluster.resources import AUTOSCALER, DEPLOYMENT, JSON

pytestmark = pytest.mark.cluster

_numbers = itertools.count()
SCALING = {
    "minReplicas": 2,
    "maxReplicas": 8,
    "metrics": [{"name": "RequestsWaiting", "targetPerPod": 4}],
    "idle": {"afterSeconds": 30, "holdSeconds": 60},
}


@pytest.fixture
async def outside(api_server: Server) -> AsyncIterator[Client]:
    async with Client(api_server.access) as client:
        yield client


def reason(status: JSON) -> str:
    return next((c["reason"] for c in status.get("conditions", ()) if c["type"] == "Idle"), "")


async def pods_asked_for(simulation: Simulation) -> dict[str, int]:
    """By revision; the gateway's Deployment left out."""
    found = await simulation.mine(DEPLOYMENT)
    return {
        thing["metadata"]["name"].removeprefix(simulation.name): thing["spec"]["replicas"]
        for thing in found
        if not thing["metadata"]["name"].endswith("-gateway")
    }


async def a_quiet_time(run: Run) -> list[JSON]:
    """Available, asked, quiet, released, asked again, back; pictures of the last two."""
    simulation = run.simulation
    await simulation.create(
        replicas=2, autoscaling=SCALING, lanes={"native": {"replicas": 1}}, rollout={}
    )
    await run.until(is_complete)
    await run.until(lambda status: reason(status) == "Awake")
    assert sorted((await pods_asked_for(simulation)).values()) == [1, 2]
    simulation.asks = False
    status = await run.until(lambda status: reason(status) == "Idle")
    await run.passes()
    assert set((await pods_asked_for(simulation)).values()) == {0}
    assert await simulation.mine(AUTOSCALER) == []
    assert (await simulation.parent())["spec"]["replicas"] == 2
    for _ in range(3):
        # Nobody asks, so nothing more happens.
        await simulation.step()
    assert status["idle"] == (await simulation.status())["idle"]
    asleep = await simulation.picture()
    simulation.asks = True
    await simulation.step()
    status = await run.until(lambda status: reason(status) == "Awake")
    assert status["loadSeconds"] > 0
    await run.passes()
    assert sorted((await pods_asked_for(simulation)).values()) == [1, 2]
    assert len(await simulation.mine(AUTOSCALER)) == 1
    return [asleep, await simulation.picture()]


async def test_pods_go_and_come_back_whenever_the_operator_dies(
    api_server: Server, outside: Client
) -> None:
    async with CrashingClient(api_server.access, before=never, after=never) as client:
        expected = await a_quiet_time(Run(Simulation(outside, f"idle{next(_numbers)}"), client))
    async with CrashingClient(api_server.access, before=never, after=lambda _: True) as client:
        run = Run(Simulation(outside, f"idle{next(_numbers)}"), client)
        assert await a_quiet_time(run) == expected
        assert run.crashes > 10


async def test_a_new_revision_wakes_and_is_tried_beside_stable(
    api_server: Server, outside: Client
) -> None:
    async with CrashingClient(api_server.access, before=never, after=never) as client:
        run = Run(Simulation(outside, f"idle{next(_numbers)}"), client)
        simulation = run.simulation
        await simulation.create(replicas=2, autoscaling=SCALING)
        first = (await run.until(is_complete))["stable"]["hash"]
        simulation.asks = False
        await run.until(lambda status: reason(status) == "Idle")
        await simulation.change(ANOTHER_K)
        status = await run.until(lambda status: "canary" in status)
        # It is tried, not put in the place of pods that happened to be away.
        assert status["stable"]["hash"] == first
        assert simulation.revisions
        assert set(simulation.revisions.values()) == {first}
        simulation.asks = True
        status = await run.until(is_complete)
        assert status["stable"]["hash"] != first
