"""What the API server refuses of a spec is said in status and stops nothing else."""

import itertools
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

from speculative_operator.cluster.client import Client
from speculative_operator.cluster.resources import DEPLOYMENT, JSON, Resource
from speculative_operator.errors import Refused

pytestmark = pytest.mark.cluster

_numbers = itertools.count()


@pytest.fixture
async def run(api_server: Server) -> AsyncIterator[Run]:
    async with (
        Client(api_server.access) as outside,
        CrashingClient(api_server.access, before=never, after=never) as client,
    ):
        yield Run(Simulation(outside, f"refused{next(_numbers)}"), client)


def accepted(status: JSON) -> tuple[str, str]:
    (found,) = [c for c in status["conditions"] if c["type"] == "Accepted"]
    return found["status"], found["message"]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"pod": {"affinity": {"foo": "bar"}}}, "affinity.foo: field not declared in schema"),
        ({"pod": {"tolerations": [{"key": 7654321}]}}, "expected string, got another type"),
        ({"pod": {"resources": {"limits": {"cpu": "much"}}}}, "quantities must match"),
        ({"pod": {"nodeSelector": {"a b": "c"}}}, 'nodeSelector: Invalid value: "a b"'),
        (
            {"gateway": {"service": {"annotations": {"a b": "c"}}}},
            'metadata.annotations: Invalid value: "a b"',
        ),
    ],
    ids=["unknown field", "wrong type", "no quantity", "no label", "service"],
)
async def test_the_servers_words_are_in_status_and_the_rest_is_made(
    run: Run, spec: dict[str, Any], words: str
) -> None:
    await run.simulation.create(**spec)
    await run.passes()
    state, message = accepted(await run.simulation.status())
    assert state == "False"
    assert words in message
    assert "7654321" not in message
    gateway = await run.simulation.client.get(
        DEPLOYMENT, "default", f"{run.simulation.name}-gateway"
    )
    assert gateway["spec"]["replicas"] == 1


async def test_evidence_that_can_not_be_kept_stops_no_rollout(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = run.client.request

    async def without_evidence(
        verb: str, resource: Resource, method: str, path: str, **settings: Any
    ) -> tuple[int, JSON]:
        named = str(settings.get("body", {}).get("metadata", {}).get("name"))
        if method != "GET" and named.endswith("-evidence"):
            raise Refused("exceeded quota: configmaps", 403)
        return await request(verb, resource, method, path, **settings)

    monkeypatch.setattr(run.client, "request", without_evidence)
    await run.simulation.create()
    await run.until(is_complete)
    await run.simulation.change(ANOTHER_K)
    second = words_hash(await run.simulation.parent())
    await run.until(lambda s: is_complete(s) and s["stable"]["hash"] == second)


async def test_a_canary_that_can_not_be_made_leaves_stable_alone(run: Run) -> None:
    first = words_hash(await run.simulation.create())
    await run.until(is_complete)
    await run.simulation.change({"spec": {"pod": {"affinity": {"foo": "bar"}}}})
    status = await run.until(lambda s: accepted(s)[0] == "False")
    assert status["stable"]["hash"] == first
    assert "affinity.foo" in status["message"]
    await run.simulation.change({"spec": {"replicas": 2, "pod": None}})
    status = await run.until(lambda s: is_complete(s) and s["stable"]["readyReplicas"] == 2)
    assert (status["stable"]["hash"], accepted(status)[0]) == (first, "True")
    assert not status.get("failedRevisions")
