"""Status times garbled by hand: the rollout goes on, and the better time is stored once."""

import pytest
from tests.cluster.envtest import Server
from tests.reconcile.simulation import Simulation
from tests.reconcile.test_rollout_on_server import (
    ANOTHER_K,
    CrashingClient,
    Run,
    is_complete,
    never,
)

from speculative_operator.cluster.client import Client
from speculative_operator.cluster.resources import SPECULATIVE_DEPLOYMENT
from speculative_operator.rollout.times import moment

pytestmark = pytest.mark.cluster


async def test_a_garbled_step_begins_anew_and_ends(api_server: Server) -> None:
    async with (
        Client(api_server.access) as outside,
        CrashingClient(api_server.access, before=never, after=never) as client,
    ):
        run = Run(Simulation(outside, "garbled"), client)
        await run.simulation.create()
        await run.until(is_complete)
        await run.simulation.change(ANOTHER_K)
        status = await run.until(lambda s: (s.get("canary") or {}).get("weightObservedAt"))
        garbled = {"canary": {"stepStartedAt": "soon", "startedAt": "2999-01-01T00:00:00Z"}}
        await run.simulation._patch(
            SPECULATIVE_DEPLOYMENT, "garbled", {"status": garbled}, "status"
        )
        await run.passes()
        status = await run.simulation.status()
        assert moment(status["canary"]["stepStartedAt"]) == run.simulation.now
        assert moment(status["canary"]["startedAt"]) == run.simulation.now
        await run.until(lambda s: is_complete(s) and s["verdict"]["outcome"] == "GuardPassed")
