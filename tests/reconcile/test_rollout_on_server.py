"""Whole rollouts against a real API server, also with a crash around every write."""

import itertools
import json
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import pytest
from tests.cluster.envtest import Server
from tests.reconcile.simulation import Simulation

from speculative_api.assessment import ASSESSMENT_KEY, JudgedTrial
from speculative_api.labels import EVIDENCE_SUFFIX
from speculative_api.v1alpha1 import SpeculativeDeploymentSpec
from speculative_operator.cluster.access import Access
from speculative_operator.cluster.client import Client
from speculative_operator.cluster.reflector import Store
from speculative_operator.cluster.resources import (
    BY_KIND,
    CHILDREN,
    CONFIG_MAP,
    DEPLOYMENT,
    JSON,
    POD,
    SERVICE_ACCOUNT,
    WATCHED,
    Resource,
)
from speculative_operator.desired.revision import words_of
from speculative_operator.errors import Conflict, NotFound
from speculative_operator.metrics.pages import Pages
from speculative_operator.reconcile import Reconciler
from speculative_operator.settings import Settings
from speculative_operator.telemetry import Telemetry

pytestmark = pytest.mark.cluster

_numbers = itertools.count()
ANOTHER_K = {"spec": {"speculation": {"numSpeculativeTokens": 2}}}


class Crash(Exception):
    """The process ended here."""


class CrashingClient(Client):
    """Ends the process before or after chosen writes."""

    def __init__(
        self, access: Access, *, before: Callable[[int], bool], after: Callable[[int], bool]
    ) -> None:
        self.telemetry = Telemetry()
        super().__init__(access, observe=self.telemetry.request)
        self._before, self._after = before, after
        self.writes = 0

    async def request(
        self, verb: str, resource: Resource, method: str, path: str, **settings: Any
    ) -> tuple[int, JSON]:
        if method == "GET":
            return await super().request(verb, resource, method, path, **settings)
        self.writes += 1
        number = self.writes
        if self._before(number):
            raise Crash(f"before write {number}: {verb} {path}")
        answer = await super().request(verb, resource, method, path, **settings)
        if self._after(number):
            raise Crash(f"after write {number}: {verb} {path}")
        return answer


def never(_: int) -> bool:
    return False


class Run:
    """A simulation and the operator processes that succeed each other over it."""

    pages: Pages | None = None
    """What Prometheus knows of engines, where that is asked."""

    def __init__(self, simulation: Simulation, client: CrashingClient) -> None:
        self.simulation = simulation
        self.client = client
        self.crashes = 0
        self.settings = Settings()
        self.reconciler = self.a_new_process()

    def a_new_process(self) -> Reconciler:
        self.stores: Mapping[str, Store] = {r.kind: Store(r) for r in WATCHED}
        return Reconciler(
            self.client,
            self.stores,
            self.simulation,
            self.settings,
            pages=self.pages,
            utc_now=lambda: self.simulation.now,
        )

    async def passes(self) -> None:
        """Passes until nothing more is to be done at once; a crash starts a new process."""
        for _ in range(100):
            await self.simulation.mirror(self.stores)
            try:
                following = await self.reconciler.look(self.simulation.key)
            except Crash:
                self.crashes += 1
                self.reconciler = self.a_new_process()
                continue
            except Conflict:
                # Somebody else wrote the resource meanwhile: the queue looks again, too.
                continue
            if following != 0:
                return
        pytest.fail("the passes do not come to rest")

    async def until(self, condition: Callable[[JSON], object], *, steps: int = 80) -> JSON:
        """Passes and steps of the world until status is as wanted."""
        for _ in range(steps):
            await self.passes()
            status = await self.simulation.status()
            if condition(status):
                return status
            await self.simulation.step()
        pytest.fail(f"not reached: {json.dumps(status, indent=1)}")


@pytest.fixture
async def outside(api_server: Server) -> AsyncIterator[Client]:
    async with Client(api_server.access) as client:
        yield client


