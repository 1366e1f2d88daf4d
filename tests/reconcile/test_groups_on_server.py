"""Groups of pods against a real API server with LeaderWorkerSet's real CRD.

What its controller does (`sigs.k8s.io/lws`, read at 0.8) is done here: names,
labels and annotations of pods, a group made anew when one of its pods restarts, the
highest index going first, a headless Service and ControllerRevisions of its own.
"""

import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.cluster.envtest import Server
from tests.cluster.foreign_kinds import Kind, groups_kind
from tests.reconcile.simulation import JSON, Count, Simulation
from tests.reconcile.test_rollout_on_server import (
    CrashingClient,
    Run,
    condition,
    is_complete,
    never,
    words_hash,
)

from speculative_api import labels
from speculative_operator.cluster.client import Client
from speculative_operator.cluster.resources import (
    CONTROLLER_REVISION,
    DEPLOYMENT,
    LEADER_WORKER_SET,
    POD,
    SERVICE,
)
from speculative_operator.errors import NotFound

pytestmark = pytest.mark.cluster

TARGET = {"model": "file:///models/target", "tensorParallelSize": 2, "nodesPerReplica": 2}
INDEX = "leaderworkerset.sigs.k8s.io/worker-index"


@dataclass
class Grouped(Simulation):
    """The world with LeaderWorkerSet's controller."""

    broken: dict[str, JSON] = field(default_factory=dict)
    """Last word of a follower, by revision: whose groups it ends."""
    recreated: int = 0

    async def step(self) -> None:
        await self._groups()
        await super().step()

    async def sets(self) -> list[JSON]:
        return await self.mine(LEADER_WORKER_SET)

    async def pods(self, component: str) -> list[JSON]:
        pods = await self.mine(POD)
        return [p for p in pods if p["metadata"]["labels"][labels.COMPONENT] == component]

    async def _groups(self) -> None:
        wanted: dict[str, JSON] = {}
        for group in await self.sets():
            name = group["metadata"]["name"]
            wanted |= {f"{name}-{index}": group for index in range(group["spec"]["replicas"])}
            await self._beside(group)
        pods = {p["metadata"]["name"]: p for p in await self.mine(POD)}
        grouped = {n: p for n, p in pods.items() if labels.GROUPS_NAME in p["metadata"]["labels"]}
        leaders = {n for n in grouped if grouped[n]["metadata"]["labels"][INDEX] == "0"}
        for leader in leaders:
            mine = [n for n in grouped if n == leader or n.startswith(f"{leader}-")]
            if leader not in wanted or any(_restarted(grouped[n]) for n in mine):
                self.recreated += leader in wanted
                for name in mine:
                    await self._end(grouped[name])
            else:
                await self._run([grouped[name] for name in mine])
        for leader in wanted.keys() - leaders:
            await self._make(leader, wanted[leader])

    async def _beside(self, group: JSON) -> None:
        """What appears beside a set, with our labels on some of it."""
        name, labels_ = group["metadata"]["name"], group["metadata"]["labels"]
        owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": name, "uid": "u-1"}
        template = group["spec"]["leaderWorkerTemplate"]["leaderTemplate"]
        revision = {
            "apiVersion": "apps/v1",
            "kind": "ControllerRevision",
            "metadata": {
                "name": f"{name}-5d8f",
                "namespace": self.namespace,
                "labels": template["metadata"]["labels"],
                "ownerReferences": [{**owner, "controller": True}],
            },
            "revision": 1,
            "data": {"spec": {"template": {"spec": {}}}},
        }
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "namespace": self.namespace, "labels": {"set": name}},
            "spec": {"clusterIP": "None", "selector": {labels.GROUPS_NAME: name}},
        }
        if not group.get("status"):
            assert labels_[labels.TRACK]
            await self.client.create(CONTROLLER_REVISION, revision)
            await self.client.create(SERVICE, service)
            status = {"status": {"replicas": group["spec"]["replicas"], "readyReplicas": 0}}
            await self._patch(LEADER_WORKER_SET, name, status, "status")

    async def _make(self, leader: str, group: JSON) -> None:
        parts = group["spec"]["leaderWorkerTemplate"]
        for rank in range(parts["size"]):
            template = parts["workerTemplate" if rank else "leaderTemplate"]["metadata"]
            notes = dict(template.get("annotations") or {})
            notes |= {labels.LEADER_NAME: leader} if rank else {}
            marks = {labels.GROUPS_NAME: group["metadata"]["name"], INDEX: str(rank)}
            body = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": f"{leader}-{rank}" if rank else leader,
                    "namespace": self.namespace,
                    "labels": template["labels"] | marks,
                    "annotations": notes,
                },
                "spec": {
                    "containers": [{"name": "worker", "image": "image"}],
                    "automountServiceAccountToken": False,
                },
            }
            await self.client.create(POD, body)

    async def _run(self, pods: list[JSON]) -> None:
        revision = pods[0]["metadata"]["labels"][labels.REVISION]
        for pod in pods:
            is_leader = pod["metadata"]["labels"][INDEX] == "0"
            if not is_leader and revision in self.broken:
                await self._patch(
                    POD, pod["metadata"]["name"], _ended(self.broken[revision]), "status"
                )
            elif not pod.get("status", {}).get("podIP") and revision not in self.broken:
                status = {
                    "phase": "Running",
                    "podIP": "10.0.0.9",
                    "conditions": [{"type": "Ready", "status": "True"}],
                }
                await self._patch(POD, pod["metadata"]["name"], {"status": status}, "status")
                if is_leader:
                    self.revisions[pod["metadata"]["uid"]] = revision
                    self.counts[pod["metadata"]["uid"]] = Count(self.now.timestamp())
                    self.pods_seen.setdefault(revision, set()).add(pod["metadata"]["uid"])

    async def _end(self, pod: JSON) -> None:
        path = POD.path(self.namespace, pod["metadata"]["name"])
        await self.client.request("end", POD, "DELETE", path, query={"gracePeriodSeconds": "0"})
        self.revisions.pop(pod["metadata"]["uid"], None)


