"""Many rollouts at once, each looked at every 5 s: a part of `bench.scale`.

Every resource has a stable revision, a canary with half of the traffic that
everything speaks neither for nor against, and a gateway; their answers come from
`bench.played_pods`. Then, once all are promoted or none is, the same world idle.
"""

import asyncio
import time
from collections.abc import Callable
from functools import partial

from bench.operator_process import Operator, until
from bench.played_pods import PlayedPods
from bench.scale_world import CREATORS, a_parent, in_parallel

from speculative_operator.cluster.client import MERGE_PATCH, Client
from speculative_operator.cluster.resources import JSON, SPECULATIVE_DEPLOYMENT

MEASURED_SECONDS = 60.0
ROLLOUT: JSON = {
    "steps": [{"weight": 50}, {"pause": {}}],
    "analysis": {"periodSeconds": 5},
    "guard": {"durationSeconds": 0},
}


async def rollouts(client: Client, operator: Operator, count: int) -> dict[str, dict[str, float]]:
    """What the operator needs for so many, idle first and then with a canary each."""
    names = [f"chat-{number}" for number in range(count)]
    async with PlayedPods(client, "operated"):

        async def create(name: str) -> None:
            body = a_parent("operated", name, rollout=ROLLOUT)
            await client.create(SPECULATIVE_DEPLOYMENT, body)

        await in_parallel((partial(create, name) for name in names), CREATORS)
        await until(lambda: _all(client, count, _serves), every=2.0)
        idle = await _measured(operator)
        path = SPECULATIVE_DEPLOYMENT.path
        patch = {"spec": {"speculation": {"numSpeculativeTokens": 6}}}

        async def edit(name: str) -> None:
            await client.request(
                "edit",
                SPECULATIVE_DEPLOYMENT,
                "PATCH",
                path("operated", name),
                body=patch,
                content_type=MERGE_PATCH,
            )

        await in_parallel((partial(edit, name) for name in names), CREATORS)
        await until(lambda: _all(client, count, _is_judged), every=2.0)
        return {"idle with pods": idle, "rollouts": await _measured(operator)}


async def _all(client: Client, count: int, question: Callable[[JSON], bool]) -> bool:
    parents, _ = await client.list_all(SPECULATIVE_DEPLOYMENT, "operated")
    return len(parents) == count and all(question(p.get("status") or {}) for p in parents)


def _serves(status: JSON) -> bool:
    states = {c["type"]: c["status"] for c in status.get("conditions", ())}
    return states.get("Available") == "True" and states.get("GatewayReady") == "True"


def _is_judged(status: JSON) -> bool:
    return bool((status.get("canary") or {}).get("weightObservedAt"))


async def _measured(operator: Operator) -> dict[str, float]:
    """After a pause in which what was begun ends."""
    await asyncio.sleep(10)
    began, cpu = time.monotonic(), operator.cpu_seconds()
    passes, writes, reads = operator.passes(), operator.writes(), operator.reads()
    await asyncio.sleep(MEASURED_SECONDS)
    seconds = time.monotonic() - began
    return {
        "cpu_percent": 100 * (operator.cpu_seconds() - cpu) / seconds,
        "passes_per_second": (operator.passes() - passes) / seconds,
        "writes_per_second": (operator.writes() - writes) / seconds,
        "reads_per_second": (operator.reads() - reads) / seconds,
        "rss_mib": operator.rss_mib(),
    }
