"""`gateway.mode: GatewayAPI` against a real API server, with and without the real CRDs."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field

import pytest
from tests.cluster.envtest import Server
from tests.cluster.foreign_kinds import Kind, pool_kind
from tests.cluster.waiting import until
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

from speculative_api.gateway import Backend, Route
from speculative_operator.cluster.client import Client
from speculative_operator.cluster.reflector import Pace, Reflector
from speculative_operator.cluster.resources import (
    CONFIG_MAP,
    HTTP_ROUTE,
    INFERENCE_POOL,
    SERVICE,
    Resource,
)
from speculative_operator.errors import NotFound

pytestmark = pytest.mark.cluster

GATEWAY = {"mode": "GatewayAPI", "parentRef": {"name": "edge", "namespace": "infra"}}
POOLS = GATEWAY | {
    "backend": "InferencePool",
    "endpointPickerRef": {"name": "picker-{revision}", "port": 9003},
}
PATIENCE_SECONDS = 30.0


@pytest.fixture
def kind(api_server: Server) -> Iterator[Kind]:
    """HTTPRoute is not there at first and is gone again afterwards."""
    found = Kind(api_server)
    found.remove()
    yield found
    found.remove()


@pytest.fixture
def pools(api_server: Server) -> Iterator[Kind]:
    """InferencePool, likewise."""
    found = pool_kind(api_server)
    found.remove()
    yield found
    found.remove()


@pytest.fixture
async def outside(api_server: Server) -> AsyncIterator[Client]:
    async with Client(api_server.access) as client:
        yield client


@pytest.fixture
async def operator(api_server: Server) -> AsyncIterator[CrashingClient]:
    async with CrashingClient(api_server.access, before=never, after=never) as client:
        yield client


@dataclass
class AtAGateway(Simulation):
    """The world with a Gateway of somebody else, whose controller answers unless told not to."""

    answers: bool = True
    pickerless: set[str] = field(default_factory=set)
    """Revisions whose endpoint picker does not exist."""

    async def http_route(self) -> JSON:
        return await self.client.get(HTTP_ROUTE, self.namespace, f"{self.name}-gateway")

    async def _gateways_follow(self) -> None:
        try:
            found = await self.http_route()
        except NotFound:
            return
        backends = [
            Backend(
                hash=each["name"].removeprefix(f"{self.name}-"),
                service=each["name"],
                weight=each["weight"],
            )
            for each in found["spec"]["rules"][-1]["backendRefs"]
        ]
        self.route = Route(owner_uid="", sequence=0, model="m", backends=tuple(backends))
        weights = tuple((b.hash, b.weight) for b in backends)
        if not self.weights_seen or self.weights_seen[-1] != weights:
            self.weights_seen.append(weights)
        if self.answers:
            await self._answer(HTTP_ROUTE, found, found, "")
            for each in found["spec"]["rules"][-1]["backendRefs"]:
                if each["kind"] == "InferencePool":
                    await self._answer_of_pool(found, each["name"])

    async def _answer_of_pool(self, route: JSON, name: str) -> None:
        """As those do that implement the extension: of pools that a route names, and only them."""
        pool = await self.client.get(INFERENCE_POOL, self.namespace, name)
        picker = pool["spec"]["endpointPickerRef"]
        lacks = name.removeprefix(f"{self.name}-") in self.pickerless
        await self._answer(INFERENCE_POOL, pool, route, picker["name"] if lacks else "")

    async def _answer(self, resource: Resource, thing: JSON, route: JSON, unresolved: str) -> None:
        now = self.now.strftime("%Y-%m-%dT%H:%M:%SZ")
        conditions = [
            {
                "type": kind,
                "status": "False" if wrong else "True",
                "reason": "InvalidExtensionRef" if wrong else kind,
                "message": f"Service {unresolved} not found" if wrong else "",
                "observedGeneration": thing["metadata"]["generation"],
                "lastTransitionTime": now,
            }
            for kind, wrong in (("Accepted", False), ("ResolvedRefs", bool(unresolved)))
        ]
        parent = {
            "parentRef": route["spec"]["parentRefs"][0],
            "controllerName": "example.com/gateway",
            "conditions": conditions,
        }
        patch = {"status": {"parents": [parent]}}
        await self._patch(resource, thing["metadata"]["name"], patch, "status")


async def test_a_rollout_at_somebody_elses_gateway(
    outside: Client, operator: CrashingClient, kind: Kind
) -> None:
    kind.install()
    simulation = AtAGateway(outside, "routed")
    run = Run(simulation, operator)
    first = words_hash(await simulation.create(gateway=GATEWAY))
    status = await run.until(
        lambda s: is_complete(s) and condition(s, "GatewayReady")["status"] == "True"
    )
    ready = condition(status, "GatewayReady")
    assert ready["reason"] == "RouteAccepted"
    assert "can't be read back" in ready["message"]
    with pytest.raises(NotFound):
        await outside.get(SERVICE, "default", f"{simulation.name}-gateway")
    await simulation.change(ANOTHER_K)
    second = words_hash(await simulation.parent())
    status = await run.until(lambda s: s.get("canary", {}).get("weight"))
    decided = simulation.now
    status = await run.until(lambda s: s["canary"].get("weightObservedAt"))
    assert (simulation.now - decided).total_seconds() >= 30
    assert status["canary"]["observedWeight"] == 50
    status = await run.until(lambda s: is_complete(s) and s["stable"]["hash"] == second)
    await simulation.step()
    assert simulation.weights_seen[:3] == [
        ((first, 100),),
        ((first, 100), (second, 0)),
        ((first, 50), (second, 50)),
    ]
    assert simulation.weights_seen[-1] == ((second, 100),)
    assert all(sum(w for _, w in seen) == 100 for seen in simulation.weights_seen)
    await run.passes()
    writes = operator.writes
    await run.passes()
    assert operator.writes == writes, "a quiet pass writes"
    await simulation.change({"spec": {"gateway": {"mode": "Envoy", "parentRef": None}}})
    await run.passes()
    with pytest.raises(NotFound):
        await simulation.http_route()
    await outside.get(CONFIG_MAP, "default", f"{simulation.name}-route")


async def test_a_gateway_that_does_not_accept_lets_no_weight_count(
    outside: Client, operator: CrashingClient, kind: Kind
) -> None:
    kind.install()
    simulation = AtAGateway(outside, "unaccepted", answers=False)
    run = Run(simulation, operator)
    await simulation.create(gateway=GATEWAY)
    status = await run.until(is_complete)
    ready = condition(status, "GatewayReady")
    assert (ready["status"], ready["reason"]) == ("False", "RouteNotAccepted")
    assert "Gateway infra/edge" in ready["message"]
    await simulation.change(ANOTHER_K)
    await run.until(lambda s: s.get("canary", {}).get("weight"))
    for _ in range(8):
        await simulation.step()
        await run.passes()
    status = await simulation.status()
    assert "weightObservedAt" not in status["canary"]


async def test_without_the_kind_the_condition_says_so_and_pods_start_all_the_same(
    outside: Client, operator: CrashingClient, kind: Kind
) -> None:
    run = Run(AtAGateway(outside, "kindless"), operator)
    simulation = run.simulation
    await simulation.create(gateway=GATEWAY)
    status = await run.until(lambda s: condition(s, "Available")["status"] == "True")
    accepted = condition(status, "Accepted")
    assert (accepted["status"], accepted["reason"]) == ("False", "KindMissing")
    assert "install the Gateway API's CRDs" in accepted["message"]
    kind.install()
    status = await run.until(lambda s: condition(s, "Accepted")["status"] == "True")
    await run.until(lambda s: condition(s, "GatewayReady")["status"] == "True")


async def pool_names(client: Client, name: str) -> set[str]:
    selector = f"speculative.dev/name={name}"
    found, _ = await client.list_all(INFERENCE_POOL, "default", selector=selector)
    return {thing["metadata"]["name"] for thing in found}


async def test_a_rollout_through_pools_waits_for_the_canarys_picker(
    outside: Client, operator: CrashingClient, kind: Kind, pools: Kind
) -> None:
    kind.install()
    pools.install()
    simulation = AtAGateway(outside, "pooled")
    run = Run(simulation, operator)
    name, first = simulation.name, words_hash(await simulation.create(gateway=POOLS))
    await run.until(lambda s: is_complete(s) and condition(s, "GatewayReady")["status"] == "True")
    pool = await outside.get(INFERENCE_POOL, "default", f"{name}-{first}")
    assert pool["spec"]["endpointPickerRef"]["name"] == f"picker-{first}"
    assert pool["spec"]["endpointPickerRef"]["port"] == {"number": 9003}
    assert pool["spec"]["selector"]["matchLabels"]["speculative.dev/revision"] == first
    await simulation.change(ANOTHER_K)
    second = words_hash(await simulation.parent())
    simulation.pickerless.add(second)
    status = await run.until(lambda s: condition(s, "Progressing")["reason"] == "PoolNotAccepted")
    assert f"Service picker-{second} not found" in condition(status, "Progressing")["message"]
    assert status["canary"].get("weight", 0) == 0
    assert simulation.weights_seen[-1] == ((first, 100), (second, 0))
    assert await pool_names(outside, name) == {f"{name}-{first}", f"{name}-{second}"}
    simulation.pickerless.clear()
    await run.until(lambda s: is_complete(s) and s["stable"]["hash"] == second)
    for _ in range(5):
        await simulation.step()
        await run.passes()
    assert simulation.weights_seen[-1] == ((second, 100),)
    assert await pool_names(outside, name) == {f"{name}-{second}"}
    writes = operator.writes
    await run.passes()
    assert operator.writes == writes, "a quiet pass writes"
    back = {"spec": {"gateway": {"backend": "Service", "endpointPickerRef": None}}}
    await simulation.change(back)
    await run.passes()
    (backend,) = (await simulation.http_route())["spec"]["rules"][-1]["backendRefs"]
    assert (backend["kind"], backend["name"]) == ("Service", f"{name}-{second}")
    assert await pool_names(outside, name) == set()


async def test_without_pools_in_the_cluster_the_route_stays_as_it_is(
    outside: Client, operator: CrashingClient, kind: Kind, pools: Kind
) -> None:
    kind.install()
    run = Run(AtAGateway(outside, "poolless"), operator)
    simulation = run.simulation
    await simulation.create(gateway=GATEWAY)
    await run.until(lambda s: is_complete(s) and condition(s, "GatewayReady")["status"] == "True")
    before = (await simulation.http_route())["spec"]
    await simulation.change({"spec": {"gateway": POOLS}})
    status = await run.until(lambda s: condition(s, "Accepted")["status"] == "False")
    assert condition(status, "Accepted")["reason"] == "KindMissing"
    assert "Inference Extension's CRDs" in condition(status, "Accepted")["message"]
    assert (await simulation.http_route())["spec"] == before
    pools.install()
    await run.until(lambda s: condition(s, "Accepted")["status"] == "True")
    await run.until(lambda s: condition(s, "GatewayReady")["status"] == "True")
    (backend,) = (await simulation.http_route())["spec"]["rules"][-1]["backendRefs"]
    assert backend["kind"] == "InferencePool"


async def test_a_watch_goes_without_a_kind_and_takes_it_up_when_it_comes(
    outside: Client, kind: Kind
) -> None:
    reflector = Reflector(
        outside, HTTP_ROUTE, wake=lambda *_: None, pace=Pace(longest_backoff=0.05)
    )
    task = asyncio.create_task(reflector.run())
    try:
        await asyncio.wait_for(reflector.synced.wait(), PATIENCE_SECONDS)
        assert reflector.store.missing
        kind.install()
        await until(lambda: not reflector.store.missing)
    finally:
        task.cancel()
