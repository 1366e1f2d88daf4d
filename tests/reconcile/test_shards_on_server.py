"""Operators as processes that divide the namespaces: a crash, a hand-over, more shards.

The API server's audit log is the witness: a namespace is written by one operator at
a time, and never again by one that another came after.
"""

import asyncio
import functools
import itertools
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.builders import a_raw_spec
from tests.cluster.envtest import Server
from tests.ports import free_port
from tests.reconcile.test_process_on_server import an_operator, get, until
from tests.reconcile.test_two_operators_on_server import is_warm, moment

from speculative_operator.cluster.claims import lease_name
from speculative_operator.cluster.client import MERGE_PATCH, Client
from speculative_operator.cluster.resources import SPECULATIVE_DEPLOYMENT, Resource
from speculative_operator.shard import Shard

pytestmark = pytest.mark.cluster

NAMESPACE = Resource("v1", "Namespace", "namespaces")
NAMESPACES = ("team-0", "team-1", "team-2", "team-3", "team-5", "team-7")
"""Of two and of three shards each has one at least."""
SHARDS = {
    "a": Shard(0, 2),
    "b": Shard(1, 2),
    "c": Shard(0, 2),
    "d": Shard(0, 3),
    "e": Shard(1, 3),
    "f": Shard(2, 3),
}
"""Operators, by the name that the audit log has."""


