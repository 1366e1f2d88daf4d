"""Two resources at one gateway against a real API server, with the operator's watches and queue."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pytest
from tests.builders import a_raw_spec
from tests.cluster.envtest import Server

from speculative_api import labels
from speculative_operator.cluster.client import MERGE_PATCH, Client
from speculative_operator.cluster.resources import (
    CHILDREN,
    CONFIG_MAP,
    DEPLOYMENT,
    JSON,
    SERVICE,
    SPECULATIVE_DEPLOYMENT,
    Resource,
)
from speculative_operator.errors import NotFound
from speculative_operator.metrics.source import Target
from speculative_operator.operation import Operation
from speculative_operator.settings import Settings
from speculative_operator.telemetry import Telemetry

pytestmark = pytest.mark.cluster

PATIENCE_SECONDS = 60.0
_numbers = itertools.count()


class Silence:
    """A Source of pods that never say anything: here are none."""

    async def ask(self, targets: Iterable[Target]) -> None:
        del targets

    def digest(self, uid: str) -> None:
        del uid

    def state(self, uid: str) -> None:
        del uid

    def silent_seconds(self, uid: str) -> float:
        del uid
        return 0.0


@dataclass
class World:
    """A namespace of its own, and questions to the API server."""

    client: Client
    namespace: str

    async def create(self, name: str, **gateway: Any) -> str:
        """A resource at gateway `edge`; gives its UID."""
        body = {
            "apiVersion": SPECULATIVE_DEPLOYMENT.api_version,
            "kind": SPECULATIVE_DEPLOYMENT.kind,
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": a_raw_spec(gateway={"mode": "Shared", "shared": {"name": "edge"}, **gateway}),
        }
        made = await self.client.create(SPECULATIVE_DEPLOYMENT, body)
        uid: str = made["metadata"]["uid"]
        return uid

    async def change(self, name: str, **gateway: Any) -> None:
        path = SPECULATIVE_DEPLOYMENT.path(self.namespace, name)
        body = {"spec": {"gateway": gateway}}
        await self.client.request(
            "edit", SPECULATIVE_DEPLOYMENT, "PATCH", path, body=body, content_type=MERGE_PATCH
        )

    async def delete(self, name: str) -> None:
        path = SPECULATIVE_DEPLOYMENT.path(self.namespace, name)
        await self.client.request("end", SPECULATIVE_DEPLOYMENT, "DELETE", path)

    async def get(self, resource: Resource, name: str) -> JSON:
        try:
            return await self.client.get(resource, self.namespace, name)
        except NotFound:
            return {}

    async def shared(self) -> JSON:
        """What agents are told."""
        found = (await self.get(CONFIG_MAP, "edge-gateway")).get("data", {})
        told: JSON = json.loads(found.get("shared.json", "{}"))
        return told

    async def members(self) -> list[str]:
        return [each["name"] for each in (await self.shared()).get("members", ())]

    async def condition(self, name: str, kind: str) -> JSON:
        status = (await self.get(SPECULATIVE_DEPLOYMENT, name)).get("status", {})
        found = (c for c in status.get("conditions", ()) if c["type"] == kind)
        return next(found, {"status": "", "reason": "", "message": ""})

    async def of_the_gateway(self) -> set[str]:
        """`Kind/name` of everything that belongs to it and to no member alone."""
        selector = f"{labels.SHARED_GATEWAY}=edge,!{labels.NAME}"
        return {
            f"{resource.kind}/{thing['metadata']['name']}"
            for resource in CHILDREN
            if not resource.optional
            for thing in (await self.client.list_all(resource, self.namespace, selector=selector))[
                0
            ]
        }


async def until(look: Callable[[], Awaitable[Any]], wanted: Any) -> Any:
    loop = asyncio.get_running_loop()
    limit = loop.time() + PATIENCE_SECONDS
    while (seen := await look()) != wanted and not (callable(wanted) and wanted(seen)):
        assert loop.time() < limit, f"last seen {seen!r}"
        await asyncio.sleep(0.05)
    return seen


@pytest.fixture
async def world(api_server: Server) -> AsyncIterator[World]:
    """With an operator that watches this namespace."""
    namespace = f"shared-{next(_numbers)}"
    made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    api_server.raw("POST", "/api/v1/namespaces", json.dumps(made).encode())
    async with Client(api_server.access) as client:
        settings = Settings(watch_namespace=namespace)
        operation = Operation(client, Silence(), settings, Telemetry())
        await operation.start()
        operation.begin()
        try:
            yield World(client, namespace)
        finally:
            # A request that is cut off while it connects would leave its socket behind.
            await until(lambda: _is_at_work(operation), False)
            await operation.stop()


async def _is_at_work(operation: Operation) -> bool:
    queue = operation._queue
    return operation.not_ready() != "" or queue is None or bool(queue._running)


ALL = {
    f"{kind}/edge-gateway"
    for kind in ("ConfigMap", "ServiceAccount", "RoleBinding", "Service", "Deployment")
}


async def test_two_resources_have_one_gateway_until_the_last_is_gone(world: World) -> None:
    uids = {name: await world.create(name) for name in ("chat", "code")}
    await until(world.members, ["chat", "code"])
    await until(world.of_the_gateway, ALL)
    before = await until(
        lambda: world.get(DEPLOYMENT, "edge-gateway"),
        lambda d: len(d["metadata"]["ownerReferences"]) == 2,
    )
    owners = before["metadata"]["ownerReferences"]
    assert {each["uid"] for each in owners} == set(uids.values())
    assert not any(each.get("controller") for each in owners)
    for name, uid in uids.items():
        route = await until(lambda n=name: world.get(CONFIG_MAP, f"{n}-member"), bool)
        assert route["metadata"]["labels"][labels.SHARED_GATEWAY] == "edge"
        assert json.loads(route["data"]["route.json"])["ownerUid"] == uid
        # no gateway, address or route of its own
        assert not await world.get(SERVICE, f"{name}-gateway")
        assert not await world.get(DEPLOYMENT, f"{name}-gateway")
        assert not await world.get(CONFIG_MAP, f"{name}-route")
    ready = await until(
        lambda: world.condition("chat", "GatewayReady"),
        # With whom is a matter of words, which are written once a minute.
        lambda c: "Gateway edge, shared with" in c["message"],
    )
    assert "0 of 1 gateway pods" in ready["message"]
    # one is deleted: the gateway is the other's
    await world.delete("code")
    await until(world.members, ["chat"])
    after = await until(
        lambda: world.get(DEPLOYMENT, "edge-gateway"),
        lambda d: len(d["metadata"]["ownerReferences"]) == 1,
    )
    assert after["metadata"]["ownerReferences"][0]["uid"] == uids["chat"]
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["spec"] == before["spec"]
    # the last one leaves by an edit, which no garbage collector notices
    await world.change("chat", mode="Envoy", shared=None)
    await until(world.of_the_gateway, set())
    await until(lambda: world.get(DEPLOYMENT, "chat-gateway"), bool)
    await until(lambda: world.get(CONFIG_MAP, "chat-member"), {})


async def test_a_setting_counts_once_all_members_say_it(world: World) -> None:
    await world.create("chat")
    await until(world.members, ["chat"])
    await world.create("code")
    await until(world.members, ["chat", "code"])
    await world.change("code", replicas=2)
    told = await until(
        lambda: world.condition("code", "Accepted"),
        lambda c: c["reason"] == "SharedSettingsDiffer",
    )
    assert told["status"] == "False"
    assert "gateway.replicas is 2 here and not set there" in told["message"]
    assert "(with chat)" in told["message"]
    assert (await world.condition("chat", "Accepted"))["status"] == "True"
    await world.change("chat", replicas=2)
    await until(lambda: world.condition("code", "Accepted"), lambda c: c["status"] == "True")
    await until(lambda: world.get(DEPLOYMENT, "edge-gateway"), lambda d: d["spec"]["replicas"] == 2)
    await until(world.of_the_gateway, ALL | {"PodDisruptionBudget/edge-gateway"})
    # a member whose spec is refused has no say and loses nothing
    await world.change("code", allowedCidrs=["10.0.0.1/8"])
    await until(
        lambda: world.condition("code", "Accepted"), lambda c: "allowedCidrs" in c["message"]
    )
    assert (await world.members(), (await world.shared())["allowedCidrs"]) == (["chat", "code"], [])
    await world.change("code", allowedCidrs=None)
    # a third that says otherwise does not come in
    await world.create("late")
    ready = await until(
        lambda: world.condition("late", "GatewayReady"),
        lambda c: c["reason"] == "SharedSettingsDiffer",
    )
    assert "No request is sent here by gateway edge yet" in ready["message"]
    assert await world.members() == ["chat", "code"]


async def test_each_member_says_whom_it_lets_in(world: World) -> None:
    keys = {"auth": {"apiKeysSecret": "chat-keys"}, "rateLimit": {"requestsPerMinutePerKey": 10}}
    await world.create("chat", **keys)
    await world.create("code", **keys)
    await until(world.members, ["chat", "code"])
    # what both say alike is the gateway's, as agents of every version read it
    assert ((await world.shared())["schemaVersion"], await mounted(world)) == (
        1,
        {"keys": "chat-keys"},
    )
    before = await world.get(DEPLOYMENT, "edge-gateway")
    # a third one with the same keys and no limit comes: no pod is replaced for it
    await world.create("free", auth=keys["auth"])
    await until(world.members, ["chat", "code", "free"])
    assert await said(world) == {"chat": "chat-keys", "code": "chat-keys", "free": "chat-keys"}
    after = await world.get(DEPLOYMENT, "edge-gateway")
    assert after["spec"] == before["spec"]
    # one of them changes its mind alone, without a word of the others
    await world.change("code", auth={"apiKeysSecret": "code-keys"})
    await until(lambda: said(world), lambda s: s.get("code") == "code-keys")
    await until(lambda: mounted(world), {"keys-0": "chat-keys", "keys-1": "code-keys"})
    await world.change("free", auth=None)
    await until(lambda: said(world), {"chat": "chat-keys", "code": "code-keys", "free": ""})
    for name in ("chat", "code", "free"):
        assert (await world.condition(name, "Accepted"))["status"] == "True"
    # whose spec is refused lets in whom it let in
    await world.change("code", auth=None, rateLimit=None, allowedCidrs=["10.0.0.1/8"])
    await until(
        lambda: world.condition("code", "Accepted"), lambda c: "allowedCidrs" in c["message"]
    )
    assert (await said(world))["code"] == "code-keys"
    # with its last user a Secret is no longer the gateway's
    await world.delete("code")
    await until(lambda: mounted(world), {"keys": "chat-keys"})
    assert await said(world) == {"chat": "chat-keys", "free": ""}


async def said(world: World) -> dict[str, str]:
    """The Secret of each member that has a word of its own."""
    members = (await world.shared()).get("members", ())
    own = {each["name"]: each.get("access", {}).get("auth") for each in members}
    return {name: auth["apiKeysSecret"] if auth else "" for name, auth in own.items()}


async def mounted(world: World) -> dict[str, str]:
    """Secrets of the gateway's pods, by volume."""
    deployment = await until(lambda: world.get(DEPLOYMENT, "edge-gateway"), bool)
    volumes = deployment["spec"]["template"]["spec"]["volumes"]
    return {each["name"]: each["secret"]["secretName"] for each in volumes if "secret" in each}


async def test_somebody_elses_object_with_the_gateways_name_is_left_alone(world: World) -> None:
    body = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "edge-gateway", "namespace": world.namespace},
        "spec": {"ports": [{"port": 80}]},
    }
    before = await world.client.create(SERVICE, body)
    await world.create("chat")
    ready = await until(
        lambda: world.condition("chat", "GatewayReady"), lambda c: c["reason"] == "NameConflict"
    )
    assert "Service/edge-gateway" in ready["message"]
    after = await world.get(SERVICE, "edge-gateway")
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    await world.delete("chat")
    await until(world.of_the_gateway, set())
    assert await world.get(SERVICE, "edge-gateway")