def is_complete(status: JSON) -> bool:
    conditions = {c["type"]: c for c in status.get("conditions", ())}
    return bool(
        conditions
        and conditions["Progressing"]["reason"] in ("Complete", "RolledBack")
        and conditions["Available"]["status"] == "True"
        and not status.get("retiring")
        and not status.get("canary")
        and not status.get("guard")
    )


def words_hash(parent: JSON) -> str:
    return words_of(SpeculativeDeploymentSpec.model_validate(parent["spec"])).hash


async def rollout(run: Run) -> JSON:
    """Apply, Available, another k, promoted, guard over, the old one removed."""
    simulation = run.simulation
    parent = await simulation.create()
    first = words_hash(parent)
    status = await run.until(is_complete)
    assert status["stable"]["hash"] == first
    await simulation.change(ANOTHER_K)
    second = words_hash(await simulation.parent())
    status = await run.until(lambda s: is_complete(s) and s["stable"]["hash"] == second)
    assert status["verdict"]["outcome"] == "GuardPassed"
    for revision in (first, second):
        assert len(simulation.pods_seen[revision]) == 1, "a pod was replaced"
    return await simulation.picture()


async def a_run(outside: Client, client: CrashingClient) -> Run:
    return Run(Simulation(outside, f"rollout{next(_numbers)}"), client)


async def test_rollout_ends_promoted_and_then_writes_nothing_more(
    api_server: Server, outside: Client
) -> None:
    async with CrashingClient(api_server.access, before=never, after=never) as client:
        run = await a_run(outside, client)
        await rollout(run)
        await run.passes()
        writes = client.writes
        for _ in range(5):
            run.simulation._serve()
            await run.passes()
        run.reconciler = run.a_new_process()
        await run.passes()
        assert client.writes == writes


async def test_worse_canary_is_rolled_back_and_stable_keeps_its_pods(
    api_server: Server, outside: Client
) -> None:
    async with CrashingClient(api_server.access, before=never, after=never) as client:
        run = await a_run(outside, client)
        simulation = run.simulation
        first = words_hash(await simulation.create())
        await run.until(is_complete)
        await simulation.change(ANOTHER_K)
        second = words_hash(await simulation.parent())
        simulation.acceptance[second] = 0.05
        status = await run.until(lambda s: is_complete(s) and s.get("failedRevisions"))
        assert status["stable"]["hash"] == first
        assert status["failedRevisions"][0]["reason"] == "AcceptanceWorse"
        assert len(simulation.pods_seen[first]) == 1
        assert simulation.weights_seen[-1] == ((first, 100),)
        kept = await outside.get(CONFIG_MAP, "default", f"{simulation.name}{EVIDENCE_SUFFIX}")
        judged = JudgedTrial.model_validate_json(kept["data"][ASSESSMENT_KEY])
        assert (judged.candidate, judged.stage) == (second, "canary")
        assert judged.metrics[0].outcome == "Failed"


async def test_a_canary_that_fails_every_request_is_gone_within_one_period(
    api_server: Server, outside: Client
) -> None:
    async with CrashingClient(api_server.access, before=never, after=never) as client:
        run = await a_run(outside, client)
        simulation = run.simulation
        simulation.requests_a_second = 40
        first = words_hash(await simulation.create())
        await run.until(is_complete)
        await simulation.change(ANOTHER_K)
        second = words_hash(await simulation.parent())
        await run.until(lambda s: s.get("canary", {}).get("weightObservedAt"))
        for _ in range(3):
            await simulation.step()
            await run.passes()
        simulation.failing.add(second)
        status = await run.until(lambda s: s.get("failedRevisions"), steps=2)
        assert status["failedRevisions"][0]["reason"] == "CanaryUnhealthy"
        assert "all of its last 100 requests failed while 0 of 100" in status["verdict"]["message"]
        await run.until(is_complete)
        assert simulation.weights_seen[-1] == ((first, 100),)


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_crash_around_every_write_ends_in_the_same_state(
    api_server: Server, outside: Client, moment: str
) -> None:
    async with CrashingClient(api_server.access, before=never, after=never) as client:
        calm = await a_run(outside, client)
        expected = await rollout(calm)

    def at_every_second(number: int) -> bool:
        # Before: each write is tried twice, since the first try never leaves the process.
        return number % 2 == 1

    async with CrashingClient(
        api_server.access,
        before=at_every_second if moment == "before" else never,
        after=(lambda _: True) if moment == "after" else never,
    ) as client:
        run = await a_run(outside, client)
        assert await rollout(run) == expected
        assert run.crashes > 20
        # On or standing still, never backwards.
        assert run.simulation.weights_seen == calm.simulation.weights_seen


