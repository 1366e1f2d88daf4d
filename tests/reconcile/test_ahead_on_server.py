"""After a restart an edited resource is acted on before all the others are listed."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.builders import a_raw_spec
from tests.cluster.envtest import Server
from tests.reconcile.test_gather import Silence

from speculative_api import labels
from speculative_operator.cluster.client import MERGE_PATCH, Client
from speculative_operator.cluster.resources import (
    CHILDREN,
    DEPLOYMENT,
    JSON,
    SPECULATIVE_DEPLOYMENT,
    Resource,
)
from speculative_operator.errors import Unavailable
from speculative_operator.operation import Operation
from speculative_operator.settings import Settings
from speculative_operator.telemetry import Telemetry

pytestmark = pytest.mark.cluster

_numbers = itertools.count()


class Slow(Client):
    """Lists of everything take until `through`; answers about one resource do not."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.through = asyncio.Event()
        self.broken: Resource | None = None
        self.error: Exception = Unavailable("503")

    async def list_all(
        self, resource: Resource, namespace: str = "", *, selector: str = "", **settings: Any
    ) -> tuple[list[JSON], str]:
        if labels.NAME in selector and resource is self.broken:
            raise self.error
        if labels.NAME not in selector and resource is not SPECULATIVE_DEPLOYMENT:
            await self.through.wait()
        return await super().list_all(resource, namespace, selector=selector, **settings)


class World:
    """Resources of a namespace of their own, made by an operator that has ended since."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client, self.namespace = client, namespace

    async def get(self, name: str) -> JSON:
        return await self.client.get(SPECULATIVE_DEPLOYMENT, self.namespace, name)

    async def is_seen(self, name: str) -> bool:
        found = await self.get(name)
        seen = found.get("status", {}).get("observedGeneration")
        return bool(seen == found["metadata"]["generation"])

    async def edit(self, name: str, **spec: Any) -> None:
        path = SPECULATIVE_DEPLOYMENT.path(self.namespace, name)
        await self.client.request(
            "edit",
            SPECULATIVE_DEPLOYMENT,
            "PATCH",
            path,
            body={"spec": spec},
            content_type=MERGE_PATCH,
        )

    async def children(self) -> dict[str, str]:
        """Versions of everything made for the resources, by kind and name."""
        lists = [
            (each, (await self.client.list_all(each, self.namespace, selector=labels.NAME))[0])
            for each in CHILDREN
            if not each.optional
        ]
        return {
            f"{resource.kind}/{thing['metadata']['name']}": thing["metadata"]["resourceVersion"]
            for resource, things in lists
            for thing in things
        }


async def until(question: Callable[[], Awaitable[object]], seconds: float = 60.0) -> None:
    loop = asyncio.get_running_loop()
    limit = loop.time() + seconds
    while not await question():
        if loop.time() > limit:
            raise TimeoutError
        await asyncio.sleep(0.05)


@asynccontextmanager
async def working(client: Client, namespace: str) -> AsyncIterator[Operation]:
    settings = Settings(watch_namespace=namespace)
    operation = Operation(client, Silence(), settings, Telemetry())
    await operation.start()
    operation.begin()
    try:
        yield operation
    finally:
        await operation.stop()


@pytest.fixture
async def world(api_server: Server) -> AsyncIterator[World]:
    namespace = f"ahead-{next(_numbers)}"
    made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    api_server.raw("POST", "/api/v1/namespaces", json.dumps(made).encode())
    async with Client(api_server.access) as client:
        found = World(client, namespace)
        for name in ("edited", "kept"):
            body = {
                "apiVersion": SPECULATIVE_DEPLOYMENT.api_version,
                "kind": SPECULATIVE_DEPLOYMENT.kind,
                "metadata": {"name": name, "namespace": namespace},
                "spec": a_raw_spec(),
            }
            await client.create(SPECULATIVE_DEPLOYMENT, body)
        async with working(client, namespace):
            await until(lambda: is_made(found, "edited", "kept"))
        yield found


async def test_an_edited_resource_waits_for_no_list(api_server: Server, world: World) -> None:
    await world.edit("edited", replicas=3)
    before, kept = await world.children(), await world.get("kept")
    async with (
        Slow(api_server.access) as slow,
        working(slow, world.namespace) as operation,
    ):
        await until(lambda: world.is_seen("edited"))
        await until(lambda: scaled(world, 3))
        assert "Deployment" in operation.not_ready()
        # Of the other nothing is known yet, so nothing is done.
        assert await world.get("kept") == kept
        after = await world.children()
        assert after.keys() == before.keys()
        assert {n.split("-")[0] for n in before if before[n] != after[n]} <= {
            "Deployment/edited",
            "PodDisruptionBudget/edited",
            "ConfigMap/edited",
        }
        slow.through.set()
        await until(lambda: ready(operation))
        await world.edit("kept", replicas=2)
        await until(lambda: world.is_seen("kept"))
        assert (await world.children()).keys() == before.keys()


@pytest.mark.parametrize("error", [Unavailable("503"), KeyError("a bug")], ids=repr)
async def test_what_can_not_be_read_ahead_waits_for_the_lists(
    api_server: Server, world: World, error: Exception
) -> None:
    await world.edit("edited", replicas=3)
    before = await world.get("edited")
    async with Slow(api_server.access) as slow, working(slow, world.namespace) as operation:
        slow.broken, slow.error = DEPLOYMENT, error
        with pytest.raises(TimeoutError):
            await until(lambda: world.is_seen("edited"), 3.0)
        assert await world.get("edited") == before
        slow.through.set()
        await until(lambda: world.is_seen("edited"))
        assert operation.not_alive() == ""


async def is_made(world: World, *names: str) -> bool:
    """Whether nothing is missing of what the first pass makes: the gateway comes last."""
    there = await world.children()
    seen = [await world.is_seen(name) for name in names]
    return all(seen) and {f"Deployment/{name}-gateway" for name in names} <= there.keys()


async def scaled(world: World, replicas: int) -> bool:
    found, _ = await world.client.list_all(
        DEPLOYMENT, world.namespace, selector=f"{labels.NAME}=edited,{labels.COMPONENT}=worker"
    )
    return [each["spec"]["replicas"] for each in found] == [replicas]


async def ready(operation: Operation) -> bool:
    return operation.not_ready() == ""