def _restarted(pod: JSON) -> bool:
    containers = pod.get("status", {}).get("containerStatuses") or []
    return any(container["restartCount"] for container in containers)


def _ended(word: JSON) -> JSON:
    end = {
        "exitCode": 1,
        "reason": "Error",
        "startedAt": "2026-01-01T00:00:00Z",
        "finishedAt": "2026-01-01T00:01:00Z",
        "message": json.dumps(word),
    }
    container = {
        "name": "worker",
        "image": "image",
        "imageID": "",
        "ready": False,
        "restartCount": 1,
        "lastState": {"terminated": end},
    }
    return {"status": {"phase": "Running", "containerStatuses": [container]}}


@pytest.fixture
def kind(api_server: Server) -> Iterator[Kind]:
    """LeaderWorkerSet is not there at first and is gone again afterwards."""
    found = groups_kind(api_server)
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


def a_change(**speculation: Any) -> JSON:
    return {"spec": {"speculation": speculation}}


async def test_a_rollout_of_groups(outside: Client, operator: CrashingClient, kind: Kind) -> None:
    kind.install()
    simulation = Grouped(outside, "grouped")
    run = Run(simulation, operator)
    first = words_hash(await simulation.create(target=TARGET, replicas=2))
    await run.until(lambda s: is_complete(s) and s["stable"]["readyReplicas"] == 2)
    assert await simulation.mine(DEPLOYMENT) == [
        d for d in await simulation.mine(DEPLOYMENT) if d["metadata"]["name"].endswith("-gateway")
    ]
    assert len(await simulation.pods("worker")) == len(await simulation.pods("follower")) == 2
    service = await outside.get(SERVICE, "default", f"{simulation.name}-{first}")
    assert service["spec"]["selector"][labels.COMPONENT] == "worker"
    await simulation.change(a_change(numSpeculativeTokens=2))
    second = words_hash(await simulation.parent())
    status = await run.until(lambda s: s.get("canary", {}).get("weightObservedAt"))
    assert status["canary"]["readyReplicas"] == 1
    uids = {p["metadata"]["uid"] for p in await simulation.pods("worker")}
    status = await run.until(lambda s: is_complete(s) and s["stable"]["hash"] == second)
    assert simulation.recreated == 0
    (left,) = await simulation.sets()
    assert left["metadata"]["labels"][labels.TRACK] == "stable"
    # Promotion relabels: the group that was tried serves on.
    assert uids & {p["metadata"]["uid"] for p in await simulation.pods("worker")}
    await run.passes()
    writes = operator.writes
    await run.passes()
    assert operator.writes == writes, "a quiet pass writes"
    await simulation.change({"spec": {"replicas": 1}})
    await run.until(lambda s: s["stable"]["replicas"] == 1)
    for _ in range(2):
        await simulation.step()
        await run.passes()
    (leader,) = await simulation.pods("worker")
    assert leader["metadata"]["name"].endswith("-g-0")
    assert "controller.kubernetes.io/pod-deletion-cost" not in (
        leader["metadata"].get("annotations") or {}
    )