async def test_deleted_resource_gets_no_write(api_server: Server, outside: Client) -> None:
    async with CrashingClient(api_server.access, before=never, after=never) as client:
        run = await a_run(outside, client)
        parent = await run.simulation.create()
        await run.until(is_complete)
        await outside.delete(BY_KIND[parent["kind"]], parent)
        writes = client.writes
        await run.simulation.mirror(run.stores)
        assert await run.reconciler.look(run.simulation.key) is None
        assert client.writes == writes
        with pytest.raises(NotFound):
            await run.simulation.parent()


async def test_foreign_object_of_our_name_is_a_condition_that_stays_and_goes(
    api_server: Server, outside: Client
) -> None:
    async with CrashingClient(api_server.access, before=never, after=never) as client:
        run = await a_run(outside, client)
        simulation = run.simulation
        name = f"{simulation.name}-gateway"
        metadata = {"name": name, "namespace": "default"}
        foreign = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}
        foreign = await outside.create(SERVICE_ACCOUNT, foreign)
        await simulation.create()
        status = await run.until(lambda s: condition(s, "Available")["status"] == "True")
        accepted = condition(status, "Accepted")
        assert (accepted["status"], accepted["reason"]) == ("False", "NameConflict")
        assert f"ServiceAccount/{name}" in accepted["message"]
        live = await outside.get(SERVICE_ACCOUNT, "default", name)
        assert live["metadata"]["resourceVersion"] == foreign["metadata"]["resourceVersion"]
        before = await simulation.parent()
        run.reconciler = run.a_new_process()
        await run.passes()
        assert await simulation.parent() == before, "the condition flaps at a restart"
        await outside.delete(SERVICE_ACCOUNT, foreign)
        await run.until(lambda s: condition(s, "Accepted")["status"] == "True")


async def test_scale_of_a_worker_deployment_by_hand_is_put_back_once(
    api_server: Server, outside: Client
) -> None:
    async with CrashingClient(api_server.access, before=never, after=never) as client:
        run = await a_run(outside, client)
        parent = await run.simulation.create()
        await run.until(is_complete)
        name = f"{run.simulation.name}-{words_hash(parent)}"
        writes = client.writes
        await run.simulation._patch(DEPLOYMENT, name, {"spec": {"replicas": 3}})
        await run.passes()
        await run.passes()
        live = await outside.get(DEPLOYMENT, "default", name)
        assert live["spec"]["replicas"] == 1
        # The Deployment, and before that the pod, marked with what its removal would cost. The
        # first correction of an object also takes over the fields that its creation left.
        assert client.writes == writes + 3
        await run.simulation._patch(DEPLOYMENT, name, {"spec": {"replicas": 3}})
        await run.passes()
        await run.passes()
        assert client.writes == writes + 4


async def test_children_of_a_former_resource_are_waited_out(
    api_server: Server, outside: Client
) -> None:
    async with CrashingClient(api_server.access, before=never, after=never) as client:
        run = await a_run(outside, client)
        simulation = run.simulation
        parent = await simulation.create()
        await run.until(is_complete)
        await outside.delete(BY_KIND[parent["kind"]], parent)
        await simulation.create()
        writes = client.writes
        await run.passes()
        assert client.writes == writes
        for resource in CHILDREN:
            for thing in await simulation.mine(resource):
                await outside.delete(resource, thing)
        for pod in await simulation.mine(POD):
            await outside.delete(POD, pod)
        simulation.revisions.clear()
        simulation.answered.clear()
        await run.until(is_complete)


def condition(status: JSON, kind: str) -> JSON:
    found: JSON = next((c for c in status.get("conditions", ()) if c["type"] == kind), {})
    return found or {"status": "", "reason": "", "message": ""}
