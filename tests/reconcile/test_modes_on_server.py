"""Modes of the gateway against a real API server: which objects stand, and who gets requests."""

from collections.abc import AsyncIterator

import pytest
from tests.cluster.envtest import Server
from tests.reconcile.simulation import JSON, Simulation
from tests.reconcile.test_rollout_on_server import (
    ANOTHER_K,
    CrashingClient,
    Run,
    condition,
    is_complete,
    never,
    words_hash,
)

from speculative_api.labels import REVISION
from speculative_operator.cluster.client import Client
from speculative_operator.cluster.resources import CHILDREN, SERVICE

pytestmark = pytest.mark.cluster

PAUSES = {
    "steps": [{"pause": {"durationSeconds": 20}}],
    "guard": {"durationSeconds": 10},
}
GATEWAY_KINDS = {"ServiceAccount", "RoleBinding", "ConfigMap"}


@pytest.fixture
async def outside(api_server: Server) -> AsyncIterator[Client]:
    async with Client(api_server.access) as client:
        yield client


@pytest.fixture
async def operator(api_server: Server) -> AsyncIterator[CrashingClient]:
    async with CrashingClient(api_server.access, before=never, after=never) as client:
        yield client


async def kinds(simulation: Simulation) -> set[str]:
    return {resource.kind for resource in CHILDREN if await simulation.mine(resource)}


async def selected(simulation: Simulation) -> JSON:
    """Whose pods the users' Service leads to."""
    found = await simulation.client.get(SERVICE, "default", f"{simulation.name}-gateway")
    selector: JSON = found["spec"]["selector"]
    return selector


async def test_without_a_gateway_the_service_leads_to_stable_through_a_rollout(
    outside: Client, operator: CrashingClient
) -> None:
    run = Run(Simulation(outside, "direct"), operator)
    simulation = run.simulation
    first = words_hash(await simulation.create(gateway={"mode": "None"}, rollout=PAUSES))
    status = await run.until(is_complete)
    assert condition(status, "GatewayReady")["reason"] == "NoGateway"
    assert not await kinds(simulation) & GATEWAY_KINDS
    await simulation.change(ANOTHER_K)
    second = words_hash(await simulation.parent())
    await run.until(lambda s: s.get("canary", {}).get("step") == 0)
    assert (await selected(simulation))[REVISION] == first
    await run.until(lambda s: s["stable"]["hash"] == second)
    assert (await selected(simulation))[REVISION] == second
    assert simulation.pods_seen.keys() == {first, second}
    await run.until(is_complete)
    await run.passes()
    writes = operator.writes
    await run.passes()
    assert operator.writes == writes


async def test_the_gateway_goes_and_comes_back_with_the_mode(
    outside: Client, operator: CrashingClient
) -> None:
    run = Run(Simulation(outside, "switching"), operator)
    simulation = run.simulation
    first = words_hash(await simulation.create())
    await run.until(is_complete)
    assert await kinds(simulation) > GATEWAY_KINDS
    before = await outside.get(SERVICE, "default", f"{simulation.name}-gateway")
    pauses = {"steps": PAUSES["steps"], "guard": {"holdbackWeight": 5}}
    await simulation.change({"spec": {"gateway": {"mode": "None"}, "rollout": pauses}})
    await run.passes()
    assert not await kinds(simulation) & GATEWAY_KINDS
    assert (await selected(simulation))[REVISION] == first
    await simulation.change({"spec": {"gateway": {"mode": "Envoy"}}})
    await run.until(lambda s: condition(s, "GatewayReady")["status"] == "True")
    assert REVISION not in await selected(simulation)
    after = await outside.get(SERVICE, "default", f"{simulation.name}-gateway")
    assert after["spec"]["clusterIP"] == before["spec"]["clusterIP"]
    assert simulation.weights_seen[-1] == ((first, 100),)


async def test_the_service_follows_the_spec_and_gives_back_what_is_no_longer_said(
    outside: Client, operator: CrashingClient
) -> None:
    run = Run(Simulation(outside, "shown"), operator)
    simulation = run.simulation
    told = {
        "type": "LoadBalancer",
        "annotations": {"example.com/internal": "true", "example.com/team": "search"},
        "loadBalancerSourceRanges": ["10.0.0.0/8", "192.0.2.0/24"],
    }

    async def live() -> JSON:
        await run.passes()
        return await outside.get(SERVICE, "default", f"{simulation.name}-gateway")

    def shown(service: JSON) -> set[str]:
        return {key for key in service["metadata"]["annotations"] if "example.com" in key}

    await simulation.create(gateway={"service": told})
    found = await live()
    assert found["spec"]["type"] == "LoadBalancer"
    assert found["spec"]["loadBalancerSourceRanges"] == told["loadBalancerSourceRanges"]
    assert shown(found) == set(told["annotations"])
    address = found["spec"]["clusterIP"]
    less = {"annotations": {"example.com/team": None}, "loadBalancerSourceRanges": None}
    await simulation.change({"spec": {"gateway": {"service": less}}})
    found = await live()
    assert "loadBalancerSourceRanges" not in found["spec"]
    assert shown(found) == {"example.com/internal"}
    await simulation.change({"spec": {"gateway": {"service": None}}})
    found = await live()
    assert (found["spec"]["type"], found["spec"]["clusterIP"]) == ("ClusterIP", address)
    assert shown(found) == set()
    assert "nodePort" not in found["spec"]["ports"][0]
