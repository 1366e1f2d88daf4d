"""An Envoy that is played: for what an agent says and does between a write and its proof."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from speculative_gateway import storage
from speculative_gateway.admin import Admin, Host, Life
from speculative_gateway.agent import Agent
from speculative_gateway.configuration import content_digest, from_files
from speculative_gateway.settings import Settings


class PlayedEnvoy(Admin):
    """Uses every file at once, and says who it is when it is allowed to.

    With `shown`, it goes on with those routes whatever is written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started_at = 1.0
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.asked: list[str] = []
        self.shown: dict[str, Any] | None = None

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
        written = dict(from_files(storage.read(self.folder)).routes)
        return written if self.shown is None else self.shown

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

    async def statistics(self) -> dict[str, int]:
        return {}

    async def rejections(self) -> dict[str, int]:
        self.asked.append("rejections")
        return {}


@contextlib.asynccontextmanager
async def an_agent(settings: Settings) -> AsyncIterator[tuple[Agent, PlayedEnvoy]]:
    """A running agent of such an Envoy, which has seen nothing yet."""
    envoy = PlayedEnvoy(settings.xds)
    agent = Agent(settings, envoy)
    running = asyncio.create_task(agent.run())
    try:
        yield agent, envoy
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


async def until(holds: Callable[[], bool]) -> None:
    """Waits until the condition holds.

    Raises:
        TimeoutError: it never did.
    """
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.001)
