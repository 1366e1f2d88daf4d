"""What an abort waits for at a gateway: nothing but the file with the weights."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from speculative_api import gateway
from speculative_gateway import storage
from speculative_gateway.admin import Admin, Host, Life
from speculative_gateway.agent import Agent
from speculative_gateway.configuration import content_digest, from_files
from speculative_gateway.render import Endpoint
from speculative_gateway.settings import Settings
from speculative_gateway.source import Observation

STABLE, CANARY = "a" * 10, "b" * 10
ENDPOINTS = {"chat-a": (Endpoint("192.0.2.1"),), "chat-b": (Endpoint("192.0.2.2"),)}


class PlayedEnvoy(Admin):
    """Uses every file at once, and says who it is when it is allowed to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started_at = 1.0
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.asked: list[str] = []

    async def life(self) -> Life:
        self.asked.append("life")
        await self.may_answer.wait()
        return Life(started_at=self.started_at, draining=False)

    async def runtime(self) -> dict[str, str]:
        self.asked.append("runtime")
        text = storage.read(self.folder).get("rtds.json")
        layer = json.loads(text)["resources"][0]["layer"] if text else {}
        return {key: str(value) for key, value in layer.items()}

    async def routes(self) -> dict[str, Any]:
        return dict(from_files(storage.read(self.folder)).routes)

    async def tokens(self) -> dict[str, Any]:
        return dict(from_files(storage.read(self.folder)).tokens)

    async def cluster_digests(self) -> dict[str, str]:
        clusters = from_files(storage.read(self.folder)).clusters
        return {name: content_digest(each) for name, each in clusters.items()}

    async def hosts(self) -> dict[str, tuple[Host, ...]]:
        seen = from_files(storage.read(self.folder))
        return {
            name: tuple(Host(address, healthy=True) for address in seen.hosts(name))
            for name in seen.clusters
        }

    async def rejections(self) -> dict[str, int]:
        self.asked.append("rejections")
        return {}


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
    settings = Settings(directory=folder)
    envoy = PlayedEnvoy(settings.xds)
    agent = Agent(settings, envoy)
    agent.changed(an_observation(1, canary=50))
    running = asyncio.create_task(agent.run())
    await until(lambda: agent.ready)
    try:
        yield agent, envoy
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


async def until(holds: Any) -> None:
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.001)


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
