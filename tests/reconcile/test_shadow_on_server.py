"""Whole rollouts that begin with copies, against a real API server and with crashes."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.cluster.envtest import Server
from tests.reconcile.simulation import Simulation
from tests.reconcile.test_rollout_on_server import (
    ANOTHER_K,
    CrashingClient,
    Run,
    is_complete,
    never,
    words_hash,
)

from speculative_api.assessment import ASSESSMENT_KEY, JudgedTrial
from speculative_api.labels import EVIDENCE_SUFFIX
from speculative_operator.cluster.client import Client
from speculative_operator.cluster.resources import CONFIG_MAP, JSON

pytestmark = pytest.mark.cluster

ROLLOUT = {
    "steps": [
        {"shadow": {"percent": 50, "durationSeconds": 60, "maxConcurrentRequests": 8}},
        {"weight": 50},
        {"pause": {"durationSeconds": 30}},
    ],
    "guard": {"durationSeconds": 0},
}


@pytest.fixture
async def outside(api_server: Server) -> AsyncIterator[Client]:
    async with Client(api_server.access) as client:
        yield client


async def begun(run: Run) -> tuple[str, str]:
    """A first revision that serves and another one asked for; their hashes."""
    first = words_hash(await run.simulation.create(rollout=ROLLOUT))
    await run.until(is_complete)
    await run.simulation.change(ANOTHER_K)
    return first, words_hash(await run.simulation.parent())


async def judged(outside: Client, simulation: Simulation) -> JudgedTrial:
    kept = await outside.get(CONFIG_MAP, "default", f"{simulation.name}{EVIDENCE_SUFFIX}")
    return JudgedTrial.model_validate_json(kept["data"][ASSESSMENT_KEY])


@pytest.mark.parametrize("crashing", [False, True], ids=["calm", "a crash after every write"])
async def test_copies_then_users_then_promotion(
    api_server: Server, outside: Client, crashing: bool
) -> None:
    async with CrashingClient(
        api_server.access, before=never, after=(lambda _: True) if crashing else never
    ) as client:
        run = Run(Simulation(outside, f"shadow{int(crashing)}"), client)
        first, second = await begun(run)
        status = await run.until(lambda s: s.get("canary", {}).get("shadowObservedAt"))
        assert status["canary"]["shadow"] == 50
        status = await run.until(lambda s: s.get("canary", {}).get("observedShadow"))
        assert (status["canary"]["observedShadow"], status["canary"]["weight"]) == (50, 0)
        await run.until(lambda s: s.get("canary", {}).get("weight"))
        if not crashing:
            # Users' requests were not looked at yet.
            seen = await judged(outside, run.simulation)
            assert (seen.candidate, seen.stage) == (second, "shadow")
            assert seen.candidate_requests > 0
        await run.until(lambda s: is_complete(s) and s["stable"]["hash"] == second)
        simulation = run.simulation
        assert simulation.copies_seen == [50, 0]
        assert simulation.weights_seen == [
            ((first, 100),),
            ((first, 100), (second, 0)),
            ((first, 50), (second, 50)),
            ((second, 100), (first, 0)),
            ((second, 100),),
        ]
        assert all(len(pods) == 1 for pods in simulation.pods_seen.values())
        assert not crashing or run.crashes > 20


async def test_a_canary_that_is_bad_at_copies_never_gets_a_user(
    api_server: Server, outside: Client
) -> None:
    async with CrashingClient(api_server.access, before=never, after=never) as client:
        run = Run(Simulation(outside, "shadow-bad"), client)
        first, second = await begun(run)
        run.simulation.acceptance[second] = 0.05
        status = await run.until(lambda s: is_complete(s) and s.get("failedRevisions"))
        assert status["stable"]["hash"] == first
        assert _failed(status) == [(second, "AcceptanceWorse")]
        seen = await judged(outside, run.simulation)
        assert (seen.stage, seen.metrics[0].outcome) == ("shadow", "Failed")
        assert run.simulation.copies_seen == [50, 0]
        weights: Any = run.simulation.weights_seen
        assert {dict(found).get(second, 0) for found in weights} == {0}
        assert weights[-1] == ((first, 100),)


def _failed(status: JSON) -> list[tuple[str, str]]:
    return [(entry["hash"], entry["reason"]) for entry in status["failedRevisions"]]