class World:
    """Operators over one API server, and somebody who keeps them busy."""

    def __init__(self, server: Server, client: Client, folder: Path, stack: AsyncExitStack) -> None:
        self._server, self._client, self._folder, self._stack = server, client, folder, stack
        self._began = len(server.audited())
        self.ports = {name: free_port() for name in SHARDS}
        self.processes: dict[str, asyncio.subprocess.Process] = {}

    async def create_resources(self) -> None:
        for namespace in NAMESPACES:
            await self._client.request(
                "create",
                NAMESPACE,
                "POST",
                NAMESPACE.path(),
                body={
                    "apiVersion": "v1",
                    "kind": "Namespace",
                    "metadata": {"name": namespace},
                },
            )
            body = {
                "apiVersion": SPECULATIVE_DEPLOYMENT.api_version,
                "kind": SPECULATIVE_DEPLOYMENT.kind,
                "metadata": {"name": "chat", "namespace": namespace},
                "spec": a_raw_spec(),
            }
            await self._client.create(SPECULATIVE_DEPLOYMENT, body)

    async def delete_resources(self) -> None:
        for namespace in NAMESPACES:
            thing = await self._client.get(SPECULATIVE_DEPLOYMENT, namespace, "chat")
            await self._client.delete(SPECULATIVE_DEPLOYMENT, thing)

    @asynccontextmanager
    async def edited(self) -> AsyncIterator[None]:
        """Somebody edits all resources until the block ends."""
        editing = asyncio.create_task(self._edit_for_ever())
        try:
            yield
        finally:
            editing.cancel()

    async def _edit_for_ever(self) -> None:
        """Every edit asks for a write of the worker Deployment."""
        for number in itertools.count():
            namespace = NAMESPACES[number % len(NAMESPACES)]
            path = SPECULATIVE_DEPLOYMENT.path(namespace, "chat")
            body = {"spec": {"replicas": number // len(NAMESPACES) % 5 + 1}}
            await self._client.request(
                "edit", SPECULATIVE_DEPLOYMENT, "PATCH", path, body=body, content_type=MERGE_PATCH
            )
            await asyncio.sleep(0.1)

    async def start(self, *names: str) -> None:
        """Starts operators and waits until each is ready."""
        for name in names:
            shard = SHARDS[name]
            # Longer than usual: seven processes on a busy machine must not lose it for that.
            settings = {
                "SHARD": str(shard.index),
                "SHARDS": str(shard.count),
                "LEASE_SECONDS": "12",
            }
            self.processes[name] = await self._stack.enter_async_context(
                an_operator(
                    self._server,
                    self._folder,
                    port=self.ports[name],
                    identity=name,
                    settings=settings,
                )
            )
            # One after another: each start is seconds of CPU.
            await until(functools.partial(self._is_ready, name))

    async def _is_ready(self, name: str) -> bool:
        return (await get(self.ports[name], "/readyz"))[0] == 200

    async def is_standing_by(self, name: str) -> bool:
        return await is_warm(self.ports[name])

    async def end(self, name: str) -> None:
        self.processes[name].terminate()
        assert await asyncio.wait_for(self.processes[name].wait(), 10) == 0

    def writes(self) -> list[dict[str, Any]]:
        """Successful writes of the operators, in their order."""
        return [
            event
            for event in self._server.audited()[self._began :]
            if event["user"]["username"] in SHARDS and event["responseStatus"]["code"] < 300
        ]

    async def until_writes(self, who: str, since: float) -> float:
        """Seconds from `since` until each namespace of its shard was written by `who`."""
        own = {namespace for namespace in NAMESPACES if SHARDS[who].owns(namespace)}
        first: dict[str, float] = {}

        async def answer() -> bool:
            for event in self.writes():
                namespace = event["objectRef"].get("namespace", "")
                at = moment(event["requestReceivedTimestamp"])
                if event["user"]["username"] == who and namespace in own and at > since:
                    first.setdefault(namespace, at)
            return set(first) == own

        await until(answer)
        return max(first.values()) - since


def writers(writes: list[dict[str, Any]], namespace: str) -> list[str]:
    """Who wrote in the namespace, one after another."""
    names = (
        event["user"]["username"]
        for event in writes
        if event["objectRef"].get("namespace") == namespace
    )
    return [name for name, _ in itertools.groupby(names)]


def unfenced(writes: list[dict[str, Any]]) -> list[str]:
    """Writes by somebody who was not the last to write the Lease of its shard."""
    found, holders = [], dict[str, str]()
    for event in writes:
        who, place = event["user"]["username"], event["objectRef"]
        if place["resource"] == "leases":
            holders[place["name"]] = who
        elif holders.get(lease_name(SHARDS[who])) != who:
            found.append(f"{event['verb']} {place['resource']}/{place.get('name')} by {who}")
    return found


def test_each_shard_has_a_namespace_here() -> None:
    for shard in SHARDS.values():
        assert any(shard.owns(namespace) for namespace in NAMESPACES), shard


async def test_two_shards_a_crash_and_then_three(api_server: Server, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(Client(api_server.access))
        world = World(api_server, client, tmp_path, stack)
        await world.create_resources()
        began = time.time()
        await world.start("a", "b", "c")
        # Which of the two of one shard works is chance: the other one is its standby.
        first, second = ("c", "a") if await world.is_standing_by("a") else ("a", "c")
        for name in (first, "b"):
            await world.until_writes(name, began)
        async with world.edited():
            at = time.time()
            world.processes[first].kill()
            killed = await world.until_writes(second, at)
        # Ready while the old ones work, or no rolling update would ever end.
        await world.start("d", "e", "f")
        for name in ("d", "e", "f"):
            assert await world.is_standing_by(name)
        async with world.edited():
            at = time.time()
            await world.end(second)
            alone = await world.until_writes("d", at)
            for name in ("e", "f"):
                assert await world.is_standing_by(name)
            at = time.time()
            await world.end("b")
            handed = [round(await world.until_writes(name, at), 2) for name in ("e", "f")]
        # What comes after on this server must neither wait for their Leases nor do their work.
        for name in ("d", "e", "f"):
            await world.end(name)
        await world.delete_resources()
        writes = world.writes()
        print(f"{killed=:.2f} {alone=:.2f} {handed=}")
        assert unfenced(writes) == []
        for namespace in NAMESPACES:
            owners = [first, second] if Shard(0, 2).owns(namespace) else ["b"]
            (then,) = [name for name in ("d", "e", "f") if SHARDS[name].owns(namespace)]
            assert writers(writes, namespace) == [*owners, then], namespace
