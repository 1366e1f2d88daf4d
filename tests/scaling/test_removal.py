"""Which pods a shrinking revision loses, and that nothing is written otherwise."""

from typing import Any

import pytest
from tests.builders import a_deployment, a_digest, a_snapshot, some_words
from tests.cluster.envtest import Server, controller_manager
from tests.reconcile.simulation import Count, Simulation
from tests.reconcile.test_process_on_server import until
from tests.reconcile.test_rollout_on_server import CrashingClient, Run, never

from speculative_api import labels
from speculative_api.worker import Digest
from speculative_operator.cluster.client import Client
from speculative_operator.cluster.resources import POD, SPECULATIVE_DEPLOYMENT
from speculative_operator.decision import Scale
from speculative_operator.scaling.removal import DELETION_COST, UNKNOWN_COST, cost, shrinking

WORDS = some_words()


@pytest.mark.parametrize(
    "wanted, is_shrinking",
    [(4, False), (5, False), (3, True), (1, True), (0, False)],
    ids=["same", "more", "fewer", "one", "none: there is nothing to choose"],
)
def test_only_a_revision_that_keeps_some_pods_chooses(wanted: int, is_shrinking: bool) -> None:
    snapshot = a_snapshot(deployments=[a_deployment(WORDS, replicas=4)])
    found = shrinking(snapshot, [Scale(WORDS.hash, "stable", wanted)])
    assert found == ({WORDS.hash} if is_shrinking else frozenset())


def test_a_new_revision_does_not_shrink() -> None:
    assert shrinking(a_snapshot(), [Scale(WORDS.hash, "stable", 1)]) == frozenset()


@pytest.mark.parametrize(
    "fields, expected",
    [
        ({"running": 3, "waiting": 2}, 5),
        ({"running": 0}, 0),
        ({"running": 9, "draining": True}, -1),
        ({}, UNKNOWN_COST),
        ({"running": 2**40}, UNKNOWN_COST),
    ],
)
def test_the_cost_is_the_requests(fields: dict[str, Any], expected: int) -> None:
    assert cost(a_digest(WORDS, **fields)) == expected


def test_a_silent_pod_is_spared() -> None:
    assert cost(None) == UNKNOWN_COST


class Busy(Simulation):
    """Pods that run different numbers of requests."""

    running: dict[str, int]

    def digest(self, uid: str) -> Digest | None:
        found = super().digest(uid)
        return found.model_copy(update={"running": self.running.get(uid, 0)}) if found else None


@pytest.mark.cluster
async def test_the_real_replicaset_takes_the_idlest_pod(api_server: Server) -> None:
    """Real Deployment and ReplicaSet controllers make and choose the pods; nobody runs them."""
    async with (
        Client(api_server.access) as outside,
        CrashingClient(api_server.access, before=never, after=never) as client,
    ):
        simulation = Busy(outside, "shrinking")
        simulation.running = {}
        run = Run(simulation, client)
        with controller_manager(api_server, "deployment-controller", "replicaset-controller"):
            await simulation.create(replicas=3)
            await run.passes()

            async def workers() -> list[dict[str, Any]]:
                found = await simulation.mine(POD)
                return [
                    pod
                    for pod in found
                    if pod["metadata"]["labels"].get(labels.COMPONENT) == labels.COMPONENT_WORKER
                    and "deletionTimestamp" not in pod["metadata"]
                ]

            async def has(count: int) -> list[dict[str, Any]]:
                found = await workers()
                return found if len(found) == count else []

            pods = await until(lambda: has(3))
            for number, pod in enumerate(pods):
                await answer(simulation, pod, running=5 if number != 1 else 1)
            await run.passes()
            assert not [p for p in await workers() if p["metadata"].get("annotations")]
            await simulation.change({"spec": {"replicas": 2}})
            await run.passes()
            left = await until(lambda: has(2))
            gone = {p["metadata"]["name"] for p in pods} - {p["metadata"]["name"] for p in left}
            assert gone == {pods[1]["metadata"]["name"]}
            assert {p["metadata"]["annotations"][DELETION_COST] for p in left} == {"5"}
            versions = {p["metadata"]["resourceVersion"] for p in left}
            simulation.running = {p["metadata"]["uid"]: 7 for p in left}
            await run.passes()
            await run.passes()
            assert {p["metadata"]["resourceVersion"] for p in await workers()} == versions
            parent = await simulation.parent()
            await outside.delete(SPECULATIVE_DEPLOYMENT, parent)


async def answer(simulation: Busy, pod: dict[str, Any], *, running: int) -> None:
    """The pod is ready and answers."""
    uid = pod["metadata"]["uid"]
    status = {
        "phase": "Running",
        "podIP": "10.0.0.9",
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    await simulation._patch(POD, pod["metadata"]["name"], {"status": status}, "status")
    simulation.running[uid] = running
    simulation.counts[uid] = Count(simulation.now.timestamp())
