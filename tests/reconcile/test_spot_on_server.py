"""A revision divided over spot nodes goes through a rollout as one, on a real API server."""

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
from speculative_operator.cluster.resources import DEPLOYMENT

pytestmark = pytest.mark.cluster

_numbers = itertools.count()
SPOT = {"nodeLabel": {"key": "capacity", "value": "spot"}, "percent": 50, "minReserved": 1}


@pytest.fixture
async def outside(api_server: Server) -> AsyncIterator[Client]:
    async with Client(api_server.access) as client:
        yield client


async def asked_for(simulation: Simulation) -> dict[str, int]:
    return {
        thing["metadata"]["name"].removeprefix(f"{simulation.name}-"): thing["spec"]["replicas"]
        for thing in await simulation.mine(DEPLOYMENT)
        if not thing["metadata"]["name"].endswith("-gateway")
    }


async def test_both_parts_come_and_go_with_their_revision(
    api_server: Server, outside: Client
) -> None:
    async with CrashingClient(api_server.access, before=never, after=never) as client:
        run = Run(Simulation(outside, f"spot{next(_numbers)}"), client)
        simulation = run.simulation
        await simulation.create(replicas=3, pod={"spot": SPOT})
        first = (await run.until(is_complete))["stable"]["hash"]
        assert await asked_for(simulation) == {first: 2, f"{first}-spot": 1}
        await simulation.change(ANOTHER_K)
        status = await run.until(lambda s: is_complete(s) and s["stable"]["hash"] != first)
        second = status["stable"]["hash"]
        assert await asked_for(simulation) == {second: 2, f"{second}-spot": 1}
        assert status["stable"]["readyReplicas"] == 3
        # No pod of either part was replaced, at the promotion least of all.
        assert len(simulation.pods_seen[first]) == 3
        assert len(simulation.pods_seen[second]) == 3
        writes = client.writes
        await run.passes()
        assert client.writes == writes
