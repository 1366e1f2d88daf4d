"""From an abort to the route, against a real API server: nothing else is waited for."""

from collections.abc import Iterable
from typing import Any

import pytest
from tests.cluster.envtest import Server
from tests.reconcile.simulation import JSON, Simulation
from tests.reconcile.test_rollout_on_server import (
    ANOTHER_K,
    CrashingClient,
    Run,
    is_complete,
    never,
    words_hash,
)

from speculative_api.labels import ABORT
from speculative_operator.cluster.client import Client
from speculative_operator.cluster.resources import Resource
from speculative_operator.metrics.source import Target

pytestmark = pytest.mark.cluster


class Recording(CrashingClient):
    """Remembers what was written, in order."""

    def __init__(self, server: Server) -> None:
        super().__init__(server.access, before=never, after=never)
        self.written: list[str] = []

    async def request(
        self, verb: str, resource: Resource, method: str, path: str, **settings: Any
    ) -> tuple[int, JSON]:
        answer = await super().request(verb, resource, method, path, **settings)
        if method != "GET":
            self.written.append(path.partition("/default/")[2])
        return answer


class Counting(Simulation):
    """Counts how often pods are asked."""

    asked = 0

    async def ask(self, targets: Iterable[Target]) -> None:
        await super().ask(targets)
        self.asked += 1


async def test_an_abort_asks_no_pod_and_writes_status_then_route(api_server: Server) -> None:
    async with Client(api_server.access) as outside, Recording(api_server) as operator:
        simulation = Counting(outside, "aborted")
        run = Run(simulation, operator)
        first = words_hash(await simulation.create())
        await run.until(is_complete)
        await simulation.change(ANOTHER_K)
        second = words_hash(await simulation.parent())
        await run.until(lambda s: s.get("canary", {}).get("weightObservedAt"))
        await simulation.change({"metadata": {"annotations": {ABORT: f"{second}@now"}}})
        await simulation.mirror(run.stores)
        operator.written.clear()
        asked = simulation.asked
        assert await run.reconciler.look(simulation.key) == 0
        assert simulation.asked == asked
        assert operator.written[:2] == [
            "speculativedeployments/aborted/status",
            "configmaps/aborted-route",
        ]
        assert any(path.startswith("events") for path in operator.written)
        status = await run.until(lambda s: is_complete(s) and s.get("failedRevisions"))
        assert status["stable"]["hash"] == first
        assert simulation.asked > asked
