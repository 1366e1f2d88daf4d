"""The check of a revision by a Job, against a real API server: the Job, its pod, its end."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest
from tests.builders import a_raw_spec
from tests.cluster.envtest import Server
from tests.reconcile.simulation import JSON, ROLLOUT, Simulation
from tests.reconcile.test_rollout_on_server import (
    ANOTHER_K,
    CrashingClient,
    Run,
    condition,
    is_complete,
    never,
    words_hash,
)

from speculative_api.labels import JOB_NAME, REVISION
from speculative_operator.cluster.client import Client
from speculative_operator.cluster.resources import DEPLOYMENT, JOB, POD, Resource
from speculative_operator.errors import Refused

pytestmark = pytest.mark.cluster

CHECKED = ROLLOUT | {"preflight": "Job"}
FOUND = {"notes": ["the draft is large"]}
MISMATCH = {"reason": "VocabularyMismatch", "retryable": False, "detail": "2 and 3 tokens"}
NAMESPACE = Resource("v1", "Namespace", "namespaces")
_numbers = count()


@dataclass
class Checking(Simulation):
    """The world with a Job controller: a pod for each Job, which ends one step later."""

    ends: dict[str, tuple[int, JSON]] = field(default_factory=dict)
    """Exit code and last words of a check, by revision; it passes unless said otherwise."""
    worked: list[str] = field(default_factory=list)
    """Revisions that had a Deployment, in the order they came."""

    async def step(self) -> None:
        await super().step()
        for deployment in await self.mine(DEPLOYMENT):
            revision = deployment["metadata"]["labels"].get(REVISION)
            if revision and revision not in self.worked:
                self.worked.append(revision)
        jobs = {job["metadata"]["name"]: job for job in await self.mine(JOB)}
        pods = [p for p in await self.mine(POD) if JOB_NAME in p["metadata"]["labels"]]
        for pod in pods:
            job = jobs.pop(pod["metadata"]["labels"][JOB_NAME], None)
            if job is not None and "containerStatuses" not in pod["status"]:
                await self._end(pod, job["metadata"]["labels"][REVISION])
        for name, job in jobs.items():
            await self.client.create(POD, a_pod_of(job, name))

    async def _end(self, pod: JSON, revision: str) -> None:
        code, words = self.ends.get(revision, (0, FOUND))
        end = {"exitCode": code, "message": json.dumps(words), "reason": "Completed"}
        container = {"name": "worker", "image": "i", "imageID": "i", "ready": False}
        container |= {"restartCount": 0, "state": {"terminated": end}}
        status = {"phase": "Failed" if code else "Succeeded", "containerStatuses": [container]}
        await self._patch(POD, pod["metadata"]["name"], {"status": status}, "status")


def a_pod_of(job: JSON, name: str) -> JSON:
    template = json.loads(json.dumps(job["spec"]["template"]))
    template["metadata"]["labels"][JOB_NAME] = name
    metadata = {"name": f"{name}-x", "namespace": job["metadata"]["namespace"]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": template["metadata"] | metadata,
        "spec": template["spec"],
    }


@pytest.fixture
async def outside(api_server: Server) -> AsyncIterator[Client]:
    async with Client(api_server.access) as client:
        yield client


@pytest.fixture
async def operator(api_server: Server) -> AsyncIterator[CrashingClient]:
    async with CrashingClient(api_server.access, before=never, after=never) as client:
        yield client


def a_world(outside: Client) -> Checking:
    return Checking(outside, f"checked{next(_numbers)}")


async def rollout(run: Run) -> JSON:
    """Two revisions, each checked before it has a Deployment."""
    simulation = run.simulation
    assert isinstance(simulation, Checking)
    first = words_hash(await simulation.create(rollout=CHECKED))
    status = await run.until(lambda s: s.get("preflight"))
    assert "stable" not in status
    await run.until(is_complete)
    await simulation.change(ANOTHER_K)
    second = words_hash(await simulation.parent())
    await run.until(lambda s: s.get("preflight", {}).get("hash") == second)
    assert simulation.worked == [first]
    status = await run.until(lambda s: is_complete(s) and s["stable"]["hash"] == second)
    assert status["preflight"]["outcome"] == "Passed"
    assert "the draft is large." in condition(status, "Accepted")["message"]
    assert await simulation.mine(JOB) == []
    return await simulation.picture()


async def test_each_revision_is_checked_and_a_quiet_pass_writes_nothing(
    outside: Client, operator: CrashingClient
) -> None:
    run = Run(a_world(outside), operator)
    await rollout(run)
    await run.passes()
    writes = operator.writes
    run.reconciler = run.a_new_process()
    await run.passes()
    assert operator.writes == writes


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_crash_around_every_write_ends_in_the_same_state(
    api_server: Server, outside: Client, operator: CrashingClient, moment: str
) -> None:
    expected = await rollout(Run(a_world(outside), operator))
    async with CrashingClient(
        api_server.access,
        before=(lambda number: number % 2 == 1) if moment == "before" else never,
        after=(lambda _: True) if moment == "after" else never,
    ) as client:
        run = Run(a_world(outside), client)
        assert await rollout(run) == expected
        assert run.crashes > 20


async def test_a_refused_revision_gets_no_deployment_and_stable_is_untouched(
    outside: Client, operator: CrashingClient
) -> None:
    run = Run(a_world(outside), operator)
    simulation = run.simulation
    assert isinstance(simulation, Checking)
    first = words_hash(await simulation.create(rollout=CHECKED))
    await run.until(is_complete)
    await simulation.change(ANOTHER_K)
    second = words_hash(await simulation.parent())
    simulation.ends[second] = (3, MISMATCH)
    status = await run.until(lambda s: s.get("failedRevisions"))
    assert status["failedRevisions"][0]["reason"] == "VocabularyMismatch"
    assert "2 and 3 tokens" in condition(status, "Progressing")["message"]
    await simulation.step()
    await run.passes()
    assert simulation.worked == [first]
    assert await simulation.mine(JOB) == []
    assert len(simulation.pods_seen[first]) == 1


async def test_a_revision_is_checked_and_then_fetched_and_only_then_started(
    outside: Client, operator: CrashingClient
) -> None:
    run = Run(a_world(outside), operator)
    simulation = run.simulation
    assert isinstance(simulation, Checking)
    await simulation.create(
        rollout=CHECKED | {"download": "Job", "cleanUp": {"mode": "Remove"}},
        target={"model": "hf://org/target@abc"},
        modelCache={"persistentVolumeClaim": "cache"},
    )
    await run.until(lambda s: s.get("preflight", {}).get("stage") == "Check")
    (check,) = await simulation.mine(JOB)
    await run.until(lambda s: s.get("preflight", {}).get("stage") == "Download")
    (download,) = await simulation.mine(JOB)
    names = [job["metadata"]["name"] for job in (check, download)]
    assert len(set(names)) == 2
    mounts = [job["spec"]["template"]["spec"]["containers"][0] for job in (check, download)]
    assert [m["args"] for m in mounts] == [["preflight"], ["download"]]
    assert [m["volumeMounts"][0].get("readOnly", False) for m in mounts] == [True, False]
    told = {item["name"]: item.get("value", "") for item in mounts[1]["env"]}
    assert json.loads(told["SPECULATIVE_CACHE_CLEAN_UP"]) == {
        "removes": True,
        "unusedHours": 168,
        "inUse": ["hf://org/target@abc"],
    }
    assert simulation.worked == []
    await run.until(is_complete)
    assert await simulation.mine(JOB) == []


async def test_the_pod_of_a_check_is_taken_under_the_restricted_profile(
    outside: Client, operator: CrashingClient
) -> None:
    place = f"restricted{next(_numbers)}"
    profile = {"pod-security.kubernetes.io/enforce": "restricted"}
    metadata: dict[str, Any] = {"name": place, "labels": profile}
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    await outside.request("make", NAMESPACE, "POST", NAMESPACE.path(), body=body)
    simulation = Checking(outside, "safe", namespace=place)
    spec = a_raw_spec(
        target={"model": "hf://org/target"},
        modelCache={"persistentVolumeClaim": "cache"},
        pod={
            "nodeSelector": {"accelerator": "x"},
            "env": [{"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "h", "key": "k"}}}],
        },
    )
    await simulation.create(**(spec | {"rollout": CHECKED}))
    run = Run(simulation, operator)
    await run.passes()
    (job,) = await simulation.mine(JOB)
    taken = await outside.create(POD, a_pod_of(job, job["metadata"]["name"]))
    limits = taken["spec"]["containers"][0]["resources"]["limits"]
    assert not any("/" in name for name in limits), "it holds a device"
    # The control: the profile is in force, and this is what it refuses.
    unsafe = a_pod_of(job, "unsafe")
    unsafe["spec"]["securityContext"]["runAsNonRoot"] = False
    with pytest.raises(Refused, match="PodSecurity"):
        await outside.create(POD, unsafe)
