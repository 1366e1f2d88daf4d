"""Restarts against a real API server: one pod at a time, also with a crash around every write."""

from collections.abc import AsyncIterator

import pytest
from tests.cluster.envtest import Server
from tests.reconcile.test_rollout_on_server import (
    ANOTHER_K,
    CrashingClient,
    Run,
    a_run,
    is_complete,
    never,
    words_hash,
)

from speculative_api.labels import RENDER, RESTART
from speculative_operator.cluster.client import Client
from speculative_operator.cluster.resources import CONTROLLER_REVISION, DEPLOYMENT, JSON
from speculative_operator.settings import Settings

pytestmark = pytest.mark.cluster

QUICK = {
    "steps": [{"weight": 50}, {"pause": {"durationSeconds": 60}}],
    "guard": {"durationSeconds": 30},
    "progressDeadlineSeconds": 30,
}


@pytest.fixture
async def outside(api_server: Server) -> AsyncIterator[Client]:
    async with Client(api_server.access) as client:
        yield client


async def serving(run: Run, **spec: object) -> str:
    parent = await run.simulation.create(**({"rollout": QUICK, "replicas": 2} | spec))
    await run.until(is_complete)
    return words_hash(parent)


async def ask(run: Run, value: str) -> None:
    await run.simulation.change({"metadata": {"annotations": {RESTART: value}}})


def ended(status: JSON) -> object:
    return status.get("restart", {}).get("outcome") and is_complete(status)


async def template(run: Run, revision: str) -> JSON:
    name = f"{run.simulation.name}-{revision}"
    live = await run.simulation.client.get(DEPLOYMENT, "default", name)
    found: JSON = live["spec"]["template"]
    return found


async def renders(run: Run) -> list[str]:
    things = await run.simulation.mine(CONTROLLER_REVISION)
    return [(t["metadata"].get("annotations") or {}).get(RENDER, "0") for t in things]


@pytest.mark.parametrize("moment", ["calm", "before", "after"])
async def test_restart_replaces_every_pod_once_and_never_below_capacity(
    api_server: Server, outside: Client, moment: str
) -> None:
    async with CrashingClient(
        api_server.access,
        before=(lambda n: n % 2 == 1) if moment == "before" else never,
        after=(lambda _: True) if moment == "after" else never,
    ) as client:
        run = await a_run(outside, client)
        stable = await serving(run)
        await ask(run, f"{stable}@1")
        status = await run.until(ended)
        assert status["restart"]["outcome"] == "Done"
        assert len(run.simulation.pods_seen[stable]) == 4
        assert run.simulation.fewest_ready[stable] == 2
        await run.passes()
        writes = client.writes
        run.reconciler = run.a_new_process()
        await run.passes()
        assert client.writes == writes, "restarts or writes again"


async def test_a_newer_operator_replaces_pods_only_when_asked(
    api_server: Server, outside: Client
) -> None:
    async with CrashingClient(api_server.access, before=never, after=never) as client:
        run = await a_run(outside, client)
        stable = await serving(run)
        before = await template(run, stable)
        run.settings = Settings(worker_image="worker:newer")
        run.reconciler = run.a_new_process()
        await run.passes()
        assert await template(run, stable) == before
        await ask(run, f"{stable}/rerender@1")
        await run.until(ended)
        after = await template(run, stable)
        assert after["spec"]["containers"][0]["image"] == "worker:newer"
        assert await renders(run) == ["1"]
        run.settings = Settings(worker_image="worker:newest")
        run.reconciler = run.a_new_process()
        await run.passes()
        assert await template(run, stable) == after
        # A trial and the way back to it keep the rendering and the stamp.
        await run.simulation.change(ANOTHER_K)
        await run.until(lambda s: s.get("guard"))
        assert await template(run, stable) == after


async def test_a_template_that_does_not_start_is_taken_back(
    api_server: Server, outside: Client
) -> None:
    async with CrashingClient(api_server.access, before=never, after=never) as client:
        run = await a_run(outside, client)
        stable = await serving(run)
        before = await template(run, stable)
        pods = set(run.simulation.pods_seen[stable])
        run.settings = Settings(worker_image="worker:broken")
        run.reconciler = run.a_new_process()
        run.simulation.stuck.add(stable)
        await ask(run, f"{stable}/rerender@1")
        status = await run.until(lambda s: s.get("restart", {}).get("outcome"))
        assert status["restart"]["outcome"] == "Reverted"
        for _ in range(3):
            await run.simulation.step()
            await run.passes()
        assert await template(run, stable) == before
        assert run.simulation.pods_seen[stable] == pods
        assert run.simulation.fewest_ready[stable] == 2
        assert await renders(run) == ["0"]
        run.simulation.stuck.clear()
        await ask(run, f"{stable}@2")
        await run.until(lambda s: s["restart"].get("outcome") == "Done")


async def test_during_a_trial_it_waits(api_server: Server, outside: Client) -> None:
    async with CrashingClient(api_server.access, before=never, after=never) as client:
        run = await a_run(outside, client)
        stable = await serving(run)
        await run.simulation.change(ANOTHER_K)
        await run.until(lambda s: s.get("canary", {}).get("weight"))
        canary = words_hash(await run.simulation.parent())
        run.simulation.acceptance[canary] = 0.05
        await ask(run, f"{stable}@1")
        await run.until(lambda s: not s.get("canary"))
        assert len(run.simulation.pods_seen[stable]) == 2
        status = await run.until(lambda s: s.get("restart", {}).get("outcome"))
        assert (status["restart"]["hash"], status["stable"]["hash"]) == (stable, stable)
        assert len(run.simulation.pods_seen[stable]) == 4
