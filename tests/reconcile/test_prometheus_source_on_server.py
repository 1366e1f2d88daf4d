"""Rollouts that are judged by what Prometheus scraped, against a real API server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from tests.cluster.envtest import Server
from tests.metrics.test_pages import series, vector
from tests.metrics.test_prometheus import FakePrometheus, a_client
from tests.reconcile.simulation import Simulation
from tests.reconcile.test_rollout_on_server import (
    ANOTHER_K,
    CrashingClient,
    Run,
    is_complete,
    never,
    words_hash,
)

from speculative_operator.cluster.client import Client
from speculative_operator.cluster.resources import JSON, POD
from speculative_operator.metrics.pages import Pages

pytestmark = pytest.mark.cluster

STEPS = {"steps": [{"weight": 50}, {"pause": {"durationSeconds": 120}}]}


class Unasked(Simulation):
    """Its workers are not to be asked."""

    def digest(self, uid: str) -> Any:
        raise AssertionError("a worker was asked")


class Judging(Run):
    """The operator with a Prometheus that knows the engines of the simulation."""

    async def passes(self) -> None:
        await super().passes()
        if self.pages is not None:
            await self.pages.answered()


async def scraped(simulation: Simulation) -> list[dict[str, Any]]:
    found = []
    for pod in await simulation.mine(POD):
        count = simulation.counts.get(pod["metadata"]["uid"])
        if count is None:
            continue
        figures = {
            "vllm:request_success_total": count.requests,
            "vllm:generation_tokens_total": count.generated,
            "vllm:spec_decode_num_drafts_total": count.generated - count.accepted,
            "vllm:spec_decode_num_draft_tokens_total": count.accepted + 1,
            "vllm:spec_decode_num_accepted_tokens_total": count.accepted,
            "vllm:num_requests_running": 1,
            "vllm:num_requests_waiting": 0,
        }
        name = pod["metadata"]["name"]
        found += [series(k, str(v), name, engine="0") for k, v in figures.items()]
    return found


@asynccontextmanager
async def judging(api_server: Server, name: str) -> AsyncIterator[tuple[Judging, FakePrometheus]]:
    fake = FakePrometheus()
    async with (
        Client(api_server.access) as outside,
        CrashingClient(api_server.access, before=never, after=never) as client,
        a_client(fake) as (queries, address),
    ):
        simulation = Unasked(outside, name)

        async def answer(_: web.Request) -> web.StreamResponse:
            if fake.status != 200:
                return web.Response(status=fake.status)
            return web.json_response(vector(*await scraped(simulation)))

        fake.handler = answer
        clock = lambda: simulation.now.timestamp()  # noqa: E731
        async with Pages(queries, clock=clock) as pages:
            run = Judging(simulation, client)
            run.pages = pages
            run.reconciler = run.a_new_process()
            server = {"address": address}
            analysis = {"source": "Prometheus", "prometheus": server, "periodSeconds": 15}
            await simulation.create(rollout={**STEPS, "analysis": analysis})
            await run.until(is_complete)
            await simulation.change(ANOTHER_K)
            yield run, fake


async def test_a_worse_canary_is_rolled_back_by_what_prometheus_knows(api_server: Server) -> None:
    async with judging(api_server, "promworse") as (run, fake):
        canary = words_hash(await run.simulation.parent())
        run.simulation.acceptance[canary] = 0.05
        status = await run.until(lambda s: is_complete(s) and s.get("failedRevisions"))
        assert status["failedRevisions"][0]["reason"] == "AcceptanceWorse"
        assert all("chat" not in text and "promworse-" in text for text, _ in fake.asked)


async def test_while_prometheus_is_away_time_advances_nothing(api_server: Server) -> None:
    async with judging(api_server, "promaway") as (run, fake):
        await run.until(lambda s: s.get("canary", {}).get("step") == 1)
        fake.status = 503

        def held(status: JSON) -> object:
            return status.get("canary", {}).get("held")

        status = await run.until(held)
        assert status["canary"]["held"] == "AnalysisInconclusive"
        progressing = next(c for c in status["conditions"] if c["type"] == "Progressing")
        assert "Prometheus answered 503" in progressing["message"]
        fake.status = 200
        canary = status["canary"]["hash"]
        await run.until(lambda s: s["stable"]["hash"] == canary)
