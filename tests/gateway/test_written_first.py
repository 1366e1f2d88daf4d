"""What an abort waits for at a gateway: nothing but the file with the weights."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.gateway.played_envoy import PlayedEnvoy, an_agent, until

from speculative_api import gateway
from speculative_gateway import storage
from speculative_gateway.agent import Agent
from speculative_gateway.configuration import from_files
from speculative_gateway.render import Endpoint
from speculative_gateway.settings import Settings
from speculative_gateway.source import Observation

STABLE, CANARY = "a" * 10, "b" * 10
ENDPOINTS = {"chat-a": (Endpoint("192.0.2.1"),), "chat-b": (Endpoint("192.0.2.2"),)}


def an_observation(sequence: int, canary: int) -> Observation:
    backends = tuple(
        gateway.Backend(hash=revision, service=service, weight=weight)
        for revision, service, weight in (
            (STABLE, "chat-a", 100 - canary),
            (CANARY, "chat-b", canary),
        )
    )
    route = gateway.Route(
        owner_uid="u", sequence=sequence, model="m", default=STABLE, backends=backends
    )
    return Observation(route=route.model_dump_json(by_alias=True), endpoints=ENDPOINTS)


@contextlib.asynccontextmanager
async def serving_half(folder: Path) -> AsyncIterator[tuple[Agent, PlayedEnvoy]]:
    """An agent whose Envoy was seen to give the canary one half."""
    async with an_agent(Settings(directory=folder)) as (agent, envoy):
        agent.changed(an_observation(1, canary=50))
        await until(lambda: agent.ready)
        yield agent, envoy


def weight_on_disk(folder: Path) -> int:
    return from_files(storage.read(folder / "xds")).weights[CANARY]


@pytest.mark.asyncio
async def test_the_weight_is_written_while_envoy_owes_an_answer(tmp_path: Path) -> None:
    async with serving_half(tmp_path) as (agent, envoy):
        envoy.may_answer.clear()
        agent.changed(an_observation(2, canary=0))
        await until(lambda: weight_on_disk(tmp_path) == 0)
        envoy.may_answer.set()
        await until(lambda: agent.ready and 'sequence": 2' in applied(tmp_path))


@pytest.mark.asyncio
async def test_who_answers_is_known_before_anything_is_read_back(tmp_path: Path) -> None:
    """Else what another life showed would count for this one."""
    async with serving_half(tmp_path) as (agent, envoy):
        envoy.asked.clear()
        agent.changed(an_observation(2, canary=0))
        await until(lambda: 'sequence": 2' in applied(tmp_path))
        assert envoy.asked.index("life") < envoy.asked.index("runtime")


def applied(folder: Path) -> str:
    return (folder / storage.APPLIED_FILE).read_text()