async def test_groups_that_crash_fail_the_canary_and_leave_stable_alone(
    outside: Client, operator: CrashingClient, kind: Kind
) -> None:
    kind.install()
    simulation = Grouped(outside, "crashing")
    run = Run(simulation, operator)
    first = words_hash(await simulation.create(target=TARGET))
    await run.until(is_complete)
    await simulation.change(a_change(numSpeculativeTokens=2))
    second = words_hash(await simulation.parent())
    simulation.broken[second] = {
        "reason": "EngineCrashed",
        "retryable": True,
        "detail": "NCCL error: unhandled system error",
    }
    status = await run.until(lambda s: (s.get("verdict") or {}).get("outcome") == "RolledBack")
    assert status["verdict"]["reason"] == "CanaryUnhealthy"
    assert "3 container restarts (limit 3); NCCL error" in status["verdict"]["message"]
    assert [each["hash"] for each in status["groupFailures"]] == [second] * 3
    assert simulation.recreated == 2
    await run.until(lambda s: not s.get("retiring"))
    # A failed revision keeps its set, without groups (docs/decisions/0004).
    left = {s["metadata"]["name"]: s["spec"]["replicas"] for s in await simulation.sets()}
    assert left == {f"{simulation.name}-{first}-g": 1, f"{simulation.name}-{second}-g": 0}


async def test_a_follower_that_can_never_start_fails_the_revision_at_once(
    outside: Client, operator: CrashingClient, kind: Kind
) -> None:
    kind.install()
    simulation = Grouped(outside, "hopeless")
    run = Run(simulation, operator)
    await simulation.create(target=TARGET)
    await run.until(is_complete)
    await simulation.change(a_change(numSpeculativeTokens=2))
    second = words_hash(await simulation.parent())
    word = {"reason": "ModelNotFound", "retryable": False, "detail": "/models/target is empty"}
    simulation.broken[second] = word
    status = await run.until(lambda s: (s.get("verdict") or {}).get("outcome") == "RolledBack")
    assert status["verdict"]["reason"] == "ModelNotFound"
    assert simulation.recreated <= 1


async def test_without_the_kind_nothing_starts_and_stable_serves_on(
    outside: Client, operator: CrashingClient, kind: Kind
) -> None:
    simulation = Grouped(outside, "kindless-groups")
    run = Run(simulation, operator)
    first = words_hash(await simulation.create())
    await run.until(is_complete)
    await simulation.change({"spec": {"target": TARGET}})
    status = await run.until(lambda s: condition(s, "Accepted")["reason"] == "KindMissing")
    assert "install LeaderWorkerSet" in condition(status, "Accepted")["message"]
    for _ in range(3):
        await simulation.step()
        await run.passes()
    status = await simulation.status()
    assert "canary" not in status
    assert status["stable"]["hash"] == first
    kind.install()
    second = words_hash(await simulation.parent())
    await run.until(lambda s: is_complete(s) and s["stable"]["hash"] == second)
    kind.remove()
    status = await run.until(lambda s: condition(s, "Accepted")["reason"] == "KindMissing")
    assert status["stable"]["hash"] == second
    with pytest.raises(NotFound):
        await outside.get(LEADER_WORKER_SET, "default", f"{simulation.name}-{second}-g")
