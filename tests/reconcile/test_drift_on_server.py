"""Drift against a real API server: measured, kept over restarts of the operator, acted upon."""

from collections.abc import AsyncIterator

import pytest
from tests.cluster.envtest import Server
from tests.reconcile.test_rollout_on_server import (
    CrashingClient,
    Run,
    a_run,
    is_complete,
    never,
    words_hash,
)

from speculative_api.labels import RECOVER
from speculative_operator.cluster.client import Client
from speculative_operator.cluster.resources import (
    CONFIG_MAP,
    DEPLOYMENT,
    JSON,
    SPECULATIVE_DEPLOYMENT,
)
from speculative_operator.errors import NotFound

pytestmark = pytest.mark.cluster


@pytest.fixture
async def outside(api_server: Server) -> AsyncIterator[Client]:
    async with Client(api_server.access) as client:
        yield client


BASELINE = {"acceptedTokens": 1500, "steps": 1000, "noiseMillionths": 0}


async def serving(run: Run, action: str) -> str:
    run.simulation.step_seconds = 10.0
    wish = {"action": action, "baselineSeconds": 600}
    parent = await run.simulation.create(replicas=2, rollout={"drift": wish})
    await run.until(lambda s: is_complete(s) and state(s) == "Measuring")
    return words_hash(parent)


async def measured(run: Run) -> None:
    """The operator starts anew in the middle of it."""
    for _ in range(30):
        await run.simulation.step()
        await run.passes()
    run.reconciler = run.a_new_process()
    await run.until(lambda s: state(s) == "Steady", steps=50)


async def remembered(run: Run) -> None:
    """As if it had been measured already."""
    drift = (await run.simulation.status())["drift"]
    known = {"baseline": {**BASELINE, "measuredAt": drift["since"]}, "state": "Steady"}
    patch = {"status": {"drift": {**drift, **known}}}
    await run.simulation._patch(SPECULATIVE_DEPLOYMENT, run.simulation.name, patch, "status")


def state(status: JSON) -> str:
    return str(status.get("drift", {}).get("state", ""))


def reason(status: JSON) -> str:
    found = {c["type"]: c["reason"] for c in status["conditions"]}
    return found["AcceptanceDrifted"]


async def kept(run: Run) -> JSON | None:
    try:
        return await run.simulation.client.get(
            CONFIG_MAP, "default", f"{run.simulation.name}-drift"
        )
    except NotFound:
        return None


async def test_recycled_pods_are_judged_anew_against_the_first_hours(
    api_server: Server, outside: Client
) -> None:
    async with CrashingClient(api_server.access, before=never, after=never) as client:
        run = await a_run(outside, client)
        stable = await serving(run, "RecyclePods")
        await measured(run)
        baseline = (await run.simulation.status())["drift"]["baseline"]
        run.simulation.acceptance[stable] = 0.3
        await run.until(lambda s: state(s) == "Recycled")
        run.simulation.acceptance[stable] = 0.6
        status = await run.until(lambda s: s["restart"].get("outcome") == "Done")
        assert len(run.simulation.pods_seen[stable]) == 4
        assert run.simulation.fewest_ready[stable] == 2
        assert reason(status) == "PodsRecycled"
        run.reconciler = run.a_new_process()
        status = await run.until(lambda s: state(s) == "Steady")
        assert status["drift"]["baseline"] == baseline
        assert status["drift"]["recycles"] == 0
        assert reason(status) == "AcceptanceSteady"
        assert await kept(run) is not None
        await run.simulation.change({"spec": {"rollout": {"drift": None}}})
        await run.until(lambda s: not state(s))
        await run.passes()
        assert await kept(run) is None


async def test_speculation_is_disabled_and_comes_back_on_request(
    api_server: Server, outside: Client
) -> None:
    async with CrashingClient(
        api_server.access, before=lambda n: n % 7 == 1, after=lambda n: n % 5 == 1
    ) as client:
        run = await a_run(outside, client)
        stable = await serving(run, "DisableSpeculation")
        await remembered(run)
        run.simulation.acceptance[stable] = 0.1
        await run.until(lambda s: state(s) == "Disabled")
        for _ in range(5):
            await run.simulation.step()
            await run.passes()
        before, after = run.simulation.weights_seen[-2:]
        native = after[1][0]
        assert (before[0][0], after) == (stable, ((stable, 0), (native, 100)))
        lane = await outside.get(DEPLOYMENT, "default", f"{run.simulation.name}-{native}")
        assert lane["spec"]["replicas"] == 2
        assert len(run.simulation.pods_seen[stable]) == 2
        run.simulation.acceptance[stable] = 0.6
        await run.simulation.change({"metadata": {"annotations": {RECOVER: f"{stable}@1"}}})
        await run.until(lambda s: state(s) == "Steady")
        for _ in range(5):
            await run.simulation.step()
            await run.passes()
        assert run.simulation.weights_seen[-1] == ((stable, 100),)
        with pytest.raises(NotFound):
            await outside.get(DEPLOYMENT, "default", f"{run.simulation.name}-{native}")
        assert run.crashes > 5
